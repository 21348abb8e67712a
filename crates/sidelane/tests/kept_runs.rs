//! Tests of runs that `--out` keeps, and of `sidelane report` for them.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::agent::SIDELANE;
use common::redis::busy_redis;
use common::{process, wait_until};
use serde_json::Value;
use tempfile::TempDir;

fn sidelane(dir: &Path, line: &str) -> Output {
    Command::new(SIDELANE)
        .args(line.split(' '))
        .current_dir(dir)
        .stdin(Stdio::null())
        .output()
        .expect("sidelane starts")
}

#[track_caller]
fn succeeds(dir: &Path, line: &str) -> String {
    let output = sidelane(dir, line);
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[track_caller]
fn is_refused(dir: &Path, line: &str, why: &str) {
    let output = sidelane(dir, line);
    // Errors fit the terminal, so a text can be on two lines.
    let said = String::from_utf8_lossy(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(!output.status.success() && said.contains(why), "{line}: {said}");
}

fn json(path: impl AsRef<Path>) -> Value {
    let path = path.as_ref();
    let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns a directory with two kept runs of the simulator, `a` and `b`, of two variants.
fn two_simulations() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let scenario = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/scenarios/elfen-fig11.toml");
    fs::copy(&scenario, dir.path().join("a.toml")).unwrap();
    fs::copy(&scenario, dir.path().join("b.toml")).unwrap();
    for (name, seed) in [("a", 1), ("b", 2)] {
        succeeds(dir.path(), &format!("sim {name}.toml --quick --seed {seed} --out {name}"));
    }
    dir
}

#[test]
fn runs_of_two_variants_get_ratios_a_table_and_a_page() {
    let dir = two_simulations();
    let said = succeeds(dir.path(), "report a b --json both.json --page both.html --csv both.csv");
    assert!(said.contains("The options differ: SCENARIO a.toml and SCENARIO b.toml."), "{said}");
    assert!(said.lines().next().unwrap().starts_with("P99"), "{said}");
    let result = json(dir.path().join("both.json"));
    assert!(result["ratios"][0]["lines"].as_array().unwrap().len() > 5);
    assert_eq!(result["rows"][0]["pairs_count"], 1);
    assert!(fs::read_to_string(dir.path().join("both.html")).unwrap().contains("class=\"chart ratios\""));
    let alone = succeeds(dir.path(), "report a -v");
    assert!(alone.contains("lucene+loop/borrow-idle"), "{alone}");
}

#[test]
fn directory_has_resolved_options_machine_and_state() {
    let dir = two_simulations();
    let head = json(dir.path().join("a/run.json"));
    assert_eq!(
        (&head["state"], &head["verb"], &head["options"]["--seed"]),
        (&"complete".into(), &"sim".into(), &"1".into())
    );
    assert!(head["machine"]["kernel"].is_string() && head["options"].get("--out").is_none());
    assert_eq!(json(dir.path().join("a/result.json"))["settings"]["simulated"], true);
}

#[test]
fn nothing_in_a_directory_is_lost_by_a_wrong_out() {
    let dir = two_simulations();
    let before = fs::read(dir.path().join("a/result.json")).unwrap();
    is_refused(dir.path(), "sim a.toml --quick --out a", "cannot keep the run in a: it has the run of");
    assert_eq!(fs::read(dir.path().join("a/result.json")).unwrap(), before);
    is_refused(dir.path(), "sim a.toml --quick --out .", "it has files that are no run");
    is_refused(dir.path(), "sim a.toml --quick --out a.toml", "cannot keep the run in a.toml");
    assert!(dir.path().join("a.toml").is_file());
}

#[test]
fn failed_run_says_so_and_can_be_repeated() {
    let dir = two_simulations();
    fs::write(dir.path().join("wrong.toml"), "nothing = 1").unwrap();
    is_refused(dir.path(), "sim wrong.toml --out c", "wrong.toml");
    is_refused(dir.path(), "report a c", "cannot compare the run in c: it failed");
    succeeds(dir.path(), "sim a.toml --quick --out c");
    succeeds(dir.path(), "report a c");
}

#[test]
fn report_refuses_what_is_no_run_and_options_of_logs() {
    let dir = two_simulations();
    fs::create_dir(dir.path().join("empty")).unwrap();
    is_refused(dir.path(), "report a empty", "cannot read the run in empty: run.json");
    is_refused(dir.path(), "report a a", "cannot compare a with itself");
    is_refused(dir.path(), "report a b --slo p99=1ms", "cannot use --slo with a");
    is_refused(dir.path(), "report a.toml b.toml", "cannot compare a.toml: it is no directory of a run");
    is_refused(dir.path(), "report a --against gone", "cannot read the run in gone");
}

#[test]
fn runs_of_a_real_redis_are_compared_whatever_was_changed() {
    let Some((_turn, server, _client)) = busy_redis() else { return };
    let dir = tempfile::tempdir().unwrap();
    let port = server.address().port();
    for name in ["before-1", "after-1", "before-2", "after-2"] {
        succeeds(dir.path(), &format!("requests --service port:{port} --for 300ms --out {name}"));
    }
    let said = succeeds(dir.path(), "report after-1 after-2 --against before-1 before-2 --json both.json");
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.starts_with("Latency p99 of after is ") && said.contains("in 2 pairs of runs"), "{said}");
    assert!(said.contains("Options and machine are the same."), "{said}");
    let result = json(dir.path().join("both.json"));
    assert_eq!(result["notes"], Value::Array(Vec::new()), "taken in turns");
    let curves = result["curves"].as_array().unwrap().len();
    assert_eq!(curves, 6, "latency, server time and queueing of both");
    assert_eq!(result["series"][0]["signals"].as_array().unwrap().len(), 4);
    let kept = json(dir.path().join("before-1/result.json"));
    let counts = kept["histograms"][0]["counts"].as_array().unwrap();
    let count: u64 = counts.iter().map(|pair| pair[1].as_u64().unwrap()).sum();
    assert_eq!(Some(count), kept["rows"][0]["requests_count"].as_u64());
}

#[test]
fn run_keeps_decisions_time_line_and_histograms() {
    let Some((_turn, server, _client)) = busy_redis() else { return };
    let dir = tempfile::tempdir().unwrap();
    let service = format!("port:{}", server.address().port());
    let batch = [
        "-q",
        "--service",
        &service,
        "--lanes",
        "0:1",
        "--out",
        "kept",
        "--",
        "sh",
        "-c",
        "timeout 1 yes >/dev/null; true",
    ];
    let output =
        Command::new(SIDELANE).arg("run").args(batch).current_dir(dir.path()).output().expect("sidelane starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let audit = fs::read_to_string(dir.path().join("kept/audit.jsonl")).unwrap();
    assert!(audit.lines().count() > 2 && audit.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()));
    let result = json(dir.path().join("kept/result.json"));
    let names: Vec<&str> = result["series"][0]["signals"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|signal| signal["name"].as_str())
        .collect();
    assert_eq!(names, ["batch", "service"]);
    assert!(!result["histograms"].as_array().unwrap().is_empty());
    let options = &json(dir.path().join("kept/run.json"))["options"];
    assert_eq!(options["COMMAND"][0], "sh");
    assert!(options["--gate"].is_string(), "defaults are resolved");
}

#[test]
fn killed_run_leaves_a_directory_that_says_so() {
    let Some((_turn, server, _client)) = busy_redis() else { return };
    let dir = tempfile::tempdir().unwrap();
    let line = format!("requests --service port:{} --for 100s --out kept", server.address().port());
    let mut command = Command::new(SIDELANE);
    let command = command.args(line.split(' ')).current_dir(dir.path()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = process::kill_with_test(command).spawn().expect("sidelane starts");
    wait_until("the run has begun", || dir.path().join("kept/run.json").exists());
    is_refused(dir.path(), "report kept", "it still goes on");
    is_refused(dir.path(), &line, "another run writes into it");
    child.kill().unwrap();
    child.wait().unwrap();
    is_refused(dir.path(), "report kept", "cannot compare the run in kept: it was broken off");
}

/// Program of Debian's package `chromium`.
const BROWSER: &str = "chromium";
/// Script that a page of the test has in addition. It works every control of the page, and writes what it finds into the
/// document.
const PROBE: &str = r#"<script>
const found = { errors: [] };
addEventListener('error', (event) => found.errors.push(event.message));
addEventListener('load', () => setTimeout(() => {
  for (const button of document.querySelectorAll('.tools button')) button.click();
  for (const canvas of document.querySelectorAll('canvas')) {
    canvas.dispatchEvent(new WheelEvent('wheel', { deltaY: -400, offsetX: 200, cancelable: true }));
    canvas.dispatchEvent(new PointerEvent('pointermove', { clientX: 300, clientY: 300 }));
    canvas.dispatchEvent(new KeyboardEvent('keydown', { key: '+' }));
  }
  for (const chart of document.querySelectorAll('svg.chart[tabindex]'))
    chart.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowLeft' }));
  found.canvases = document.querySelectorAll('canvas').length;
  found.curves = document.querySelectorAll('#curves svg.chart path.curve').length;
  found.ratios = document.querySelectorAll('.ratios circle').length;
  found.zoomed = [...document.querySelectorAll('.tools output')].map((output) => output.textContent);
  found.overflow = document.documentElement.scrollWidth - innerWidth;
  found.paper = getComputedStyle(document.body).backgroundColor;
  const place = document.createElement('pre');
  place.id = 'probe';
  place.textContent = JSON.stringify(found);
  document.body.append(place);
}, 200));
</script>"#;

/// Opens a page in a headless browser of this width, in the light or the dark theme. Returns what the probe has found,
/// and the console of the browser.
fn probe_in_browser(page: &Path, width: u32, is_dark: bool) -> (Value, String) {
    let profile = tempfile::tempdir().unwrap();
    let output = Command::new("timeout")
        .args(["--kill-after=5", "90", BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"])
        .args(["--enable-logging=stderr", "--virtual-time-budget=4000"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("--window-size={width},1400"))
        .arg(format!("--blink-settings=preferredColorScheme={}", if is_dark { 0 } else { 1 }))
        .arg(format!("file://{}", page.display()))
        .output()
        .expect("timeout starts");
    let (html, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let (_, after) = html.split_once("<pre id=\"probe\">").unwrap_or_else(|| panic!("no probe: {log}\n{html:.2000}"));
    let found = after.split_once("</pre>").expect("the element ends").0;
    let console = log.lines().filter(|line| line.contains("CONSOLE")).collect::<Vec<_>>().join("\n");
    (serde_json::from_str(found).unwrap(), console)
}

#[test]
fn page_works_in_a_browser_in_both_themes_and_narrow_windows() {
    if !Command::new(BROWSER).arg("--version").output().is_ok_and(|output| output.status.success()) {
        return sidelane_testing::skip("needs a browser: apt-get install chromium");
    }
    let Some((_turn, server, _client)) = busy_redis() else { return };
    let dir = tempfile::tempdir().unwrap();
    let port = server.address().port();
    for name in ["before-1", "after-1"] {
        succeeds(dir.path(), &format!("requests --service port:{port} --for 500ms --out {name}"));
    }
    succeeds(dir.path(), "report after-1 --against before-1 --page page.html");
    let page = dir.path().join("page.html");
    let html = fs::read_to_string(&page).unwrap();
    let (before, after) = html.rsplit_once("<script>").expect("the page has a script");
    fs::write(&page, format!("{before}{PROBE}\n<script>{after}")).unwrap();
    let mut papers = Vec::new();
    for (width, is_dark) in [(1280, false), (1280, true), (500, false)] {
        let (found, console) = probe_in_browser(&page, width, is_dark);
        println!("{width} px, dark {is_dark}: {found}");
        assert_eq!((found["errors"].as_array().map(Vec::len), console.as_str()), (Some(0), ""), "{found}");
        assert_eq!((&found["curves"], &found["canvases"]), (&6.into(), &5.into()), "{found}");
        assert!(found["ratios"].as_u64() > Some(3), "{found}");
        assert!(found["overflow"].as_i64() <= Some(0), "the page scrolls sideways: {found}");
        let zoomed = found["zoomed"][0].as_str().unwrap().to_owned();
        assert!(zoomed.contains(" from "), "{found}");
        papers.push(found["paper"].clone());
    }
    assert_ne!(papers[0], papers[1], "the themes differ");
}

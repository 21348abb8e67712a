//! Tests of `sidelane compare` on real services under load. Its measurements depend on the machine, so tests only check
//! its output, its files and what it leaves behind.

mod common;

use std::fs;
use std::path::Path;

use common::agent::{SIDELANE, batch_processes};
use common::client::Client;
use common::lanes::{LANES, REQUEST_LANE};
use common::redis::{busy_redis, traceable_redis};
use common::{
    Finished, Footprint, Run, SPIN, Service, can_observe_requests, lab_binary_path, lock_lanes, process, wait_until,
};
use sidelane_host::procfs::state;
use sidelane_lab::bench::workload::RealServer;
use sidelane_lab::programs::LabBinary;
use sidelane_report::{ResultFile, Verdict};

const UNDECIDED: i32 = 3;
const INTERRUPTED: i32 = 130;
const FAILURE: i32 = 125;
/// Options for the shortest possible run: tests do not check its measurements.
const SHORT: [&str; 4] = ["--round", "300ms", "--settle", "100ms"];
const BATCH: [&str; 3] = ["sh", "-c", SPIN];

fn compare(target: &str) -> Run {
    Run::with_arguments(&["compare", "--lanes", LANES, "--service", target]).with_more_arguments(&SHORT)
}

fn server_target(server: &RealServer) -> String {
    format!("port:{}", server.address().port())
}

/// Fails unless the finding, the checks and the exit code agree. The finding begins with a broken promise if there is
/// one, and only then.
#[track_caller]
fn check_finding_and_exit_code(run: &Finished, result: &ResultFile) {
    let (code, beginning) = match result.outcome() {
        Verdict::Holds => (0, "Worth it: "),
        Verdict::Missed => (1, "Not worth it here: "),
        Verdict::Undecided => (UNDECIDED, "Undecided: "),
    };
    assert_eq!(run.code, Some(code), "{run}");
    let wanted = match result.settings.contains_key("broken_promise") {
        true => vec!["promise broken: ", beginning],
        false => vec![beginning],
    };
    let found = result.finding();
    assert_eq!(found.len(), wanted.len(), "{run}");
    assert!(found.iter().zip(&wanted).all(|(finding, beginning)| finding.starts_with(beginning)), "{run}");
    assert!(run.stdout.starts_with(wanted[0]) && run.stdout.lines().any(|line| line.starts_with(beginning)), "{run}");
}

#[track_caller]
fn check_result_is_complete(result: &ResultFile) {
    let settings: Vec<&str> = result.rows.iter().map(|row| row.setting()).collect();
    assert_eq!(settings, ["alone", "unmanaged", "sidelane"]);
    for row in &result.rows {
        let measured = ["p50_us", "p50_over_alone", "requests_per_s", "requests_count"];
        measured.iter().for_each(|key| assert!(row.get(key).is_some(), "{key}: {row:?}"));
        assert!(row.keys().any(|key| key == "p99_over_alone"), "{row:?}");
    }
    for row in &result.rows[1..] {
        let measured = ["batch_cpu_per_minute_s", "batch_work_per_s", "overlap_percent"];
        measured.iter().for_each(|key| assert!(row.get(key).is_some(), "{key}: {row:?}"));
    }
    assert_eq!(result.checks.len() - usize::from(result.checks.len() > 4), 4, "{:?}", result.checks);
    assert_eq!(result.curves.len(), 3);
}

#[test]
fn a_search_service_beside_an_emulated_sibling_gets_a_verdict() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(lab) = lab_binary_path().filter(|_| can_observe_requests()) else { return };
    let lab = LabBinary::with_path(lab);
    let before = Footprint::capture();
    let dir = tempfile::tempdir().unwrap();
    let sibling =
        lab.start(["sibling", "--lanes", LANES, "--slowdown", "service:batch=1.67,batch:service=1.4"]).unwrap();
    let (index, queries) = create_search_index(&lab, dir.path());
    let service = lab.start(["serve", "--index", &index, "--port", "0", "--cpu", REQUEST_LANE]).unwrap();
    let target = format!("127.0.0.1:{}", service.ready_number("port").unwrap());
    let client = Client::start(&lab, "search", &target, &["--queries", &queries]);
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (json, page, done) = (path("result.json"), path("page.html"), path("done"));
    let count = format!("i=0; while :; do i=$((i+1)); echo $i >{done}.new; mv {done}.new {done}; done");

    let run = compare(&format!("pid:{}", service.pid()))
        .with_more_arguments(&["--json", &json, "--page", &page, "--rounds", "6"]);
    let run = run.with_more_arguments(&["--work-counter", &done]).run_to_end(&["sh", "-c", &count]);
    let result: ResultFile = serde_json::from_str(&fs::read_to_string(&json).expect("there is a result")).unwrap();
    check_finding_and_exit_code(&run, &result);
    check_result_is_complete(&result);
    assert!(fs::read_to_string(&page).unwrap().contains("class=\"finding\""));
    drop((client, service, sibling));
    before.wait_until_restored();
}

/// Creates a text of invented words, its search index and queries. Returns the paths of the index and the queries.
fn create_search_index(lab: &LabBinary, dir: &Path) -> (String, String) {
    let path = |name: &str| dir.join(name).display().to_string();
    let (text, index, queries) = (path("text"), path("index"), path("queries"));
    fs::create_dir(&text).unwrap();
    let word =
        |number: usize| number.to_string().bytes().map(|digit| (digit - b'0' + b'k') as char).collect::<String>();
    let paragraph = |number: usize| {
        let words: Vec<String> = (0..60).map(|place| word((number * 7 + place * place) % 400)).collect();
        words.join(" ")
    };
    let paragraphs: Vec<String> = (0..500).map(paragraph).collect();
    fs::write(format!("{text}/words.txt"), paragraphs.join("\n\n")).unwrap();
    lab.run(["index", "--corpus-dir", &text, "--out", &index]).unwrap();
    lab.run(["queries", "--index", &index, "--out", &queries, "--seed", "7", "--count", "200"]).unwrap();
    (index, queries)
}

#[test]
fn ctrl_c_leaves_nothing_behind_and_reports_the_rounds_so_far() {
    let Some((_turn, server, _client)) = busy_redis() else { return };
    let before = Footprint::capture();
    let mut run = compare(&server_target(&server)).start(&BATCH);
    run.wait_until("batch ran", |_| !batch_processes().is_empty());
    run.signal(libc::SIGINT);
    let run = run.wait_for_end().expect_exit_code(INTERRUPTED);
    assert!(run.stdout.starts_with("Undecided: it was ended after 0 rounds, and 6 are needed"), "{run}");
    before.wait_until_restored();
    assert_eq!(process::allowed_cpus(server.pid()).as_deref(), Some(REQUEST_LANE));
}

#[test]
fn a_killed_comparison_leaves_nothing_behind() {
    let Some((_turn, server, _client)) = busy_redis() else { return };
    let before = Footprint::capture();
    let mut run = compare(&server_target(&server)).start(&BATCH);
    run.wait_until("batch ran", |_| !batch_processes().is_empty());
    run.kill();
    before.wait_until_restored();
    assert!(process::is_alive(server.pid()));
}

#[test]
fn early_end_of_batch_is_reported() {
    let Some((_turn, server, _client)) = busy_redis() else { return };
    let before = Footprint::capture();
    let short = compare(&server_target(&server)).run_to_end(&["sh", "-c", "exit 0"]).expect_exit_code(UNDECIDED);
    assert!(short.stdout.starts_with("Undecided: the batch command ended"), "{short}");
    let failing = compare(&server_target(&server)).run_to_end(&["sh", "-c", "exit 7"]).expect_exit_code(FAILURE);
    assert_eq!(failing.expect_stderr_contains(&["exit code 7", "SIGTERM"]).stdout, "");
    before.wait_until_restored();
}

#[test]
fn output_of_batch_is_kept_apart_from_the_verdict() {
    let Some((_turn, server, _client)) = busy_redis() else { return };
    let chatty = compare(&server_target(&server)).with_more_arguments(&["--rounds", "1"]).run_to_end(&[
        "sh",
        "-c",
        "while :; do echo word; done",
    ]);
    assert!(chatty.expect_exit_code(UNDECIDED).stdout.starts_with("Undecided: "));
    let counter = ["--rounds", "1", "--work-counter", "/nonexistent/count"];
    let without =
        compare(&server_target(&server)).with_more_arguments(&counter).run_to_end(&BATCH).expect_exit_code(FAILURE);
    assert_eq!(without.expect_stderr_contains(&["cannot read the work counter", "/nonexistent/count"]).stdout, "");
}

#[test]
fn a_service_without_requests_is_an_error_that_says_what_to_do() {
    let Some((_turn, _lab, server)) = traceable_redis() else { return };
    let before = Footprint::capture();
    let run = compare(&server_target(&server)).run_to_end(&BATCH).expect_exit_code(FAILURE);
    assert_eq!(
        run.expect_stderr_contains(&["answered no request", "a load at a fixed rate", "sidelane requests"]).stdout,
        ""
    );
    before.wait_until_restored();
}

#[test]
fn errors_of_run_are_reported_at_once_by_compare() {
    let Some(_turn) = lock_lanes() else { return };
    if !can_observe_requests() {
        return;
    }
    let idle = Service::idle();
    compare(&idle.target())
        .run_to_end(&BATCH)
        .expect_exit_code(FAILURE)
        .expect_stderr_contains(&["listens on no TCP port"]);
    let roaming = Service::start_sleeping_on_both_lanes();
    let several =
        compare(&roaming.target()).with_more_arguments(&["--page", "/no/such/directory/page", "--gate", "freezer"]);
    let several = several.with_more_arguments(&["--max-slowdown", "1%"]).run_to_end(&BATCH).expect_exit_code(FAILURE);
    several.expect_stderr_contains(&["3 problems:", "taskset", "2. cannot keep --max-slowdown", "/no/such/directory"]);
    roaming.must_be_unharmed("0-1");
    compare("port:1").run_to_end(&BATCH).expect_exit_code(FAILURE).expect_stderr_contains(&["port 1", "ss -ltnp"]);
}

#[test]
fn error_suggests_a_working_command() {
    let Some((_turn, lab, server)) = traceable_redis() else { return };
    drop(lab);
    process::set_process_affinity(server.pid(), "0-1");
    let run = compare(&server_target(&server)).run_to_end(&BATCH).expect_exit_code(FAILURE);
    run.expect_stderr_contains(&[&format!(
        "try: {SIDELANE} compare --pin-service --lanes {LANES} --service {}",
        server_target(&server)
    )]);
}

#[test]
fn a_dry_run_says_what_would_be_compared_and_does_nothing() {
    let Some((_turn, _lab, server)) = traceable_redis() else { return };
    let before = Footprint::capture();
    let run = compare(&server_target(&server))
        .with_more_arguments(&["--dry-run"])
        .run_to_end(&["no-such-command"])
        .expect_exit_code(0);
    for words in ["alone, beside unmanaged batch (ordinary)", &server_target(&server), "gate holder"] {
        assert!(run.stdout.contains(words), "no `{words}` in: {run}");
    }
    before.wait_until_restored();
}

#[test]
fn ctrl_z_also_stops_batch_until_the_run_continues() {
    let Some((_turn, server, _client)) = busy_redis() else { return };
    let long = ["compare", "--lanes", LANES, "--round", "10s", "--service", &server_target(&server)];
    let mut run = Run::with_arguments(&long).start(&BATCH);
    run.wait_until("batch ran", |_| !batch_processes().is_empty());
    let batch = batch_processes()[0];
    run.signal(libc::SIGTSTP);
    wait_until("sidelane was stopped", || state(&format!("/proc/{}/stat", run.pid())) == Some('T'));
    wait_until("batch was frozen", || !process::wants_cpu(batch));
    let frozen_at_ticks = process::cpu_ticks(batch);
    run.signal(libc::SIGCONT);
    wait_until("batch went on", || process::cpu_ticks(batch) > frozen_at_ticks);
    run.signal(libc::SIGINT);
    run.wait_for_end().expect_exit_code(INTERRUPTED);
}

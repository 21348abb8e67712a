//! Tests of `sidelane observe` on real programs: `runtime/c/examples/phases.c`, which goes through three phases and
//! counts.

mod common;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use common::agent::SIDELANE;
use common::{lock_lanes_if_available, process, wait_until};
use serde_json::Value;
use tempfile::TempDir;

/// Least CPU time, in clock ticks, of an observer that has surely made observations.
const LOOKED_TICKS: u64 = 20;

/// Compiled example program `phases.c`.
struct Phases {
    dir: TempDir,
}

impl Phases {
    /// Compiles the example program `phases.c`. Without a compiler, prints a message and returns `None`.
    fn build() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../runtime/c/examples/phases.c");
        let strict = ["-O2", "-Wall", "-Wextra", "-Werror"];
        let Ok(status) = Command::new("cc").args(strict).arg("-o").arg(dir.path().join("phases")).arg(source).status()
        else {
            sidelane_testing::skip("there is no compiler cc here");
            return None;
        };
        assert!(status.success());
        Some(Self { dir })
    }

    fn program(&self) -> PathBuf {
        self.dir.path().join("phases")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn observe(&self, args: &[&str]) -> Command {
        let mut command = Command::new(SIDELANE);
        command.arg("observe").args(args);
        command
    }

    /// Observes the example program, started with the arguments `program_args`. Returns the output and the result.
    fn run_observe(&self, args: &[&str], program_args: &[&str]) -> (Output, Value) {
        let json = self.file("result.json");
        let mut command = self.observe(args);
        command.arg("--json").arg(&json).arg("--").arg(self.program()).args(program_args);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        (output, serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap())
    }
}

fn row<'a>(result: &'a Value, setting: &str) -> &'a Value {
    let rows = result["rows"].as_array().unwrap();
    rows.iter().find(|row| row["setting"] == setting).unwrap_or_else(|| panic!("no row {setting} in {rows:?}"))
}

fn notes(result: &Value) -> String {
    result["notes"].as_array().unwrap().iter().map(|note| note.as_str().unwrap()).collect::<Vec<_>>().join("\n")
}

fn stderr_text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn tags_have_time_shares_and_counters_have_rates() {
    let _turn = lock_lanes_if_available();
    let Some(phases) = Phases::build() else { return };
    let args = ["--signal", "tag:phases.phase,counter:phases.done,cpc", "--cpu", "0", "--observer-cpu", "1"];
    let (output, result) =
        phases.run_observe(&[&args[..], &["--for", "1s", "--period", "5000cycles"]].concat(), &["2000"]);
    let mut shares = 0.0;
    for phase in ["read", "work", "write"] {
        let share = row(&result, &format!("phases.phase: {phase}"))["share_percent"].as_f64().unwrap();
        assert!(share > 0.0, "{phase}: {share} %");
        shares += share;
    }
    assert!((shares - 100.0).abs() < 1.0, "all of the time is one of the three: {shares} %");
    let cpc = row(&result, "rate of cpc");
    assert!(cpc["min_ratio"].as_f64().unwrap() >= 0.99 && cpc["max_ratio"].as_f64().unwrap() <= 1.01, "{cpc}");
    assert!(row(&result, "rate of phases.done")["mean_per_s"].as_f64().unwrap() > 0.0);
    assert!(row(&result, "observer")["samples_count"].as_f64().unwrap() > 0.0);
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(shown.lines().next().unwrap().starts_with("phases.phase is "), "{shown}");
    assert!(shown.contains("write") && !shown.contains('█'), "{shown}");
}

#[test]
fn single_tag_is_observed_at_the_highest_rate() {
    let _turn = lock_lanes_if_available();
    let Some(phases) = Phases::build() else { return };
    let args = ["--signal", "tag:phases.phase", "--progress", "counter:phases.done", "--cpu", "0", "--for", "1s"];
    let mut observer = Value::Null;
    // A pause in which a busy machine ran another program than the target does not count.
    wait_until("the target ran in a pause of the observer", || {
        observer = row(&phases.run_observe(&args, &["2000"]).1, "observer").clone();
        observer["slowdown_pairs_count"].as_f64().is_some_and(|pairs| pairs >= 1.0)
    });
    // The watching loop reads many times for each reading of the clock; the sampling loop reads the clock in each
    // sample.
    const READS_A_LOOK: u64 = 1024;
    let reads = observer["samples_count"].as_f64().unwrap() as u64;
    assert!(reads > 0 && reads.is_multiple_of(READS_A_LOOK), "{observer}");
}

#[test]
fn samples_are_kept_when_the_target_ends() {
    let _turn = lock_lanes_if_available();
    let Some(phases) = Phases::build() else { return };
    let (_, result) = phases.run_observe(&["--signal", "tag:phases.phase", "--for", "60s"], &["2000", "0.3"]);
    assert!(notes(&result).contains("the target ended"), "{}", notes(&result));
    assert!(row(&result, "observer")["samples_count"].as_f64().unwrap() > 0.0);
}

#[test]
fn replayed_log_gives_the_same_observation() {
    let _turn = lock_lanes_if_available();
    let Some(phases) = Phases::build() else { return };
    let (log, again) = (phases.file("log"), phases.file("again.json"));
    let args = ["--signal", "tag:phases.phase,counter:phases.done", "--period", "20us", "--for", "500ms", "--log"];
    let (_, result) = phases.run_observe(&[&args[..], &[log.to_str().unwrap()]].concat(), &["2000"]);
    let trace = phases.file("trace");
    let mut report = Command::new(SIDELANE);
    report.arg("report").arg(&log).arg("--json").arg(&again).arg("--perfetto").arg(&trace);
    let output = report.output().unwrap();
    assert!(output.status.success(), "{}", stderr_text(&output));
    let trace = std::fs::read(&trace).unwrap();
    // The trace begins with field 1, a packet. Unit tests check its contents.
    assert_eq!(trace[0], 0x0a);
    assert!(trace.windows(12).any(|bytes| bytes == b"phases.phase"), "{} bytes", trace.len());
    let replayed: Value = serde_json::from_slice(&std::fs::read(&again).unwrap()).unwrap();
    for (setting, key) in [("observer", "samples_count"), ("phases.phase: work", "reads_count")] {
        assert_eq!(row(&replayed, setting)[key], row(&result, setting)[key], "{setting}");
    }
    let part = Command::new(SIDELANE).arg("report").arg(&log).args(["--from", "9s"]).output().unwrap();
    assert!(stderr_text(&part).contains("has no sample between --from and --to"), "{}", stderr_text(&part));
}

#[test]
fn full_disk_ends_only_the_log() {
    let _turn = lock_lanes_if_available();
    let Some(phases) = Phases::build() else { return };
    let (disk, json) = (phases.file("disk"), phases.file("result.json"));
    std::fs::create_dir(&disk).unwrap();
    // The log is on a file system in a separate mount namespace; it is copied out before the namespace ends.
    let script = "mount -t tmpfs -o size=6m none \"$1\" || exit 77; \"$2\" observe --signal tag:phases.phase,counter:phases.done \
                  --for 2s --log \"$1/log\" --json \"$3\" -- \"$4\" 2000 || exit; cp \"$1/log\" \"$5\"";
    let kept = phases.file("kept");
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script, "sh"]).arg(&disk).arg(SIDELANE).arg(&json).arg(phases.program()).arg(&kept);
    let output = command.output().unwrap();
    if output.status.code() != Some(0) && !json.exists() {
        sidelane_testing::skip(format!("no mount namespace of our own here: {}", stderr_text(&output)));
        return;
    }
    let result: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert!(notes(&result).contains("ends early") && notes(&result).contains("free some space"), "{}", notes(&result));
    assert!(row(&result, "observer")["samples_count"].as_f64().unwrap() > 0.0);
    let again = Command::new(SIDELANE).arg("report").arg(&kept).output().unwrap();
    assert!(again.status.success(), "what was written before is read: {}", stderr_text(&again));
}

#[test]
fn a_running_target_goes_on_after_an_interrupt() {
    let _turn = lock_lanes_if_available();
    let Some(phases) = Phases::build() else { return };
    let mut target = KilledOnDrop(Command::new(phases.program()).arg("2000").stdout(Stdio::null()).spawn().unwrap());
    let pid = format!("pid:{}", target.0.id());
    let mut observer = phases.observe(&["--service", &pid, "--signal", "tag:phases.phase"]);
    observer.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut observer = observer.spawn().unwrap();
    let mut first = String::new();
    BufReader::new(observer.stderr.take().unwrap()).read_line(&mut first).unwrap();
    let (pid, before) = (observer.id(), process::cpu_ticks(observer.id()));
    wait_until("it had looked for a while", || process::cpu_ticks(pid) > before + LOOKED_TICKS);
    rustix::process::kill_process(rustix::process::Pid::from_child(&observer), rustix::process::Signal::INT).unwrap();
    let output = observer.wait_with_output().unwrap();
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("phases.phase"), "a histogram at Ctrl-C");
    assert!(target.0.try_wait().unwrap().is_none(), "the target runs on");
}

struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn errors_of_observe_list_the_available_signals() {
    let Some(phases) = Phases::build() else { return };
    let failing = |args: &[&str], of: &[&str]| {
        let output = phases.observe(args).arg("--").arg(phases.program()).args(of).output().unwrap();
        assert!(!output.status.success(), "{args:?}");
        stderr_text(&output)
    };
    let error = failing(&["--signal", "tag:phases.face"], &["2000"]);
    assert!(error.contains("emits no signal `phases.face`; choose one of phases.phase, phases.done"), "{error}");
    let error = failing(&["--signal", "tag:phases.phase", "--cpu", "0", "--observer-cpu", "0"], &["2000"]);
    assert!(error.contains("would never run at the same time"), "{error}");
    let error = failing(&["--signal", "tag:phases.phase", "--observer-cpu", "999"], &["2000"]);
    assert!(error.contains("cannot use CPU 999 (--observer-cpu)"), "{error}");
    let error = failing(&["--signal", "phase"], &["2000"]);
    assert!(error.contains("`phase` is not a signal"), "{error}");
    let error = failing(&["--signal", "tag:x", "--period", "fast"], &["2000"]);
    assert!(error.contains("`fast` is not a period"), "{error}");
    let nothing = Command::new(SIDELANE).args(["observe", "--signal", "cpc"]).output().unwrap();
    assert!(
        stderr_text(&nothing).contains("name a service with --service, or put a command after --"),
        "{}",
        stderr_text(&nothing)
    );
    let silent = Command::new(SIDELANE).args(["observe", "--signal", "tag:x", "--", "sleep", "0.1"]).output().unwrap();
    assert!(
        stderr_text(&silent).contains("sleep ended before it emitted `x`; name a signal that it emits at its start"),
        "{}",
        stderr_text(&silent)
    );
    let report = Command::new(SIDELANE).args(["report", env!("CARGO_MANIFEST_PATH")]).output().unwrap();
    assert!(stderr_text(&report).contains("it is not a log of `sidelane observe`"), "{}", stderr_text(&report));
}

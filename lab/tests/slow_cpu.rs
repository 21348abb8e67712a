//! Tests of a CPU that is made slow, and of programs on it, as real processes on CPUs 0 and 1. They need root.

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use common::emulation::{Emulation, Worker, reserve_test_lanes};
use common::{lab_command, run_failing};
use serde_json::Value;

const USAGE: i32 = 2;
/// Command that makes CPU 1 run at speed 0.4, and the share of time that programs lose there.
const SLOW: [&str; 5] = ["slow-cpu", "--cpu", "1", "--speed", "0.4"];
const LOST: f64 = 0.6;
const NO_STEAL: [&str; 6] = ["slow-cpu", "--cpu", "1", "--speed", "0.4", "--no-steal"];

/// Length of the longest scheduler tick of any kernel configuration.
const TICK_NS: u64 = 10_000_000;

fn report(cpu: &mut Emulation) -> Value {
    serde_json::from_str(&cpu.query("report")).unwrap()
}

fn figure(cpu: &mut Emulation, key: &str) -> u64 {
    let report = report(cpu);
    report[key].as_u64().unwrap_or_else(|| panic!("{key} in {report}"))
}

/// Waits until the report's figure `key` is at least `minimum`.
fn wait_for_figure(cpu: &mut Emulation, key: &str, minimum: u64) {
    while figure(cpu, key) < minimum {
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn program_loses_time_on_the_slow_cpu_only() {
    let Some(_turn) = reserve_test_lanes() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut slow = Emulation::start(&NO_STEAL);
    let with_slow_cpu = ["--sibling", &slow.at.clone()];
    let fast = Worker::start(folder.path(), "0", &with_slow_cpu);
    fast.wait_for_units(1_000);
    assert_eq!(figure(&mut slow, "spun_ns"), 0, "on another CPU");

    let worker = Worker::start(folder.path(), "1", &with_slow_cpu);
    wait_for_figure(&mut slow, "spun_ns", 10_000_000);
    assert_eq!(figure(&mut slow, "taken_ns"), 0, "there is no steal emulator");

    assert_eq!(slow.query("off"), "off");
    // Waits until more units are done: a worker that was spinning when the emulation was switched off adds its spun
    // time later.
    worker.wait_for_units(1_000);
    let spun_ns = figure(&mut slow, "spun_ns");
    worker.wait_for_units(1_000);
    assert_eq!(figure(&mut slow, "spun_ns"), spun_ns);

    assert_eq!(slow.query("on 0.9"), "on");
    wait_for_figure(&mut slow, "spun_ns", 1);
    assert_eq!(report(&mut slow)["asked"], 0.9);
}

/// Returns the CPU time of a process so far, by the scheduler's account, which may be one tick old.
fn cpu_ns(child: &Child) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/schedstat", child.id())).unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn moved_request_loses_only_for_its_time_on_the_slow_cpu() {
    let Some(_turn) = reserve_test_lanes() else { return };
    let mut slow = Emulation::start(&NO_STEAL);
    let pulse = ["pulse", "--cpu", "1", "--busy-us", "1000000", "--idle-us", "0", "--count", "1", "--sibling"];
    let mut request = lab_command(&pulse).arg(&slow.at).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(request.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let began_ns = cpu_ns(&request) + TICK_NS;
    while cpu_ns(&request) < began_ns + 50_000_000 {
        thread::sleep(Duration::from_millis(1));
    }
    let there_ns = cpu_ns(&request) - began_ns;
    let mut taskset = Command::new("taskset");
    taskset.args(["-p", "-c", "0", &request.id().to_string()]).stdout(Stdio::null());
    assert!(taskset.status().unwrap().success());
    assert!(request.wait().unwrap().success());

    let report = report(&mut slow);
    let [spun_ns, worked_ns] = ["spun_ns", "worked_ns"].map(|key| report[key].as_u64().unwrap());
    assert!(spun_ns as f64 >= LOST * there_ns as f64, "it was there for {there_ns} ns: {report}");
    // A hypervisor may take the CPU during the spin. That time counts as spun, so the test bounds it only by the
    // working time.
    assert!(spun_ns <= worked_ns, "charged for its time on CPU 0: {report}");
}

#[test]
fn steal_emulator_slows_unmodified_programs() {
    let Some(_turn) = reserve_test_lanes() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut slow = Emulation::start(&SLOW);
    let worker = Worker::start(folder.path(), "1", &[]);
    wait_for_figure(&mut slow, "taken_ns", 100_000_000);
    let report = report(&mut slow);
    let (worked_ns, taken_ns) = (report["worked_ns"].as_u64().unwrap(), report["taken_ns"].as_u64().unwrap());
    assert!(taken_ns < worked_ns && report["slices"].as_u64() > Some(0), "{report}");
    assert_eq!(report["spun_ns"], 0, "{report}");
    worker.wait_for_units(100);
}

#[test]
fn a_slow_cpu_that_is_killed_leaves_nothing_behind() {
    let Some(_turn) = reserve_test_lanes() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut slow = Emulation::start(&SLOW);
    let worker = Worker::start(folder.path(), "1", &["--sibling", &slow.at.clone()]);
    wait_for_figure(&mut slow, "spun_ns", 1);
    drop(slow);
    // Waits until more units are done: the worker works on after it has noticed that the emulation is gone.
    worker.wait_for_units(1_000);
    let mut next = Emulation::start(&SLOW);
    // Only the new steal emulator takes time: the worker has the address of the old emulation, and does not spin.
    wait_for_figure(&mut next, "taken_ns", 1);
    assert_eq!(figure(&mut next, "spun_ns"), 0);
}

#[test]
fn slow_cpu_ends_with_its_parent_and_reports_the_speed() {
    let Some(_turn) = reserve_test_lanes() else { return };
    let mut shell = Command::new("sh");
    shell.args(["-c", "\"$@\" <&0 & read -r _; kill -9 $$", "sh", env!("CARGO_BIN_EXE_sidelane-lab")]).args(SLOW);
    shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut shell = shell.spawn().unwrap();
    let mut said = BufReader::new(shell.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert!(line.starts_with("ready pid="), "{line}");
    drop(shell.stdin.take());
    let output = shell.wait_with_output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.starts_with("CPU 1: ") && told.contains("asked 0.4"), "{told}");
}

#[test]
fn invalid_cpu_and_speed_are_refused() {
    for (speed, why) in [("0", "between 0.1 and 1"), ("1.5", "between 0.1 and 1"), ("fast", "not a number")] {
        let said = run_failing(lab_command(&["slow-cpu", "--cpu", "1", "--speed", speed]), USAGE);
        assert!(said.contains(why), "{said}");
    }
    run_failing(lab_command(&["slow-cpu", "--speed", "0.4"]), USAGE);
    let Some(_turn) = reserve_test_lanes() else { return };
    for more in [&[][..], &["--no-steal"]] {
        let said = run_failing(lab_command(&[&["slow-cpu", "--cpu", "900", "--speed", "0.4"], more].concat()), 125);
        assert!(said.contains("CPU 900"), "{said}");
    }
}

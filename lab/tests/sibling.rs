//! Tests of the emulated sibling, and of programs that spin for their lost time, as real processes on CPUs 0 and 1.
//! They need root.

mod common;

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::emulation::{Emulation, Worker, reserve_test_lanes};
use common::{lab_command, run_failing};
use serde_json::Value;

const SERVICE: usize = 0;
const BATCH: usize = 1;
const USAGE: i32 = 2;
const NAPS: usize = 20_000;

/// Process of `sidelane-lab sibling` that runs until dropped.
struct Sibling {
    emulation: Emulation,
    at: String,
}

impl Sibling {
    fn start(args: &[&str]) -> Self {
        let emulation = Emulation::start(&[&["sibling", "--lanes", "0:1"], args].concat());
        Self { at: emulation.at.clone(), emulation }
    }

    fn query(&mut self, question: &str) -> String {
        self.emulation.query(question)
    }

    fn figure(&mut self, lane: usize, key: &str) -> u64 {
        let report: Value = serde_json::from_str(&self.query("report")).unwrap();
        report[lane][key].as_u64().unwrap_or_else(|| panic!("{key} in {report}"))
    }

    /// Waits until the report's figure `key` for `lane` is above 0.
    fn wait_for_figure(&mut self, lane: usize, key: &str) {
        while self.figure(lane, key) == 0 {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn programs_lose_the_requested_time_only_beside_a_sibling() {
    let Some(_turn) = reserve_test_lanes() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut sibling = Sibling::start(&["--steal", "none"]);
    let with_sibling = ["--sibling", &sibling.at.clone()];
    let workers = ["0", "1"].map(|cpu| Worker::start(folder.path(), cpu, &with_sibling));
    let idle = sibling.figure(SERVICE, "spun_ns");
    assert_eq!(idle, 0, "before it was switched on");

    assert_eq!(sibling.query("on service:batch=1.5"), "on");
    sibling.wait_for_figure(SERVICE, "spun_ns");
    sibling.wait_for_figure(BATCH, "both_ns");
    assert_eq!(sibling.figure(BATCH, "spun_ns"), 0, "batch was not asked to lose anything");
    assert_eq!(sibling.figure(SERVICE, "taken_ns"), 0, "there is no steal emulator");

    assert_eq!(sibling.query("off"), "off");
    // Waits until more units are done: a worker that was spinning when the emulation was switched off adds its spun
    // time later.
    workers.iter().for_each(|worker| worker.wait_for_units(1_000));
    let spun_ns = sibling.figure(SERVICE, "spun_ns");
    workers.iter().for_each(|worker| worker.wait_for_units(1_000));
    assert_eq!(sibling.figure(SERVICE, "spun_ns"), spun_ns);

    assert_eq!(sibling.query("on batch:service=1.5"), "on");
    sibling.wait_for_figure(BATCH, "spun_ns");
    assert_eq!(sibling.figure(SERVICE, "spun_ns"), 0, "a generation starts at 0");
}

#[test]
fn steal_emulator_slows_unmodified_programs() {
    let Some(_turn) = reserve_test_lanes() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut sibling = Sibling::start(&["--slowdown", "service:batch=2,batch:service=1.5"]);
    let workers = ["0", "1"].map(|cpu| Worker::start(folder.path(), cpu, &[]));
    for lane in [SERVICE, BATCH] {
        sibling.wait_for_figure(lane, "taken_ns");
        assert_eq!(sibling.figure(lane, "spun_ns"), 0);
    }
    workers.iter().for_each(|worker| worker.wait_for_units(100));
}

#[test]
fn killed_sibling_leaves_nothing_behind() {
    let Some(_turn) = reserve_test_lanes() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut sibling = Sibling::start(&["--slowdown", "service:batch=2"]);
    let with_sibling = ["--sibling", &sibling.at.clone()];
    let workers = ["0", "1"].map(|cpu| Worker::start(folder.path(), cpu, &with_sibling));
    sibling.wait_for_figure(SERVICE, "spun_ns");
    drop(sibling);
    workers.iter().for_each(|worker| worker.wait_for_units(1_000));
    let mut next = Sibling::start(&["--slowdown", "service:batch=2"]);
    // Only the steal emulator of the new sibling takes time: the workers have the address of the old sibling, and do
    // not spin.
    next.wait_for_figure(SERVICE, "taken_ns");
    assert_eq!(next.figure(SERVICE, "spun_ns"), 0);
}

/// Uses CPU 1 for half a second in SCHED_FIFO, and then sleeps [`NAPS`] times.
fn run_real_time_naps(naps: &AtomicUsize) {
    // SAFETY: plain system calls on structs of this function, for the calling thread.
    let is_placed = unsafe {
        let mut cpus: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(1, &mut cpus);
        libc::sched_setaffinity(0, size_of_val(&cpus), &cpus) == 0
            && libc::sched_setscheduler(0, libc::SCHED_FIFO, &libc::sched_param { sched_priority: 1 }) == 0
    };
    assert!(is_placed, "{}", std::io::Error::last_os_error());
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(500) {}
    while naps.fetch_add(1, Ordering::Relaxed) < NAPS {
        thread::sleep(Duration::from_micros(50));
    }
}

#[test]
fn hidden_switches_never_decrease_a_stopwatch() {
    let Some(_turn) = reserve_test_lanes() else { return };
    let folder = tempfile::tempdir().unwrap();
    let began = Instant::now();
    let mut sibling = Sibling::start(&["--steal", "none", "--slowdown", "service:batch=2"]);
    let _batch = Worker::start(folder.path(), "1", &[]);
    sibling.wait_for_figure(BATCH, "worked_ns");
    let naps = AtomicUsize::new(0);
    thread::scope(|scope| {
        scope.spawn(|| run_real_time_naps(&naps));
        let mut before_ns = 0;
        while naps.load(Ordering::Relaxed) < NAPS {
            let worked_ns = sibling.figure(BATCH, "worked_ns");
            let most_ns = began.elapsed().as_nanos() as u64;
            // Allows for one context switch that the kernel hides from the tracer. The work before that switch may be
            // missing, but no more than 0.2 s of it.
            let least_ns = u64::saturating_sub(before_ns, 200_000_000);
            assert!((least_ns..=most_ns).contains(&worked_ns), "{worked_ns} ns after {before_ns} ns of {most_ns} ns");
            before_ns = worked_ns;
        }
    });
}

/// Returns how long each CPU was idle, in nanoseconds, as the kernel counts it.
fn idle_ns() -> [u64; 2] {
    let stat = std::fs::read_to_string("/proc/stat").unwrap();
    let of = |cpu: &str| {
        let line = stat.lines().find(|line| line.starts_with(cpu)).expect("a line for each CPU");
        let ticks: u64 = line.split_whitespace().skip(4).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum();
        ticks * 10_000_000
    };
    ["cpu0 ", "cpu1 "].map(of)
}

#[test]
fn idle_lane_does_not_count_as_working() {
    let Some(_turn) = reserve_test_lanes() else { return };
    let (before, began) = (idle_ns(), Instant::now());
    let mut sibling = Sibling::start(&["--steal", "none", "--slowdown", "service:batch=2"]);
    // Waits at most 10 s for idle time: on a busy machine the check is weaker.
    let was_idle = || (0..2).all(|cpu| idle_ns()[cpu] - before[cpu] >= 1_000_000_000);
    while !was_idle() && began.elapsed() < Duration::from_secs(10) {
        thread::sleep(Duration::from_millis(10));
    }
    for lane in [SERVICE, BATCH] {
        let worked_ns = sibling.figure(lane, "worked_ns");
        let not_idle_ns = (began.elapsed().as_nanos() as u64).saturating_sub(idle_ns()[lane] - before[lane]);
        assert!(worked_ns <= not_idle_ns + 100_000_000, "CPU {lane} worked {worked_ns} ns of {not_idle_ns} ns");
    }
}

#[test]
fn invalid_lanes_and_slowdowns_are_refused() {
    run_failing(lab_command(&["sibling", "--lanes", "0"]), USAGE);
    let usage = run_failing(lab_command(&["sibling", "--lanes", "0:1", "--slowdown", "batch:batch=2"]), USAGE);
    assert!(usage.contains("service:batch"), "{usage}");
    let same = run_failing(lab_command(&["sibling", "--lanes", "0:0"]), 125);
    assert!(same.contains("two lanes"), "{same}");
    let gone = run_failing(
        lab_command(&[
            "pulse",
            "--cpu",
            "0",
            "--busy-us",
            "1",
            "--idle-us",
            "1",
            "--count",
            "1",
            "--sibling",
            "1:9999",
        ]),
        125,
    );
    assert!(gone.contains("no emulated sibling"), "{gone}");
}

/// Returns the number of page faults of a process so far, without those that read a disk.
fn minor_page_faults(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(7)?.parse().ok()).expect("minflt")
}

#[test]
fn preloaded_program_makes_page_faults_while_it_spins() {
    let Some(_turn) = reserve_test_lanes() else { return };
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("preload.so");
    let slowdown = "service:batch=2";
    let preload = ["--preload", library.to_str().unwrap(), "--steal", "none", "--slowdown", slowdown, "--stand-in"];
    let mut sibling = Sibling::start(&preload);
    let mut writer = Command::new("taskset");
    writer.args(["-c", "0", "dd", "if=/dev/zero", "of=/dev/null", "bs=64"]).stderr(Stdio::null());
    writer.env("LD_PRELOAD", &library).env("SIDELANE_LAB_SIBLING", &sibling.at);
    let mut writer = writer.spawn().unwrap();
    let _batch = Worker::start(folder.path(), "1", &[]);
    sibling.wait_for_figure(SERVICE, "spun_ns");
    let (before, spun_ns) = (minor_page_faults(writer.id()), sibling.figure(SERVICE, "spun_ns"));
    while sibling.figure(SERVICE, "spun_ns") < spun_ns + 50_000_000 {
        thread::sleep(Duration::from_millis(1));
    }
    // Requires only 100 page faults, since stolen time can make one fault as long as several milliseconds.
    let more = minor_page_faults(writer.id()) - before;
    let goes_on = writer.try_wait().unwrap().is_none();
    writer.kill().and_then(|()| writer.wait()).unwrap();
    assert!(goes_on && more > 100, "{more} page faults in 50 ms");
}

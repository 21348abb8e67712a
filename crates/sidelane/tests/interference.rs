//! Tests of interference as the kernel program counts it, with page faults in place of stalls: which crossings are
//! noticed, in which order, and for which service. Times are not checked.

mod common;

use std::rc::Rc;
use std::time::{Duration, Instant};

use common::{lab_binary_path, lock_lanes, wait_until};
use sidelane_host::cpulist::CpuSet;
use sidelane_host::events::Formula;
use sidelane_host::service::Service as Tracked;
use sidelane_host::topology::Lanes;
use sidelane_lab::programs::{LabBinary, LabProcess};
use sidelane_tracker::interference::{Crossing, Interference, InterferenceError, Windows};
use sidelane_tracker::tracker::{Purpose, Tracker};
use sidelane_tracker::tracking::{LaneUse, ServiceTracking};

const CPU: u32 = 0;
/// Formula that counts page faults per nanosecond.
const FAULTS: &str = "page-faults / task-clock";
/// Threshold of five faults in a window of 50 µs. A service that only faults causes more, and a calm service causes at
/// most two.
const THRESHOLD: f64 = 1e-4;
/// Longest wait for the kernel program to report a crossing, far longer than that takes.
const TIMEOUT: Duration = Duration::from_secs(60);

fn cpus() -> CpuSet {
    [CPU].into_iter().collect()
}

fn tracker() -> Rc<Tracker> {
    let purpose = Purpose::Share { requests: false, interference: true, lent: None };
    Rc::new(Tracker::load(purpose, false).unwrap())
}

fn start(lab: &LabBinary, idle_us: &str) -> LabProcess {
    lab.start(["faults", "--cpu", "0", "--busy-us", "300", "--idle-us", idle_us]).unwrap()
}

/// Counts interference beside the process `pid` as the service. The second argument of `script` returns whether the
/// kernel has reported all switches up to now: counts around a hidden switch belong to no service.
fn with_interference(pid: u32, script: impl FnOnce(&mut Interference, &dyn Fn() -> bool)) {
    let tracker = tracker();
    let mut interference = Interference::open(&Formula::parse(FAULTS).unwrap(), &cpus(), &tracker).unwrap();
    let lanes = Lanes::without_batch_lanes(cpus());
    let tracking = ServiceTracking::start(&tracker, &Tracked::of_process(pid), &lanes, LaneUse::default()).unwrap();
    tracker.attach().unwrap();
    interference.set_threshold(CPU, Some(THRESHOLD));
    script(&mut interference, &|| tracker.memory().accounting().sum(|lane| lane.untold) == 0);
    drop(tracking);
}

/// Waits until `count` more windows have a value.
fn wait_for_windows(interference: &Interference, count: u64) {
    let so_far = || interference.counts(CPU).windows;
    let before = so_far();
    wait_until("windows have values", || so_far() >= before + count);
}

/// Waits for a crossing of the threshold in this direction.
fn wait_for_crossing(interference: &mut Interference, above: bool) -> Crossing {
    let mut found = None;
    while found.is_none() {
        let told = |crossing: Crossing| found = Some(crossing).filter(|crossing| crossing.above == above);
        assert!(interference.wait_for_crossing(TIMEOUT, told).unwrap(), "waited in vain for the wakeup");
    }
    found.unwrap()
}

/// Returns the number with this key in an answer of the service.
fn parse_answer_number(answer: &str, key: &str) -> u64 {
    let value = answer.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {key} in `{answer}`"))
}

/// Checks that the faults of a service are noticed, and their end. The service has pauses of `idle_us`; it is calm,
/// faults, and is calm again.
fn faults_are_noticed(lab: &LabBinary, idle_us: &str) {
    let mut service = start(lab, idle_us);
    // The first turn also causes page faults for the service's own code. So one turn is made before the counting
    // begins.
    service.query("fault").unwrap();
    service.query("rest").unwrap();
    with_interference(service.pid(), |interference, all_told| {
        wait_for_windows(interference, 200);
        let before = interference.counts(CPU);
        let mut crossings = 0;
        interference.report_crossings(|crossing| crossings += crossing.times);
        assert_eq!(crossings, 0, "a calm service crosses no threshold: {before:?}");

        let onset_ns = parse_answer_number(&service.query("fault").unwrap(), "onset_ns");
        let up = wait_for_crossing(interference, true);
        assert!(up.at_ns >= onset_ns, "crossed at {} before the onset at {onset_ns}", up.at_ns);
        assert!(interference.last_reading(CPU).is_some());
        wait_for_windows(interference, 20);
        assert!(interference.take_peak(CPU).unwrap() >= THRESHOLD);

        let faults = parse_answer_number(&service.query("rest").unwrap(), "faults");
        let mut down = wait_for_crossing(interference, false);
        wait_for_windows(interference, 20);
        // Steal time can make a window look calm while the service still faults, so the last crossing counts.
        interference.report_crossings(|crossing| down = crossing);
        assert!(!down.above && down.value < THRESHOLD && down.at_ns > up.at_ns, "{up:?}, {down:?}");
        let counted = interference.counts(CPU);
        let seen = counted.service[0] - before.service[0];
        assert!(seen >= faults || !all_told(), "{faults} faults, {counted:?}");
        assert_eq!((counted.failed_reads, counted.away_ns), (0, 0));
        assert!(counted.service_ns > before.service_ns);
    });
}

#[test]
fn faults_of_a_never_idle_service_are_noticed_at_ticks() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(lab) = lab_binary_path() else { return };
    faults_are_noticed(&LabBinary::with_path(lab), "0");
}

/// Each tick is an interrupt on the service's CPU. The context switch at the end of a short turn comes before the next
/// tick.
#[test]
fn service_with_short_turns_has_few_ticks() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(lab) = lab_binary_path() else { return };
    let service =
        LabBinary::with_path(lab).start(["faults", "--cpu", "0", "--busy-us", "20", "--idle-us", "100"]).unwrap();
    with_interference(service.pid(), |interference, _| {
        wait_until("its counters were read at ten thousand turns", || interference.counts(CPU).reads >= 20_000);
        let counted = interference.counts(CPU);
        assert!(counted.ticks + counted.vain_ticks < counted.reads / 8, "{counted:?}");
    });
}

/// Reading the counters would be nearly half of the cost of a switch. If the machine stretches a turn to a window (50
/// µs), the next turn is counted, too.
#[test]
fn undisturbed_service_is_counted_once_a_millisecond() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(lab) = lab_binary_path() else { return };
    let mut service =
        LabBinary::with_path(lab).start(["faults", "--cpu", "0", "--busy-us", "20", "--idle-us", "100"]).unwrap();
    with_interference(service.pid(), |interference, _| {
        wait_for_windows(interference, 20);
        interference.set_tick(CPU, None);
        let (before, began) = (interference.counts(CPU), Instant::now());
        wait_for_windows(interference, 100);
        let (counted, took) = (interference.counts(CPU), began.elapsed());
        let turns = (counted.reads - before.reads) / 2;
        let stretched = (counted.service_ns - before.service_ns) / 50_000;
        // The service has a turn each 120 µs.
        assert!(turns <= took.as_millis() as u64 + 2 + stretched, "{turns} turns in {took:?}: {before:?}, {counted:?}");

        service.query("fault").unwrap();
        wait_for_crossing(interference, true);
        service.query("rest").unwrap();
        wait_for_crossing(interference, false);
    });
}

#[test]
fn faults_of_a_service_with_pauses_are_noticed() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(lab) = lab_binary_path() else { return };
    faults_are_noticed(&LabBinary::with_path(lab), "700");
}

#[test]
fn without_a_threshold_no_crossing_is_reported() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(lab) = lab_binary_path() else { return };
    let mut service = start(&LabBinary::with_path(lab), "700");
    with_interference(service.pid(), |interference, _| {
        wait_for_windows(interference, 20);
        interference.set_threshold(CPU, None);
        // A window that ended before this line may still have been compared with the removed threshold.
        wait_for_windows(interference, 2);
        interference.report_crossings(|_| ());
        service.query("fault").unwrap();
        wait_until("it faults", || interference.current_value(CPU).is_some_and(|value| value >= THRESHOLD));
        wait_for_windows(interference, 20);
        assert!(!interference.wait_for_crossing(Duration::ZERO, |_| ()).unwrap());
        assert!(interference.take_peak(CPU).unwrap() >= THRESHOLD);

        interference.set_threshold(CPU, Some(THRESHOLD));
        assert!(wait_for_crossing(interference, true).value >= THRESHOLD);
    });
}

#[test]
fn value_above_threshold_is_reported_before_the_window_ends() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(lab) = lab_binary_path() else { return };
    let mut service = start(&LabBinary::with_path(lab), "700");
    let tracker = tracker();
    // The window is longer than any wait of the test.
    let window = Duration::from_secs(4);
    let windows = Windows { window, window_max: 1000 * TIMEOUT, ..Windows::default() };
    let formula = Formula::parse(FAULTS).unwrap();
    let mut interference = Interference::open_with_windows(&formula, windows, &cpus(), &tracker).unwrap();
    let lanes = Lanes::without_batch_lanes(cpus());
    let tracked = Tracked::of_process(service.pid());
    let _tracking = ServiceTracking::start(&tracker, &tracked, &lanes, LaneUse::default()).unwrap();
    tracker.attach().unwrap();
    // The threshold is a thousand faults, which the service causes within milliseconds.
    interference.set_threshold(CPU, Some(1000.0 / window.as_nanos() as f64));
    service.query("fault").unwrap();
    let up = wait_for_crossing(&mut interference, true);
    let counted = interference.counts(CPU);
    assert!(up.times == 1 && Duration::from_nanos(counted.service_ns) < window, "{counted:?}");
}

#[test]
fn events_of_other_programs_are_not_counted() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(lab) = lab_binary_path() else { return };
    let lab = LabBinary::with_path(lab);
    let (service, mut other) = (start(&lab, "700"), start(&lab, "700"));
    with_interference(service.pid(), |interference, all_told| {
        wait_for_windows(interference, 20);
        interference.report_crossings(|_| ());
        let before = interference.counts(CPU);
        other.query("fault").unwrap();
        wait_until("others have made many faults", || interference.counts(CPU).others[0] >= before.others[0] + 1000);
        let faults = parse_answer_number(&other.query("rest").unwrap(), "faults");
        wait_for_windows(interference, 20);
        let counted = interference.counts(CPU);
        let seen = counted.others[0] - before.others[0];
        assert!(seen >= faults || !all_told(), "{faults} faults, {counted:?}");
        assert_eq!(counted.service[0], before.service[0]);
        interference.report_crossings(|crossing| panic!("{crossing:?}"));
    });
}

#[test]
fn unread_crossings_wake_the_reader_once() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(lab) = lab_binary_path() else { return };
    let mut service = start(&LabBinary::with_path(lab), "0");
    with_interference(service.pid(), |interference, _| {
        wait_for_windows(interference, 20);
        interference.report_crossings(|_| ());
        for _ in 0..3 {
            service.query("fault").unwrap();
            wait_until("it faults", || interference.current_value(CPU).is_some_and(|value| value >= THRESHOLD));
            service.query("rest").unwrap();
            wait_until("it rests", || interference.current_value(CPU).is_some_and(|value| value < THRESHOLD));
        }
        let mut told = Vec::new();
        assert!(interference.wait_for_crossing(TIMEOUT, |crossing| told.push(crossing)).unwrap());
        assert!(told.len() == 1 && told[0].times >= 6 && !told[0].above, "{told:?}");
        assert!(!interference.wait_for_crossing(Duration::ZERO, |_| ()).unwrap(), "it rings once");
    });
}

#[test]
fn window_without_events_has_no_value() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(lab) = lab_binary_path() else { return };
    let service = start(&LabBinary::with_path(lab), "700");
    let tracker = tracker();
    // No process here causes such faults.
    let formula = Formula::parse("page-faults / major-faults").unwrap();
    let interference = Interference::open(&formula, &cpus(), &tracker).unwrap();
    let lanes = Lanes::without_batch_lanes(cpus());
    let _tracking =
        ServiceTracking::start(&tracker, &Tracked::of_process(service.pid()), &lanes, LaneUse::default()).unwrap();
    tracker.attach().unwrap();
    wait_until("windows end", || interference.counts(CPU).empty_windows >= 50);
    assert_eq!(
        (interference.current_value(CPU), interference.last_reading(CPU), interference.take_peak(CPU)),
        (None, None, None)
    );
    assert_eq!(interference.counts(CPU).windows, 0);
}

#[test]
fn uncountable_event_error_names_event_cpu_and_remedy() {
    let Some(_turn) = lock_lanes() else { return };
    let tracker = tracker();
    // No processor has such an event.
    let formula = Formula::parse("rffffffffffffffff / page-faults").unwrap();
    let error = Interference::open(&formula, &cpus(), &tracker).err().unwrap();
    assert!(matches!(&error, InterferenceError::Event { cpu: CPU, .. }));
    let said = error.to_string();
    assert!(said.contains("`rffffffffffffffff`") && said.contains("CPU 0") && said.contains("virtual PMU"), "{said}");
}

#[test]
fn cpu_that_comes_online_is_counted() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(lab) = lab_binary_path().map(LabBinary::with_path) else { return };
    let mut service = start(&lab, "0");
    let tracker = tracker();
    let mut interference = Interference::open(&Formula::parse(FAULTS).unwrap(), &CpuSet::default(), &tracker).unwrap();
    let lanes = Lanes::without_batch_lanes(cpus());
    let service_pid = Tracked::of_process(service.pid());
    let tracking = ServiceTracking::start(&tracker, &service_pid, &lanes, LaneUse::default()).unwrap();
    tracker.attach().unwrap();
    service.query("fault").unwrap();
    for _ in 0..2 {
        assert!(!interference.cpus().contains(CPU) || interference.counts(CPU).windows > 0);
        interference.reopen_cpu(CPU).unwrap();
        wait_for_windows(&interference, 20);
    }
    assert_eq!(interference.cpus(), &cpus());
    drop(tracking);
}

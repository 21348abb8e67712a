//! Tests of Algorithm 1 as printed, on the paper's example stream (§III-C): threads 75 and 77 to 80.
//!
//! The cores are Juno's: big 0 and 1, little 2 to 5. Threads are put on cores in the order of their numbers. So 75 and
//! 77 are on big cores at first; 78, 79 and 80 are on little ones. Times are the last five digits of the paper's, in
//! milliseconds.

use sidelane_policy::hurryup::{
    BigLittleCores, Config, HurryAction, HurryActions, HurryEvent, HurryReason, HurryUp, Options, Request, ScanTimes,
    Thread,
};
use sidelane_policy::{Nanos, Policy};

const MS: Nanos = 1_000_000;
const CORES: [usize; 6] = [0, 1, 2, 3, 4, 5];

/// Example stream of the paper: thread, request, time in milliseconds.
pub const STREAM: [(Thread, Request, Nanos); 6] =
    [(75, 0x75, 27539), (77, 0x77, 27953), (78, 0x78, 27954), (79, 0x79, 28003), (80, 0x80, 28014), (77, 0x77, 28023)];

pub fn juno_cores() -> BigLittleCores {
    BigLittleCores { big: CORES[..2].iter().copied().collect(), little: CORES[2..].iter().copied().collect() }
}

pub fn map_action(thread: Thread, cpu: usize) -> HurryAction {
    HurryAction::Map { thread, cpu }
}

/// Passes an event at a time in milliseconds to the policy, and returns its actions.
pub fn observe_at(hurryup: &mut HurryUp, at_ms: Nanos, seen: HurryEvent) -> Vec<HurryAction> {
    let mut out = HurryActions::default();
    hurryup.observe(at_ms * MS, &seen, &mut out);
    out.iter().collect()
}

/// Creates a pool of the paper's threads on the paper's cores.
pub fn pool(config: Config) -> HurryUp {
    let mut hurryup = HurryUp::new(config);
    assert_eq!(observe_at(&mut hurryup, 27_500, HurryEvent::Cores(juno_cores())), []);
    for (thread, cpu) in [75, 77, 78, 79, 80].into_iter().zip(CORES) {
        let allowed = CORES.into_iter().collect();
        assert_eq!(observe_at(&mut hurryup, 27_500, HurryEvent::Joined { thread, allowed }), [map_action(thread, cpu)]);
    }
    hurryup
}

pub fn noted_event((thread, request, at): (Thread, Request, Nanos)) -> HurryEvent {
    HurryEvent::Noted { thread, request, at: at * MS }
}

/// Returns the settings of Algorithm 1 as printed, with this sampling time in milliseconds.
fn printed_config(sampling_ms: Nanos) -> Config {
    Config { scan_times: ScanTimes::Sampling(sampling_ms * MS), ..Config::PAPER }
}

#[test]
fn example_stream_leaves_four_requests_under_way() {
    let mut hurryup = pool(printed_config(1_000_000));
    for (line, under_way) in STREAM.into_iter().zip([1, 2, 3, 4, 5, 4]) {
        assert_eq!(observe_at(&mut hurryup, line.2, noted_event(line)), []);
        assert_eq!(hurryup.requests_under_way(), under_way, "{line:?}");
    }
}

#[test]
fn first_scan_moves_two_longest_requests_to_big_cores() {
    let mut hurryup = pool(printed_config(600));
    STREAM.into_iter().for_each(|line| assert_eq!(observe_at(&mut hurryup, line.2, noted_event(line)), []));
    // The sampling interval is over 600 ms after its start. Thread 75 has the oldest request, but is on a big core.
    // Thread 78 has worked for 146 ms, 79 for 97, 80 for 86. Threads 78 and 79 take the big cores: 0 from 75, which is
    // in the middle of its request, and 1 from 77, which is idle.
    assert_eq!(observe_at(&mut hurryup, 28_099, HurryEvent::Nothing), []);
    let moved = observe_at(&mut hurryup, 28_100, HurryEvent::Nothing);
    assert_eq!(moved, [map_action(78, 0), map_action(75, 2), map_action(79, 1), map_action(77, 3)]);
    assert_eq!(hurryup.why(), HurryReason::NoBigCore, "80 is left");
    assert_eq!(hurryup.next_wakeup(), Some(28_700 * MS), "line 27: a new window");
}

#[test]
fn as_printed_long_requests_swap_cores_repeatedly() {
    let mut hurryup = pool(printed_config(600));
    STREAM.into_iter().for_each(|line| assert_eq!(observe_at(&mut hurryup, line.2, noted_event(line)), []));
    observe_at(&mut hurryup, 28_100, HurryEvent::Nothing);
    // Thread 75, with the longest request of all, returns to a big core, and displaces 78, which has the next longest.
    assert_eq!(
        observe_at(&mut hurryup, 28_700, HurryEvent::Nothing),
        [map_action(75, 0), map_action(78, 2), map_action(80, 1), map_action(79, 4)]
    );
}

#[test]
fn longest_request_keeps_core_and_idle_threads_leave() {
    let options = Options { rest_ns: 0, ..Options::default() };
    let mut hurryup = pool(Config { options, ..printed_config(600) });
    STREAM.into_iter().for_each(|line| assert_eq!(observe_at(&mut hurryup, line.2, noted_event(line)), []));
    assert_eq!(observe_at(&mut hurryup, 28_100, HurryEvent::Nothing), [map_action(78, 1), map_action(77, 2)]);
    assert_eq!(hurryup.why(), HurryReason::NoBigCore, "79 and 80 are shorter than 75 and 78");
    assert_eq!(observe_at(&mut hurryup, 28_700, HurryEvent::Nothing), []);
}

#[test]
fn with_events_a_due_request_moves_if_a_big_core_is_free() {
    let config = Config { scan_times: ScanTimes::Events, options: Options::default(), ..Config::PAPER };
    let mut hurryup = pool(config);
    let mut told = Vec::new();
    for line in STREAM {
        // The wakeups that the policy wants come before the next line of the stream.
        while let Some(at) = hurryup.next_wakeup().filter(|at| *at < line.2 * MS) {
            let mut out = HurryActions::default();
            hurryup.observe(at, &HurryEvent::Nothing, &mut out);
            told.extend(out.iter().map(|action| (at / MS, action)));
        }
        told.extend(observe_at(&mut hurryup, line.2, noted_event(line)).into_iter().map(|action| (line.2, action)));
    }
    // Thread 78 is due at 28004. At that time thread 77, which began 1 ms before 78, is on core 1 and thread 75 on core
    // 0: both have longer requests than 78. At 28023 thread 77 is done.
    assert_eq!(told, [(28_023, map_action(78, 1)), (28_023, map_action(77, 2))]);
}

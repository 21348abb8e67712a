//! Hand-computed cases that the Hurry-up paper leaves open.

use sidelane_policy::Policy;
use sidelane_policy::cpus::CpuMask;
use sidelane_policy::hurryup::{
    BigLittleCores, Config, HurryAction, HurryActions, HurryEvent, HurryReason, HurryUp, LostRequests, MAX_THREADS,
    Mapping, Options, ScanTimes, Thread, Threshold,
};

use crate::paper::{juno_cores, map_action, noted_event, observe_at, pool};

const MS: u64 = 1_000_000;

fn event_driven_config(rest_ms: u64) -> Config {
    let options = Options { rest_ns: rest_ms * MS, float_oversubscribed: false, ..Options::default() };
    Config { scan_times: ScanTimes::Events, options, ..Config::PAPER }
}

fn all_cores() -> CpuMask {
    (0..6).collect()
}

fn joined(thread: Thread) -> HurryEvent {
    HurryEvent::Joined { thread, allowed: all_cores() }
}

/// Creates a policy with `count` threads: thread 0 on core 0, thread 1 on core 1, and so on.
fn policy_with_threads(config: Config, count: u32) -> HurryUp {
    let mut hurryup = HurryUp::new(config);
    observe_at(&mut hurryup, 0, HurryEvent::Cores(juno_cores()));
    (0..count).for_each(|thread| {
        assert_eq!(observe_at(&mut hurryup, 0, joined(thread)), [map_action(thread, thread as usize)])
    });
    hurryup
}

fn began(thread: Thread, at_ms: u64) -> HurryEvent {
    HurryEvent::Began { thread, request: thread.into(), since: at_ms * MS }
}

#[test]
fn empty_big_core_is_taken_before_one_with_an_idle_thread() {
    let mut hurryup = policy_with_threads(event_driven_config(0), 4);
    observe_at(&mut hurryup, 1, HurryEvent::Left { thread: 1 });
    observe_at(&mut hurryup, 10, began(2, 10));
    assert_eq!(hurryup.next_wakeup(), Some(60 * MS + 1));
    observe_at(&mut hurryup, 61, HurryEvent::Nothing);
    assert_eq!((hurryup.core_of(2), hurryup.core_of(0)), (Some(1), Some(0)));
}

#[test]
fn shorter_request_that_began_last_leaves_its_big_core() {
    let mut hurryup = policy_with_threads(event_driven_config(0), 3);
    observe_at(&mut hurryup, 10, began(2, 10));
    observe_at(&mut hurryup, 20, began(1, 20));
    observe_at(&mut hurryup, 30, began(0, 30));
    assert_eq!(observe_at(&mut hurryup, 61, HurryEvent::Nothing), [map_action(2, 0), map_action(0, 2)]);
}

#[test]
fn request_is_due_at_the_threshold_with_one_by_one() {
    let config = event_driven_config(0);
    let config = Config { options: Options { one_by_one: true, ..config.options }, ..config };
    let mut hurryup = policy_with_threads(config, 4);
    observe_at(&mut hurryup, 10, began(2, 10));
    assert_eq!(hurryup.next_wakeup(), Some(60 * MS + 1));
}

#[test]
fn zero_sampling_interval_scans_at_the_next_nanosecond() {
    let mut hurryup = policy_with_threads(Config { scan_times: ScanTimes::Sampling(0), ..Config::PAPER }, 3);
    observe_at(&mut hurryup, 10, began(2, 10));
    assert_eq!(hurryup.next_wakeup(), Some(10 * MS + 1));
}

#[test]
fn one_by_one_next_move_waits_for_the_new_core_sizes() {
    let config = event_driven_config(5);
    let mut hurryup =
        policy_with_threads(Config { options: Options { one_by_one: true, ..config.options }, ..config }, 4);
    observe_at(&mut hurryup, 10, began(2, 10));
    observe_at(&mut hurryup, 10, began(3, 10));
    assert_eq!(observe_at(&mut hurryup, 61, HurryEvent::Nothing), [map_action(2, 0), map_action(0, 2)]);
    assert_eq!(hurryup.why(), HurryReason::Moved);
    // While thread 2 is on core 0, core 1 is little; since thread 2 left, core 3 is big.
    let sizes = BigLittleCores { big: [0, 3].into_iter().collect(), little: [1, 2, 4, 5].into_iter().collect() };
    assert_eq!(observe_at(&mut hurryup, 61, HurryEvent::Cores(sizes)), []);
    assert_eq!(hurryup.next_wakeup(), None);
}

#[test]
fn moved_request_rests_before_its_next_move() {
    let mut hurryup = policy_with_threads(event_driven_config(40), 3);
    observe_at(&mut hurryup, 10, began(2, 10));
    observe_at(&mut hurryup, 20, began(0, 20));
    observe_at(&mut hurryup, 21, began(1, 21));
    // Thread 1 began last, so it goes to core 2 and has a long request there at 72.
    assert_eq!(observe_at(&mut hurryup, 61, HurryEvent::Nothing), [map_action(2, 1), map_action(1, 2)]);
    assert_eq!(observe_at(&mut hurryup, 75, HurryEvent::Nothing), []);
    assert_eq!(hurryup.next_wakeup(), None, "both big cores have longer requests, however long anybody rests");
    assert_eq!(observe_at(&mut hurryup, 80, HurryEvent::Ended { request: 2 }), [], "1 has just moved");
    assert_eq!(hurryup.next_wakeup(), Some(101 * MS));
    assert_eq!(observe_at(&mut hurryup, 101, HurryEvent::Nothing), [map_action(1, 1), map_action(2, 2)]);
}

#[test]
fn no_move_or_exchange_against_allowed_cpus() {
    let mut hurryup = policy_with_threads(event_driven_config(0), 2);
    let little_only = HurryEvent::Joined { thread: 9, allowed: [3].into_iter().collect() };
    assert_eq!(observe_at(&mut hurryup, 0, little_only), [map_action(9, 3)]);
    observe_at(&mut hurryup, 10, began(9, 10));
    assert_eq!(observe_at(&mut hurryup, 100, HurryEvent::Nothing), []);
    // Thread 8 may be on any core, but the threads on the big cores may not use its core.
    let mut hurryup = HurryUp::new(event_driven_config(0));
    observe_at(
        &mut hurryup,
        0,
        HurryEvent::Cores(BigLittleCores { big: [0].into_iter().collect(), little: [2].into_iter().collect() }),
    );
    observe_at(&mut hurryup, 0, HurryEvent::Joined { thread: 1, allowed: [0].into_iter().collect() });
    assert_eq!(observe_at(&mut hurryup, 0, joined(8)), [map_action(8, 2)]);
    observe_at(&mut hurryup, 10, began(8, 10));
    assert_eq!(observe_at(&mut hurryup, 100, HurryEvent::Nothing), []);
}

#[test]
fn a_move_that_was_refused_is_not_tried_again() {
    let mut hurryup = policy_with_threads(event_driven_config(0), 3);
    observe_at(&mut hurryup, 10, began(2, 10));
    assert_eq!(observe_at(&mut hurryup, 61, HurryEvent::Nothing), [map_action(2, 0), map_action(0, 2)]);
    assert_eq!(
        observe_at(&mut hurryup, 61, HurryEvent::Refused { thread: 2, cpu: 0 }),
        [map_action(2, 1), map_action(1, 2)]
    );
    assert_eq!(observe_at(&mut hurryup, 61, HurryEvent::Refused { thread: 2, cpu: 1 }), []);
    assert_eq!((hurryup.core_of(2), hurryup.next_wakeup()), (Some(2), None));
}

#[test]
fn refused_move_is_not_counted_and_other_thread_stays() {
    let mut hurryup = policy_with_threads(event_driven_config(0), 3);
    let one = BigLittleCores { big: [0].into_iter().collect(), ..juno_cores() };
    observe_at(&mut hurryup, 1, HurryEvent::Left { thread: 1 });
    observe_at(&mut hurryup, 1, HurryEvent::Cores(one));
    observe_at(&mut hurryup, 10, began(2, 10));
    assert_eq!(
        (observe_at(&mut hurryup, 61, HurryEvent::Nothing), hurryup.moved_count()),
        (vec![map_action(2, 0), map_action(0, 2)], 1)
    );
    assert_eq!(observe_at(&mut hurryup, 61, HurryEvent::Refused { thread: 2, cpu: 0 }), []);
    assert_eq!([hurryup.core_of(2), hurryup.core_of(0)], [Some(2), Some(0)]);
    assert_eq!(hurryup.moved_count(), 0);
}

#[test]
fn refused_core_is_used_again_once_back_or_reconsidered() {
    let one = BigLittleCores { big: [0].into_iter().collect(), ..juno_cores() };
    let none = BigLittleCores { big: CpuMask::EMPTY, ..juno_cores() };
    for again in [&[HurryEvent::Cores(none), HurryEvent::Cores(one)][..], &[HurryEvent::Reconsider]] {
        let mut hurryup = HurryUp::new(event_driven_config(0));
        observe_at(&mut hurryup, 0, HurryEvent::Cores(none));
        assert_eq!(observe_at(&mut hurryup, 0, joined(2)), [map_action(2, 2)]);
        observe_at(&mut hurryup, 0, HurryEvent::Cores(one));
        observe_at(&mut hurryup, 10, began(2, 10));
        assert_eq!(observe_at(&mut hurryup, 61, HurryEvent::Nothing), [map_action(2, 0)]);
        assert_eq!(observe_at(&mut hurryup, 62, HurryEvent::Refused { thread: 2, cpu: 0 }), []);
        let moves: Vec<_> = again.iter().flat_map(|seen| observe_at(&mut hurryup, 80, *seen)).collect();
        assert_eq!((moves, hurryup.core_of(2)), (vec![map_action(2, 0)], Some(0)), "{again:?}");
    }
}

#[test]
fn thread_over_the_limit_gets_a_slot_when_one_leaves() {
    let mut hurryup = HurryUp::new(event_driven_config(0));
    observe_at(&mut hurryup, 0, HurryEvent::Cores(juno_cores()));
    let last = MAX_THREADS as u32;
    (0..last).for_each(|thread| assert_eq!(observe_at(&mut hurryup, 0, joined(thread)).len(), 1));
    assert_eq!(observe_at(&mut hurryup, 0, joined(last)), []);
    assert_eq!((hurryup.thread_count(), hurryup.has_thread(last)), (MAX_THREADS, false));
    observe_at(&mut hurryup, 1, HurryEvent::Left { thread: 7 });
    assert_eq!(
        (hurryup.thread_count(), observe_at(&mut hurryup, 1, joined(last)).len(), hurryup.has_thread(last)),
        (MAX_THREADS - 1, 1, true)
    );
}

#[test]
fn when_a_big_core_goes_offline_its_threads_get_another_core() {
    let mut hurryup = policy_with_threads(event_driven_config(0), 6);
    let cores = BigLittleCores { big: [1].into_iter().collect(), ..juno_cores() };
    assert_eq!(observe_at(&mut hurryup, 10, HurryEvent::Cores(cores)), [map_action(0, 1)]);
    assert_eq!(observe_at(&mut hurryup, 20, HurryEvent::Cores(juno_cores())), []);
}

#[test]
fn oversubscribed_oldest_requests_run_on_big_cores_only() {
    let by_events = event_driven_config(0);
    let config = Config { options: Options { float_oversubscribed: true, ..by_events.options }, ..by_events };
    let mut hurryup = policy_with_threads(config, 6);
    let freed: Vec<HurryAction> = (0..7).map(|thread| HurryAction::Restore { thread }).collect();
    let told = observe_at(&mut hurryup, 1, joined(6));
    assert_eq!(told[told.len() - 7..], freed, "a seventh thread on six cores: the kernel places them all");
    assert!((0..7).all(|thread| hurryup.core_of(thread).is_none()));
    for (thread, at_ms) in [(3, 10), (4, 11), (5, 12), (6, 40)] {
        assert_eq!(observe_at(&mut hurryup, at_ms, began(thread, at_ms)), []);
    }
    assert_eq!(hurryup.next_wakeup(), Some(60 * MS + 1));
    let to_big = |thread| HurryAction::Hurry { thread };
    assert_eq!(observe_at(&mut hurryup, 63, HurryEvent::Nothing), [to_big(3), to_big(4)]);
    assert_eq!((hurryup.why(), hurryup.moved_count()), (HurryReason::NoBigCore, 2), "juno has two big cores");
    let ended = HurryEvent::Ended { request: 3 };
    assert_eq!(observe_at(&mut hurryup, 70, ended), [HurryAction::Restore { thread: 3 }, to_big(5)]);
    // The cpuset of thread 5 forbids CPU 0, so its request did not move.
    assert_eq!(observe_at(&mut hurryup, 71, HurryEvent::Refused { thread: 5, cpu: 0 }), [to_big(5)]);
    assert_eq!(
        (observe_at(&mut hurryup, 72, HurryEvent::Refused { thread: 5, cpu: 0 }), hurryup.moved_count()),
        (vec![to_big(5)], 3)
    );
    hurryup.record_event(72, &HurryEvent::Refused { thread: 5, cpu: 0 }, &mut HurryActions::default());
    hurryup.record_event(72, &HurryEvent::Refused { thread: 5, cpu: 1 }, &mut HurryActions::default());
    assert_eq!((observe_at(&mut hurryup, 73, HurryEvent::Nothing), hurryup.moved_count()), (vec![], 2));
    observe_at(&mut hurryup, 80, HurryEvent::Left { thread: 0 });
    assert!(hurryup.is_oversubscribed(), "another thread may come");
    observe_at(&mut hurryup, 81, HurryEvent::Reconsider);
    assert!(!hurryup.is_oversubscribed() && (1..7).all(|thread| hurryup.core_of(thread).is_some()));
}

#[test]
fn baseline_mappings_never_move_a_thread() {
    for (mapping, cores) in [(Mapping::Static, 0..6), (Mapping::AllBig, 0..2), (Mapping::AllLittle, 2..6)] {
        let mut hurryup = HurryUp::new(Config { mapping, ..event_driven_config(0) });
        observe_at(&mut hurryup, 0, HurryEvent::Cores(juno_cores()));
        for thread in 0..6 {
            observe_at(&mut hurryup, 0, joined(thread));
            observe_at(&mut hurryup, 1, began(thread, 1));
            assert!(hurryup.core_of(thread).is_some_and(|cpu| cores.contains(&cpu)), "{mapping:?}");
        }
        assert_eq!((observe_at(&mut hurryup, 500, HurryEvent::Nothing), hurryup.next_wakeup()), (vec![], None));
    }
}

#[test]
fn begin_in_the_future_resets_only_the_age_of_the_request() {
    let mut hurryup = pool(event_driven_config(0));
    // The line in the pipe says that the request begins an hour from now.
    observe_at(&mut hurryup, 28_000, noted_event((78, 1, 28_000 + 3_600_000)));
    assert_eq!(hurryup.next_wakeup(), Some(28_050 * MS + 1));
    assert_eq!(observe_at(&mut hurryup, 28_051, HurryEvent::Nothing), [map_action(78, 0), map_action(75, 2)]);
    observe_at(&mut hurryup, 28_060, noted_event((78, 1, 0)));
    assert_eq!((hurryup.requests_under_way(), hurryup.lost_requests()), (0, LostRequests::default()));
}

#[test]
fn learned_threshold_falls_when_big_cores_have_spare_time() {
    let mut config = event_driven_config(0);
    config.threshold = Threshold::Learnt(Default::default());
    let mut hurryup = policy_with_threads(config, 6);
    assert_eq!(hurryup.threshold_ns(), 50 * MS);
    for at in 0..2_000_u64 {
        // One request in five takes 40 ms, the others 1 ms, one after the other on any core.
        let (thread, work_ms) = ((at % 6) as Thread, if at % 5 == 0 { 40 } else { 1 });
        let request = 1_000 + at;
        observe_at(&mut hurryup, 200 * at, HurryEvent::Began { thread, request, since: 200 * at * MS });
        observe_at(&mut hurryup, 200 * at + work_ms, HurryEvent::Ended { request });
    }
    assert!(hurryup.threshold_ns() < 10 * MS, "{}", hurryup.threshold_ns());
}

#[test]
fn recorded_events_move_no_thread() {
    let mut hurryup = policy_with_threads(event_driven_config(0), 3);
    let mut out = HurryActions::default();
    hurryup.record_event(10 * MS, &began(2, 10), &mut out);
    hurryup.record_event(10 * MS, &began(1, 10), &mut out);
    assert_eq!((hurryup.request_of(2), hurryup.request_start(2)), (Some((2, 10 * MS)), Some(10 * MS)));
    hurryup.record_event(200 * MS, &HurryEvent::Ended { request: 2 }, &mut out);
    assert_eq!((out.iter().count(), hurryup.request_of(2), hurryup.request_start(2)), (0, None, None));
    assert_eq!(observe_at(&mut hurryup, 201, HurryEvent::Nothing), [], "1 is on a big core, 2 has ended");
}

#[test]
fn events_out_of_order_are_recorded() {
    let mut hurryup = HurryUp::new(Config { scan_times: ScanTimes::Events, ..Config::default() });
    observe_at(&mut hurryup, 0, HurryEvent::Cores(juno_cores()));
    (0..2).for_each(|thread| drop(observe_at(&mut hurryup, 0, joined(thread))));
    let mut out = HurryActions::default();
    hurryup.record_event(20 * MS, &began(0, 20), &mut out);
    hurryup.record_event(5 * MS, &began(1, 5), &mut out);
    hurryup.record_event(10 * MS, &HurryEvent::Ended { request: 1 }, &mut out);
    hurryup.record_event(25 * MS, &HurryEvent::Ended { request: 0 }, &mut out);
    assert_eq!((hurryup.requests_under_way(), hurryup.lost_requests()), (0, LostRequests::default()));
}

#[test]
fn kernel_mapping_binds_no_thread() {
    let mut hurryup = HurryUp::new(Config { mapping: Mapping::Kernel, ..Config::PAPER });
    observe_at(&mut hurryup, 0, HurryEvent::Cores(juno_cores()));
    assert_eq!(observe_at(&mut hurryup, 0, joined(1)), []);
    observe_at(&mut hurryup, 1, began(1, 1));
    assert_eq!((observe_at(&mut hurryup, 999, HurryEvent::Nothing), hurryup.core_of(1)), (vec![], None));
}

#[test]
fn pool_is_oversubscribed_only_if_the_option_is_on() {
    let six = juno_cores();
    for (is_oversubscribed, float_oversubscribed, mapping, cores, count) in [
        (true, true, Mapping::HurryUp, six, 7),
        (false, true, Mapping::HurryUp, six, 6),
        (false, false, Mapping::HurryUp, six, 7),
        (false, true, Mapping::Static, six, 7),
        (false, true, Mapping::HurryUp, BigLittleCores::default(), 7),
    ] {
        let by_events = event_driven_config(0);
        let options = Options { float_oversubscribed, ..by_events.options };
        let mut hurryup = HurryUp::new(Config { mapping, options, ..by_events });
        observe_at(&mut hurryup, 0, HurryEvent::Cores(cores));
        (0..count).for_each(|thread| drop(observe_at(&mut hurryup, 0, joined(thread))));
        assert_eq!(
            hurryup.is_oversubscribed(),
            is_oversubscribed,
            "{float_oversubscribed} {mapping:?} {cores:?} {count}"
        );
    }
}

#[test]
fn a_thread_between_requests_leaves_before_a_shorter_request() {
    let mut hurryup = policy_with_threads(event_driven_config(0), 3);
    observe_at(&mut hurryup, 10, began(2, 10));
    observe_at(&mut hurryup, 30, began(0, 30));
    assert_eq!(observe_at(&mut hurryup, 61, HurryEvent::Nothing), [map_action(2, 1), map_action(1, 2)]);
}

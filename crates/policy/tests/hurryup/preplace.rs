//! Tests of threads that are sent to big cores before they take requests.

use std::collections::BTreeMap;

use proptest::prelude::*;
use sidelane_policy::Policy;
use sidelane_policy::cpus::CpuMask;
use sidelane_policy::hurryup::{
    BigLittleCores, Config, HurryAction, HurryActions, HurryEvent, HurryReason, HurryUp, Options, ScanTimes, Thread,
    Threshold,
};

use crate::paper::map_action;

fn mask(cpus: &[usize]) -> CpuMask {
    cpus.iter().copied().collect()
}

/// Returns a configuration in which requests move as they start.
fn config() -> Config {
    let options = Options { rest_ns: 0, ..Options::default() };
    Config { scan_times: ScanTimes::Events, threshold: Threshold::Given(0), options, ..Config::PAPER }
}

/// Simulated service whose threads have one core each, big ones first, and the request of each thread.
struct Service {
    hurryup: HurryUp,
    big: usize,
    now: u64,
    /// Time since which each idle thread has been idle.
    idle: BTreeMap<Thread, u64>,
    busy: Vec<Thread>,
    /// Core of each thread, according to the actions.
    core: BTreeMap<Thread, usize>,
}

impl Service {
    fn new(config: Config, big: usize, little: usize) -> Self {
        let all: Vec<usize> = (0..big + little).collect();
        let cores = BigLittleCores { big: mask(&all[..big]), little: mask(&all[big..]) };
        let mut service = Self {
            hurryup: HurryUp::new(config),
            big,
            now: 1,
            idle: BTreeMap::new(),
            busy: Vec::new(),
            core: BTreeMap::new(),
        };
        service.observe_event(HurryEvent::Cores(cores));
        for thread in 0..all.len() as Thread {
            service.observe_event(HurryEvent::Joined { thread, allowed: mask(&all) });
            service.idle.insert(thread, u64::from(thread) + 2);
        }
        service
    }

    /// Passes an event to the policy, carries out its actions, and returns them.
    fn observe_event(&mut self, seen: HurryEvent) -> Vec<HurryAction> {
        let mut out = HurryActions::default();
        self.now += 10;
        self.hurryup.observe(self.now, &seen, &mut out);
        let told: Vec<HurryAction> = out.iter().collect();
        for action in &told {
            if let HurryAction::Map { thread, cpu } = *action {
                self.core.insert(thread, cpu);
            }
        }
        told
    }

    fn begin(&mut self, thread: Thread) -> Vec<HurryAction> {
        assert!(self.idle.remove(&thread).is_some());
        self.busy.push(thread);
        let since = self.now + 10;
        self.observe_event(HurryEvent::Began { thread, request: thread.into(), since })
    }

    fn end(&mut self, thread: Thread) -> Vec<HurryAction> {
        self.busy.retain(|other| *other != thread);
        let told = self.observe_event(HurryEvent::Ended { request: thread.into() });
        self.idle.insert(thread, self.now);
        told
    }

    /// Returns the idle threads, the longest idle first.
    fn idle_threads(&self) -> Vec<Thread> {
        let mut line: Vec<(u64, Thread)> = self.idle.iter().map(|(thread, since)| (*since, *thread)).collect();
        line.sort_unstable();
        line.into_iter().map(|(_, thread)| thread).collect()
    }

    /// Serves requests one after the other; `choose` picks the idle thread that takes each.
    fn serve(&mut self, count: usize, choose: impl Fn(usize, &[Thread]) -> Thread) {
        for number in 0..count {
            let thread = choose(number, &self.idle_threads());
            self.begin(thread);
            self.end(thread);
        }
    }

    fn is_on_big(&self, thread: Thread) -> bool {
        self.core[&thread] < self.big
    }
}

#[test]
fn next_thread_in_line_waits_on_the_big_core() {
    let mut service = Service::new(config(), 1, 1);
    service.serve(18, |_, line| line[0]);
    let next = service.idle_threads()[0];
    assert!(service.is_on_big(next));
    assert_eq!(service.begin(next), [], "it is there");
    // The second thread waits on the little core, since the thread on the big one works. When the big core is free, the
    // second thread moves there.
    let other = service.idle_threads()[0];
    assert_eq!(service.end(next), [map_action(other, 0), map_action(next, 1)]);
    assert_eq!(service.hurryup.why(), HurryReason::Preplaced);
    assert!(service.hurryup.is_preplacing());
}

#[test]
fn lifo_queue_keeps_the_last_thread_on_the_big_core() {
    let mut service = Service::new(config(), 1, 3);
    let all: Vec<Thread> = service.idle_threads();
    // Each thread serves one request.
    all.into_iter().for_each(|thread| service.serve(1, |_, _| thread));
    service.serve(60, |_, line| line[line.len() - 1]);
    let last = *service.idle_threads().last().unwrap();
    assert!(service.is_on_big(last) && service.hurryup.is_preplacing());
    assert_eq!((service.begin(last), service.end(last)), (vec![], vec![]));
}

#[test]
fn unpredictable_order_places_no_thread_ahead() {
    let anybody = |number: usize, line: &[Thread]| line[number * 7 % line.len()];
    let second = |_: usize, line: &[Thread]| line[1];
    for choose in [&anybody as &dyn Fn(usize, &[Thread]) -> Thread, &second] {
        let mut service = Service::new(config(), 1, 3);
        service.serve(4, |_, line| line[0]);
        service.serve(80, choose);
        assert!(!service.hurryup.is_preplacing());
        assert_ne!(service.hurryup.why(), HurryReason::Preplaced);
    }
}

#[test]
fn configured_threshold_places_no_thread_in_advance() {
    for config in [
        Config { threshold: Threshold::Given(1_000), ..config() },
        Config { options: Options { preplace: false, ..config().options }, ..config() },
    ] {
        let mut service = Service::new(config, 1, 1);
        service.serve(40, |_, line| line[0]);
        assert!(!service.hurryup.is_preplacing());
    }
}

#[test]
fn refused_placement_ahead_does_not_change_the_move_count() {
    let mut service = Service::new(config(), 1, 1);
    service.serve(18, |_, line| line[0]);
    let (next, other) = (service.idle_threads()[0], service.idle_threads()[1]);
    service.begin(next);
    let moved = service.hurryup.moved_count();
    assert_eq!(service.end(next), [map_action(other, 0), map_action(next, 1)]);
    service.hurryup.record_event(
        service.now,
        &HurryEvent::Refused { thread: other, cpu: 0 },
        &mut HurryActions::default(),
    );
    assert_eq!([other, next].map(|thread| service.hurryup.core_of(thread)), [Some(1), Some(0)]);
    assert_eq!(service.hurryup.moved_count(), moved);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Requests mostly go to the thread that has been idle longest; one in eight goes to any thread.
    #[test]
    fn thread_placed_ahead_is_idle_and_goes_to_idle_big_core(
        (big, little) in (1_usize..4, 1_usize..5),
        history in proptest::collection::vec((any::<bool>(), 0_usize..8, 0_usize..8), 40..120),
    ) {
        let mut service = Service::new(config(), big, little);
        for (begins, luck, which) in history {
            let (before, line) = (service.core.clone(), service.idle_threads());
            let told = match begins {
                true if line.is_empty() => continue,
                true => service.begin(if luck == 0 { line[which % line.len()] } else { line[0] }),
                false if service.busy.is_empty() => continue,
                false => service.end(service.busy[which % service.busy.len()]),
            };
            let works = |thread: &Thread| service.busy.contains(thread);
            let comes_to_big = told.iter().filter_map(|action| match *action {
                HurryAction::Map { thread, cpu } if cpu < big && before[&thread] >= big => Some((thread, cpu)),
                _ => None,
            });
            for (thread, cpu) in comes_to_big.filter(|(thread, _)| !works(thread)) {
                prop_assert!(!service.busy.iter().any(|other| service.core[other] == cpu), "{thread} where one works");
            }
            let mut cores: Vec<usize> = service.core.values().copied().collect();
            cores.sort_unstable();
            prop_assert!(cores.iter().copied().eq(0..big + little), "each core has its thread");
            // No big core is idle while a thread whose turn comes first waits on a little one.
            if service.hurryup.is_preplacing() {
                let free = (0..big).filter(|core| !service.busy.iter().any(|thread| service.core[thread] == *core));
                let next: Vec<Thread> = service.idle_threads().into_iter().take(free.count()).collect();
                let served = |thread: &Thread| service.idle[thread] > 20 + u64::from(*thread);
                prop_assert!(next.iter().filter(|thread| served(thread)).all(|thread| service.is_on_big(*thread)));
            }
        }
    }
}

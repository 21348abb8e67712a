//! Properties of the Hurry-up policy over random histories.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use sidelane_policy::Policy;
use sidelane_policy::cpus::CpuMask;
use sidelane_policy::hurryup::{
    BigLittleCores, Config, HurryAction, HurryActions, HurryEvent, HurryUp, Learning, Mapping, Options, Request,
    ScanTimes, Thread, Threshold,
};

const CPUS: usize = 6;

#[derive(Clone, Copy, Debug)]
enum Event {
    /// Online cores as bits, out of six; the first two are big.
    Cores(u8),
    Join(Thread, u8),
    Leave(Thread),
    Begin(Thread, Request, u64),
    End(Request),
    Note(Thread, Request, u64),
    /// The kernel refuses the last action.
    Refuse,
    /// The kernel refuses the move of the last thread that came to a big core, before the other thread of the exchange
    /// has left.
    RefuseExchange,
    Reconsider,
    Pass,
}

fn mask(bits: u8) -> CpuMask {
    (0..CPUS).filter(|cpu| bits >> cpu & 1 == 1).collect()
}

fn event() -> impl Strategy<Value = Event> {
    let thread = || 0_u32..8;
    let request = || 0_u64..12;
    prop_oneof![
        1 => (0_u8..64).prop_map(Event::Cores),
        2 => (thread(), 1_u8..64).prop_map(|(thread, cpus)| Event::Join(thread, cpus)),
        2 => thread().prop_map(|thread| Event::Join(thread, 63)),
        1 => thread().prop_map(Event::Leave),
        8 => (thread(), request(), 0_u64..20).prop_map(|(thread, request, ago)| Event::Begin(thread, request, ago)),
        6 => request().prop_map(Event::End),
        2 => (thread(), request(), 0_u64..20).prop_map(|(thread, request, ago)| Event::Note(thread, request, ago)),
        1 => Just(Event::Refuse),
        1 => Just(Event::RefuseExchange),
        1 => Just(Event::Reconsider),
        4 => Just(Event::Pass),
    ]
}

fn config() -> impl Strategy<Value = Config> {
    let flag = any::<bool>;
    let options = (flag(), flag(), flag(), 0_u64..30, flag(), flag());
    (options, flag(), flag(), 0_u64..40).prop_map(|(options, events, learns, threshold_ns)| Config {
        mapping: Mapping::HurryUp,
        scan_times: if events { ScanTimes::Events } else { ScanTimes::Sampling(25) },
        threshold: match learns {
            true => Threshold::Learnt(Learning { first_ns: threshold_ns, ..Learning::default() }),
            false => Threshold::Given(threshold_ns),
        },
        options: Options {
            spare_longer: options.0,
            empty_first: options.1,
            between_first: options.2,
            rest_ns: options.3,
            preplace: options.4,
            // A test below covers pools with more threads than cores.
            float_oversubscribed: false,
            one_by_one: options.5,
        },
    })
}

/// Model of the state, kept without the policy.
struct World {
    cores: BigLittleCores,
    /// CPUs that each thread had originally.
    had: BTreeMap<Thread, CpuMask>,
    /// CPUs to which each thread could not be moved.
    refused: BTreeMap<Thread, CpuMask>,
    /// Present CPUs of each thread.
    has: BTreeMap<Thread, CpuMask>,
    /// Present request of each thread, with its start.
    works: BTreeMap<Thread, (Request, u64)>,
    last: Option<Moved>,
    /// Last two actions of a round, if they exchanged two threads.
    exchange: Option<(Moved, Moved)>,
}

/// Thread that was moved, its new core, and the CPUs that it had before.
type Moved = (Thread, usize, CpuMask);

impl World {
    fn online(&self) -> CpuMask {
        self.cores.big.or(&self.cores.little)
    }

    fn usable(&self, thread: Thread) -> CpuMask {
        let refused = self.refused.get(&thread).copied().unwrap_or(CpuMask::EMPTY);
        self.had[&thread].without(&refused).and(&self.online())
    }

    fn refuse(&mut self, (thread, cpu, before): Moved) -> Option<HurryEvent> {
        self.had.get(&thread)?;
        self.refused.entry(thread).or_insert(CpuMask::EMPTY).insert(cpu);
        self.has.insert(thread, before);
        Some(HurryEvent::Refused { thread, cpu })
    }

    /// Updates the model by an event. Returns the event as the policy gets it, or `None` if it cannot happen.
    fn apply_event(&mut self, now: u64, event: Event) -> Option<HurryEvent> {
        Some(match event {
            Event::Cores(bits) => {
                let before = self.online();
                self.cores = BigLittleCores { big: mask(bits & 0b11), little: mask(bits & !0b11) };
                let new = self.online().without(&before);
                self.refused.values_mut().for_each(|refused| *refused = refused.without(&new));
                HurryEvent::Cores(self.cores)
            }
            Event::Join(thread, cpus) => {
                let allowed = mask(cpus);
                if self.had.insert(thread, allowed).is_some() {
                    self.works.remove(&thread);
                }
                self.has.insert(thread, allowed);
                self.refused.remove(&thread);
                (self.last, self.exchange) = (None, None);
                HurryEvent::Joined { thread, allowed }
            }
            Event::Leave(thread) => {
                self.had.remove(&thread)?;
                self.has.remove(&thread);
                self.works.remove(&thread);
                (self.last, self.exchange) = (None, None);
                HurryEvent::Left { thread }
            }
            Event::Begin(thread, request, ago) => self.begin(now, thread, request, ago),
            Event::End(request) => {
                self.works.retain(|_, (other, _)| *other != request);
                HurryEvent::Ended { request }
            }
            Event::Note(thread, request, ago) => {
                let before = self.works.len();
                self.works.retain(|_, (other, _)| *other != request);
                if self.works.len() == before {
                    self.begin(now, thread, request, ago);
                }
                HurryEvent::Noted { thread, request, at: now.saturating_sub(ago) }
            }
            Event::Refuse => {
                self.exchange = None;
                let last = self.last.take()?;
                return self.refuse(last);
            }
            Event::RefuseExchange => {
                self.last = None;
                let (came, (leaver, _, before)) = self.exchange.take()?;
                self.has.insert(leaver, before);
                return self.refuse(came);
            }
            Event::Reconsider => {
                self.refused.clear();
                HurryEvent::Reconsider
            }
            Event::Pass => HurryEvent::Nothing,
        })
    }

    fn begin(&mut self, now: u64, thread: Thread, request: Request, ago_ns: u64) -> HurryEvent {
        self.works.retain(|_, (other, _)| *other != request);
        let since = now.saturating_sub(ago_ns);
        self.works.insert(thread, (request, since));
        HurryEvent::Began { thread, request, since }
    }

    /// Returns the number of actions that give threads a first core, or another one after theirs went offline. These
    /// actions come before the round.
    fn expected_placements(&self, hurryup: &HurryUp, seen: &HurryEvent) -> usize {
        let online = self.online();
        match seen {
            HurryEvent::Joined { thread, .. } => usize::from(!self.usable(*thread).is_empty()),
            HurryEvent::Cores(_) | HurryEvent::Reconsider => {
                let core = |thread: &Thread| hurryup.core_of(*thread);
                let is_homeless = |thread: &&Thread| core(thread).is_none_or(|cpu| !online.contains(cpu));
                let is_told = |thread: &&Thread| core(thread).is_some() || !self.usable(**thread).is_empty();
                self.had.keys().filter(is_homeless).filter(is_told).count()
            }
            _ => 0,
        }
    }

    fn carry_out(&mut self, action: HurryAction) {
        let (thread, cpus) = match action {
            HurryAction::Map { thread, cpu } => (thread, [cpu].into_iter().collect()),
            HurryAction::Restore { thread } => (thread, self.had[&thread]),
            HurryAction::Hurry { thread } => (thread, self.had[&thread].and(&self.cores.big)),
        };
        let before = self.has.insert(thread, cpus).expect("only threads of the pool are told of");
        self.exchange = None;
        self.last = match action {
            HurryAction::Map { thread, cpu } => Some((thread, cpu, before)),
            HurryAction::Restore { .. } | HurryAction::Hurry { .. } => None,
        };
    }

    /// Carries out a round. In an exchange the thread that comes to a big core is first, and the thread that leaves it
    /// is second.
    fn carry_out_round(&mut self, round: &[HurryAction]) {
        for (number, action) in round.iter().enumerate() {
            let came = self.last.filter(|(_, cpu, _)| number > 0 && self.cores.big.contains(*cpu));
            self.carry_out(*action);
            let left = self.last.filter(|(_, cpu, _)| self.cores.little.contains(*cpu));
            self.exchange = came.zip(left);
        }
    }
}

/// Checks a round against the state before it: its moves are because of long requests.
fn check_round(world: &World, round: &[HurryAction], config: &Config, now: u64) -> Result<(), TestCaseError> {
    let (mut taken, mut told) = (BTreeSet::new(), BTreeSet::new());
    let mut freed: Option<usize> = None;
    for action in round {
        let HurryAction::Map { thread, cpu } = *action else {
            return Err(TestCaseError::fail("a round leaves no thread without a core"));
        };
        prop_assert!(told.insert(thread), "no thread changes places twice");
        if world.cores.big.contains(cpu) {
            prop_assert!(taken.insert(cpu), "core {} twice", cpu);
            let work = world.works.get(&thread);
            prop_assert!(work.is_some(), "{} has no request", thread);
            if let (Threshold::Given(threshold_ns), Some((_, since))) = (config.threshold, work) {
                prop_assert!(now - since > threshold_ns);
            }
            freed = world.has[&thread].first();
        } else {
            prop_assert_eq!(Some(cpu), freed, "who leaves gets the core of who comes");
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn threads_keep_allowed_cpus_and_big_cores_change_once(
        config in config(),
        history in proptest::collection::vec((0_u64..20, event()), 1..40),
    ) {
        let mut hurryup = HurryUp::new(config);
        let (mut now, mut out) = (1_000, HurryActions::default());
        let mut world = World {
            cores: BigLittleCores::default(),
            had: BTreeMap::new(),
            has: BTreeMap::new(),
            refused: BTreeMap::new(),
            works: BTreeMap::new(),
            last: None,
            exchange: None,
        };
        for (after, event) in history {
            now += after;
            let Some(seen) = world.apply_event(now, event) else { continue };
            let places = world.expected_placements(&hurryup, &seen);
            out.clear();
            hurryup.observe(now, &seen, &mut out);
            let told: Vec<HurryAction> = out.iter().collect();
            told[..places].iter().for_each(|action| world.carry_out(*action));
            check_round(&world, &told[places..], &config, now)?;
            world.carry_out_round(&told[places..]);

            for (thread, has) in &world.has {
                prop_assert!(!has.is_empty(), "{} has no CPU", thread);
                let core = hurryup.core_of(*thread);
                prop_assert!(core.is_none_or(|cpu| has.len() == 1 && has.contains(cpu)), "{} {:?}", thread, has);
            }
            prop_assert!(hurryup.next_wakeup().is_none_or(|at| at > now));
        }
    }

    /// At most eight threads run on at most six cores, which go offline and come back.
    #[test]
    fn oversubscribed_pool_binds_one_long_request_per_big_core(
        history in proptest::collection::vec((0_u64..20, event()), 1..60),
        threshold_ns in 0_u64..40,
    ) {
        let config = Config { scan_times: ScanTimes::Events, threshold: Threshold::Given(threshold_ns), ..Config::default() };
        let mut hurryup = HurryUp::new(config);
        let (mut now, mut out) = (1_000, HurryActions::default());
        let (mut cores, mut has) = (BigLittleCores::default(), BTreeMap::<Thread, CpuMask>::new());
        let mut works: BTreeMap<Thread, (Request, u64)> = BTreeMap::new();
        for (after, event) in history {
            now += after;
            let seen = match event {
                Event::Cores(bits) => {
                    cores = BigLittleCores { big: mask(bits & 0b11), little: mask(bits & !0b11) };
                    HurryEvent::Cores(cores)
                }
                Event::Join(thread, _) => {
                    has.insert(thread, mask(63));
                    works.remove(&thread);
                    HurryEvent::Joined { thread, allowed: mask(63) }
                }
                Event::Leave(thread) => {
                    has.remove(&thread);
                    works.remove(&thread);
                    HurryEvent::Left { thread }
                }
                Event::Begin(thread, request, ago) if has.contains_key(&thread) => {
                    works.retain(|_, (other, _)| *other != request);
                    works.insert(thread, (request, now.saturating_sub(ago)));
                    HurryEvent::Began { thread, request, since: now.saturating_sub(ago) }
                }
                Event::End(request) => {
                    works.retain(|_, (other, _)| *other != request);
                    HurryEvent::Ended { request }
                }
                _ => HurryEvent::Nothing,
            };
            out.clear();
            hurryup.observe(now, &seen, &mut out);
            for action in out.iter() {
                let (thread, cpus) = match action {
                    HurryAction::Map { thread, cpu } => (thread, [cpu].into_iter().collect()),
                    HurryAction::Hurry { thread } => {
                        let (_, since) = works[&thread];
                        prop_assert!(now - since > threshold_ns, "{} is not long", thread);
                        (thread, cores.big)
                    }
                    HurryAction::Restore { thread } => (thread, mask(63)),
                };
                has.insert(thread, cpus);
            }
            let online = cores.big.or(&cores.little).len();
            prop_assert!(online == 0 || has.len() <= online || hurryup.is_oversubscribed());
            if hurryup.is_oversubscribed() {
                let confined: Vec<_> = has.iter().filter(|(_, cpus)| **cpus != mask(63)).collect();
                prop_assert!(confined.len() <= cores.big.len(), "{:?}", confined);
                for (thread, cpus) in confined {
                    prop_assert!(works.contains_key(thread) && *cpus == cores.big, "{} {:?}", thread, cpus);
                }
            }
            for (thread, cpus) in &has {
                let allowed: CpuMask = (0..CPUS).filter(|cpu| hurryup.may_use(*thread, *cpu)).collect();
                prop_assert!(allowed.and(&mask(63)) == *cpus, "{} {:?} {:?}", thread, cpus, allowed);
            }
        }
    }

    #[test]
    fn no_thread_moves_for_a_shorter_request(
        history in proptest::collection::vec((0_u64..20, 0_u32..6, any::<bool>()), 1..40),
        rest_ns in 0_u64..20,
    ) {
        let options = Options { rest_ns, ..Options::default() };
        let config = Config { scan_times: ScanTimes::Events, threshold: Threshold::Given(10), options, ..Config::PAPER };
        let mut hurryup = HurryUp::new(config);
        let (mut now, mut out) = (1_000, HurryActions::default());
        hurryup.observe(now, &HurryEvent::Cores(BigLittleCores { big: mask(0b11), little: mask(0b11_1100) }), &mut out);
        (0..6).for_each(|thread| hurryup.observe(now, &HurryEvent::Joined { thread, allowed: mask(63) }, &mut out));
        let mut works: BTreeMap<Thread, u64> = BTreeMap::new();
        for (after, thread, begins) in history {
            now += after;
            let request = thread.into();
            let seen = if begins { HurryEvent::Began { thread, request, since: now } } else { HurryEvent::Ended { request } };
            if begins { works.insert(thread, now); } else { works.remove(&thread); }
            out.clear();
            hurryup.observe(now, &seen, &mut out);
            let maps = out.iter().collect::<Vec<_>>();
            for pair in maps.chunks(2) {
                let [HurryAction::Map { thread: comes, .. }, HurryAction::Map { thread: leaves, .. }] = pair else {
                    return Err(TestCaseError::fail("six threads on six cores change places"));
                };
                prop_assert!(works.get(leaves).is_none_or(|since| *since > works[comes]));
            }
        }
    }
}

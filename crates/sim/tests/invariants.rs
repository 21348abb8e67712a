//! Tests of the invariants of every run, on random scenarios with every policy.

use proptest::prelude::*;
use proptest::test_runner::{Config, FileFailurePersistence};
use sidelane_policy::borrow::delay::DelayBound;
use sidelane_policy::borrow::{BorrowConfig, ContentionCost, PolicyKind, lending_limits};
use sidelane_sim::arrivals::Arrivals;
use sidelane_sim::demand::{Demand, Lognormal};
use sidelane_sim::engine::watch::{CompletedRequest, Watch};
use sidelane_sim::gate::{Gate, Latency};
use sidelane_sim::model::*;
use sidelane_sim::smt::Interference;
use sidelane_sim::time::{MS, NEVER, Nanos, US, Work};
use sidelane_sim::{Engine, Figures};

/// A random scenario: small numbers from which a model is made.
#[derive(Clone, Debug)]
struct Case {
    workers: usize,
    batch_lanes: usize,
    per_worker: bool,
    load: f64,
    bursty: bool,
    demand: u8,
    mean_us: u64,
    slowdown: f64,
    phases: Vec<(bool, u64)>,
    gate: u8,
    setting: u8,
    budget_us: u64,
    min_idle_us: u64,
    evict_after_us: u64,
    counters: bool,
    faults: u8,
    requests: u64,
    seed: u64,
}

fn cases() -> impl Strategy<Value = Case> {
    let machine = (1_usize..=3, 1_usize..=2, any::<bool>(), 0.02_f64..0.95, any::<bool>(), 0_u8..5, 20_u64..3_000);
    let batch = (1.0_f64..3.0, prop::collection::vec((any::<bool>(), 5_u64..2_000), 0..4), 0_u8..4, any::<bool>());
    let setting = (0_u8..13, 0_u64..3_000, 0_u64..50, prop_oneof![Just(250_000_u64), 0_u64..5_000]);
    let requests = prop_oneof![9 => 5_u64..120, 1 => 120_u64..600];
    let run = (prop_oneof![3 => Just(0_u8), 1 => 0_u8..32], requests, any::<u64>());
    (machine, batch, setting, run).prop_map(|(machine, batch, setting, run)| {
        let (workers, batch_lanes, per_worker, load, bursty, demand, mean_us) = machine;
        let (slowdown, phases, gate, counters) = batch;
        let (setting, budget_us, min_idle_us, evict_after_us) = setting;
        let (faults, requests, seed) = run;
        Case {
            workers,
            batch_lanes,
            per_worker,
            load,
            bursty,
            demand,
            mean_us,
            slowdown,
            phases,
            gate,
            setting,
            budget_us,
            min_idle_us,
            evict_after_us,
            counters,
            faults,
            requests,
            seed,
        }
    })
}

impl Case {
    fn demand(&self) -> Demand {
        let mean_ns = (self.mean_us * US) as f64;
        match self.demand {
            0 => Demand::Constant(mean_ns),
            1 => Demand::Exponential(mean_ns),
            2 => Demand::Lognormal(Lognormal::new(mean_ns, 1.2, f64::INFINITY)),
            3 => Demand::Bimodal { short_ns: 0.3 * mean_ns, long_ns: 8.0 * mean_ns, long_share: 0.1 },
            _ => Demand::Empirical([1, 5_000, self.mean_us * US, 10 * self.mean_us * US].into()),
        }
    }

    fn arrivals(&self) -> Arrivals {
        let gap_ns = (self.mean_us * US) as f64 / self.load / self.workers as f64;
        let bursty = Arrivals::Bursty {
            calm_gap_ns: gap_ns,
            burst_gap_ns: gap_ns / 10.0,
            calm_ns: 20.0 * gap_ns,
            burst_ns: 2.0 * gap_ns,
        };
        if self.bursty { bursty.with_mean_gap(gap_ns) } else { Arrivals::Poisson { gap_ns } }
    }

    fn batch_mode(&self) -> BatchMode {
        let config = BorrowConfig {
            min_idle_ns: self.min_idle_us * US,
            evict_after_ns: self.evict_after_us * US,
            ..BorrowConfig::default()
        };
        let lent = |policy, budget| BatchMode::Lent(Lending::with_policy(policy, config, budget));
        let given = Budget::Given(self.budget_us * US);
        match self.setting {
            8 => lent(PolicyKind::Deadline, given),
            9 => lent(PolicyKind::Deadline, Budget::Slo),
            10 => lent(PolicyKind::ElfenFixed, given),
            11 => lent(PolicyKind::ElfenRefresh, given),
            12 => lent(PolicyKind::ElfenDynamic, given),
            0 => BatchMode::Nothing,
            1 => BatchMode::Unmanaged,
            2 | 3 => lent(PolicyKind::BorrowIdle, Budget::None),
            4 => lent(PolicyKind::FixedBudget, given),
            5 => lent(PolicyKind::RefreshBudget, given),
            6 => lent(PolicyKind::DynamicRefresh, given),
            _ => lent(PolicyKind::DynamicRefresh, Budget::Slo),
        }
    }

    fn gate(&self) -> Gate {
        match self.gate {
            0 => Gate::ideal(),
            1 => Gate::holder(),
            2 => Gate::nanonap(),
            _ => {
                let (off, on) = (Latency::from_percentiles(90_000, 300_000), Latency::constant(40_000));
                Gate { off, on, lc_cost_ns: 5_000, batch_looks: false }
            }
        }
    }

    fn faults(&self) -> Vec<Fault> {
        let all = [
            Fault::LateWakeUp { probability: 0.2, delay_ns: 200 * US },
            Fault::LostSummons { probability: 0.2 },
            Fault::CounterGlitch { probability: 0.2 },
            Fault::Churn { every_ns: 7 * MS, gone_ns: MS },
            Fault::AgentCrash { every_ns: 11 * MS, gone_ns: 2 * MS },
        ];
        all.into_iter().enumerate().filter(|(bit, _)| self.faults >> bit & 1 == 1).map(|(_, fault)| fault).collect()
    }

    fn model(&self) -> Model {
        let mut smt = Interference::new(&["service".to_owned(), "loop".to_owned()]);
        let (service, batch) = (smt.class("service").unwrap(), smt.class("loop").unwrap());
        smt.set_slowdown(service, batch, self.slowdown);
        smt.set_slowdown(batch, service, 1.7);
        smt.set_slowdown(batch, batch, 1.4);
        let phase = |&(waits, us): &(bool, u64)| match waits {
            true => Phase::Wait { ns: us * US },
            false => Phase::Work { class: batch, work_ns: us * US },
        };
        let mut job = Job { name: "loop".to_owned(), phases: self.phases.iter().map(phase).collect() };
        if job.first_computing_class().is_none() {
            job = Job::endless("loop", batch);
        }
        Model {
            machine: Machine {
                cores_per_package: self.workers,
                lanes_per_core: 1 + self.batch_lanes,
                counters: self.counters,
                ..Machine::one_core()
            },
            service: Service {
                name: "service".to_owned(),
                class: service,
                workers: self.workers,
                queue: if self.per_worker { Queue::PerWorker } else { Queue::Shared },
                queue_limit: 40,
                arrivals: self.arrivals(),
                demand: self.demand(),
            },
            batch: vec![job],
            smt,
            setting: Setting { name: "any".to_owned(), beside: self.batch_mode(), gate: self.gate() },
            objective: Some(Objective { percentile: 99.0, limit_ns: 20 * self.mean_us * US }),
            faults: self.faults(),
            warm_up_ns: 0,
            until: RunEnd::Requests(self.requests),
            seed: self.seed,
            node: 0,
        }
    }

    /// Returns the longest time that batch may run beside a request until its keeper, or batch itself, has reacted.
    fn reaction_ns(&self) -> Nanos {
        let late = if self.faults & 1 == 1 { 200 * US } else { 0 };
        self.gate().off.longest_ns() + late
    }
}

/// Watch that records all requests.
#[derive(Default)]
struct RequestLog {
    fates: Vec<CompletedRequest>,
    refused: Vec<u64>,
}

impl Watch for RequestLog {
    fn request_finished(&mut self, request: &CompletedRequest) {
        self.fates.push(*request);
    }

    fn request_refused(&mut self, number: u64) {
        self.refused.push(number);
    }
}

fn run_and_record_requests(model: Model) -> Engine<RequestLog> {
    let mut engine = Engine::new(model, RequestLog::default());
    engine.run();
    engine
}

type Verdict = Result<(), TestCaseError>;

/// Checks that no request is lost or appears twice, and that the times of each are in order.
fn requests_are_conserved(engine: &mut Engine<RequestLog>) -> Verdict {
    let (arrived, under_way) = (engine.accounting().arrived, engine.requests_under_way() as u64);
    let log = engine.watch();
    prop_assert_eq!(arrived, log.fates.len() as u64 + log.refused.len() as u64 + under_way);
    let mut numbers: Vec<u64> = log.fates.iter().map(|fate| fate.number).chain(log.refused.iter().copied()).collect();
    numbers.sort_unstable();
    prop_assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]));
    prop_assert!(numbers.iter().all(|number| (1..=arrived).contains(number)));
    for fate in &log.fates {
        prop_assert!(fate.arrived <= fate.started && fate.started < fate.finished);
        prop_assert_eq!(fate.waited, fate.arrived < fate.started);
        // No request is faster than alone.
        prop_assert!((fate.finished - fate.started) as f64 >= fate.work as f64 / Work::of_ns(1).units() as f64);
    }
    Ok(())
}

/// Checks that the work of requests equals the work of lanes, and that every nanosecond of every core is counted
/// once.
fn work_is_conserved(engine: &mut Engine<RequestLog>) -> Verdict {
    let (accounting, now) = (engine.accounting().clone(), engine.now());
    let cores = engine.model().service.workers as u128;
    let (under_way, log) = (engine.work_done_on_running_requests(), engine.watch());
    let finished: u128 = log.fates.iter().map(|fate| u128::from(fate.work)).sum();
    prop_assert_eq!(accounting.lc_work, finished + under_way);
    prop_assert_eq!(accounting.active_ns.iter().sum::<u128>(), u128::from(now) * cores);
    let busy: u128 = accounting.active_ns.iter().enumerate().map(|(lanes, ns)| lanes as u128 * ns).sum();
    prop_assert_eq!(busy, accounting.lc_busy_ns + accounting.batch_busy_ns);
    prop_assert!(accounting.batch_work <= accounting.batch_busy_ns * u128::from(Work::of_ns(1).units()));
    let co_ran: u128 = log.fates.iter().map(|fate| u128::from(fate.co_run_ns)).sum();
    prop_assert!(co_ran <= accounting.overlap_ns + accounting.lent_ns);
    Ok(())
}

/// Checks how long batch runs beside a request. Without permission it runs for at most one reaction, on each lane.
/// With permission it runs for at most one budget and a reaction, and never beside a request that waited, if the
/// policy spares those. Under a deadline, the time in the queue counts against the budget.
fn overlaps_are_bounded(case: &Case, engine: &mut Engine<RequestLog>) -> Verdict {
    let BatchMode::Lent(lending) = case.batch_mode() else { return Ok(()) };
    if case.faults & 2 != 0 {
        return Ok(());
    }
    let LendingDecider::Policy(policy) = lending.by else { return Ok(()) };
    let lent_ns_max = |fate: &CompletedRequest| match (policy, lending.budget) {
        (PolicyKind::BorrowIdle, _) => Some(0),
        // Elfen's Fig. 9(d) stretches a budget by a factor of up to sixteen.
        (PolicyKind::DynamicRefresh, Budget::Given(ns)) => Some(16 * ns + case.reaction_ns()),
        (PolicyKind::ElfenRefresh | PolicyKind::ElfenDynamic, _) => None,
        (PolicyKind::Deadline, Budget::Given(ns)) => {
            Some(ns.saturating_sub(fate.started - fate.arrived) + case.reaction_ns())
        }
        (_, Budget::Given(ns)) => Some(ns + case.reaction_ns()),
        _ => None,
    };
    // A lane that is lent again during a request can be taken back again. That happens when another request has
    // arrived, or when a budget that was computed anew during the request is spent, too.
    let again = if policy.spares_waited_requests() { 0 } else { engine.accounting().arrived };
    let is_learnt = lending.budget == Budget::Slo || policy == PolicyKind::DynamicRefresh;
    let changes = |fate: &CompletedRequest| match is_learnt {
        true => fate.finished / lending_limits::EVERY_NS - fate.started / lending_limits::EVERY_NS,
        false => 0,
    };
    for fate in &engine.watch().fates {
        let leak_ns = case.reaction_ns() * case.batch_lanes as u64 * (1 + again + changes(fate));
        prop_assert!(fate.leak_ns <= leak_ns, "{leak_ns}: {fate:?}");
        let lent_ns = fate.co_run_ns - fate.leak_ns;
        prop_assert!(lent_ns_max(fate).is_none_or(|most_ns| lent_ns <= most_ns), "{fate:?}");
        prop_assert!(!policy.spares_waited_requests() || !fate.waited || lent_ns == 0, "{fate:?}");
    }
    Ok(())
}

/// Checks the paper's promise (§3.4), for one worker: no request is delayed by more than one budget and three
/// reactions. There is one reaction to the start of the budget, one to its end and one to a request that waited; each
/// is charged with its wakeup.
fn delays_are_at_most_one_budget(case: &Case, engine: &mut Engine<RequestLog>) -> Verdict {
    let BatchMode::Lent(lending) = case.batch_mode() else { return Ok(()) };
    let lost_or_crashed = case.faults & 0b1_0010 != 0;
    // The contention cost of a stretched budget is learned from requests with batch beside them for at least
    // nine tenths of their time.
    let contention_cost_is_known = case.counters && case.batch_lanes == 1 && case.faults & 0b100 == 0;
    let known = match (lending.by, lending.budget) {
        (_, Budget::None) => Some(0),
        (by, _) if !by.spares_requests_that_waited() => None,
        (LendingDecider::Policy(PolicyKind::DynamicRefresh), Budget::Given(ns)) => {
            contention_cost_is_known.then_some(ns + ns / 8)
        }
        (_, Budget::Given(ns)) => Some(ns),
        _ => None,
    };
    let Some(budget_ns) = known.filter(|_| case.workers == 1 && !lost_or_crashed) else { return Ok(()) };
    if !engine.watch().refused.is_empty() {
        return Ok(());
    }
    let lanes = case.batch_lanes as u64;
    let slack_ns = lanes * (2 * case.reaction_ns() + 2 * case.gate().lc_cost_ns) + case.requests + 200;
    let mut alone = run_and_record_requests(engine.model().without_batch());
    let alone = &alone.watch().fates;
    for (alone, beside) in alone.iter().zip(&engine.watch().fates) {
        prop_assert_eq!(alone.number, beside.number);
        let limit_ns = alone.finished - alone.arrived + budget_ns + slack_ns;
        prop_assert!(beside.finished - beside.arrived <= limit_ns, "{alone:?} {beside:?}");
    }
    Ok(())
}

/// Checks, with any decider and one worker, that each request is delayed by at most the time that its core lost to
/// batch and to summonses in its busy period.
fn delays_are_at_most_the_cost_of_the_busy_period(case: &Case, engine: &mut Engine<RequestLog>) -> Verdict {
    let crashed = case.faults & 0b1_0000 != 0;
    if case.workers > 1 || crashed || case.setting == 0 || !engine.watch().refused.is_empty() {
        return Ok(());
    }
    let extra = (case.slowdown - 1.0) * case.batch_lanes as f64;
    let contention_cost = ContentionCost::from_ppm((1e6 * extra / (1.0 + extra)).ceil() as u32);
    let (mut alone, mut bound) = (run_and_record_requests(engine.model().without_batch()), DelayBound::default());
    let summons_ns = 2 * case.batch_lanes as u64 * case.gate().lc_cost_ns;
    let mut paid_ns = 0;
    for (alone, beside) in alone.watch().fates.iter().zip(&engine.watch().fates) {
        paid_ns = if beside.waited { paid_ns } else { 0 } + summons_ns + 2 + beside.co_run_ns / 100_000;
        let limit_ns = bound.add_finished_request(beside.waited, beside.co_run_ns, contention_cost) + paid_ns;
        let (alone_ns, beside_ns) = (alone.finished - alone.arrived, beside.finished - beside.arrived);
        prop_assert!(beside_ns <= alone_ns + limit_ns, "{alone:?} {beside:?} {limit_ns}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(Config {
        cases: std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(10_000),
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("proptest-regressions"))),
        ..Config::default()
    })]

    #[test]
    fn requests_and_work_are_conserved_and_costs_bounded(case in cases()) {
        let mut engine = run_and_record_requests(case.model());
        requests_are_conserved(&mut engine)?;
        work_is_conserved(&mut engine)?;
        overlaps_are_bounded(&case, &mut engine)?;
        delays_are_at_most_one_budget(&case, &mut engine)?;
        delays_are_at_most_the_cost_of_the_busy_period(&case, &mut engine)?;
        if case.seed % 8 == 0 {
            prop_assert_eq!(Figures::from_engine(&run_and_record_requests(case.model())), Figures::from_engine(&engine));
        }
    }
}

/// Without faults, without evictions and with an ideal gate there is no overlap without permission.
#[test]
fn ideal_gate_causes_no_overlap() {
    let case = Case {
        workers: 1,
        batch_lanes: 1,
        per_worker: false,
        load: 0.6,
        bursty: true,
        demand: 2,
        mean_us: 200,
        slowdown: 2.0,
        phases: vec![],
        gate: 0,
        setting: 2,
        budget_us: 0,
        min_idle_us: 8,
        evict_after_us: NEVER / 1_000,
        counters: true,
        faults: 0,
        requests: 20_000,
        seed: 1,
    };
    let engine = run_and_record_requests(case.model());
    assert_eq!(engine.accounting().overlap_ns + engine.accounting().lent_ns, 0);
    assert!(engine.accounting().holds > 1_000);
}

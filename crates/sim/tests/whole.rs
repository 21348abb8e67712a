//! Tests of the invariants of whole machines, on random scenarios, under every policy and under random actions.

mod common;

use common::machine;
use proptest::prelude::*;
use proptest::test_runner::{Config, FileFailurePersistence};
use sidelane_policy::cpus::{CpuAction, CpuActions, CpuMask, CpuReason, MachineObservation};
use sidelane_policy::{Nanos, Policy};
use sidelane_sim::machine::figures::MachineFigures;
use sidelane_sim::machine::layout::Layout;
use sidelane_sim::machine::model::MachineModel;
use sidelane_sim::machine::setting::ContainerMode;
use sidelane_sim::machine::{CpuPolicy, MachineEngine};

/// Number of times that a run is stopped and checked.
const STOPS: u64 = 40;
const RUN_NS: Nanos = 100_000_000;

/// Policy that takes random actions, from a generator of its own.
#[derive(Clone, Debug)]
struct RandomPolicy(u64);

impl RandomPolicy {
    fn draw(&mut self) -> u64 {
        // One step of the generator xorshift64.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns some of these CPUs, at least one.
    fn random_subset(&mut self, cpus: &CpuMask) -> CpuMask {
        let chosen: CpuMask = cpus.iter().filter(|_| self.draw().is_multiple_of(2)).collect();
        if chosen.is_empty() { *cpus } else { chosen }
    }
}

impl Policy for RandomPolicy {
    type Observation = MachineObservation;
    type Actions = CpuActions;
    type Reason = CpuReason;

    fn observe(&mut self, _: Nanos, seen: &MachineObservation, out: &mut CpuActions) {
        for (container, seen) in seen.containers.iter().enumerate() {
            let Some(seen) = seen else { continue };
            match self.draw() % 4 {
                0 => out.push(CpuAction::Pause { container }),
                1 | 2 => out.push(CpuAction::Confine { container, cpus: self.random_subset(&seen.allowed) }),
                _ => {}
            }
        }
        let cpus = (0..seen.cpus.len()).filter(|cpu| seen.cpus[*cpu].online).collect();
        for (service, seen) in seen.services.iter().enumerate() {
            if seen.is_some_and(|seen| seen.may_be_placed) && self.draw().is_multiple_of(4) {
                out.push(CpuAction::Place { service, cpus: self.random_subset(&cpus) });
            }
        }
    }

    fn next_wakeup(&self) -> Option<Nanos> {
        None
    }

    fn why(&self) -> CpuReason {
        CpuReason::Steady
    }
}

#[derive(Clone, Debug)]
struct Case {
    cores: usize,
    lanes: usize,
    services: Vec<(usize, u64, u32)>,
    containers: Vec<(u64, u64, u64, bool)>,
    pressure: bool,
    gated: bool,
    policy: u8,
    seed: u64,
}

fn cases() -> impl Strategy<Value = Case> {
    let services = prop::collection::vec((1_usize..5, 20_u64..400, 0_u32..4), 1..4);
    let containers = prop::collection::vec((1_u64..6, 1_u64..4, 1_u64..60, any::<bool>()), 0..4);
    (2_usize..5, 1_usize..3, services, containers, any::<bool>(), any::<bool>(), 0_u8..5, 0_u64..1 << 60).prop_map(
        |(cores, lanes, services, containers, pressure, gated, policy, seed)| Case {
            cores,
            lanes,
            services,
            containers,
            pressure,
            gated,
            policy,
            seed,
        },
    )
}

impl Case {
    fn scenario_text(&self) -> String {
        let cpus = self.cores * self.lanes;
        let mut text = format!(
            "run_s = 0.1\nseed = {}\n[machine]\ncores_per_package = {}\nlanes_per_core = {}\n",
            self.seed, self.cores, self.lanes
        );
        if self.pressure {
            text += "[chip]\nslowdown = [{ pressure = 1, times = 1 }, { pressure = 4, times = 1.6 }]\n[chip.intensity]\ns0 = 1\n";
        }
        for (at, (workers, mean_us, fan_out)) in self.services.iter().enumerate() {
            let calls = match at + 1 < self.services.len() && *fan_out > 0 {
                true => format!("calls = [{{ service = \"s{}\", fan_out = {fan_out} }}]\n", at + 1),
                false => String::new(),
            };
            let last = (at + 1).min(cpus - 1);
            text += &format!(
                "[[service]]\nname = \"s{at}\"\nworkers = {workers}\ncpus = \"0-{last}\"\nqueue_limit = 20\n\
                 queue = \"{}\"\nmay_be_placed = {}\n\
                 demand = {{ kind = \"exponential\", mean_ms = {} }}\n{calls}",
                if at % 2 == 0 { "shared" } else { "per-worker" },
                at == 0,
                *mean_us as f64 / 1e3
            );
            if at == 0 || at == 2 {
                text += "arrivals = { kind = \"poisson\", load_percent = 40 }\n";
            }
        }
        for (at, (cpus_wanted, count, work_ms, submitted)) in self.containers.iter().enumerate() {
            let coming = match submitted {
                true => "arrivals = { kind = \"poisson\", rate_per_s = 100 }",
                false => "gap_ms = 0.5",
            };
            let wanted = (*cpus_wanted).min(cpus as u64);
            text += &format!(
                "[[container]]\nname = \"c{at}\"\ncpus = {wanted}\ncount = {count}\n{coming}\n\
                 work = {{ kind = \"exponential\", mean_ms = {work_ms} }}\n[slowdown.s0]\nc{at} = 1.7\n\
                 [slowdown.c{at}]\nc{at} = 1.3\ns0 = 1.2\n"
            );
        }
        let text = merge_slowdown_tables(&text);
        let policy = ["alone", "unmanaged", "perfiso", "holmes", "holmes"][usize::from(self.policy)];
        let gate = if self.gated && self.policy > 1 { "gate = { kind = \"holder\" }\n" } else { "" };
        format!(
            "{text}[memory.s0]\naccesses_per_us = 50\nstall_share = 0.4\n[memory.c0]\npressure = 0.9\n\
             [control]\nlook_us = 300\nring_p50_us = 20\n[[setting]]\npolicy = \"{policy}\"\n{gate}"
        )
    }

    fn model(&self) -> MachineModel {
        let text = self.scenario_text();
        let text = if self.containers.is_empty() { text.replace("[memory.c0]\npressure = 0.9\n", "") } else { text };
        machine(&text).points[0].runs[0].clone()
    }

    fn engine(&self) -> MachineEngine {
        let anything: Option<Box<CpuPolicy>> = Some(Box::new(RandomPolicy(self.seed | 1)));
        match self.policy {
            4 => MachineEngine::with_policy(self.model(), anything),
            _ => MachineEngine::new(self.model()),
        }
    }
}

/// Merges the rows of all tables `[slowdown.s0]` into one, since TOML allows each table once.
fn merge_slowdown_tables(text: &str) -> String {
    let rows: String = text
        .split("[slowdown.s0]\n")
        .skip(1)
        .filter_map(|rest| rest.lines().next())
        .fold(String::new(), |all, row| all + row + "\n");
    let without: String = text
        .split("[slowdown.s0]\n")
        .enumerate()
        .map(|(at, part)| if at == 0 { part.to_owned() } else { part.split_once('\n').unwrap().1.to_owned() })
        .collect();
    if rows.is_empty() { without } else { format!("{without}[slowdown.s0]\n{rows}") }
}

fn check_task_placement(engine: &MachineEngine) -> Result<(), TestCaseError> {
    let model = engine.model();
    let layout = Layout::new(&model.machine);
    let on = |place: usize| {
        (0..layout.cpus()).filter(|cpu| engine.service_and_containers_on(*cpu).1.contains(&place)).collect::<CpuMask>()
    };
    for (place, kind, mask) in engine.slot_kind_and_cpus_of_containers() {
        let threads = on(place);
        prop_assert!(threads.is_subset(&mask), "container {place} is on {threads}, may be on {mask}");
        prop_assert!(mask.is_subset(&model.kinds[kind].allowed));
        prop_assert_eq!(threads.len(), mask.len().min(model.kinds[kind].wanted as usize));
    }
    let known: Vec<usize> = engine.slot_kind_and_cpus_of_containers().map(|(place, ..)| place).collect();
    for cpu in 0..layout.cpus() {
        let (service, containers) = engine.service_and_containers_on(cpu);
        prop_assert!(containers.iter().all(|place| known.contains(place)));
        prop_assert!(service.is_none_or(|service| engine.allowed(service).contains(cpu)));
        // No task waits while a CPU that it may use is idle.
        prop_assert!(
            service.is_some()
                || engine.services_of_waiting_threads().all(|service| !engine.allowed(service).contains(cpu))
        );
        prop_assert!(model.setting.beside != ContainerMode::Nothing || containers.is_empty());
    }
    Ok(())
}

/// Checks that every request that came to a service was answered, has failed or is under way.
fn check_requests(engine: &MachineEngine) -> Result<(), TestCaseError> {
    let accounting = &engine.accounting().services;
    let sum =
        |of: fn(&sidelane_sim::machine::accounting::ServiceAccounting) -> u64| accounting.iter().map(of).sum::<u64>();
    let ended = sum(|service| service.whole.all.len()) + sum(|service| service.failed);
    prop_assert_eq!(sum(|service| service.arrived), ended + engine.requests_under_way() as u64);
    for service in accounting {
        prop_assert!(service.refused <= service.failed && service.beside_batch_ns <= service.busy_ns);
    }
    Ok(())
}

fn check_accounting_sums(engine: &MachineEngine) -> Result<(), TestCaseError> {
    let figures = MachineFigures::from_engine(engine, &[]);
    let model = engine.model();
    let cpus = (model.machine.cores() * model.machine.lanes_per_core) as f64;
    prop_assert!(figures.utilisation <= 1.0 + 1e-9 && figures.service_utilisation <= figures.utilisation);
    let batch_busy_ns = engine.accounting().batch_busy_ns as f64;
    prop_assert!(figures.batch_work_ns <= batch_busy_ns + 1.0, "{figures:?}");
    let active: u128 = engine.accounting().active_ns.iter().sum();
    prop_assert_eq!(active, u128::from(engine.now()) * model.machine.cores() as u128);
    prop_assert!(batch_busy_ns <= cpus * engine.now() as f64);
    Ok(())
}

proptest! {
    #![proptest_config(Config {
        cases: 400,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("proptest-regressions"))),
        ..Config::default()
    })]

    #[test]
    fn machine_invariants_hold_under_any_decisions(case in cases()) {
        let mut engine = case.engine();
        for stop in 1..=STOPS {
            engine.run_to(stop * RUN_NS / STOPS);
            check_task_placement(&engine)?;
            check_requests(&engine)?;
            check_accounting_sums(&engine)?;
        }
        // A run without stops has the same result.
        let mut again = case.engine();
        again.run();
        prop_assert_eq!(MachineFigures::from_engine(&again, &[]), MachineFigures::from_engine(&engine, &[]));
    }
}

//! Properties of all random histories under Holmes and PerfIso.

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use sidelane_policy::cpus::{CpuAction, CpuMask, MAX_CONTAINERS, MachineObservation};
use sidelane_policy::holmes::{Holmes, HolmesConfig};
use sidelane_policy::perfiso::{PerfIso, PerfIsoConfig};
use sidelane_policy::{Nanos, Policy};

use crate::histories::{History, history};
use crate::scene::{MS, MachineState, Scene};

const THRESHOLD: f64 = 40.0;
const S: Nanos = 100 * MS;

fn holmes(history: &History) -> Holmes {
    let config = HolmesConfig {
        threshold: THRESHOLD,
        calm_ns: S,
        reserved: history.reserved(),
        floor: history.floor,
        ..HolmesConfig::default()
    };
    Holmes::new(config, history.machine.cores())
}

fn perfiso(history: &History) -> PerfIso {
    PerfIso::new(PerfIsoConfig { buffer: history.machine.cpus() / 4, floor: history.floor, window_ns: MS })
}

/// Checks that the actions are within what the owners permit and online CPUs allow, and that their order is right.
fn check_actions_are_valid(state: &MachineState, actions: &[CpuAction], seen: &MachineObservation) -> TestCaseResult {
    let online = seen.online();
    let mut stage = 0;
    for action in actions {
        let now = match *action {
            CpuAction::Confine { container, cpus } => {
                let of = seen.containers[container].expect("it is there");
                prop_assert!(!cpus.is_empty() && cpus.is_subset(&of.allowed.and(&online)), "{action:?}");
                prop_assert_ne!(state.containers[container], Some(cpus), "it has them already");
                if state.containers[container].is_some_and(|before| before.is_subset(&cpus)) { 2 } else { 0 }
            }
            CpuAction::Pause { container } => {
                prop_assert!(seen.containers[container].is_some());
                prop_assert_ne!(state.containers[container], Some(CpuMask::EMPTY), "it is paused already");
                0
            }
            CpuAction::Place { service, cpus } => {
                let of = seen.services[service].expect("it is there");
                prop_assert!(of.may_be_placed && !cpus.is_empty() && cpus.is_subset(&of.allowed.and(&online)));
                1
            }
        };
        prop_assert!(stage <= now, "what takes comes first, then services, then what gives: {actions:?}");
        stage = now;
    }
    Ok(())
}

/// Checks that each container has an online CPU that its owner permits, or is paused.
fn check_containers_have_a_cpu_or_are_paused(state: &MachineState, seen: &MachineObservation) -> TestCaseResult {
    for (told, of) in state.containers.iter().zip(&seen.containers) {
        prop_assert_eq!(told.is_some(), of.is_some(), "each was told something");
        if let (Some(cpus), Some(of)) = (told, of) {
            prop_assert!(cpus.is_subset(&of.allowed.and(&seen.online())), "{cpus:?} of {of:?}");
        }
    }
    Ok(())
}

fn check_odd_containers_have_a_cpu(state: &MachineState, seen: &MachineObservation) -> TestCaseResult {
    for (told, of) in state.containers.iter().zip(&seen.containers).skip(1).step_by(2) {
        if let (Some(cpus), Some(of)) = (told, of) {
            prop_assert_eq!(cpus.is_empty(), of.allowed.and(&seen.online()).is_empty(), "{:?} of {:?}", cpus, of);
        }
    }
    Ok(())
}

/// Time of the last interference on each core with a service, computed from the observations alone.
#[derive(Default)]
struct InterferenceOnsets {
    at: Vec<Option<Nanos>>,
    now: Vec<bool>,
}

impl InterferenceOnsets {
    fn record_onsets(
        &mut self,
        siblings: &[CpuMask],
        seen: &MachineObservation,
        before: &MachineObservation,
        now: Nanos,
    ) {
        self.at.resize(siblings.len(), None);
        self.now.resize(siblings.len(), false);
        let ended = seen.services.iter().zip(&before.services).any(|(now, before)| now.is_none() && before.is_some());
        let serving = seen.services.iter().flatten().fold(CpuMask::EMPTY, |all, service| all.or(&service.ran_on));
        for (core, cpus) in siblings.iter().enumerate() {
            let disturbed = |cpu: usize| {
                let cpu = &seen.cpus[cpu];
                cpu.online && cpu.interference.is_some_and(|value| value >= THRESHOLD)
            };
            self.now[core] = serving.and(cpus).iter().any(disturbed);
            self.at[core] = if self.now[core] { Some(now) } else { self.at[core].filter(|_| !ended) };
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn holmes_actions_are_always_possible(history in history()) {
        let (mut holmes, mut told, mut result) = (holmes(&history), MachineState::default(), Ok(()));
        history.replay(|scene, later_ns| {
            told.remove_ended(&scene.seen);
            let actions = scene.observe_after(&mut holmes, later_ns);
            let sound = check_actions_are_valid(&told, &actions, &scene.seen);
            told.carry_out(&actions);
            let now = scene.now;
            result = core::mem::replace(&mut result, Ok(()))
                .and(sound)
                .and(check_containers_have_a_cpu_or_are_paused(&told, &scene.seen))
                .and(if holmes.next_wakeup().is_none_or(|at| at > now) { Ok(()) } else { Err(TestCaseError::fail("wake-up")) });
        });
        result?;
    }

    /// No CPU has two roles, reserved CPUs are never batch's, and the floor is kept.
    #[test]
    fn holmes_gives_each_cpu_one_role(history in history()) {
        let (mut holmes, mut told, mut result) = (holmes(&history), MachineState::default(), Ok(()));
        history.replay(|scene, later_ns| {
            told.remove_ended(&scene.seen);
            told.carry_out(&scene.observe_after(&mut holmes, later_ns));
            let after = check_each_cpu_has_one_role(&holmes, &told, &scene.seen, &history);
            result = core::mem::replace(&mut result, Ok(())).and(after);
        });
        result?;
    }

    /// A container in an odd slot cannot be paused: it has a CPU as long as there is one that it may use.
    #[test]
    fn unpausable_container_is_never_paused(history in history()) {
        let (mut holmes, mut perfiso, mut result) = (holmes(&history), perfiso(&history), Ok(()));
        let mut told = [MachineState::default(), MachineState::default()];
        history.replay(|scene, later_ns| {
            let odd = |scene: &mut Scene| scene.seen.containers.iter_mut().skip(1).step_by(2).flatten().for_each(
                |container| container.can_pause = false,
            );
            odd(scene);
            let now = scene.now;
            for (place, told) in told.iter_mut().enumerate() {
                told.remove_ended(&scene.seen);
                scene.now = now;
                let actions = match place {
                    0 => scene.observe_after(&mut holmes, later_ns),
                    _ => scene.observe_after(&mut perfiso, later_ns),
                };
                let sound = check_actions_are_valid(told, &actions, &scene.seen);
                told.carry_out(&actions);
                let kept = check_odd_containers_have_a_cpu(told, &scene.seen);
                result = core::mem::replace(&mut result, Ok(())).and(sound).and(kept);
            }
        });
        result?;
    }

    /// Batch leaves a disturbed core at once, and returns after the calm time S at the earliest.
    #[test]
    fn batch_leaves_disturbed_core_and_returns_after_calm_time(mut history in history()) {
        history.floor = 0;
        let siblings = history.machine.cpus_of_each_core();
        let (mut holmes, mut told, mut result) = (holmes(&history), MachineState::default(), Ok(()));
        let (mut onsets, mut before) = (InterferenceOnsets::default(), Box::<MachineObservation>::default());
        history.replay(|scene, later_ns| {
            told.remove_ended(&scene.seen);
            let had = told.clone();
            told.carry_out(&scene.observe_after(&mut holmes, later_ns));
            onsets.record_onsets(&siblings, &scene.seen, &before, scene.now);
            before.clone_from(&scene.seen);
            let after = check_no_batch_beside_disturbed_services(&siblings, &onsets, &had, &told, scene.now);
            result = core::mem::replace(&mut result, Ok(())).and(after);
        });
        result?;
    }

    /// With constant input there are no more actions after a while, and all containers have their fair share.
    #[test]
    fn holmes_stops_acting_on_constant_input(history in history()) {
        let (mut holmes, mut told) = (holmes(&history), MachineState::default());
        let mut scene = history.replay(|scene, later_ns| {
            told.remove_ended(&scene.seen);
            told.carry_out(&scene.observe_after(&mut holmes, later_ns));
        });
        // The longest wait is 32 calm times, and an added reserved CPU is given up in 11.
        let added = holmes.reserved().without(&history.reserved()).len();
        for _ in 0..60 + 11 * added {
            told.carry_out(&scene.observe_after(&mut holmes, S));
        }
        for _ in 0..40 {
            prop_assert_eq!(scene.observe_after(&mut holmes, S), []);
        }
        check_fair_shares(&holmes, &told, &scene)?;
    }

    /// When the last service is gone, batch has all CPUs except those reserved by the configuration, at once.
    #[test]
    fn without_services_batch_has_all_but_the_reserved_cpus(history in history()) {
        let (mut holmes, mut told) = (holmes(&history), MachineState::default());
        let mut scene = history.replay(|scene, later_ns| {
            told.remove_ended(&scene.seen);
            told.carry_out(&scene.observe_after(&mut holmes, later_ns));
        });
        scene.seen.services.fill(None);
        for _ in 0..100 {
            told.carry_out(&scene.observe_after(&mut holmes, MS));
        }
        let free = scene.seen.online().without(&history.reserved());
        prop_assert_eq!(holmes.allowed_batch_cpus(), free);
        check_fair_shares(&holmes, &told, &scene)?;
    }

    #[test]
    fn perfiso_actions_are_possible_and_end(history in history()) {
        let (mut perfiso, mut told, mut result) = (perfiso(&history), MachineState::default(), Ok(()));
        let mut scene = history.replay(|scene, later_ns| {
            told.remove_ended(&scene.seen);
            let actions = scene.observe_after(&mut perfiso, later_ns);
            let sound = check_actions_are_valid(&told, &actions, &scene.seen);
            told.carry_out(&actions);
            let batch = perfiso.allowed_batch_cpus();
            let all: CpuMask = scene.seen.containers.iter().flatten().fold(batch, |all, of| all.without(&of.allowed));
            let group = told.used() == batch.without(&all) && batch.len() >= history.floor.min(scene.seen.online().len());
            result = core::mem::replace(&mut result, Ok(()))
                .and(sound)
                .and(check_containers_have_a_cpu_or_are_paused(&told, &scene.seen))
                .and(if group { Ok(()) } else { Err(TestCaseError::fail("one group, not below the floor")) });
        });
        result?;
        (0..25).for_each(|_| drop(scene.observe_after(&mut perfiso, MS)));
        for _ in 0..40 {
            prop_assert_eq!(scene.observe_after(&mut perfiso, MS), []);
        }
    }
}

fn check_each_cpu_has_one_role(
    holmes: &Holmes,
    told: &MachineState,
    seen: &MachineObservation,
    history: &History,
) -> TestCaseResult {
    let (reserved, taken, batch) = (holmes.reserved(), holmes.cpus_withheld_from_batch(), holmes.allowed_batch_cpus());
    let online = seen.online();
    prop_assert!(history.reserved().is_subset(&reserved));
    prop_assert!(reserved.and(&taken).is_empty() && reserved.and(&batch).is_empty() && taken.and(&batch).is_empty());
    prop_assert_eq!(reserved.and(&online).or(&taken).or(&batch), online);
    prop_assert!(told.used().and(&history.reserved()).is_empty(), "batch on a reserved CPU");
    prop_assert!(told.used().is_subset(&batch), "{:?} is used, {batch:?} is batch's", told.used());
    let most = online.without(&history.reserved()).len();
    prop_assert!(batch.len() >= history.floor.min(most), "{batch:?} is less than the floor");
    Ok(())
}

fn check_no_batch_beside_disturbed_services(
    siblings: &[CpuMask],
    onsets: &InterferenceOnsets,
    had: &MachineState,
    told: &MachineState,
    now: Nanos,
) -> TestCaseResult {
    for (core, cpus) in siblings.iter().enumerate() {
        prop_assert!(!onsets.now[core] || told.used().and(cpus).is_empty(), "batch stays on {cpus:?}");
        let came = told.used().without(&had.used()).and(cpus);
        let is_early = onsets.at[core].is_some_and(|at| now - at < S);
        prop_assert!(!is_early || came.is_empty(), "batch is back on {came:?}");
    }
    Ok(())
}

/// Checks that each container has what it asks for if there is enough, and that no better CPU is open to it.
fn check_fair_shares(holmes: &Holmes, state: &MachineState, scene: &Scene) -> TestCaseResult {
    for place in 0..MAX_CONTAINERS {
        let (Some(of), Some(own)) = (scene.seen.containers[place], state.containers[place]) else { continue };
        let others = |least: i32| {
            let is_other = move |at: &usize| *at != place;
            (0..MAX_CONTAINERS).filter(is_other).filter_map(move |at| {
                let other = scene.seen.containers[at].filter(|other| other.priority >= least)?;
                Some((other.priority, state.containers[at]?))
            })
        };
        let higher = others(of.priority + 1).fold(CpuMask::EMPTY, |all, (_, cpus)| all.or(&cpus));
        let may_have = of.allowed.and(&holmes.allowed_batch_cpus());
        let undisputed = may_have.without(&higher);
        let count = |cpu: usize| others(of.priority).filter(|(_, cpus)| cpus.contains(cpu)).count();
        let wanted = of.wanted.max(1) as usize;
        if undisputed.is_empty() {
            prop_assert_eq!(own.len(), 1.min(may_have.len()), "one CPU, shared with a higher priority");
            continue;
        }
        prop_assert_eq!(own.len(), wanted.min(undisputed.len()), "container {}", place);
        let most = own.iter().map(count).max().unwrap_or_default();
        let better = undisputed.without(&own).iter().find(|cpu| count(*cpu) < most);
        prop_assert!(better.is_none(), "container {place} has {own:?}, and {better:?} is less crowded");
    }
    Ok(())
}

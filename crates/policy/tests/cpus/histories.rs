//! Random histories of random machines, for property tests of the policies for CPUs.

use proptest::prelude::*;

use sidelane_policy::Nanos;
use sidelane_policy::cpus::{ContainerObservation, CoreTopology, CpuMask, MachineObservation, ServiceObservation};

use crate::scene::{MS, Scene};

/// Number of slots that a history uses for services and containers.
const SERVICES: u64 = 4;
const CONTAINERS: u64 = 7;
/// Largest number of CPUs of a random machine.
const CPUS_MAX: u32 = 20;

/// Random machine of one to five cores with one to four CPUs each, numbered core by core or in Linux's numbering.
#[derive(Clone, Debug)]
pub struct Machine {
    threads: Vec<usize>,
    core_by_core: bool,
}

impl Machine {
    pub fn cpus(&self) -> usize {
        self.threads.iter().sum()
    }

    pub fn cores(&self) -> CoreTopology {
        CoreTopology::from_cores(self.cpus_of_each_core())
    }

    /// Returns the CPUs of each core.
    pub fn cpus_of_each_core(&self) -> Vec<CpuMask> {
        let mut threads: Vec<(usize, usize)> =
            self.threads.iter().enumerate().flat_map(|(core, count)| (0..*count).map(move |at| (core, at))).collect();
        if !self.core_by_core {
            threads.sort_by_key(|(core, at)| (*at, *core));
        }
        let of_core = |core| move |cpu: &(usize, &(usize, usize))| cpu.1.0 == core;
        let cpus = |core| threads.iter().enumerate().filter(of_core(core)).map(|(cpu, _)| cpu).collect();
        (0..self.threads.len()).map(cpus).collect()
    }
}

/// Event of a history, or an observation of the policy.
#[derive(Clone, Debug)]
enum Event {
    Service(usize, ServiceObservation),
    ServiceEnds(usize),
    Container(usize, ContainerObservation),
    ContainerEnds(usize),
    Online(usize, bool),
    Busy(usize, f64, f64),
    Interference(usize, Option<f64>),
    Look(Nanos),
}

#[derive(Clone)]
pub struct History {
    pub machine: Machine,
    /// Reserved CPUs, one bit each.
    reserved: u32,
    pub floor: usize,
    /// Encoded events, one word for each, so that they are made fast, and a failing history is small.
    words: Vec<u64>,
}

impl std::fmt::Debug for History {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{:?}, reserved {}, floor {}", self.machine, self.reserved(), self.floor)?;
        self.events().try_for_each(|event| writeln!(f, "{event:?}"))
    }
}

pub fn history() -> impl Strategy<Value = History> {
    let machine = (prop::collection::vec(1_usize..=4, 1..=5), any::<bool>())
        .prop_map(|(threads, core_by_core)| Machine { threads, core_by_core });
    let floor = prop_oneof![3 => Just(0), 1 => 1_usize..4];
    (machine, any::<u32>(), floor, prop::collection::vec(any::<u64>(), 1..90))
        .prop_map(|(machine, reserved, floor, words)| History { machine, reserved: reserved & 0x11111, floor, words })
}

impl History {
    pub fn reserved(&self) -> CpuMask {
        bits_to_mask(self.reserved, self.machine.cpus())
    }

    fn events(&self) -> impl Iterator<Item = Event> + '_ {
        self.words.iter().map(|word| decode_event(*word, self.machine.cpus()))
    }

    /// Calls `on_look` at each observation of the history and at its end, with the scene and the time since the last
    /// observation. Returns the scene at the end.
    pub fn replay(&self, mut on_observation: impl FnMut(&mut Scene, Nanos)) -> Scene {
        let mut scene = Scene::with_cpus(self.machine.cpus());
        let mut ended = (CpuMask::EMPTY, CpuMask::EMPTY);
        for event in self.events().chain([Event::Look(MS)]) {
            if let Event::Look(later_ns) = event {
                on_observation(&mut scene, later_ns);
                ended = Default::default();
            } else {
                apply_event(event, &mut scene.seen, &mut ended);
            }
        }
        scene
    }
}

/// Applies an event to the observation. `ended_slots` are the slots of services and containers that must stay empty
/// until the next observation.
fn apply_event(event: Event, seen: &mut MachineObservation, ended_slots: &mut (CpuMask, CpuMask)) {
    match event {
        Event::Service(place, service) if !ended_slots.0.contains(place) => seen.services[place] = Some(service),
        Event::Container(place, container) if !ended_slots.1.contains(place) => {
            seen.containers[place] = Some(container)
        }
        Event::ServiceEnds(place) => {
            seen.services[place] = None;
            ended_slots.0.insert(place);
        }
        Event::ContainerEnds(place) => {
            seen.containers[place] = None;
            ended_slots.1.insert(place);
        }
        Event::Online(cpu, online) => seen.cpus[cpu].online = online,
        Event::Busy(cpu, busy, serving) => (seen.cpus[cpu].busy, seen.cpus[cpu].serving) = (busy, serving),
        Event::Interference(cpu, value) => seen.cpus[cpu].interference = value,
        Event::Service(..) | Event::Container(..) | Event::Look(_) => {}
    }
}

/// Returns the event that a word encodes.
fn decode_event(word: u64, cpu_count: usize) -> Event {
    let (kind, mut word) = (word % 32, word / 32);
    let mut next = |below: u64| {
        let digit = word % below;
        word /= below;
        digit
    };
    let cpu = next(u64::from(CPUS_MAX)) as usize % cpu_count;
    match kind {
        0..=8 => Event::Look(match next(5) {
            0 => 1 + next(1000),
            4 => 1 + next(500 * MS),
            _ => 1 + next(20 * MS),
        }),
        9..=12 => Event::Service(next(SERVICES) as usize, {
            let (allowed, ran_on) = (random_cpu_bits(&mut next), random_cpu_bits(&mut next));
            let may_be_placed = next(2) == 1;
            ServiceObservation {
                allowed: bits_to_mask(allowed, cpu_count),
                ran_on: bits_to_mask(ran_on & allowed, cpu_count),
                may_be_placed,
            }
        }),
        13 => Event::ServiceEnds(next(SERVICES) as usize),
        14..=18 => Event::Container(next(CONTAINERS) as usize, {
            let (allowed, wanted, priority) = (random_cpu_bits(&mut next), next(8) as u32, next(3) as i32);
            ContainerObservation {
                allowed: bits_to_mask(allowed, cpu_count),
                as_found: true,
                can_pause: true,
                wanted,
                priority,
            }
        }),
        19 => Event::ContainerEnds(next(CONTAINERS) as usize),
        20 => Event::Online(cpu, next(2) == 1),
        21..=24 => {
            let (busy, serving) = (next(11) as f64 / 10.0, next(11) as f64 / 10.0);
            Event::Busy(cpu, busy.max(serving), serving)
        }
        _ => Event::Interference(cpu, [None, Some(0.0), Some(39.0), Some(40.0), Some(90.0)][next(5) as usize]),
    }
}

/// Returns a set of CPUs as bits: all, a single one, or a random set.
fn random_cpu_bits(next: &mut impl FnMut(u64) -> u64) -> u32 {
    let some = next(1 << CPUS_MAX) as u32;
    match next(4) {
        0 => u32::MAX,
        1 => 1 << (some % CPUS_MAX),
        _ => some,
    }
}

fn bits_to_mask(set: u32, cpu_count: usize) -> CpuMask {
    (0..cpu_count).filter(|cpu| set >> cpu & 1 == 1).collect()
}

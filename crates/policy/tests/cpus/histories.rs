//! Random histories of random machines.

use proptest::prelude::*;

use sidelane_policy::Nanos;
use sidelane_policy::cpus::{ContainerSeen, Cores, CpuMask, Observation, ServiceSeen};

use crate::scene::{MS, Scene};

/// Places that are used.
const SERVICES: usize = 4;
const CONTAINERS: usize = 7;

/// One to five cores of one to four CPUs, numbered core by core or as Linux does.
#[derive(Clone, Debug)]
pub struct Machine {
    threads: Vec<usize>,
    core_by_core: bool,
}

impl Machine {
    pub fn cpus(&self) -> usize {
        self.threads.iter().sum()
    }

    pub fn cores(&self) -> Cores {
        Cores::of(self.siblings())
    }

    /// The CPUs of each core.
    pub fn siblings(&self) -> Vec<CpuMask> {
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

/// What happens between two looks. Sets of CPUs are bits, those that the machine does not have are left out.
#[derive(Clone, Debug)]
enum Event {
    Service { place: usize, allowed: u32, ran_on: u32, may_be_placed: bool },
    ServiceEnds(usize),
    Container { place: usize, allowed: u32, wanted: u32, priority: i32 },
    ContainerEnds(usize),
    Online { cpu: usize, online: bool },
    Cpu { cpu: usize, busy: f64, serving: f64, interference: Option<f64> },
}

#[derive(Clone, Debug)]
pub struct Step {
    pub later_ns: Nanos,
    events: Vec<Event>,
}

#[derive(Clone, Debug)]
pub struct History {
    pub machine: Machine,
    pub steps: Vec<Step>,
    reserved: u32,
    pub floor: usize,
}

fn machine() -> impl Strategy<Value = Machine> {
    (prop::collection::vec(1_usize..=4, 1..=5), any::<bool>())
        .prop_map(|(threads, core_by_core)| Machine { threads, core_by_core })
}

/// Most sets have several CPUs.
fn set() -> impl Strategy<Value = u32> {
    prop_oneof![3 => any::<u32>(), 1 => Just(u32::MAX), 1 => (0_u32..20).prop_map(|cpu| 1 << cpu)]
}

fn event() -> impl Strategy<Value = Event> {
    let interference = prop_oneof![Just(None), Just(Some(0.0)), Just(Some(39.0)), Just(Some(40.0)), Just(Some(90.0))];
    prop_oneof![
        3 => (0..SERVICES, set(), any::<u32>(), any::<bool>()).prop_map(|(place, allowed, ran_on, may_be_placed)| {
            Event::Service { place, allowed, ran_on: ran_on & allowed, may_be_placed }
        }),
        1 => (0..SERVICES).prop_map(Event::ServiceEnds),
        4 => (0..CONTAINERS, set(), 0_u32..8, -1..=1).prop_map(|(place, allowed, wanted, priority)| {
            Event::Container { place, allowed, wanted, priority }
        }),
        1 => (0..CONTAINERS).prop_map(Event::ContainerEnds),
        1 => (0_usize..20, any::<bool>()).prop_map(|(cpu, online)| Event::Online { cpu, online }),
        6 => (0_usize..20, 0..=10_i32, 0..=10_i32, interference).prop_map(|(cpu, busy, serving, interference)| {
            let share = |tenths: i32| f64::from(tenths) / 10.0;
            Event::Cpu { cpu, busy: share(busy.max(serving)), serving: share(serving), interference }
        }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let later_ns = prop_oneof![1 => 1_u64..1000, 3 => 1..20 * MS, 1 => 1..500 * MS];
    (later_ns, prop::collection::vec(event(), 0..5)).prop_map(|(later_ns, events)| Step { later_ns, events })
}

pub fn history() -> impl Strategy<Value = History> {
    let steps = prop::collection::vec(step(), 1..30);
    (machine(), steps, set(), prop_oneof![3 => Just(0), 1 => 1_usize..4])
        .prop_map(|(machine, steps, reserved, floor)| History { machine, steps, reserved: reserved & 0x11111, floor })
}

impl History {
    pub fn reserved(&self) -> CpuMask {
        bits(self.reserved, self.machine.cpus())
    }

    /// What is seen after each step.
    pub fn play(&self, mut look: impl FnMut(&mut Scene, Nanos)) -> Scene {
        let mut scene = Scene::of(self.machine.cpus());
        for step in &self.steps {
            step.happen(self.machine.cpus(), &mut scene.seen);
            look(&mut scene, step.later_ns);
        }
        scene
    }
}

impl Step {
    fn happen(&self, cpus: usize, seen: &mut Observation) {
        let before = seen.clone();
        for event in &self.events {
            match *event {
                Event::Service { place, allowed, ran_on, may_be_placed } => {
                    let ended = before.services[place].is_some() && seen.services[place].is_none();
                    let service =
                        ServiceSeen { allowed: bits(allowed, cpus), ran_on: bits(ran_on, cpus), may_be_placed };
                    seen.services[place] = Some(service).filter(|_| !ended);
                }
                Event::ServiceEnds(place) => seen.services[place] = None,
                Event::Container { place, allowed, wanted, priority } => {
                    let ended = before.containers[place].is_some() && seen.containers[place].is_none();
                    let container = ContainerSeen { allowed: bits(allowed, cpus), wanted, priority };
                    seen.containers[place] = Some(container).filter(|_| !ended);
                }
                Event::ContainerEnds(place) => seen.containers[place] = None,
                Event::Online { cpu, online } => seen.cpus[cpu % cpus].online = online,
                Event::Cpu { cpu, busy, serving, interference } => {
                    let cpu = &mut seen.cpus[cpu % cpus];
                    (cpu.busy, cpu.serving, cpu.interference) = (busy, serving, interference);
                }
            }
        }
    }
}

fn bits(set: u32, cpus: usize) -> CpuMask {
    (0..cpus).filter(|cpu| set >> cpu & 1 == 1).collect()
}

//! One run of the hurry bench: a search server with a thread for each core, its clients, and a mapper of its threads.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use sidelane_host::cores::Cores;
use sidelane_host::cpulist::CpuSet;
use sidelane_host::energy::Energy;
use sidelane_host::priority::set_highest_ordinary_priority;
use sidelane_host::procfs::threads;
use sidelane_host::service::Target;
use sidelane_host::topology::online_cpus;

use super::plan::{HurryOptions, Load, Plan, SWEEP_LOAD};
use super::results::{MapperFigures, MapperTurn, Run};
use super::variant::{MachineMeasures, Variant};
use crate::experiment::fixture::Fixture;
use crate::experiment::load::{Latencies, LoadPattern, Shape};
use crate::experiment::place::ExperimentCpus;
use crate::experiment::search::MultiCorePlacement;
use crate::experiment::slow_cpu::SlowCpu;
use crate::experiment::{load, search};
use crate::programs::LabBinary;
use sidelane_hurry::{CoreSizes, Figures, RunningHurry, Settings, SourceOption};

/// Interval of the checks whether the mapper still runs.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Number of requests after which a threshold is learnt: two batches of requests, or one with `--quick`, and some more.
const LEARNING_REQUESTS: f64 = 1_100.0;
const LEARNING_REQUESTS_QUICK: f64 = 540.0;
/// Initial threshold from Hurry-up's paper, in milliseconds of the paper's machine, used until a threshold is learnt.
const FIRST_THRESHOLD_MS: u64 = 50;

/// Service and its measures, for all runs.
pub(super) struct Environment {
    pub(super) fixture: Fixture,
    pub(super) slow: Option<SlowCpu>,
    pub(super) measures: MachineMeasures,
    cores: Cores,
    energy: Result<RefCell<Energy>, String>,
    /// Thresholds learnt so far, by load.
    known_ns: BTreeMap<Load, u64>,
}

impl Environment {
    pub(super) fn prepare(options: &HurryOptions, plan: &Plan, place: ExperimentCpus) -> Result<Self> {
        let lab = LabBinary::find()?;
        let slow = SlowCpu::start(&lab, place.batch, options.speed, options.slow_cpu)?;
        let on = MultiCorePlacement { place, slow: slow.as_ref(), mean: plan.mean };
        let fixture = search::start_search_on_cores(&on, lab, &options.cache)?;
        for tid in threads(fixture.pid) {
            set_highest_ordinary_priority(tid)
                .context("cannot raise the priority of the service's threads; run as root")?;
        }
        let measures = MachineMeasures { mean_us: fixture.mean_service_us, speed: options.speed };
        let only = |cpu: u32| [cpu].into_iter().collect::<CpuSet>();
        let cores = Cores::from_user_lists(&only(place.request), &only(place.batch), &online_cpus()?)?;
        let energy = open_energy_counters(slow.is_some());
        Ok(Self { fixture, slow, measures, cores, energy, known_ns: BTreeMap::new() })
    }

    /// Returns the source of energy figures, or the reason why there is none.
    pub(super) fn energy_source(&self) -> String {
        self.energy.as_ref().map_or_else(String::clone, |energy| energy.borrow().to_string())
    }

    /// Learns thresholds before the first round.
    pub(super) fn learn_thresholds(&mut self, plan: &Plan) -> Result<()> {
        let loads = if plan.learns_everywhere { Load::all(plan.quick) } else { &[SWEEP_LOAD] };
        let requests = if plan.quick { LEARNING_REQUESTS_QUICK } else { LEARNING_REQUESTS };
        for load in loads {
            let rate_per_s = load.rate_per_s(self.measures);
            let run = Duration::from_secs_f64(requests / rate_per_s);
            let rhythm = LoadPattern { rate_per_s, run, warm_up: Duration::ZERO, seed: 0, shape: Shape::Steady };
            let mapper = self.start_mapper(Variant::Hurry, *load)?;
            let (_, figures) = self.load_and_end_mapper(mapper, &[(*load, rhythm)])?;
            self.known_ns.insert(*load, figures.threshold_ns);
        }
        Ok(())
    }

    /// Runs the service at these loads, under one mapper.
    pub(super) fn run_under_mapper(
        &mut self,
        plan: &Plan,
        variant: Variant,
        loads: &[Load],
        round: u64,
    ) -> Result<MapperTurn> {
        let rhythms: Vec<_> =
            loads.iter().map(|load| (*load, plan.load_pattern(*load, self.measures, round))).collect();
        let mapper = self.start_mapper(variant, loads[0])?;
        let (runs, figures) = self.load_and_end_mapper(mapper, &rhythms)?;
        if variant == Variant::Hurry {
            self.known_ns.extend(loads.iter().map(|load| (*load, figures.threshold_ns)));
        }
        Ok(MapperTurn { runs, mapper: mapper_figures(variant, &figures) })
    }

    /// Starts a mapper of the service's threads, and waits until it maps.
    pub(super) fn start_mapper(&self, variant: Variant, load: Load) -> Result<RunningHurry> {
        let known_ns = self.known_ns.get(&load).or(self.known_ns.get(&SWEEP_LOAD)).copied();
        let known_ns = known_ns.unwrap_or_else(|| self.measures.scaled_ns(FIRST_THRESHOLD_MS));
        let mut mapper = RunningHurry::start(Settings {
            service: Target::Pid(self.fixture.pid),
            sizes: CoreSizes::Cores(self.cores.clone()),
            config: variant.config(self.measures, known_ns),
            source: SourceOption::Found,
            log: None,
        })?;
        mapper.wait_until_mapping()?;
        Ok(mapper)
    }

    /// Loads the service at each load, and ends the mapper.
    fn load_and_end_mapper(
        &self,
        mut mapper: RunningHurry,
        loads: &[(Load, LoadPattern)],
    ) -> Result<(Vec<Run>, Figures)> {
        let mut run = |(load, rhythm): &(Load, LoadPattern)| {
            let before = self.joules()?;
            let seen = self.run_client_load(Some(&mut mapper), *rhythm)?;
            let joules = self.joules()?.zip(before).map(|(after, before)| after - before);
            Ok(Run { load: *load, seen, joules })
        };
        let runs: Result<Vec<Run>> = loads.iter().map(&mut run).collect();
        let ended = mapper.stop();
        Ok((runs?, ended?.figures))
    }

    fn joules(&self) -> Result<Option<f64>> {
        self.energy.as_ref().ok().map(|energy| Ok(energy.borrow_mut().joules()?)).transpose()
    }

    /// Loads the service; fails if the mapper ends before the load does.
    pub(super) fn run_client_load(
        &self,
        mut mapper: Option<&mut RunningHurry>,
        rhythm: LoadPattern,
    ) -> Result<Latencies> {
        let clients = load::RunningClient::start(&self.fixture, rhythm)?;
        while !clients.wait_for_exit(LOOK_EVERY)? {
            if let Some(why) = mapper.as_mut().and_then(|mapper| mapper.why_ended()) {
                return Err(why.context("the mapper has ended"));
            }
        }
        clients.finish()
    }
}

/// Opens the energy counters, unless the little core is emulated: such a core uses as much energy as a big one.
fn open_energy_counters(is_emulated: bool) -> Result<RefCell<Energy>, String> {
    if is_emulated {
        return Err("not measured: the little core is emulated".to_owned());
    }
    Energy::open(Path::new("/sys")).map(RefCell::new).map_err(|why| why.to_string())
}

fn mapper_figures(variant: Variant, figures: &Figures) -> MapperFigures {
    let has_threshold = matches!(variant, Variant::Hurry | Variant::Paper | Variant::Given(_));
    let requests = figures.answered_requests() as f64;
    MapperFigures {
        own_percent: figures.own_cpu_percent(),
        moved_percent: (requests > 0.0).then(|| 100.0 * figures.moved as f64 / requests),
        threshold_us: has_threshold.then(|| figures.threshold_ns as f64 / 1e3),
    }
}

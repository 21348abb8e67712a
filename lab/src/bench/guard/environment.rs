//! One sample of the guard bench: the stores under load in bursts, batch in its containers, and the policy that
//! decides.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::agent::{Agent, AgentSettings, InterferenceSource, NotificationMode, counting_failure_reason};
use super::plan::{Group, GuardVariant, Plan, RUNS_A_BLOCK};
use crate::experiment::comparison::Samples;
use crate::experiment::containers::{Churn, ContainerSchedule, Containers, WorkFiles};
use crate::experiment::fixture::Fixture;
use crate::experiment::load::{LoadPattern, RunningClient, Shape};
use crate::experiment::place::ExperimentCpus;
use crate::experiment::sibling::EmulatedSibling;
use crate::experiment::store;
use crate::experiment::store::Store;
use crate::note::LabNote;
use crate::programs::LabBinary;
use sidelane_host::cpulist::CpuSet;
use sidelane_host::priority;
use sidelane_host::procfs::threads;
use sidelane_report::Percentile;
use sidelane_rollback::guardian::{CANNOT_START, Guardian};
use sidelane_rollback::own_threads::keep_off_cpus;

/// Interval at which containers come and go, and requests are read from the kernel.
const TICK: Duration = Duration::from_millis(20);
/// Shortest time for which the speed of each kind of work is measured alone on the lane.
const WORK_ALONE: Duration = Duration::from_millis(400);
/// Time without interference after which batch comes back (S in Holmes' paper), before it is scaled: the agent's own
/// default.
const CALM: Duration = Duration::from_secs(1);

/// Latencies of one store's clients in one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Latency {
    pub(super) requests: u64,
    pub(super) mean_us: f64,
    pub(super) p99_us: f64,
    pub(super) curve: Vec<Percentile>,
    /// Share of requests excluded because the hypervisor had taken their CPU, in percent; `None` if that is unknown.
    pub(super) left_out_percent: Option<f64>,
}

/// Figures of one run of the guard bench.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Figures {
    /// Latencies of each store, in the order of the stores in the group.
    pub(super) stores: Vec<Latency>,
    /// CPU time of services and batch on both lanes, divided by the length of the run; at most 2.
    pub(super) utilisation: Option<f64>,
    /// Batch's work in the run, divided by the work of one lane alone in the same time.
    pub(super) batch_work: Option<f64>,
    pub(super) agent_cpu_percent: Option<f64>,
    pub(super) agent_memory_mib: Option<f64>,
    /// Interference metric that the agent used.
    pub(super) metric: Option<String>,
}

/// Running stores, and the resources that batch needs, for all runs of a group of stores.
pub(super) struct Environment {
    pub(super) fixtures: Vec<Fixture>,
    /// Kind of each store, in the order of `fixtures`.
    stores: Vec<Store>,
    c_build: WorkFiles,
    /// Speed of each kind of work alone on the batch lane, in units per second.
    alone_per_s: BTreeMap<&'static str, f64>,
    rates_per_s: Vec<f64>,
    pub(super) source: InterferenceSource,
}

impl Environment {
    pub(super) fn prepare(
        plan: &Plan,
        group: &Group,
        place: ExperimentCpus,
        lab: &LabBinary,
        sibling: Option<EmulatedSibling>,
    ) -> Result<Self> {
        keep_off_cpus(&[place.request].into_iter().collect()).context("cannot keep a thread off the request lane")?;
        let (mut sibling, mut fixtures) = (sibling, Vec::<Fixture>::new());
        for one in &group.stores {
            let others = fixtures.first().and_then(|fixture| fixture.sibling.as_ref());
            let fixture = store::start_store(place, lab.clone(), sibling.take(), others, *one, group.mix)?;
            prioritise_service_threads(fixture.pid)
                .with_context(|| format!("cannot raise the priority of the threads of {}; run as root", one.name()))?;
            fixtures.push(fixture);
        }
        let first = fixtures.first().context("no store to measure")?;
        let c_build = WorkFiles::make(lab, first.sibling.as_ref(), first.scratch.path())?;
        let rates_per_s = fixtures.iter().map(|fixture| group.rate_per_s(fixture.mean_service_us)).collect();
        let stores = group.stores.clone();
        let mut environment = Self {
            fixtures,
            stores,
            c_build,
            alone_per_s: BTreeMap::new(),
            rates_per_s,
            source: InterferenceSource::Latency,
        };
        for stay in &plan.stays {
            environment.alone_per_s.insert(stay.work.name(), environment.work_alone_per_s(stay)?);
        }
        Ok(environment)
    }

    fn work_alone_per_s(&self, schedule: &ContainerSchedule) -> Result<f64> {
        let mut containers = self.create_containers()?;
        containers.start(schedule.name, &schedule.work, &self.c_build)?;
        let done = |containers: &Containers| containers.work_done().iter().map(|(_, units)| *units).sum::<u64>();
        let first = wait_for_more_work(0, || done(&containers))?;
        let began = Instant::now();
        thread::sleep(WORK_ALONE);
        let last = wait_for_more_work(first, || done(&containers))?;
        let per_s = (last - first) as f64 / began.elapsed().as_secs_f64();
        containers.finish()?;
        Ok(per_s)
    }

    /// Chooses the source of interference: `preferred`, if an agent can count page faults here. Returns a note if it
    /// cannot.
    pub(super) fn choose_source(&mut self, preferred: Option<InterferenceSource>) -> Result<Option<LabNote>> {
        let (place, folder) = (self.fixtures[0].place, self.fixtures[0].scratch.path());
        let (ports, notification) = ([self.fixtures[0].port], NotificationMode::Wakeup);
        let told = AgentSettings {
            variant: GuardVariant::Holmes,
            place,
            ports: &ports,
            batch: "/none",
            calm: CALM,
            source: InterferenceSource::StandIn,
            notification,
        };
        let why = counting_failure_reason(&told, folder)?;
        let usual =
            if self.has_page_fault_stand_in() { InterferenceSource::StandIn } else { InterferenceSource::Latency };
        self.source = if why.is_none() { preferred.unwrap_or(usual) } else { InterferenceSource::Latency };
        Ok(why.map(|why| LabNote::NoStandIn { why }))
    }

    /// Returns whether the emulated sibling makes stores cause page faults, which stand in for hardware counters.
    fn has_page_fault_stand_in(&self) -> bool {
        self.fixtures[0].sibling.as_ref().is_some_and(EmulatedSibling::is_built_in)
    }

    pub(super) fn work_files(&self) -> &WorkFiles {
        &self.c_build
    }

    /// Makes the containers. As in the paper, batch may run on all CPUs but the services' own.
    pub(super) fn create_containers(&self) -> Result<Containers> {
        let batch: CpuSet = [self.fixtures[0].place.batch].into_iter().collect();
        let guardian = Guardian::start(&[], None).context(CANNOT_START)?;
        Containers::make(&format!("sidelane-bench-{}", std::process::id()), &batch, Some(guardian))
    }

    /// Takes consecutive samples of one variant under one agent.
    pub(super) fn measure_block(
        &self,
        plan: &Plan,
        variant: GuardVariant,
        block_index: u64,
        samples: &mut Samples<GuardVariant, Figures>,
    ) -> Result<()> {
        let containers = variant.has_batch().then(|| self.create_containers()).transpose()?;
        let churn = containers.map(|containers| Churn::start(&plan.stays, plan.run, containers, &self.c_build));
        let mut churn = churn.transpose()?;
        let agent = churn
            .as_ref()
            .filter(|_| variant.has_agent())
            .map(|churn| self.start_agent(plan, variant, churn.containers()));
        let agent = agent.transpose()?;
        if agent.is_some() {
            self.run_under_load(plan.load_pattern(0, plan.learning, Duration::ZERO), |_| Ok(()))?;
        }
        for round in block_index * RUNS_A_BLOCK..(block_index + 1) * RUNS_A_BLOCK {
            samples.add(round, variant, self.measure_run(plan, round, churn.as_mut(), agent.as_ref())?);
        }
        agent.map_or(Ok(()), Agent::end)?;
        churn.map_or(Ok(()), Churn::finish)
    }

    pub(super) fn start_agent(&self, plan: &Plan, variant: GuardVariant, containers: &Containers) -> Result<Agent> {
        let batch = containers.cgroup_path().context("the containers' group has no path")?;
        let ports: Vec<u32> = self.fixtures.iter().map(|fixture| fixture.port).collect();
        let (place, calm) = (self.fixtures[0].place, CALM.mul_f64(plan.scale));
        let told = AgentSettings {
            variant,
            place,
            ports: &ports,
            batch: &batch,
            calm,
            source: self.source,
            notification: NotificationMode::Wakeup,
        };
        Agent::start(&told.to_toml(), self.fixtures[0].scratch.path(), self.fixtures.len())
    }

    fn measure_run(
        &self,
        plan: &Plan,
        round: u64,
        mut churn: Option<&mut Churn<'_>>,
        agent: Option<&Agent>,
    ) -> Result<Figures> {
        self.flush_stores()?;
        let before = ResourceUsage::read_now(self, churn.as_deref(), agent)?;
        let mut told = Duration::ZERO;
        let rhythm = plan.load_pattern(round + 1, plan.run, plan.warm_up);
        let stores = self.run_under_load(rhythm, |now| {
            let churn = churn.as_deref_mut();
            churn.map_or(Ok(()), |churn| churn.apply_schedule(told, now))?;
            told = now;
            Ok(())
        })?;
        // Stops the containers whose planned stop came while the load ended.
        churn.as_deref_mut().map_or(Ok(()), |churn| churn.apply_schedule(told, plan.run.max(told)))?;
        let used = ResourceUsage::read_now(self, churn.as_deref(), agent)?;
        let length = used.at - before.at;
        let share = |now: u64, then: u64| (now - then) as f64 / length.as_nanos() as f64;
        let batch_ns = churn.as_ref().map_or(Some(0.0), |_| Some(share(used.batch_ns?, before.batch_ns?)));
        Ok(Figures {
            stores,
            utilisation: batch_ns.map(|batch| batch + share(used.services_ns, before.services_ns)),
            batch_work: churn.map(|_| self.work_done_s(&before.work, &used.work) / length.as_secs_f64()),
            agent_cpu_percent: agent.map(|_| 100.0 * share(used.agent_ns, before.agent_ns)),
            agent_memory_mib: agent.and_then(Agent::memory_mib),
            metric: agent.and_then(Agent::metric),
        })
    }

    /// Brings the stores into the same state before each run. Otherwise RocksDB, which writes a file after each 64 MiB,
    /// would do so in one of six runs with mix b: 0.1 s of work.
    fn flush_stores(&self) -> Result<()> {
        let mut fixtures = self.fixtures.iter().zip(&self.stores);
        fixtures.try_for_each(|(fixture, store)| store.flush_writes(fixture.port))
    }

    /// Returns the work done between two moments, as the number of seconds that batch would need with the lane alone.
    fn work_done_s(
        &self,
        units_before: &BTreeMap<&'static str, u64>,
        units_after: &BTreeMap<&'static str, u64>,
    ) -> f64 {
        let of = |(name, units): (&&'static str, &u64)| {
            let done = units - units_before.get(name).copied().unwrap_or(0);
            self.alone_per_s.get(name).map_or(0.0, |per_s| done as f64 / per_s)
        };
        units_after.iter().map(of).sum()
    }

    /// Loads all stores at the same time, and calls `on_tick` with the elapsed time every [`TICK`].
    pub(super) fn run_under_load(
        &self,
        rhythm: LoadPattern,
        mut on_tick: impl FnMut(Duration) -> Result<()>,
    ) -> Result<Vec<Latency>> {
        self.fixtures.iter().try_for_each(Fixture::begin_socket_run)?;
        let began = Instant::now();
        let rhythms = self.rates_per_s.iter().map(|rate_per_s| LoadPattern { rate_per_s: *rate_per_s, ..rhythm });
        let loads =
            self.fixtures.iter().zip(rhythms.clone()).map(|(fixture, rhythm)| RunningClient::start(fixture, rhythm));
        let loads = loads.collect::<Result<Vec<_>>>()?;
        for load in &loads {
            while !load.wait_for_exit(TICK)? {
                on_tick(began.elapsed())?;
                self.fixtures.iter().try_for_each(Fixture::drain_sockets)?;
            }
        }
        let seen = self.fixtures.iter().zip(rhythms).zip(loads);
        seen.map(|((fixture, rhythm), load)| finish_and_read_latency(fixture, rhythm, load)).collect()
    }
}

/// Waits for the client's end, and returns the latencies at the socket without requests whose CPU the hypervisor had
/// taken. Returns the client's latencies if the socket is not observed.
fn finish_and_read_latency(fixture: &Fixture, rhythm: LoadPattern, client: RunningClient) -> Result<Latency> {
    let (at_socket, client) = (fixture.end_socket_run_excluding_disturbed(rhythm)?, client.finish()?);
    Ok(match at_socket {
        Some((seen, left_out)) => Latency {
            requests: seen.requests,
            mean_us: seen.mean_us,
            p99_us: seen.p99_us,
            curve: seen.curve,
            left_out_percent: Some(100.0 * left_out),
        },
        None => Latency {
            requests: client.requests,
            mean_us: client.mean_us,
            p99_us: client.p99_us,
            curve: client.curve,
            left_out_percent: None,
        },
    })
}

impl Plan {
    fn load_pattern(&self, seed: u64, run: Duration, warm_up: Duration) -> LoadPattern {
        LoadPattern { rate_per_s: 0.0, run, warm_up, seed, shape: Shape::Bursts(self.scale) }
    }
}

/// Resources that services, agent and batch have used up to a moment.
struct ResourceUsage {
    at: Instant,
    services_ns: u64,
    batch_ns: Option<u64>,
    agent_ns: u64,
    work: BTreeMap<&'static str, u64>,
}

impl ResourceUsage {
    fn read_now(environment: &Environment, churn: Option<&Churn<'_>>, agent: Option<&Agent>) -> Result<Self> {
        let services = environment.fixtures.iter().map(Fixture::service_cpu_ns).collect::<Result<Vec<_>>>()?;
        Ok(Self {
            at: Instant::now(),
            services_ns: services.iter().sum(),
            batch_ns: churn.and_then(|churn| churn.containers().cpu_ns()),
            agent_ns: agent.map_or(Ok(0), Agent::cpu_ns)?,
            work: churn.map(Churn::work_done).unwrap_or_default(),
        })
    }
}

/// Gives the services' threads priority over other threads on their lane, such as those of the kernel and of the
/// machine's owner. Batch never runs there, and the priority is the same under all policies that are compared.
pub(super) fn prioritise_service_threads(pid: u32) -> Result<()> {
    Ok(threads(pid).into_iter().try_for_each(priority::set_highest_ordinary_priority)?)
}

/// Waits until more than `previous_units` units of work are done; returns their number.
fn wait_for_more_work(previous_units: u64, read_units: impl Fn() -> u64) -> Result<u64> {
    const TIMEOUT: Duration = Duration::from_secs(60);
    let began = Instant::now();
    loop {
        let now = read_units();
        if now > previous_units {
            return Ok(now);
        }
        ensure!(began.elapsed() < TIMEOUT, "batch has done no work for a minute: is something else busy on its lane?");
        thread::sleep(Duration::from_millis(1));
    }
}

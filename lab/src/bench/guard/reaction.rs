//! The time from interference to batch being off. A service of the lab is disturbed on command, and batch stores the
//! time after each unit of its work.
//!
//! Page faults stand in for stalls. The kernel program counts them, and notifies the agent. The agent asks its policy,
//! and takes the lane from batch. The measured path is the real one, from the moment before the first fault to the last
//! unit of work.
//!
//! A reaction is omitted if the hypervisor or another thread kept the service off its CPU for long before batch was
//! off. Such a service makes no page faults that could be counted.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use sidelane_stats::ranks;

use super::agent::{Agent, AgentSettings, InterferenceSource, NotificationMode};
use super::environment::{Environment, prioritise_service_threads};
use super::plan::GuardVariant;
use crate::experiment::containers::{Containers, Work};
use crate::programs::LabProcess;

/// Time without work after which batch counts as off; a scheduler that only alternates threads leaves shorter gaps.
const OFF: Duration = Duration::from_millis(20);
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// Longest wait until batch stops or starts again, far longer than batch takes to come back.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Time without interference after which batch comes back (S in Holmes' paper): short at first, since it doubles each
/// time. It is longer than the service's pauses, so that a pause does not count as the end of traffic.
const CALM: Duration = Duration::from_micros(500);
const BATCH: &str = "stamps";

/// Times in which agents with one notification mode reacted to interference.
pub(super) struct Reactions {
    pub(super) notification: NotificationMode,
    /// Reaction times in nanoseconds, in ascending order.
    pub(super) sorted_ns: Vec<u64>,
    /// Number of reactions that were omitted because the service made no progress.
    left_out: usize,
    agents_ns: u64,
    elapsed_ns: u64,
}

impl Reactions {
    /// Returns an empty set of reactions.
    pub(super) fn new(notification: NotificationMode) -> Self {
        Self { notification, sorted_ns: Vec::new(), left_out: 0, agents_ns: 0, elapsed_ns: 0 }
    }

    fn add_round(&mut self, reaction_times_ns: &[Option<u64>], agent_ns: u64, elapsed: Duration) {
        self.sorted_ns.extend(reaction_times_ns.iter().flatten());
        self.sorted_ns.sort_unstable();
        self.left_out += reaction_times_ns.iter().filter(|onset| onset.is_none()).count();
        self.agents_ns += agent_ns;
        self.elapsed_ns += elapsed.as_nanos() as u64;
    }

    /// Returns the share of omitted reactions, in percent.
    pub(super) fn left_out_percent(&self) -> f64 {
        100.0 * self.left_out as f64 / (self.left_out + self.sorted_ns.len()) as f64
    }

    /// Returns the CPU time of the agents, in percent of one CPU.
    pub(super) fn agent_cpu_percent(&self) -> f64 {
        100.0 * self.agents_ns as f64 / self.elapsed_ns as f64
    }

    /// Returns a percentile of the reaction times, in microseconds.
    pub(super) fn percentile_us(&self, percentile: f64) -> Option<f64> {
        percentile_us(&self.sorted_ns, percentile)
    }
}

/// Returns a percentile of sorted nanoseconds by the nearest rank, in microseconds.
pub(super) fn percentile_us(sorted_ns: &[u64], percentile: f64) -> Option<f64> {
    ranks::percentile(sorted_ns, percentile).map(|ns| ns as f64 / 1e3)
}

/// Measures one round: disturbs a service `onset_count` times under a new agent.
pub(super) fn measure_round(environment: &Environment, onset_count: usize, reactions: &mut Reactions) -> Result<()> {
    let notification = reactions.notification;
    let place = environment.fixtures[0].place;
    let lab = &environment.fixtures[0].lab;
    let cpu = place.request.to_string();
    let mut service = lab.start(["faults", "--cpu", &cpu, "--busy-us", "300", "--idle-us", "200"])?;
    prioritise_service_threads(service.pid())
        .context("cannot raise the priority of the service's threads; run as root")?;
    let mut containers = environment.create_containers()?;
    containers.start(BATCH, &Work::Stamps, environment.work_files())?;
    wait_for_stamp(&containers, "batch works", |stamp_ns| stamp_ns > 0)?;
    let batch = containers.cgroup_path().context("the containers' group has no path")?;
    let ports = [service.ready_number("port")?];
    let told = AgentSettings {
        variant: GuardVariant::Holmes,
        place,
        ports: &ports,
        batch: &batch,
        calm: CALM,
        source: InterferenceSource::StandIn,
        notification,
    };
    let agent = Agent::start(&told.to_toml(), environment.fixtures[0].scratch.path(), 1)?;
    let (began, before_ns) = (Instant::now(), agent.cpu_ns()?);
    let onsets = (0..onset_count).map(|_| measure_reaction_ns(&mut service, &containers)).collect::<Result<Vec<_>>>();
    let (used_ns, elapsed) = (agent.cpu_ns()? - before_ns, began.elapsed());
    agent.end()?;
    containers.finish()?;
    reactions.add_round(&onsets.with_context(|| format!("under {}", notification.name()))?, used_ns, elapsed);
    Ok(())
}

/// Disturbs the service, waits until batch is off, then until it is back. Returns the reaction time, or `None` if the
/// service made no progress.
fn measure_reaction_ns(service: &mut LabProcess, containers: &Containers) -> Result<Option<u64>> {
    let onset_ns = parse_number_field(&service.query("fault")?, "onset_ns")?;
    let off_ns = wait_until_batch_stops(containers)?;
    let rested = service.query("rest")?;
    let rested_ns = parse_number_field(&rested, "rested_ns")?;
    wait_for_stamp(containers, "batch comes back", |stamp_ns| stamp_ns > rested_ns)?;
    let kept_off =
        parse_stalled_intervals_ns(&rested).with_context(|| format!("no stretches of time in `{rested}`"))?;
    let got_on = kept_off.iter().all(|(from_ns, to_ns)| *to_ns <= onset_ns || *from_ns >= off_ns);
    Ok(got_on.then(|| off_ns.saturating_sub(onset_ns)))
}

/// Returns the intervals in which the service made no progress: start and end.
fn parse_stalled_intervals_ns(answer: &str) -> Option<Vec<(u64, u64)>> {
    let stretches = find_field(answer, "kept_off_ns")?.split(',').filter(|stretch| !stretch.is_empty());
    let stretches = stretches.map(|stretch| {
        let (from_ns, to_ns) = stretch.split_once(':')?;
        Some((from_ns.parse().ok()?, to_ns.parse().ok()?))
    });
    stretches.collect()
}

/// Waits until batch is off, and returns the time of its last unit of work.
fn wait_until_batch_stops(containers: &Containers) -> Result<u64> {
    let began = Instant::now();
    let (mut last_ns, mut since) = (0, Instant::now());
    loop {
        let stamp_ns = containers.last_work_timestamp_ns(BATCH).context("batch has no counter")?;
        if stamp_ns != last_ns {
            (last_ns, since) = (stamp_ns, Instant::now());
        }
        if since.elapsed() >= OFF {
            return Ok(last_ns);
        }
        ensure!(began.elapsed() < TIMEOUT, "the service was disturbed for 5 s, and batch went on beside it");
        thread::sleep(LOOK_EVERY);
    }
}

fn wait_for_stamp(containers: &Containers, awaited_event: &str, is_reached: impl Fn(u64) -> bool) -> Result<()> {
    let began = Instant::now();
    while !containers.last_work_timestamp_ns(BATCH).is_some_and(&is_reached) {
        ensure!(began.elapsed() < TIMEOUT, "waited 5 s in vain until {awaited_event}");
        thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// Returns the number after `key=` in an answer of the service.
fn parse_number_field(answer: &str, key: &str) -> Result<u64> {
    let value = find_field(answer, key).with_context(|| format!("no {key} in `{answer}`"))?;
    value.parse().with_context(|| format!("{key}={value} is not a number"))
}

fn find_field<'a>(answer: &'a str, key: &str) -> Option<&'a str> {
    answer.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalled_intervals_are_parsed_from_an_answer() {
        let answer = "rested_ns=90 faults=8 kept_off_ns=";
        assert_eq!(parse_stalled_intervals_ns(answer), Some(vec![]));
        assert_eq!(parse_stalled_intervals_ns(&format!("{answer}10:20,30:45\n")), Some(vec![(10, 20), (30, 45)]));
        assert_eq!(
            [format!("{answer}10"), "rested_ns=90".to_owned()].map(|answer| parse_stalled_intervals_ns(&answer)),
            [None, None]
        );
    }

    #[test]
    fn reactions_of_all_rounds_are_merged() {
        let mut reactions = Reactions::new(NotificationMode::Wakeup);
        reactions.add_round(&[Some(7_000), None, Some(3_000)], 10, Duration::from_nanos(100));
        reactions.add_round(&[Some(5_000)], 20, Duration::from_nanos(200));
        assert_eq!(reactions.sorted_ns, [3_000, 5_000, 7_000]);
        assert_eq!((reactions.left_out_percent(), reactions.agent_cpu_percent()), (25.0, 10.0));
    }
}

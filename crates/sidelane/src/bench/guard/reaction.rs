//! From interference to batch being off: a service of the lab that is disturbed on command, and batch that stores the
//! time after each unit of its work.
//!
//! Page faults stand in for stalls. The kernel program counts them, and rings; the agent asks its policy, and takes the
//! lane from batch. What is measured is the real path, from the moment before the first fault to the last unit of work.
//! A service that does not get on is not disturbed, and nobody can see it: where the host, or another thread, kept it off
//! its CPU for long before batch was off, the onset is left out.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::agent::{Agent, Heard, Source, Told};
use super::run::{Ground, put_first};
use super::way::Way;
use crate::experiment::containers::{Containers, Work};
use crate::lab::Service;

/// Batch that has not worked for so long is off; a scheduler that gives others a turn is faster.
const OFF: Duration = Duration::from_millis(20);
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// Some seconds are far longer than it takes to bring batch back.
const TIMEOUT: Duration = Duration::from_secs(5);
/// S, short: batch is to come back soon, though S doubles each time. A pause of the service is shorter, and no end of its
/// traffic.
const CALM: Duration = Duration::from_micros(500);
const BATCH: &str = "stamps";

/// Reactions of an agent.
pub(super) struct Reactions {
    pub(super) heard: Heard,
    /// How long each took, in nanoseconds, from the shortest to the longest.
    pub(super) sorted_ns: Vec<u64>,
    /// Onsets that are not among these, since the service did not get on.
    pub(super) left_out_percent: f64,
    /// What the agent used meanwhile.
    pub(super) agent_cpu_percent: f64,
}

impl Reactions {
    /// In microseconds.
    pub(super) fn percentile_us(&self, percentile: f64) -> Option<f64> {
        percentile_us(&self.sorted_ns, percentile)
    }
}

/// The nearest rank of sorted nanoseconds.
pub(super) fn percentile_us(sorted_ns: &[u64], percentile: f64) -> Option<f64> {
    let rank = (sorted_ns.len() as f64 * percentile / 100.0).ceil().max(1.0) as usize;
    sorted_ns.get(rank - 1).map(|ns| *ns as f64 / 1e3)
}

/// Disturbs the service so many times, under an agent that hears of it so.
pub(super) fn measure(ground: &Ground, times: usize, heard: Heard) -> Result<Reactions> {
    let place = ground.stages[0].place;
    let lab = &ground.stages[0].lab;
    let cpu = place.request.to_string();
    let mut service = lab.start(["faults", "--cpu", &cpu, "--busy-us", "300", "--idle-us", "200"])?;
    put_first(service.pid()).context("cannot put a service first on its lane")?;
    let mut containers = ground.containers()?;
    containers.start(BATCH, &Work::Stamps, ground.workshop())?;
    wait_until(&containers, "batch works", |stamp_ns| stamp_ns > 0)?;
    let batch = containers.path().context("the containers' group has no path")?;
    let ports = [service.ready("port")?];
    let told =
        Told { way: Way::Holmes, place, ports: &ports, batch: &batch, calm: CALM, source: Source::StandIn, heard };
    let agent = Agent::start(&told.file(), ground.stages[0].scratch.path(), 1)?;
    let (began, before_ns) = (Instant::now(), agent.cpu_ns()?);
    let onsets = (0..times).map(|_| react(&mut service, &containers)).collect::<Result<Vec<_>>>();
    let used_ns = agent.cpu_ns()? - before_ns;
    let agent_cpu_percent = 100.0 * used_ns as f64 / began.elapsed().as_nanos() as f64;
    agent.end()?;
    containers.finish()?;
    let onsets = onsets.with_context(|| format!("under {}", heard.name()))?;
    let mut sorted_ns: Vec<u64> = onsets.iter().copied().flatten().collect();
    sorted_ns.sort_unstable();
    let left_out_percent = 100.0 * (onsets.len() - sorted_ns.len()) as f64 / onsets.len() as f64;
    Ok(Reactions { heard, sorted_ns, left_out_percent, agent_cpu_percent })
}

/// Disturbs the service, waits until batch is off, then until it is back. `None`: the service did not get on meanwhile.
fn react(service: &mut Service, containers: &Containers) -> Result<Option<u64>> {
    let onset_ns = number(&service.ask("fault")?, "onset_ns")?;
    let off_ns = wait_until_off(containers)?;
    let rested = service.ask("rest")?;
    let rested_ns = number(&rested, "rested_ns")?;
    wait_until(containers, "batch comes back", |stamp_ns| stamp_ns > rested_ns)?;
    let kept_off = kept_off(&rested).with_context(|| format!("no stretches of time in `{rested}`"))?;
    let got_on = kept_off.iter().all(|(from_ns, to_ns)| *to_ns <= onset_ns || *from_ns >= off_ns);
    Ok(got_on.then(|| off_ns.saturating_sub(onset_ns)))
}

/// From when to when the service did not get on.
fn kept_off(answer: &str) -> Option<Vec<(u64, u64)>> {
    let stretches = word(answer, "kept_off_ns")?.split(',').filter(|stretch| !stretch.is_empty());
    let stretches = stretches.map(|stretch| {
        let (from_ns, to_ns) = stretch.split_once(':')?;
        Some((from_ns.parse().ok()?, to_ns.parse().ok()?))
    });
    stretches.collect()
}

/// Returns when batch did its last unit.
fn wait_until_off(containers: &Containers) -> Result<u64> {
    let began = Instant::now();
    let (mut last_ns, mut since) = (0, Instant::now());
    loop {
        let stamp_ns = containers.last_at_work_ns(BATCH).context("batch has no counter")?;
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

fn wait_until(containers: &Containers, what: &str, is_so: impl Fn(u64) -> bool) -> Result<()> {
    let began = Instant::now();
    while !containers.last_at_work_ns(BATCH).is_some_and(&is_so) {
        ensure!(began.elapsed() < TIMEOUT, "waited 5 s in vain until {what}");
        thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// A number of an answer of the service.
fn number(answer: &str, key: &str) -> Result<u64> {
    let value = word(answer, key).with_context(|| format!("no {key} in `{answer}`"))?;
    value.parse().with_context(|| format!("{key}={value} is not a number"))
}

fn word<'a>(answer: &'a str, key: &str) -> Option<&'a str> {
    answer.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_its_stretches_of_time() {
        let answer = "rested_ns=90 faults=8 kept_off_ns=";
        assert_eq!(kept_off(answer), Some(vec![]));
        assert_eq!(kept_off(&format!("{answer}10:20,30:45\n")), Some(vec![(10, 20), (30, 45)]));
        assert_eq!([format!("{answer}10"), "rested_ns=90".to_owned()].map(|answer| kept_off(&answer)), [None, None]);
    }

    #[test]
    fn percentiles_are_nearest_ranks() {
        let sorted_ns: Vec<u64> = (1..=100).map(|us| us * 1_000).collect();
        assert_eq!([50.0, 99.0].map(|at| percentile_us(&sorted_ns, at)), [Some(50.0), Some(99.0)]);
        assert_eq!(percentile_us(&[], 99.0), None);
    }
}

//! From interference to batch being off: a service of the lab that is disturbed on command, and batch that stores the
//! time after each unit of its work.
//!
//! Page faults stand in for stalls. The kernel program counts them, and rings; the agent asks its policy, and takes the
//! lane from batch. What is measured is the real path, from the moment before the first fault to the last unit of work.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::agent::{Agent, Source, Told};
use super::run::Ground;
use super::way::Way;
use crate::experiment::containers::{Containers, Work};
use crate::lab::Service;

/// Batch that has not worked for so long is off; a scheduler that gives others a turn is faster.
const OFF: Duration = Duration::from_millis(20);
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// Some seconds are far longer than it takes to bring batch back.
const TIMEOUT: Duration = Duration::from_secs(5);
/// S, short: batch is to come back soon.
const CALM: Duration = Duration::from_millis(1);
const BATCH: &str = "stamps";

/// How long it took, each time, in nanoseconds, from the shortest to the longest.
pub(super) struct Reactions(pub(super) Vec<u64>);

impl Reactions {
    /// The nearest rank.
    pub(super) fn percentile_us(&self, percentile: f64) -> Option<f64> {
        let rank = (self.0.len() as f64 * percentile / 100.0).ceil().max(1.0) as usize;
        self.0.get(rank - 1).map(|ns| *ns as f64 / 1e3)
    }
}

/// Disturbs the service so many times.
pub(super) fn measure(ground: &Ground, times: usize) -> Result<Reactions> {
    let place = ground.stages[0].place;
    let lab = &ground.stages[0].lab;
    let cpu = place.request.to_string();
    let mut service = lab.start(["faults", "--cpu", &cpu, "--busy-us", "300", "--idle-us", "200"])?;
    let mut containers = ground.containers()?;
    containers.start(BATCH, &Work::Stamps, ground.workshop())?;
    wait_until(&containers, "batch works", |stamp_ns| stamp_ns > 0)?;
    let batch = containers.path().context("the containers' group has no path")?;
    let ports = [service.ready("port")?];
    let told = Told { way: Way::Holmes, place, ports: &ports, batch: &batch, calm: CALM, source: Source::StandIn };
    let agent = Agent::start(&told.file(), ground.stages[0].scratch.path(), 1)?;
    let reactions = (0..times).map(|_| react(&mut service, &containers)).collect::<Result<Vec<_>>>();
    agent.end()?;
    containers.finish()?;
    let mut reactions = reactions?;
    reactions.sort_unstable();
    Ok(Reactions(reactions))
}

/// Disturbs the service, waits until batch is off, then until it is back.
fn react(service: &mut Service, containers: &Containers) -> Result<u64> {
    let onset_ns = number(&service.ask("fault")?, "onset_ns")?;
    let off_ns = wait_until_off(containers)?;
    let rested_ns = number(&service.ask("rest")?, "rested_ns")?;
    wait_until(containers, "batch comes back", |stamp_ns| stamp_ns > rested_ns)?;
    Ok(off_ns.saturating_sub(onset_ns))
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
    let value = answer.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    let value = value.with_context(|| format!("no {key} in `{answer}`"))?;
    value.parse().with_context(|| format!("{key}={value} is not a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let reactions = Reactions((1..=100).map(|us| us * 1_000).collect());
        assert_eq!((reactions.percentile_us(50.0), reactions.percentile_us(99.0)), (Some(50.0), Some(99.0)));
        assert_eq!(Reactions(Vec::new()).percentile_us(99.0), None);
    }
}

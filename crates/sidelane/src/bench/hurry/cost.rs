//! What a mapper that moves nobody costs the service for each request.
//!
//! Threads stay on their cores with and without the mapper, no core is slow, and searches find nothing, so that all that
//! differs is the kernel program.

use std::fs;

use anyhow::{Context, Result, ensure};
use sidelane_host::priority::pin_thread;
use sidelane_host::procfs::threads;

use super::checks;
use super::ground::Ground;
use super::plan::{CostPlan, SWEEP_LOAD};
use super::way::Way;
use crate::bench::rounds::numbers_until_decided;
use crate::experiment::load::{Rhythm, Shape};
use crate::experiment::search::questions;
use crate::hurry::RunningHurry;
use sidelane_report::Row;

const RATE_PER_S: f64 = 1_000.0;
/// No text has this word.
const NOTHING: &str = "and zqxjzqxjzqxj\n";

/// CPU time of the service for a request, in pairs.
pub(super) struct Cost {
    without_us: Vec<f64>,
    pub(super) added_us: Vec<f64>,
}

impl Cost {
    pub(super) fn row(&self) -> Row {
        let median = |values: &[f64]| sidelane_host::median::median(values.iter().copied());
        let mut row = Row::new("cost/1000_per_s");
        row.put("service_us", median(&self.without_us)).put("service_added_us", median(&self.added_us));
        row.put("pairs_count", self.added_us.len() as f64);
        row
    }
}

/// The last measurement on `ground`, whose service is asked other things from now on.
pub(super) fn measure(ground: &mut Ground, plan: &CostPlan) -> Result<Cost> {
    ground.slow.as_mut().map_or(Ok(()), |slow| slow.end())?;
    let file = ground.stage.scratch.path().join("nothing.txt");
    fs::write(&file, NOTHING).with_context(|| format!("cannot write {}", file.display()))?;
    ground.stage.questions = questions(&file);
    bind(ground)?;
    let mut without_us = Vec::new();
    let mut seed = 0;
    let pair = || {
        seed += 1;
        let rhythm =
            Rhythm { rate_per_s: RATE_PER_S, run: plan.run, warm_up: Default::default(), seed, shape: Shape::Steady };
        let without = service_us(ground, None, rhythm)?;
        let mut mapper = ground.start(Way::Static, SWEEP_LOAD)?;
        let with = service_us(ground, Some(&mut mapper), rhythm);
        let ended = mapper.end();
        let added = with? - without;
        ended?;
        without_us.push(without);
        Ok(added)
    };
    let added_us = numbers_until_decided("cost for a request", plan.limit, pair, checks::of_cost)?;
    Ok(Cost { without_us, added_us })
}

/// Each thread of the service to the core to which the static mapping sends it, more or less.
fn bind(ground: &Ground) -> Result<()> {
    let cpus = [ground.stage.place.request, ground.stage.place.batch];
    for (tid, cpu) in threads(ground.stage.pid).into_iter().zip(cpus.into_iter().cycle()) {
        pin_thread(tid, &[cpu]).context("cannot bind a thread of the service")?;
    }
    Ok(())
}

fn service_us(ground: &Ground, mapper: Option<&mut RunningHurry>, rhythm: Rhythm) -> Result<f64> {
    let before_ns = ground.stage.service_cpu_ns()?;
    let requests = ground.ask(mapper, rhythm)?.requests;
    let used_ns = ground.stage.service_cpu_ns()? - before_ns;
    ensure!(requests > 0, "no request was answered");
    Ok(used_ns as f64 / requests as f64 / 1e3)
}

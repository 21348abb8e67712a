//! The reaction times of the two gates, in turns: of a holder, and of the instrumented gate in the batch program. A
//! service pulses on the request lane; the matrix kernel runs on the batch lane.

use std::ffi::OsString;
use std::time::Duration;

use anyhow::{Context, Result};

use super::build::GateBuild;
use super::{OVERLAP_LIMIT_PERCENT, REACTION_LIMIT_US, WOKEN_LIMIT_PERCENT};
use crate::experiment::comparison::Report;
use sidelane_doctor::reaction::instrumented::run_beside_pulsing_service;
use sidelane_host::topology::Lanes;
use sidelane_lanes::gate::{Gate, GateChoice};
use sidelane_report::{Check, Row, Unit};
use sidelane_stats::interval::median_interval;
use sidelane_stats::ranks::median;
use sidelane_stats::rounds::{Limit, RoundOptions, Turn, run_until_decided};
use sidelane_tracker::accounting::{Accounting, reaction_percentiles};

const ROUND: Duration = Duration::from_secs(2);
const ROUND_QUICK: Duration = Duration::from_millis(700);
const ROUNDS: Limit = Limit { first: 6, rounds: 24, time: Duration::from_secs(120) };
const ROUNDS_QUICK: Limit = Limit { first: 6, rounds: 12, time: Duration::from_secs(30) };
/// Time in which the batch kernel makes its first checks, before the measurement.
const START: Duration = Duration::from_millis(300);
const GATES: [(&str, GateChoice); 2] =
    [("gate_instrumented", GateChoice::Instrumented), ("gate_holder", GateChoice::Holder)];

pub(super) struct Reactions<'a> {
    lanes: &'a str,
    pair: &'a Lanes,
    c_build: &'a GateBuild,
    round_options: RoundOptions,
}

/// Lane accounting of each round: of the instrumented gate, then of the holder.
type AccountingByGate = [Vec<Accounting>; 2];

impl<'a> Reactions<'a> {
    pub(super) fn new(lanes: &'a str, pair: &'a Lanes, c_build: &'a GateBuild, round_options: RoundOptions) -> Self {
        Self { lanes, pair, c_build, round_options }
    }

    /// Adds a row for each gate, and the checks of the instrumented gate.
    pub(super) fn measure(&self, report: &mut Report) -> Result<()> {
        let kernels = self.c_build.build("kernels.c", "kernels", &["-pg", "-mfentry"])?;
        let command = [kernels.into_os_string(), "matrix".into(), "3600".into()];
        let mut spent = AccountingByGate::default();
        let round = |spent: &mut AccountingByGate, _: Turn<'_>| {
            for (accounting, (_, choice)) in spent.iter_mut().zip(GATES) {
                accounting.push(self.measure_round(choice, &command)?);
            }
            Ok(())
        };
        let limit = self.round_options.limit(ROUNDS_QUICK, ROUNDS);
        run_until_decided("reactions", limit, &mut spent, round, |spent| checks(spent, self.pair).to_vec())?;
        for (accounting, (name, _)) in spent.iter().zip(GATES) {
            report.rows.push(self.row(name, accounting));
        }
        report.checks.extend(checks(&spent, self.pair));
        Ok(())
    }

    fn measure_round(&self, choice: GateChoice, command: &[OsString]) -> Result<Accounting> {
        let request = self.pair.request_lanes.first().context("a pair has a request lane")?;
        let length = if self.round_options.quick { ROUND_QUICK } else { ROUND };
        run_beside_pulsing_service(self.lanes, request, command, Gate::choose(choice, command)?, START, length)
    }

    fn row(&self, name: &str, rounds: &[Accounting]) -> Row {
        let mut row = Row::new(name);
        let middle = |figure: &dyn Fn(&Accounting) -> Option<f64>| median(rounds.iter().filter_map(figure));
        row.put("overlap_percent", middle(&|accounting| accounting.overlap_percent(self.pair)));
        row.put("batch_share_of_idle_percent", middle(&|accounting| accounting.batch_share_of_idle_percent(self.pair)));
        row.put(
            "service_summons_per_s",
            middle(&|accounting| per_second(accounting, accounting.sum(|lane| lane.lc_summons))),
        );
        row.put("wakeups_of_starts_percent", middle(&summons_per_start_percent));
        row.put("naps_per_s", middle(&|accounting| per_second(accounting, accounting.sum(|lane| lane.gate.naps))));
        let keys = rounds
            .first()
            .map(|accounting| reaction_percentiles(accounting.batch_off_latencies(), accounting.batch_on_latencies()));
        for (index, (key, _)) in keys.into_iter().flatten().enumerate() {
            let figure = |accounting: &Accounting| {
                reaction_percentiles(accounting.batch_off_latencies(), accounting.batch_on_latencies())[index].1
            };
            row.put(key, middle(&figure));
        }
        row
    }
}

/// Returns the checks on the instrumented gate: its reaction time, its overlap, and its summonses per start of the
/// service.
fn checks(accounting_by_gate: &AccountingByGate, pair: &Lanes) -> [Check; 3] {
    let instrumented =
        |figure: &dyn Fn(&Accounting) -> Option<f64>| median_interval(accounting_by_gate[0].iter().filter_map(figure));
    let off_us = instrumented(&|accounting| Some(accounting.batch_off_latencies().percentile_ns(50.0)? as f64 / 1e3));
    let overlap_percent = instrumented(&|accounting| accounting.overlap_percent(pair));
    let woken_percent = instrumented(&summons_per_start_percent);
    [
        Check::interval_at_most("instrumented, service on to batch off, p50", off_us, REACTION_LIMIT_US, Unit::Us),
        Check::interval_at_most(
            "instrumented, overlap with pulses of 200 µs",
            overlap_percent,
            OVERLAP_LIMIT_PERCENT,
            Unit::Percent,
        ),
        Check::interval_at_most(
            "instrumented, starts of the service at which it paid for a wake-up",
            woken_percent,
            WOKEN_LIMIT_PERCENT,
            Unit::Percent,
        ),
    ]
}

fn summons_per_start_percent(accounting: &Accounting) -> Option<f64> {
    let starts = accounting.sum(|lane| lane.lc_switches);
    (starts > 0).then(|| accounting.sum(|lane| lane.lc_summons) as f64 * 100.0 / starts as f64)
}

fn per_second(accounting: &Accounting, count: u64) -> Option<f64> {
    (accounting.at_ns > 0).then(|| count as f64 * 1e9 / accounting.at_ns as f64)
}

//! Reactions: a pulse on the request lane, the matrix kernel on the batch lane, and the two gates in
//! turns.

use std::ffi::OsString;
use std::time::Duration;

use anyhow::{Context, Result};

use super::build::Workshop;
use super::{OVERLAP_LIMIT_PERCENT, REACTION_LIMIT_US, WOKEN_LIMIT_PERCENT};
use crate::bench::median::median;
use crate::doctor::instrumented::beside_pulses;
use crate::lane::books::{Books, reaction_figures};
use crate::lane::gate::{Gate, GateChoice};
use crate::lane::topology::Lanes;
use crate::report::{Check, ResultFile, Row, Unit};

const ROUND: Duration = Duration::from_secs(2);
/// Until the kernel has made its first checks.
const START: Duration = Duration::from_millis(300);
const GATES: [(&str, GateChoice); 2] =
    [("gate_instrumented", GateChoice::Instrumented), ("gate_holder", GateChoice::Holder)];

pub(super) struct Reactions<'a> {
    lanes: &'a str,
    pair: &'a Lanes,
    workshop: &'a Workshop,
}

impl<'a> Reactions<'a> {
    pub(super) fn new(lanes: &'a str, pair: &'a Lanes, workshop: &'a Workshop) -> Self {
        Self { lanes, pair, workshop }
    }

    /// Adds a row for each gate, and what is wanted of the instrumented one.
    pub(super) fn measure(&self, rounds: usize, result: &mut ResultFile) -> Result<()> {
        let kernels = self.workshop.build("kernels.c", "kernels", &["-pg", "-mfentry"])?;
        let command = [kernels.into_os_string(), "matrix".into(), "3600".into()];
        let mut spent = [Vec::new(), Vec::new()];
        for _ in 0..rounds {
            for (books, (_, choice)) in spent.iter_mut().zip(GATES) {
                books.push(self.round(choice, &command)?);
            }
        }
        for (books, (name, _)) in spent.iter().zip(GATES) {
            result.rows.push(self.row(name, books));
        }
        let figure = |key| result.rows.iter().find(|row| row.setting() == GATES[0].0).and_then(|row| row.get(key));
        let (off_us, overlap_percent) = (figure("reaction_off_p50_ns").map(|ns| ns / 1e3), figure("overlap_percent"));
        let woken_percent = figure("wakeups_of_starts_percent");
        result.checks.push(Check::at_most(
            "instrumented, service on to batch off, p50",
            off_us,
            REACTION_LIMIT_US,
            Unit::Us,
        ));
        result.checks.push(Check::at_most(
            "instrumented, overlap with pulses of 200 µs",
            overlap_percent,
            OVERLAP_LIMIT_PERCENT,
            Unit::Percent,
        ));
        result.checks.push(Check::at_most(
            "instrumented, starts of the service at which it paid for a wake-up",
            woken_percent,
            WOKEN_LIMIT_PERCENT,
            Unit::Percent,
        ));
        Ok(())
    }

    fn round(&self, choice: GateChoice, command: &[OsString]) -> Result<Books> {
        let request = self.pair.requests.first().context("a pair has a request lane")?;
        beside_pulses(self.lanes, request, command, Gate::choose(choice, command)?, START, ROUND)
    }

    fn row(&self, name: &str, rounds: &[Books]) -> Row {
        let mut row = Row::new(name);
        let middle = |figure: &dyn Fn(&Books) -> Option<f64>| median(rounds.iter().filter_map(figure));
        row.put("overlap_percent", middle(&|books| books.overlap_percent(self.pair)));
        row.put("batch_share_of_idle_percent", middle(&|books| books.batch_share_of_idle_percent(self.pair)));
        row.put("lc_wakeups_per_s", middle(&|books| per_second(books, books.sum(|lane| lane.lc_summons))));
        row.put("wakeups_of_starts_percent", middle(&wakeups_of_starts_percent));
        row.put("naps_per_s", middle(&|books| per_second(books, books.sum(|lane| lane.gate.naps))));
        let keys = rounds.first().map(|books| reaction_figures(books.reaction_off(), books.reaction_on()));
        for (index, (key, _)) in keys.into_iter().flatten().enumerate() {
            let figure = |books: &Books| reaction_figures(books.reaction_off(), books.reaction_on())[index].1;
            row.put(key, middle(&figure));
        }
        row
    }
}

fn wakeups_of_starts_percent(books: &Books) -> Option<f64> {
    let starts = books.sum(|lane| lane.lc_switches);
    (starts > 0).then(|| books.sum(|lane| lane.lc_summons) as f64 * 100.0 / starts as f64)
}

fn per_second(books: &Books, count: u64) -> Option<f64> {
    (books.at_ns > 0).then(|| count as f64 * 1e9 / books.at_ns as f64)
}

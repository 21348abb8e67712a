//! The ladder of naps (Elfen §3.2, Fig. 8): the time to put a lane to sleep and to wake it, by every available
//! mechanism, from a register to a POSIX signal.

mod gate;
mod reference;
mod rungs;
mod sleeper;
mod voluntary;

use std::thread;

use crate::note::LabNote;
use sidelane_doctor::reaction::latency::ReactionPlan;
use sidelane_doctor::reaction::pair::TestPair;
use sidelane_host::tsc::Clock;
use sidelane_report::chart::{IntervalGroup, Intervals, Mean};
use sidelane_report::{Row, Unit};

use super::estimate::Estimate;
use reference::{PAPER_MACHINE, paper_cycles};

/// Measurements of all rungs of the ladder of naps; a missing rung has the reason.
pub(super) struct Ladder {
    rungs: Vec<Rung>,
    cycles_per_ns: f64,
}

/// One mechanism of napping, with its latencies or the reason why it is missing.
struct Rung {
    name: String,
    outcome: Result<Latency, String>,
}

/// Times to put the lane to sleep and to wake it, in nanoseconds.
struct Latency {
    sleep: Estimate,
    wake: Estimate,
}

/// Rung of the instrumented gate, which is measured apart since it needs a whole session.
pub(super) struct InstrumentedRung(Rung);

/// Measures the instrumented gate on `pair`.
pub(super) fn measure_instrumented_gate(pair: &TestPair, plan: &ReactionPlan) -> InstrumentedRung {
    InstrumentedRung(rungs::measure_instrumented_rung(pair, plan))
}

/// Measures all rungs but the instrumented gate on `pair`. `name` is the name of temporary objects such as cgroups.
pub(super) fn measure_ladder(
    pair: &TestPair,
    group_name: &str,
    plan: &ReactionPlan,
    instrumented: InstrumentedRung,
) -> Ladder {
    let cycles_per_ns = Clock::calibrate().cycles_per_ns;
    Ladder { rungs: rungs::measure_all_rungs(pair, group_name, plan, cycles_per_ns, instrumented.0), cycles_per_ns }
}

/// Runs a measurement on a new thread, so that changes of affinity and class end with it.
fn run_on_new_thread<T: Send>(measure: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(measure).join().expect("measurements do not panic"))
}

impl Ladder {
    /// Returns a row for each rung, without figures for unavailable rungs.
    pub(super) fn rows(&self) -> Vec<Row> {
        self.rungs.iter().map(|rung| self.row(rung)).collect()
    }

    /// Returns the reasons why rungs are missing, and how to read the figures of the measured rungs.
    pub(super) fn notes(&self) -> Vec<LabNote> {
        let lack = |rung: &Rung| {
            let why = rung.outcome.as_ref().err()?.clone();
            Some(LabNote::NapMissing { nap: rung.name.clone(), why })
        };
        let method = [LabNote::NapsUncounted, LabNote::NapsBegin, LabNote::NapsOfHolder];
        self.rungs.iter().filter_map(lack).chain(method).collect()
    }

    /// Returns the picture of the times to sleep and to wake for each rung, beside the paper's.
    pub(super) fn latency_chart(&self) -> Intervals {
        let groups = self.rungs.iter().map(|rung| self.interval_group(rung)).filter(|group| !group.means.is_empty());
        Intervals {
            title: "How fast a lane sleeps and wakes".to_owned(),
            caption: format!(
                "Cycles of the time stamp counter ({:.2} a nanosecond), means; the bars behind the dots are their 95 % \
                 confidence intervals. Left is faster, and each grid line to the right is ten times slower. Rings are \
                 not measured here: they are from Elfen's Fig. 8, {PAPER_MACHINE}.",
                self.cycles_per_ns
            ),
            unit: Unit::Cycles,
            across: "cycles".to_owned(),
            groups: groups.collect(),
        }
    }

    fn row(&self, rung: &Rung) -> Row {
        let mut row = Row::new(&rung.name);
        let latency = rung.outcome.as_ref().ok();
        for (direction, estimate) in
            [("sleep", latency.map(|found| found.sleep)), ("wake", latency.map(|found| found.wake))]
        {
            let cycles = estimate.map(|estimate| estimate.scaled_by(self.cycles_per_ns));
            for (unit, estimate) in [("cycles", cycles), ("ns", estimate)] {
                row.put(&format!("{direction}_mean_{unit}"), estimate.map(|estimate| estimate.mean.round()));
                row.put(&format!("{direction}_ci95_{unit}"), estimate.map(|estimate| estimate.half_width.round()));
            }
        }
        row.put("samples_count", latency.map_or(0.0, |found| found.sleep.count as f64));
        let paper = paper_cycles(&rung.name);
        row.put("paper_sleep_cycles", paper.map(|(sleep, _)| sleep));
        row.put("paper_wake_cycles", paper.map(|(_, wake)| wake));
        row
    }

    fn interval_group(&self, rung: &Rung) -> IntervalGroup {
        let measured = |series: &str, estimate: Estimate| {
            let Estimate { mean, half_width, .. } = estimate.scaled_by(self.cycles_per_ns);
            Mean { series: series.to_owned(), mean, half_width: Some(half_width) }
        };
        let from_paper = |series: &str, mean| Mean { series: series.to_owned(), mean, half_width: None };
        let latency = rung.outcome.as_ref().ok();
        let here = latency.map(|found| [measured("to sleep", found.sleep), measured("to wake", found.wake)]);
        let there =
            paper_cycles(&rung.name).map(|(sleep, wake)| [from_paper("to sleep", sleep), from_paper("to wake", wake)]);
        IntervalGroup { name: rung.name.clone(), means: here.into_iter().chain(there).flatten().collect() }
    }
}

//! `sidelane-lab bench observe`: the evaluation of SHIM (thesis chapter 3), on this machine.
//!
//! - how close reading one tag comes to the physical limit: a C loop that does nothing but read the same tag;
//! - which samples of a rate are correct, by period: Figures 3.4 and 3.5;
//! - the cost for a target on another core: Figures 3.7(a) and 3.9;
//! - what slow sampling hides: Figure 3.1;
//! - how soon a JVM's pause is observed;
//! - and a comparison with `perf record`.

mod fidelity;
mod fixture;
mod hidden;
mod limit;
mod overhead;
mod pause;
mod profiler;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use self::fixture::ObserveFixture;
use crate::experiment::comparison::Report;
use crate::note::LabNote;
use sidelane_diagnostics::machine;
use sidelane_host::topology::Topology;
use sidelane_report::ResultFile;
use sidelane_stats::rounds::{Limit, RoundOptions};

/// Rounds of each part: `first` rounds always, then more until the checks are decided, up to `rounds` rounds or `time`.
const ROUNDS: Limit = Limit { first: 11, rounds: 44, time: Duration::from_secs(60) };
const ROUNDS_QUICK: Limit = Limit { first: 6, rounds: 12, time: Duration::from_secs(10) };

/// Measures all parts, with the target on the first lane of the pair and the observer on the second.
pub fn run(lanes: &str, round_options: RoundOptions) -> Result<ResultFile> {
    let pair = Topology::read(Path::new("/sys"))?.declared_pairs(lanes)?;
    let target = pair.request_lanes.first().context("a pair has a first lane")?;
    let observer = pair.batch.first().context("a pair has a second lane")?.cpu;
    let fixture = ObserveFixture::prepare(target, observer)?;
    let mut report = Report::with_settings(settings(lanes));
    let length = Duration::from_millis(if round_options.quick { 200 } else { 1000 });
    let limit = round_options.limit(ROUNDS_QUICK, ROUNDS);
    limit::measure_highest_rate(&fixture, limit, &mut report).context("one tag")?;
    fidelity::measure_fidelity(&fixture, length, limit, &mut report).context("rates")?;
    overhead::measure_overhead(&fixture, length, limit, &mut report).context("overhead")?;
    hidden::measure_hidden_changes(&fixture, length, limit, &mut report).context("slow sampling")?;
    profiler::compare_with_perf(&fixture, limit, &mut report).context("perf record")?;
    pause::measure_pause_delays(&fixture, limit, &mut report).context("pauses of a JVM")?;
    if !machine::has_pmu() {
        report.notes.push(LabNote::NoHardwareCounters.to_string());
    }
    report.notes.extend(fidelity::coarse_tsc_note().map(|note| note.to_string()));
    Ok(report.into_result_file(pair.kind, round_options, limit.rounds))
}

fn settings(lanes: &str) -> Value {
    json!({
        "title": "Sidelane bench observe",
        "explanation": "Programs that emit a tag and a counter run on one lane, an observer on another one. Cycles are \
                        those of the time stamp counter. Slowdowns are of pairs of windows with and without an observer.",
        "lanes": lanes,
    })
}

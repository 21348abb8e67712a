//! A comparison with `perf record` at its highest rate, on the same target in the same run.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::fixture::{ObservationOptions, ObserveFixture, TargetProcess};
use crate::experiment::comparison::Report;
use crate::note::LabNote;
use sidelane_channels::Reader;
use sidelane_channels::app::EmittedSignals;
use sidelane_host::tsc::Clock;
use sidelane_observe::period::Period;
use sidelane_report::{Check, Row, Unit};
use sidelane_stats::interval::median_interval;
use sidelane_stats::ranks::median;
use sidelane_stats::rounds::{Limit, Turn, run_until_decided};

const SLICE: Duration = Duration::from_millis(500);
const WRITTEN_EVERY: u64 = 1200;
/// Factor by which the observer's sampling period must be shorter than perf's.
const FINER_WANTED: f64 = 500.0;
/// Tolerated difference between the target's slowdown by the observer and by perf, in percentage points.
const NOISE_PERCENT: f64 = 0.5;

/// Figures of one profiler, with one value per round.
#[derive(Default)]
struct Rounds {
    period_cycles: Vec<f64>,
    slowdown_percent: Vec<f64>,
}

/// Figures of the observer and of perf, measured in turns.
#[derive(Default)]
struct ProfilerComparison {
    ours: Rounds,
    perf: Rounds,
}

pub(super) fn compare_with_perf(fixture: &ObserveFixture, limit: Limit, report: &mut Report) -> Result<()> {
    if Command::new("perf").arg("--version").stdout(Stdio::null()).status().is_err() {
        report.notes.push(LabNote::NoPerf.to_string());
        return Ok(());
    }
    let clock = Clock::calibrate();
    let target = fixture.start_phases_target(WRITTEN_EVERY)?;
    let mut turns = ProfilerComparison::default();
    let round = |turns: &mut ProfilerComparison, _: Turn<'_>| turns.measure_round(fixture, &target, &clock);
    run_until_decided("perf record", limit, &mut turns, round, ProfilerComparison::checks)?;
    report.checks.extend(turns.checks());
    report.rows.extend([
        turns.ours.row("observer, one tag at the highest rate"),
        turns.perf.row("perf record at its highest rate"),
    ]);
    Ok(())
}

impl ProfilerComparison {
    fn measure_round(&mut self, fixture: &ObserveFixture, target: &TargetProcess, clock: &Clock) -> Result<()> {
        let without = measure_progress_per_s(target, || {
            std::thread::sleep(SLICE);
            Ok(())
        })?;
        let mut samples = 0;
        let with_perf =
            measure_progress_per_s(target, || record_with_perf(fixture, target).map(|counted| samples = counted))?;
        self.perf.slowdown_percent.push(100.0 * (1.0 - with_perf / without));
        self.perf.period_cycles.push(clock.ns_to_cycles(SLICE.as_nanos() as u64) as f64 / samples.max(1) as f64);
        let look =
            ObservationOptions { signals: &["tag:phases.phase"], progress: None, period: Period::Max, length: SLICE };
        let mut period = None;
        let with_ours = measure_progress_per_s(target, || {
            fixture.observe(target, &look).map(|seen| period = seen.analysis.periods.mean())
        })?;
        self.ours.slowdown_percent.push(100.0 * (1.0 - with_ours / without));
        self.ours.period_cycles.push(period.context("nothing was read")?);
        Ok(())
    }

    fn checks(&self) -> Vec<Check> {
        let pairs = |of: fn(&Rounds) -> &Vec<f64>| of(&self.perf).iter().zip(of(&self.ours));
        let finer = median_interval(pairs(|rounds| &rounds.period_cycles).map(|(perf, ours)| perf / ours));
        let more = median_interval(pairs(|rounds| &rounds.slowdown_percent).map(|(perf, ours)| ours - perf));
        vec![
            Check::interval_at_least("period finer than perf record's, times", finer, FINER_WANTED, Unit::Ratio),
            Check::interval_at_most(
                "slowdown beyond perf record's, median of pairs",
                more,
                NOISE_PERCENT,
                Unit::Percent,
            ),
        ]
    }
}

impl Rounds {
    fn row(self, name: &str) -> Row {
        let mut row = Row::new(name);
        row.put("period_cycles", median(self.period_cycles)).put("slowdown_percent", median(self.slowdown_percent));
        row
    }
}

/// Returns the target's progress per second while `work` runs.
fn measure_progress_per_s(target: &TargetProcess, work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let emitted = EmittedSignals::find(target.pid()).pop().context("the target has ended")?;
    let channel = emitted.channels("phases.done").pop().context("the target counts nothing")?;
    let Reader::Word(done) = channel.reader else { unreachable!("an emitted counter is a word") };
    let (began, before) = (Instant::now(), done.read());
    work()?;
    Ok((done.read() - before) as f64 / began.elapsed().as_secs_f64())
}

/// Runs `perf record` on the target, and returns the number of its samples.
fn record_with_perf(fixture: &ObserveFixture, target: &TargetProcess) -> Result<u64> {
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("perf.data");
    let length = SLICE.as_secs_f64().to_string();
    let mut perf = Command::new("taskset");
    perf.args(["-c", &fixture.observer_cpu.to_string(), "perf", "record", "-F", "max", "-o"]).arg(&file);
    perf.args(["-p", &target.pid().to_string(), "--", "sleep", &length]).stdout(Stdio::null()).stderr(Stdio::null());
    let status = perf.status().context("cannot run perf record")?;
    anyhow::ensure!(status.success(), "perf record failed: {status}; try it by hand");
    count_perf_samples(&file)
}

fn count_perf_samples(file: &Path) -> Result<u64> {
    let mut script = Command::new("perf");
    script.args(["script", "-F", "ip", "-i"]).arg(file).stderr(Stdio::null());
    let output = script.output().context("cannot run perf script")?;
    let _ = fs::remove_file(file);
    Ok(output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()).count() as u64)
}

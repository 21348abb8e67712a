//! The delay after which a pause of an unmodified JVM is observed: without an agent, through HotSpot's own counters in
//! shared memory.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use super::fixture::ObserveFixture;
use crate::experiment::comparison::Report;
use crate::note::LabNote;
use sidelane_host::priority::run_with_this_thread_on;
use sidelane_host::service::Target;
use sidelane_observe::log::LogReader;
use sidelane_observe::period::Period;
use sidelane_observe::session;
use sidelane_observe::session::ObserveOptions;
use sidelane_report::{Check, Row, Unit};
use sidelane_stats::interval::median_interval;
use sidelane_stats::ranks::percentile;
use sidelane_stats::rounds::{Limit, Turn, run_until_decided};

const PROGRAM: &str = include_str!("Garbage.java");
/// Counter that increases by one when a pause begins.
const SIGNAL: &str = "counter:jvm:sun.rt.safepoints";
const PERIOD: Period = Period::Time(Duration::from_micros(1));
const WANTED_US: f64 = 5.0;
/// Number of pauses after which the JVM's startup counts as over.
const PAUSES_MIN: usize = 20;
const ROUND: Duration = Duration::from_secs(1);
const STARTS_WITHIN: Duration = Duration::from_secs(30);

pub(super) fn measure_pause_delays(fixture: &ObserveFixture, limit: Limit, report: &mut Report) -> Result<()> {
    let Some(jvm) = Jvm::start(fixture.target_cpu)? else {
        report.notes.push(LabNote::NoJava.to_string());
        return Ok(());
    };
    let mut delays_us = Vec::new();
    // Starts with one round, since it has many pauses and each pause is a sample.
    let limit = Limit { first: 1, ..limit };
    let round = |delays_us: &mut Vec<f64>, _: Turn<'_>| {
        delays_us.extend(measure_delays_us(fixture, &jvm)?);
        Ok(())
    };
    run_until_decided("pauses", limit, &mut delays_us, round, |delays_us| vec![check(delays_us)])?;
    report.checks.push(check(&delays_us));
    delays_us.sort_by(f64::total_cmp);
    let at = |percent| percentile(&delays_us, percent);
    let mut row = Row::new("JVM pause, from its counter's change to the sample, at most");
    row.put("pauses_count", delays_us.len() as f64);
    row.put("delay_p50_us", at(50.0)).put("delay_p99_us", at(99.0)).put("delay_max_us", delays_us.last().copied());
    report.rows.push(row);
    Ok(())
}

fn check(delays_us: &[f64]) -> Check {
    let delay = median_interval(delays_us.iter().copied());
    Check::interval_at_most("a JVM's pause is seen after, median of pauses", delay, WANTED_US, Unit::Us)
}

/// Observes the JVM for a round; returns the delays in microseconds.
fn measure_delays_us(fixture: &ObserveFixture, jvm: &Jvm) -> Result<Vec<f64>> {
    let log = jvm.dir.path().join("log");
    session::run(&ObserveOptions {
        target: Some(Target::Pid(jvm.child.id())),
        command: Vec::new(),
        signals: vec![SIGNAL.parse()?],
        progress: None,
        length: Some(ROUND),
        period: PERIOD,
        cpu: Some(fixture.target_cpu),
        observer_cpu: Some(fixture.observer_cpu),
        tolerance: 0.01,
        log: Some(log.clone()),
        live: false,
    })?;
    Ok(delays_us(&mut LogReader::open(&log)?))
}

/// Returns the time since the previous sample for each change of the counter: an upper bound of the delay.
fn delays_us<R: std::io::Read>(log: &mut LogReader<R>) -> Vec<f64> {
    let clock = log.head().clock();
    let mut delays = Vec::new();
    let mut before: Option<(u64, u64)> = None;
    log.for_each_sample(|sample, is_gap| {
        let (at, count) = (sample.start, sample.values[0]);
        if let Some((then, last)) = before.filter(|_| !is_gap)
            && last != count
        {
            // Counts the delay up to the sample's second clock reading, which certainly comes after the read of the
            // counter.
            delays.push(clock.cycles_to_ns(sample.end - then) / 1e3);
        }
        before = Some((at, count));
    });
    delays
}

/// Running JVM with the program that causes pauses.
struct Jvm {
    child: Child,
    dir: TempDir,
}

impl Jvm {
    /// Starts the JVM, and waits until its counters show pauses; returns `None` without Java.
    fn start(cpu: u32) -> Result<Option<Self>> {
        let dir = tempfile::tempdir()?;
        let source = dir.path().join("Garbage.java");
        std::fs::write(&source, PROGRAM)?;
        let mut java = Command::new("java");
        java.args(["-Xms64m", "-Xmx64m", "-XX:+UseSerialGC"]).arg(&source);
        java.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
        let Ok(child) = run_with_this_thread_on(&[cpu], || java.spawn())? else { return Ok(None) };
        let mut jvm = Self { child, dir };
        jvm.wait_for_pauses()?;
        Ok(Some(jvm))
    }

    fn wait_for_pauses(&mut self) -> Result<()> {
        let began = Instant::now();
        let pid = self.child.id();
        while pause_count(pid).is_none_or(|pauses| pauses < PAUSES_MIN as u64) {
            ensure!(self.child.try_wait()?.is_none(), "the JVM has ended before its first pause");
            ensure!(began.elapsed() < STARTS_WITHIN, "the JVM does not pause within {STARTS_WITHIN:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

fn pause_count(pid: u32) -> Option<u64> {
    use sidelane_channels::{Reader, hsperf};
    let signal = SIGNAL.parse().ok()?;
    let channels = hsperf::channels(&signal, Some("sun.rt.safepoints"), &[pid].into());
    match channels.ok()?.pop().context("one channel").ok()?.reader {
        Reader::Word(word) => Some(word.read()),
        _ => None,
    }
}

impl Drop for Jvm {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

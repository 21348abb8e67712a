//! One run: the service under load in one setting, watched from the client and the kernel.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::Pace;
use super::stage::Stage;
use super::timeline;
use crate::lane::batch::BatchClass;
use crate::lane::beside::keep_off;
use crate::lane::books::Books;
use crate::lane::session::{Session, SessionOptions};
use crate::lane::terms::Lending;
use crate::report::{Percentile, Timeline};

/// How much of a run the timeline shows.
const TIMELINE: Duration = Duration::from_millis(60);

/// What runs beside the service, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Setting {
    Alone,
    Unmanaged,
    SchedIdle,
    BorrowIdle,
}

impl Setting {
    pub(super) const ALL: [Self; 4] = [Self::Alone, Self::Unmanaged, Self::SchedIdle, Self::BorrowIdle];

    /// The settings of a round, starting with another one each time, so that none always comes
    /// first.
    pub(super) fn in_order_of(round: u64) -> impl Iterator<Item = Self> {
        let taking_part = move |setting: &Self| round.is_multiple_of(2) || setting.is_judged();
        let first = round as usize % Self::ALL.len();
        Self::ALL.into_iter().cycle().skip(first).take(Self::ALL.len()).filter(taking_part)
    }

    fn is_judged(self) -> bool {
        matches!(self, Self::Alone | Self::BorrowIdle)
    }

    /// Its name in results.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Unmanaged => "unmanaged",
            Self::SchedIdle => "sched_idle",
            Self::BorrowIdle => "borrow_idle",
        }
    }

    /// Its name for people.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Alone => "service alone",
            Self::Unmanaged => "batch unmanaged",
            Self::SchedIdle => "batch in SCHED_IDLE",
            Self::BorrowIdle => "borrow idle",
        }
    }

    fn options(self) -> Option<SessionOptions> {
        let (class, hold) = match self {
            Self::Alone => return None,
            Self::Unmanaged => (BatchClass::Ordinary, None),
            Self::SchedIdle => (BatchClass::Idle, None),
            Self::BorrowIdle => (BatchClass::Idle, Some(Lending::default())),
        };
        Some(SessionOptions { class, hold, audit: None })
    }
}

/// What the client saw, as `sidelane-lab load` reports it.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Latencies {
    pub(super) requests: u64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    pub(super) max_us: f64,
    pub(super) send_lag_p99_us: f64,
    pub(super) curve: Vec<Percentile>,
}

/// What was measured in one run.
pub(super) struct Run {
    pub(super) round: u64,
    pub(super) setting: Setting,
    pub(super) latencies: Latencies,
    /// Nothing of these where batch did not run.
    pub(super) beside: Option<BesideFigures>,
}

/// What the kernel counted while batch ran beside the service.
pub(super) struct BesideFigures {
    pub(super) books: Books,
    pub(super) batch_work_ratio: f64,
    pub(super) timeline: Option<Timeline>,
    pub(super) notes: Vec<String>,
}

/// Measures one setting. `draw` also records a timeline.
pub(super) fn run(
    stage: &Stage,
    pace: Pace,
    round: u64,
    setting: Setting,
    batch_alone_per_s: f64,
    draw: bool,
) -> Result<Run> {
    let (latencies, beside) = match setting.options() {
        None => (load(stage, pace, round)?.finish()?, None),
        Some(options) => {
            let (latencies, beside) = run_beside(stage, pace, round, setting, options, batch_alone_per_s, draw)?;
            (latencies, Some(beside))
        }
    };
    Ok(Run { round, setting, latencies, beside })
}

fn run_beside(
    stage: &Stage,
    pace: Pace,
    round: u64,
    setting: Setting,
    options: SessionOptions,
    batch_alone_per_s: f64,
    draw: bool,
) -> Result<(Latencies, BesideFigures)> {
    let counter = stage.counter(&format!("{}-{round}", setting.name()));
    let session = Session::start(stage.beside()?, &batch_command(stage, &counter), options)?;
    wait_for_work(&counter)?;
    let load = load(stage, pace, round)?;
    let (before, began, done) = (session.memory().books(), Instant::now(), work_done(&counter));
    let timeline = if draw {
        // Past the warm-up, where the run is like the rest of it.
        thread::sleep(pace.warm_up * 2);
        Some(timeline::record(&session, setting.name(), TIMELINE)?)
    } else {
        None
    };
    let latencies = load.finish()?;
    let books = session.memory().books().since(&before);
    let work_per_s = (work_done(&counter) - done) as f64 / began.elapsed().as_secs_f64();
    session.kill();
    let outcome = session.end()?;
    let batch_work_ratio = work_per_s / batch_alone_per_s;
    Ok((latencies, BesideFigures { books, batch_work_ratio, timeline, notes: outcome.notes }))
}

/// How fast batch is with the lane to itself and the service idle, in units of work a second.
pub(super) fn batch_alone_per_s(stage: &Stage, pace: Pace, round: u64) -> Result<f64> {
    let counter = stage.counter(&format!("alone-{round}"));
    let command = batch_command(stage, &counter);
    let mut pinned = stage.lab.command(&command[1..]);
    keep_off(&stage.beside()?.lanes.requests).context("cannot leave the request lanes")?;
    let lane: Vec<u32> = stage.batch_lane().parse().into_iter().collect();
    let mut child =
        crate::lane::priority::with_this_thread_on(&lane, || pinned.spawn())?.context("cannot start batch")?;
    wait_for_work(&counter)?;
    let (began, done) = (Instant::now(), work_done(&counter));
    thread::sleep(pace.batch_alone);
    let work_per_s = (work_done(&counter) - done) as f64 / began.elapsed().as_secs_f64();
    child.kill().and_then(|()| child.wait()).context("cannot end batch")?;
    ensure!(work_per_s > 0.0, "the batch kernel {} did no work", stage.batch);
    Ok(work_per_s)
}

fn batch_command(stage: &Stage, counter: &Path) -> Vec<OsString> {
    let words = [stage.lab.path(), "batch".as_ref(), stage.batch.as_ref(), "--counter".as_ref(), counter.as_os_str()];
    words.map(OsString::from).to_vec()
}

/// Waits until batch has done its first unit of work.
fn wait_for_work(counter: &Path) -> Result<()> {
    const TIMEOUT: Duration = Duration::from_secs(5);
    let began = Instant::now();
    while work_done(counter) == 0 {
        ensure!(began.elapsed() < TIMEOUT, "the batch job did no work for 5 s: is something else busy on its lane?");
        // Not a spin: batch has the lowest claim to the CPU that this thread is on.
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// The batch kernel's count: the first word of its file.
fn work_done(counter: &Path) -> u64 {
    let bytes = fs::read(counter).unwrap_or_default();
    bytes.first_chunk().map_or(0, |count| u64::from_ne_bytes(*count))
}

/// A client at work.
struct Load {
    child: Child,
    json: std::path::PathBuf,
}

fn load(stage: &Stage, pace: Pace, round: u64) -> Result<Load> {
    let json = stage.scratch.path().join("latencies.json");
    let target = format!("127.0.0.1:{}", stage.service.ready("port")?);
    let options = [
        ("--target", target),
        ("--protocol", "search".to_owned()),
        ("--rate", stage.rate_per_s.to_string()),
        ("--seconds", pace.run.as_secs_f64().to_string()),
        ("--warmup-seconds", pace.warm_up.as_secs_f64().to_string()),
        // The same for every setting of a round: the same requests at the same times.
        ("--seed", (round + 1).to_string()),
    ];
    let mut command = stage.lab.command(["load"]);
    command.args(options.iter().flat_map(|(name, value)| [*name, value]));
    command.arg("--queries").arg(&stage.queries).arg("--json").arg(&json).args(&stage.client);
    command.stderr(std::process::Stdio::piped());
    Ok(Load { child: command.spawn().context("cannot start the client")?, json })
}

impl Load {
    fn finish(self) -> Result<Latencies> {
        let output = self.child.wait_with_output().context("cannot wait for the client")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "the client failed ({}): {}", output.status, said.trim());
        serde_json::from_slice(&fs::read(&self.json)?).context("the client's report is not as expected")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn judged_settings_run_in_every_round_and_take_turns_to_be_first() {
        for round in 0..8 {
            let order: Vec<Setting> = Setting::in_order_of(round).collect();
            assert!(order.contains(&Setting::Alone) && order.contains(&Setting::BorrowIdle), "{order:?}");
            assert_eq!(order.len(), if round % 2 == 0 { 4 } else { 2 });
        }
        let firsts: Vec<Setting> = (0..4).filter_map(|round| Setting::in_order_of(round).next()).collect();
        assert!(firsts.contains(&Setting::Alone) && firsts.contains(&Setting::BorrowIdle), "{firsts:?}");
    }
}

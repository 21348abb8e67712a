//! `sidelane demo`: a real search service and a batch job on one core, with and without Sidelane.
//!
//! Four settings take turns for several rounds: the service *alone*, batch beside it
//! *unmanaged*, batch in the kernel's own *SCHED_IDLE* class, and Sidelane's *borrow idle*.
//! Within a round every setting gets the same requests at the same intended times, so its
//! latencies are compared pairwise and a slow spell of the machine hits all of them. The first
//! and the last setting, whose ratio is judged, take part in every round, the others in every
//! second one: a median of pairs gets steadier with each pair.

mod measure;
mod stage;
mod timeline;
mod verdict;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};

use crate::report::{ResultFile, html};
use measure::Setting;
use stage::Stage;

/// What `sidelane demo` was asked to do.
#[derive(Clone, Debug)]
pub struct DemoOptions {
    /// Fewer and shorter rounds.
    pub quick: bool,
    /// `--lanes`; by default SMT siblings where there are any, else CPUs 0 and 1.
    pub lanes: Option<String>,
    /// Share of the request lane that the load keeps busy.
    pub load: f64,
    /// The lab's batch kernel: loop, matrix or flush.
    pub batch: String,
    /// Where the results go.
    pub out: PathBuf,
    /// Where index and queries are kept between runs.
    pub cache: PathBuf,
}

/// The columns of the demo's table on a terminal; the page shows all.
pub const COLUMNS: [&str; 9] = [
    "p50_us",
    "p99_us",
    "max_us",
    "p99_over_alone",
    "batch_work_ratio",
    "batch_share_of_idle_percent",
    "overlap_percent",
    "reaction_off_p50_ns",
    "reaction_off_p99_ns",
];

/// How long and how often everything is measured.
#[derive(Clone, Copy, Debug)]
struct Pace {
    rounds: u64,
    run: Duration,
    warm_up: Duration,
    batch_alone: Duration,
}

impl Pace {
    fn of(quick: bool) -> Self {
        let (rounds, run_ms, batch_alone_ms) = if quick { (5, 1_800, 300) } else { (10, 4_000, 500) };
        Self {
            rounds,
            run: Duration::from_millis(run_ms),
            warm_up: Duration::from_millis(500),
            batch_alone: Duration::from_millis(batch_alone_ms),
        }
    }
}

/// Runs the demo and writes `result.json` and `index.html`.
pub fn run(options: &DemoOptions) -> Result<ResultFile> {
    let pace = Pace::of(options.quick);
    let bar = progress_bar(pace);
    bar.set_message("building the search index");
    let stage = Stage::set_up(options)?;
    let mut runs = Vec::new();
    for round in 0..pace.rounds {
        bar.set_message("batch alone");
        let batch_alone_per_s = measure::batch_alone_per_s(&stage, pace, round)?;
        for setting in Setting::in_order_of(round) {
            bar.set_message(setting.title());
            let first = round == 0;
            runs.push(measure::run(&stage, pace, round, setting, batch_alone_per_s, first)?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let lanes = stage.beside()?.lanes;
    let result = verdict::judge(options, &stage, pace, &runs, &lanes);
    write(options, &result)?;
    Ok(result)
}

fn progress_bar(pace: Pace) -> ProgressBar {
    let runs: usize = (0..pace.rounds).map(|round| Setting::in_order_of(round).count()).sum();
    let bar = ProgressBar::new(runs as u64);
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} runs, about {eta} left: {msg}");
    bar.set_style(style.expect("the template is right"));
    bar.enable_steady_tick(Duration::from_secs(1));
    bar
}

fn write(options: &DemoOptions, result: &ResultFile) -> Result<()> {
    let dir = &options.out;
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    result.write_json(&dir.join("result.json"))?;
    html::write_page(result, &dir.join("index.html"))?;
    Ok(())
}

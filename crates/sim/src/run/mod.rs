//! `sidelane sim`: runs an experiment on simulated machines.

pub mod pictures;
mod placement;
pub mod rows;
mod text;
pub mod whole;

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::sweep::Progress;
use crate::{Choices, Experiment, Outcome, Problems, Scenario, parallel, sweep};
use indicatif::{ProgressBar, ProgressStyle};

use sidelane_report::ResultFile;
use sidelane_report::progress_lines::ProgressLines;

pub use text::SIMULATED;

/// Options of `sidelane sim`.
#[derive(Clone, Debug)]
pub struct SimOptions {
    /// Path of the scenario file.
    pub scenario: PathBuf,
    /// Replacement of the scenario's seed, and whether to use its short runs.
    pub choices: Choices,
}

/// Columns of the table on a terminal, besides swept parameters. The HTML page shows all columns.
pub const COLUMNS: [&str; 18] = [
    "p50_us",
    "p99_us",
    "p99_over_alone",
    "over_slo_percent",
    "budget_us",
    "utilisation_ratio",
    "batch_utilisation_ratio",
    "batch_work_ratio",
    "overlap_percent",
    "lent_overlap_percent",
    "fan_out_p99_us",
    "servers_saved_count",
    "jobs_done_count",
    "jobs_rejected_count",
    "jobs_moved_count",
    "job_wait_p99_ms",
    "job_turnaround_p50_ms",
    "lanes_lent_percent",
];

/// Results of an experiment.
pub struct Simulated {
    /// Swept keys, by path.
    swept: Vec<String>,
    /// Results file: a row for each point and setting, and pictures.
    pub result: ResultFile,
}

/// Reads the scenario and runs it, on all CPU cores.
///
/// # Errors
///
/// If the scenario cannot be run; then no part of it was run.
pub fn run(options: &SimOptions) -> Result<Simulated, Problems> {
    let (scenario, choices) = (&options.scenario, options.choices);
    Ok(match Scenario::load(scenario, choices)? {
        Scenario::Cores(experiment) => {
            let outcomes = run_experiment(&experiment);
            let result = to_result(&experiment, &outcomes, scenario, choices);
            Simulated { swept: experiment.swept, result }
        }
        Scenario::Machine(experiment) => {
            let outcomes = whole::run_experiment(&experiment);
            let result = whole::to_result(&experiment, &outcomes, scenario, choices);
            Simulated { swept: experiment.swept, result }
        }
    })
}

/// Runs `experiment` on all CPU cores, with a progress bar.
pub fn run_experiment(experiment: &Experiment) -> Vec<Outcome> {
    with_bar(experiment.machines(), |tell| sweep::run(experiment, parallel::threads(), tell))
}

/// Runs a simulation with a progress bar over this number of machines.
fn with_bar<T>(machines: usize, run: impl FnOnce(sweep::ReportProgress) -> T) -> T {
    let (bar, lines) = (progress_bar(machines as u64), ProgressLines::new("simulating", "machines"));
    let done = run(&|progress| match progress {
        Progress::Machines(done) => {
            bar.inc(done as u64);
            lines.count_done(done as u64, machines as u64);
        }
        Progress::Run(setting) => bar.set_message(setting.to_owned()),
    });
    bar.finish_and_clear();
    done
}

/// Builds the results file of a simulation.
pub fn to_result(experiment: &Experiment, outcomes: &[Outcome], scenario: &Path, choices: Choices) -> ResultFile {
    let settings = text::settings(experiment, scenario, choices);
    let mut result = ResultFile::new(text::machine(experiment), settings);
    let objective = experiment.first().and_then(|model| model.objective);
    result.settings.insert("slo_us".to_owned(), objective.map(|slo| slo.limit_ns as f64 / 1e3).into());
    result.rows = rows::sweep_rows(experiment, outcomes);
    result.multiples = pictures::result_panels(experiment, outcomes).into_iter().collect();
    result.notes = text::notes(experiment, outcomes);
    result.checks = placement::checks(experiment, outcomes);
    let findings = placement::findings(experiment, outcomes);
    if !findings.is_empty() {
        result.settings.insert("finding".to_owned(), findings.into());
    }
    result
}

impl Simulated {
    /// Returns whether a column is shown on a terminal.
    pub fn shows_column(&self, key: &str) -> bool {
        COLUMNS.contains(&key)
            || whole::COLUMNS.contains(&key)
            || self.swept.iter().any(|path| rows::row_key(path) == key)
    }
}

fn progress_bar(runs: u64) -> ProgressBar {
    let bar = ProgressBar::new(runs);
    let style = ProgressStyle::with_template("{bar:10} {pos}/{len} machines, {eta} left: {wide_msg}");
    bar.set_style(style.expect("the template is right"));
    bar.enable_steady_tick(Duration::from_secs(1));
    bar
}

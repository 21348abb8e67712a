//! `sidelane bench papers`: the figures of papers, simulated, and whether what the paper draws from them
//! holds here too.
//!
//! A figure is a scenario of `scenarios/` and a table of statements. Each cites where the paper makes it and
//! names the number that bears it out; what is wanted of that is the paper's, never fitted to a result. The
//! statements are about the paper's own rules (`sidelane_policy::borrow::elfen`); ours run beside them. How
//! good a rule is, all of them with one objective, is `policies`, a figure of nobody's. What the paper leaves open, and why a number differs, is in `docs/papers.md`.

mod evidence;
mod fig10;
mod fig11;
mod fig12;
mod fig2;
mod fig4;
mod fig5;
mod figures;
mod policies;
mod statement;

use serde_json::{Map, Value, json};
use sidelane_sim::{Choices, Experiment, ScenarioError};

use crate::note::Note;
use crate::sim::{outcomes, pictures, rows};
use evidence::Evidence;
use figures::{FIGURES, Figure};
use sidelane_report::chart::{Line, Multiples};
use sidelane_report::{Machine, Pair, ResultFile, Row};

/// The columns of the tables on a terminal; the page shows all.
pub const COLUMNS: [&str; 12] = [
    "rate_per_s",
    "co-runner_count",
    "p50_us",
    "p99_us",
    "p99_over_alone",
    "budget_us",
    "utilisation_ratio",
    "lc_utilisation_ratio",
    "batch_utilisation_ratio",
    "batch_work_ratio",
    "idle_time_within_15_ms_percent",
    "idle_periods_over_1_ms_percent",
];

/// Runs all figures; `quick` as their scenarios have it.
///
/// # Errors
/// Only if a scenario of Sidelane's own is wrong.
pub fn run(quick: bool) -> Result<ResultFile, ScenarioError> {
    let mut result = ResultFile::new(machine(), settings(quick));
    for figure in &FIGURES {
        add(&mut result, figure, quick)?;
    }
    result.notes.push(Note::Simulated.to_string());
    Ok(result)
}

fn add(result: &mut ResultFile, figure: &Figure, quick: bool) -> Result<(), ScenarioError> {
    let names_no_file = |file: &str| Err(format!("{file}: the bench reads no files"));
    let experiment = Experiment::parse(figure.file, figure.text, Choices { seed: None, quick }, &names_no_file)?;
    let evidence = Evidence { outcomes: outcomes(&experiment), idle_ns: idle_ns(figure, &experiment) };
    result.checks.extend(figure.statements.iter().map(|statement| statement.check(&evidence)));
    result.rows.extend(rows::of(&experiment, &evidence.outcomes).into_iter().map(|row| of_figure(figure, row)));
    result.rows.extend(figure.of_idle_periods.then(|| fig5::row(&evidence.idle_ns)));
    let picture = pictures::of(&experiment, &evidence.outcomes);
    result.multiples.extend(picture.map(|picture| with_paper(figure, picture)));
    Ok(())
}

fn of_figure(figure: &Figure, row: Row) -> Row {
    let name = format!("{}: {}", figure.name, row.setting());
    row.named(name)
}

/// Numbers that the paper's text has are points beside our lines.
fn with_paper(figure: &Figure, mut picture: Multiples) -> Multiples {
    for seen in figure.paper {
        for panel in picture.panels.iter_mut().filter(|panel| panel.unit == seen.unit) {
            panel.lines.push(Line { setting: format!("Elfen's: {}", seen.setting), points: vec![seen.point] });
        }
    }
    picture
}

fn idle_ns(figure: &Figure, experiment: &Experiment) -> Vec<u64> {
    let models = experiment.points.iter().flat_map(|point| &point.runs).filter(|_| figure.of_idle_periods);
    models.flat_map(fig5::idle_periods).collect()
}

fn machine() -> Machine {
    Machine {
        cpu: "simulated: Elfen's Xeon D-1540, one core or seven of two lanes at 2 GHz".to_owned(),
        lanes: 16,
        pair: Pair::Smt,
        kernel: "none".to_owned(),
        pmu: true,
        gates: Vec::new(),
        stolen_percent: None,
        stolen_gap_max_us: None,
        notes: Vec::new(),
    }
}

fn settings(quick: bool) -> Map<String, Value> {
    let settings = json!({
        "title": "Elfen's figures, simulated",
        "explanation": [
            "What Elfen (USENIX ATC'16) draws from its Figs. 2, 4, 5, 10, 11 and 12, checked on a simulated machine. \
             The policies that decide are Sidelane's own code, Elfen's as the paper prints them among them; requests, slowdowns and latencies come from a model \
             that is fitted to what the paper says of its service alone.",
            Note::Simulated.to_string(),
        ],
        "simulated": true,
        "scenarios": FIGURES.map(|figure| figure.file),
        "quick": quick,
    });
    settings.as_object().cloned().unwrap_or_default()
}

//! `sidelane-lab bench papers`: simulates figures of papers, and checks whether the paper's statements about them hold
//! here too.
//!
//! A figure is a scenario of `lab/scenarios/` and a table of statements. Each statement cites its place in the paper
//! and names the number that supports it. The bound of that number is the paper's, never fitted to a result. The
//! statements are about the paper's own rules (`sidelane_policy::borrow::elfen`); Sidelane's policies run beside them.
//! `policies` is not a figure of a paper: it compares all policies with one objective. `docs/explanation/papers.md`
//! lists the assumptions about missing details, and the reasons why numbers differ.

mod evidence;
mod fig10;
mod fig11;
mod fig12;
mod fig2;
mod fig4;
mod fig5;
mod figures;
mod holmes;
mod hurry;
mod machine;
mod policies;
mod statement;

use serde_json::{Map, Value, json};
use sidelane_sim::{Choices, Experiment, Problems};

use crate::this_run;
use evidence::Evidence;
use figures::{FIGURES, Figure};
use machine::refuse_file;
use sidelane_report::chart::{Line, Multiples};
use sidelane_report::{Machine, Pair, ResultFile, Row};
use sidelane_sim::run::{SIMULATED, pictures, rows, run_experiment};

/// Columns of the tables on a terminal; the HTML page shows all columns.
pub const COLUMNS: [&str; 12] = [
    "rate_per_s",
    "co-runner_count",
    "p50_us",
    "p99_us",
    "p99_over_alone",
    "budget_us",
    "utilisation_ratio",
    "service_utilisation_ratio",
    "batch_utilisation_ratio",
    "batch_work_ratio",
    "idle_time_within_15_ms_percent",
    "idle_periods_over_1_ms_percent",
];

/// Simulates all figures; `quick` uses the short runs of their scenarios.
///
/// # Errors
///
/// Fails only if one of Sidelane's own scenarios is wrong.
pub fn run(quick: bool) -> Result<ResultFile, Problems> {
    let mut result = ResultFile::new(simulated_machine(), settings(quick));
    result.run = this_run::current_run();
    for figure in &FIGURES {
        add_figure(&mut result, figure, quick)?;
    }
    holmes::FIGURES.iter().try_for_each(|figure| figure.add_to_result(&mut result, quick))?;
    hurry::FIGURES.iter().try_for_each(|figure| figure.add_to_result(&mut result, quick))?;
    result.notes.push(SIMULATED.to_owned());
    Ok(result)
}

fn add_figure(result: &mut ResultFile, figure: &Figure, quick: bool) -> Result<(), Problems> {
    let experiment = Experiment::parse(figure.file, figure.text, Choices { seed: None, quick }, &refuse_file)?;
    let evidence = Evidence { outcomes: run_experiment(&experiment), idle_ns: idle_periods_ns(figure, &experiment) };
    result.checks.extend(figure.statements.iter().map(|statement| statement.check(&evidence)));
    result
        .rows
        .extend(rows::sweep_rows(&experiment, &evidence.outcomes).into_iter().map(|row| prefix_row_name(figure, row)));
    result.rows.extend(figure.of_idle_periods.then(|| fig5::row(&evidence.idle_ns)));
    let picture = pictures::result_panels(&experiment, &evidence.outcomes);
    result.multiples.extend(picture.map(|picture| add_paper_points(figure, picture)));
    Ok(())
}

fn prefix_row_name(figure: &Figure, row: Row) -> Row {
    let name = format!("{}: {}", figure.name, row.setting());
    row.named(name)
}

/// Adds the numbers of the paper's text as points beside the simulated lines.
fn add_paper_points(figure: &Figure, mut picture: Multiples) -> Multiples {
    for seen in figure.paper {
        for panel in picture.panels.iter_mut().filter(|panel| panel.unit == seen.unit) {
            panel.lines.push(Line { setting: format!("Elfen's: {}", seen.setting), points: vec![seen.point] });
        }
    }
    picture
}

fn idle_periods_ns(figure: &Figure, experiment: &Experiment) -> Vec<u64> {
    let models = experiment.points.iter().flat_map(|point| &point.runs).filter(|_| figure.of_idle_periods);
    models.flat_map(fig5::simulate_idle_periods_ns).collect()
}

fn simulated_machine() -> Machine {
    Machine {
        cpu:
            "simulated: Elfen's Xeon D-1540, one core or seven of two lanes at 2 GHz; Holmes' server, 16 cores of two \
              lanes at 2.8 GHz; Hurry-up's Juno r1, two big and four little cores"
                .to_owned(),
        lanes: 16,
        pair: Pair::Smt,
        kernel: "none".to_owned(),
        virtual_machine: Some(false),
        pmu: true,
        gates: Vec::new(),
        stolen_percent: None,
        stolen_gap_max_us: None,
        notes: Vec::new(),
    }
}

fn settings(quick: bool) -> Map<String, Value> {
    let elfens = FIGURES.iter().map(|figure| figure.file);
    let holmes = holmes::FIGURES.iter().map(|figure| figure.file);
    let hurrys = hurry::FIGURES.iter().map(|figure| figure.file);
    let settings = json!({
        "title": "Elfen's, Holmes' and Hurry-up's figures, simulated",
        "explanation": [
            "What Elfen (USENIX ATC'16) draws from its Figs. 2, 4, 5, 10, 11 and 12, and Holmes (HPDC'22) from its Figs. 7 to \
             14 and Tables 3 and 4, and Hurry-up from its Figs. 6 to 9, checked on a simulated machine. The policies that \
             decide are Sidelane's own code, Elfen's as the paper prints them among them; requests, slowdowns and \
             latencies come from a model that is fitted to what the paper says of its service alone.",
            SIMULATED.to_owned(),
        ],
        "simulated": true,
        "scenarios": elfens.chain(holmes).chain(hurrys).collect::<Vec<_>>(),
        "quick": quick,
    });
    settings.as_object().cloned().unwrap_or_default()
}

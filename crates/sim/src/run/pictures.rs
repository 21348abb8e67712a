//! Charts of p99 and utilisation over the swept number, with a line for each setting; of a fleet with a scheduler, also
//! of servers saved and of the jobs' wait.

use crate::{Experiment, Outcome};

use super::rows::{row_key, text_value};
use sidelane_report::Unit;
use sidelane_report::chart::{Limit, Line, Multiples, Panel, ScaleKind};
use sidelane_report::unit::title_of_key;

/// Returns two or four panels for each combination of the other swept parameters; `None` if no swept number can be the
/// horizontal axis.
pub fn result_panels(experiment: &Experiment, outcomes: &[Outcome]) -> Option<Multiples> {
    let across = experiment.swept.iter().find(|path| outcomes.iter().any(|outcome| outcome.number(path).is_some()))?;
    let key = row_key(across);
    let panels = group_by_panel(across, outcomes);
    Some(Multiples {
        title: experiment.title.clone(),
        caption: caption(outcomes),
        across: title_of_key(&key),
        across_unit: Unit::from_key(&key).unwrap_or_default(),
        panels: panels
            .into_iter()
            .flat_map(|(name, group)| {
                let jobs = job_panels(across, &name, &group);
                p99_and_utilisation_panels(experiment, across, &name, &group).into_iter().chain(jobs)
            })
            .collect(),
        columns: 2,
    })
}

fn caption(outcomes: &[Outcome]) -> String {
    let mut text = "Simulated. Left: 99th percentile of latency, on a logarithmic axis; lower is better, and points \
                    under the dashed line keep the objective. Right: utilisation of all lanes of a core; higher is \
                    better."
        .to_owned();
    if outcomes.iter().any(has_jobs) {
        text += " Below: servers saved, and the 99th percentile of the jobs' wait for a lane.";
    }
    text
}

fn has_jobs(outcome: &Outcome) -> bool {
    outcome.fleet.is_some_and(|fleet| fleet.placement.is_some())
}

/// Returns panels of the jobs that a scheduler placed; none without such jobs.
fn job_panels(axis_path: &str, name: &str, group: &[&Outcome]) -> Vec<Panel> {
    let placed: Vec<&Outcome> = group.iter().copied().filter(|outcome| has_jobs(outcome)).collect();
    let panel = |what: &str, unit, figure: fn(&Outcome) -> Option<f64>| Panel {
        title: panel_title(name, what),
        unit,
        scale: ScaleKind::Linear,
        up_to: None,
        limit: None,
        lines: setting_lines(axis_path, &placed, |outcome| figure(outcome).unwrap_or(0.0)),
    };
    let wait_ms = |outcome: &Outcome| Some(outcome.fleet?.placement?.wait_p99_ms as f64);
    let panels = [
        panel("servers saved", Unit::Count, |outcome| Some(outcome.fleet?.servers_saved())),
        panel("p99 of the jobs' wait", Unit::Ms, wait_ms),
    ];
    panels.into_iter().filter(|panel| !panel.lines.is_empty()).collect()
}

fn panel_title(name: &str, what: &str) -> String {
    if name.is_empty() { what.to_owned() } else { format!("{name}: {what}") }
}

/// Groups outcomes that differ only in the setting and in the number on the horizontal axis. The name of a group is
/// the values that its outcomes share.
fn group_by_panel<'o>(axis_path: &str, outcomes: &'o [Outcome]) -> Vec<(String, Vec<&'o Outcome>)> {
    let mut panels: Vec<(String, Vec<&Outcome>)> = Vec::new();
    for outcome in outcomes {
        let others = outcome.at.iter().filter(|(path, _)| path != axis_path);
        let word = |(path, value): &(String, _)| match text_value(value) {
            Some(text) => text.to_owned(),
            None => format!("{} {value}", title_of_key(&row_key(path))),
        };
        let name = others.map(word).collect::<Vec<_>>().join(", ");
        match panels.iter_mut().find(|(known, _)| *known == name) {
            Some((_, group)) => group.push(outcome),
            None => panels.push((name, vec![outcome])),
        }
    }
    panels
}

fn p99_and_utilisation_panels(experiment: &Experiment, axis_path: &str, name: &str, group: &[&Outcome]) -> [Panel; 2] {
    let model = experiment.points.first().and_then(|point| point.runs.first());
    let limit = model
        .and_then(|model| model.objective)
        .map(|objective| Limit { name: "SLO".to_owned(), value: objective.limit_ns as f64 / 1e3 });
    let p99_us = |outcome: &Outcome| outcome.fleet.map_or(outcome.figures.p99_ns, |fleet| fleet.p99_ns) as f64 / 1e3;
    let p99 = Panel {
        title: panel_title(name, "p99 of the service"),
        unit: Unit::Us,
        scale: ScaleKind::Log,
        up_to: None,
        limit,
        lines: setting_lines(axis_path, group, p99_us),
    };
    let utilisation = Panel {
        title: panel_title(name, "utilisation of all lanes"),
        unit: Unit::Ratio,
        scale: ScaleKind::Linear,
        up_to: model.map(|model| model.machine.lanes_per_core as f64),
        limit: None,
        lines: setting_lines(axis_path, group, |outcome| outcome.figures.utilisation()),
    };
    [p99, utilisation]
}

fn setting_lines(axis_path: &str, group: &[&Outcome], figure: impl Fn(&Outcome) -> f64) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for outcome in group {
        let Some(point) = outcome.number(axis_path).map(|number| (number, figure(outcome))) else { continue };
        match lines.iter_mut().find(|line| line.setting == outcome.setting) {
            Some(line) => line.points.push(point),
            None => lines.push(Line { setting: outcome.setting.clone(), points: vec![point] }),
        }
    }
    lines
}

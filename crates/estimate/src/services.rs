//! Estimates of several services, as of all nodes of a cluster: a line for each, and what they would give together.

use serde_json::{Map, json};
use sidelane_report::ResultFile;
use sidelane_report::grid::{Grid, Ink};

use crate::outcome::{DAY_S, Estimated};
use crate::text::{Estimate, INDENT, hours, range_text};

/// Estimates of several services, each with its name.
#[derive(Clone, Debug)]
pub struct ServiceEstimates {
    services: Vec<(String, Estimate)>,
    /// Names of services without requests, of which there is no estimate.
    silent: Vec<String>,
}

impl ServiceEstimates {
    /// Joins the estimates of `services`, at least one. `silent` are the names of services that answered no request.
    pub fn new(services: Vec<(String, Estimate)>, silent: Vec<String>) -> Self {
        Self { services, silent }
    }

    /// Returns the estimates as one result: the rows of each service, with its name.
    pub fn to_result(&self) -> ResultFile {
        let results: Vec<(&str, ResultFile)> =
            self.services.iter().map(|(name, estimate)| (name.as_str(), estimate.to_result())).collect();
        let settings_of = |(name, result): &(&str, ResultFile)| ((*name).to_owned(), json!(result.settings));
        let mut settings = Map::new();
        settings.insert("services".into(), results.iter().map(settings_of).collect::<Map<_, _>>().into());
        settings.insert("without_requests".into(), json!(self.silent));
        let mut joined = ResultFile::new(results[0].1.machine.clone(), settings);
        for (name, result) in results {
            joined.rows.extend(result.rows.into_iter().map(|row| {
                let setting = format!("{name}, {}", row.setting());
                row.named(setting)
            }));
            joined.notes.extend(result.notes.iter().map(|note| format!("{name}: {note}")));
        }
        joined
    }

    /// Returns CPU time of batch in a day by the recommended settings, in seconds: at least and at most.
    fn together_s(&self) -> (f64, f64) {
        let ends = self.services.iter().filter_map(|(_, estimate)| estimate.recommended()).map(Estimated::batch_ends_s);
        ends.fold((0.0, 0.0), |sum, (least, most)| (sum.0 + least, sum.1 + most))
    }

    fn cells(name: &str, estimate: &Estimate) -> [String; 5] {
        let alone = &estimate.alone().low.figures;
        let busy = format!("{:.1} %", 100.0 * alone.lc_utilisation);
        let [_, _, _, p99_alone] = estimate.cells(estimate.alone());
        let (batch, p99) = match estimate.recommended() {
            Some(best) => {
                let [_, batch, _, p99] = estimate.cells(best);
                (batch, p99)
            }
            None => ("nothing".to_owned(), String::new()),
        };
        [name.to_owned(), busy, batch, p99_alone, p99]
    }

    /// Returns the estimates as text, with a table that fits a terminal of `width` columns.
    pub fn text(&self, width: usize, ink: Ink) -> String {
        let (least, most) = self.together_s();
        let cpus = range_text(|cpus| format!("{cpus:.1}"), least / DAY_S, most / DAY_S);
        let mut rows: Vec<Vec<String>> =
            self.services.iter().map(|(name, estimate)| Self::cells(name, estimate).into()).collect();
        rows.push(vec!["together".into(), String::new(), range_text(hours, least, most), String::new(), String::new()]);
        let titles = ["", "busy", "batch, CPU time a day", "p99 alone", "p99 beside batch"];
        let table = Grid::draw_indented(&titles, &rows, width, INDENT, ink);
        let noted: Vec<&str> =
            self.services.iter().filter(|(_, estimate)| estimate.has_notes()).map(|(name, _)| name.as_str()).collect();
        let lines = [
            ("next", "name the folder of one service: each policy, and the command that lends its lanes".to_owned()),
            ("assumed", self.services[0].1.assumption()),
            ("limited", list_text(&noted, "the estimate of each has notes on what limits it")),
            ("left out", list_text(&self.silent, "no request was answered during the recording")),
        ];
        let lines: String = lines
            .into_iter()
            .filter(|(_, text)| !text.is_empty())
            .map(|(name, text)| format!("{INDENT}{name:<13}{text}\n"))
            .collect();
        let count = self.services.len();
        format!("sidelane: batch would have {cpus} CPUs all day beside {count} services\n{table}{lines}")
    }
}

/// Returns names and what holds of them; empty without names.
fn list_text<T: AsRef<str>>(names: &[T], what: &str) -> String {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    if names.is_empty() { String::new() } else { format!("{}: {what}", names.join(", ")) }
}

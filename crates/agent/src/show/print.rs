//! Prints the result of `sidelane agent show` on a terminal.

use sidelane_host::cpulist::CpuSet;
use sidelane_report::grid::{Ink, display_width, fit_to_width, fold, max_display_width};

use super::{ContainerShown, CpusShown, ServiceShown, Shown};

const MARGIN: &str = "  ";
/// Number of processes up to which their ids are listed one by one.
const PIDS_SHOWN: usize = 4;

impl Shown {
    /// Returns the text for a terminal of `width` columns.
    pub fn render(&self, width: usize, color: bool) -> String {
        let ink = Ink { color };
        let settings = self.settings.iter().map(|set| vec![set.key.clone(), set.value.clone(), set.from.clone()]);
        let sections = [
            ("Services", table(&SERVICE, self.services.iter().map(service_row).collect(), width, ink)),
            ("Containers", table(&CONTAINER, self.containers.iter().map(container_row).collect(), width, ink)),
            ("CPUs", self.cpus.as_ref().map_or_else(String::new, |cpus| table(&[], cpu_rows(cpus), width, ink))),
            ("Settings", table(&SETTING, settings.collect(), width, ink)),
            ("Missing here", wrap_sentences(&self.missing, width)),
            ("The agent would not start here", wrap_sentences(&self.unfit, width)),
        ];
        let there = sections.into_iter().filter(|(_, text)| !text.is_empty());
        let text: String = there.map(|(title, text)| format!("\n{}\n{text}", ink.bold(title))).collect();
        fit_to_width(&format!("{} on {}", self.file, self.machine), width) + &text
    }
}

const SERVICE: [&str; 5] = ["name", "processes", "CPUs", "slo", "may be placed"];
const CONTAINER: [&str; 5] = ["name", "priority", "wants", "CPUs", "processes"];
const SETTING: [&str; 3] = ["key", "value", "from"];

fn service_row(service: &ServiceShown) -> Vec<String> {
    let slo = service.slo.clone().unwrap_or_else(|| "none".to_owned());
    let placed = if service.may_be_placed { "yes" } else { "no" };
    vec![service.name.clone(), pids(&service.pids), cpus_text(&service.cpus), slo, placed.to_owned()]
}

fn pids(pids: &[u32]) -> String {
    let first: Vec<String> = pids.iter().take(PIDS_SHOWN).map(u32::to_string).collect();
    let rest = pids.len().saturating_sub(PIDS_SHOWN);
    if rest == 0 { first.join(" ") } else { format!("{} and {rest} more", first.join(" ")) }
}

fn container_row(container: &ContainerShown) -> Vec<String> {
    let wants = format!("{} ({})", container.wants_cpus, container.wants_by);
    let (priority, processes) = (container.priority.to_string(), container.processes.to_string());
    vec![container.name.clone(), priority, wants, cpus_text(&container.cpus), processes]
}

fn cpus_text(cpus: &CpuSet) -> String {
    if cpus.is_empty() { "none".to_owned() } else { cpus.to_string() }
}

fn cpu_rows(cpus: &CpusShown) -> Vec<Vec<String>> {
    let mut rows = vec![("never batch", cpus_text(&cpus.reserved)), ("batch", cpus_text(&cpus.batch))];
    if let Some(threshold) = cpus.interference_threshold {
        rows.push(("batch leaves a sibling at", format!("{threshold}, measured by {}", cpus.interference)));
    }
    rows.extend(cpus.mapped_to.iter().map(|cores| ("threads are mapped to", cores.clone())));
    rows.into_iter().map(|(name, text)| vec![name.to_owned(), text]).collect()
}

/// Formats columns of text, aligned left.
fn table(titles: &[&str], mut rows: Vec<Vec<String>>, width: usize, ink: Ink) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let has_titles = !titles.is_empty();
    if has_titles {
        rows.insert(0, titles.iter().map(|title| (*title).to_owned()).collect());
    }
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> =
        (0..columns).map(|column| max_display_width(rows.iter().map(|row| row[column].as_str()))).collect();
    let line = |row: &Vec<String>| {
        let cells =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell}{}", " ".repeat(width - display_width(cell))));
        fit_to_width(format!("{MARGIN}{}", cells.collect::<Vec<_>>().join("  ")).trim_end(), width)
            .trim_end()
            .to_owned()
    };
    let shown = |(number, row)| match has_titles && number == 0 {
        true => ink.dim(&line(row)) + "\n",
        false => line(row) + "\n",
    };
    rows.iter().enumerate().map(shown).collect()
}

fn wrap_sentences(all: &[String], width: usize) -> String {
    let width = width.saturating_sub(MARGIN.len() + 2).max(20);
    let lines = |sentence: &String| {
        let lines = fold(sentence, width);
        let begin = |number| if number == 0 { "– " } else { "  " };
        lines.iter().enumerate().map(|(number, line)| format!("{MARGIN}{}{line}\n", begin(number))).collect::<String>()
    };
    all.iter().map(lines).collect()
}

#[cfg(test)]
mod tests {
    use super::super::SettingShown;
    use super::*;

    #[test]
    fn all_that_is_found_and_missing_is_shown() {
        let shown = Shown {
            file: "a.toml".into(),
            machine: "2 CPUs".into(),
            services: vec![ServiceShown {
                name: "redis".into(),
                group: None,
                pids: vec![1, 2, 3, 4, 5, 6],
                cpus: "0".parse().unwrap(),
                slo: Some("p99=5ms".into()),
                may_be_placed: false,
            }],
            containers: vec![ContainerShown {
                name: "/batch/a".into(),
                group: "/batch/a".into(),
                priority: 0,
                wants_cpus: 2,
                wants_by: "its limit".into(),
                cpus: CpuSet::default(),
                processes: 0,
            }],
            cpus: Some(CpusShown {
                reserved: "0".parse().unwrap(),
                batch: "1".parse().unwrap(),
                interference: "request times of the services".into(),
                interference_threshold: Some(0.1),
                mapped_to: Some("big CPUs 0 and little CPUs 1 (given)".into()),
            }),
            settings: vec![SettingShown {
                key: "policy.reserved_busy".into(),
                value: "\"80%\"".into(),
                from: "default".into(),
            }],
            missing: vec!["batch /more: there is no such group; it is followed".into()],
            unfit: Vec::new(),
        };
        let expected = "\
a.toml on 2 CPUs

Services
  name   processes           CPUs  slo      may be placed
  redis  1 2 3 4 and 2 more  0     p99=5ms  no

Containers
  name      priority  wants          CPUs  processes
  /batch/a  0         2 (its limit)  none  0

CPUs
  never batch                0
  batch                      1
  batch leaves a sibling at  0.1, measured by request times of the services
  threads are mapped to      big CPUs 0 and little CPUs 1 (given)

Settings
  key                   value  from
  policy.reserved_busy  \"80%\"  default

Missing here
  – batch /more: there is no such group; it is followed
";
        assert_eq!(shown.render(80, false), expected);
        assert!(shown.render(36, false).lines().all(|line| display_width(line) <= 36), "{}", shown.render(36, false));
    }
}

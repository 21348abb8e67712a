//! Page of stored results, made only of the results files in a folder.
//!
//! A results file is the file that a bench writes with `--json`. Each file has a section under its bench, with a line
//! for each check.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use clap::{Command, CommandFactory};
use sidelane_report::{Check, Machine, Pair, ResultFile, Run, Unit, Verdict, write_atomically};

use crate::cli::Cli;

/// Name of the page in its folder.
const PAGE: &str = "README.md";

const ABOUT: &str = "\
# Results

Figures of Sidelane, as benches measured them. Each file in this folder is one run: the JSON that the bench wrote
([format](../docs/reference/results.md)). `sidelane-lab results` makes this page from the files: run it, do not edit the page.

A check compares a measured figure with a bound. The range behind the figure is its 95 % confidence interval. A check
*holds* or is *missed* if all of the interval is on one side of the bound; else it is *undecided*
([how benches decide](../docs/explanation/promises.md)).

Add a run of your machine, as root:

    sidelane-lab bench hold --json results/hold-NAME.json
    sidelane-lab results
";

/// Results file with its run and its content.
struct StoredResult {
    file: String,
    run: Run,
    result: ResultFile,
}

/// Writes the page of a folder.
///
/// # Errors
/// A file is not the result of a bench, or the page cannot be written.
pub fn write_page(folder: &Path) -> Result<()> {
    Ok(write_atomically(&folder.join(PAGE), page(folder)?.as_bytes())?)
}

/// Returns the page of a folder.
///
/// # Errors
/// A file is not the result of a bench.
pub fn page(folder: &Path) -> Result<String> {
    let mut all = read_stored_results(folder)?;
    // Sorts the newest run first, and runs of the same second by file name.
    all.sort_by(|one, other| (&other.run.date, &one.file).cmp(&(&one.run.date, &other.file)));
    let mut page = ABOUT.to_owned();
    let benches: Vec<(String, String)> = bench_names_and_questions();
    let runs = |name: &str| all.iter().filter(|stored| stored.run.name == name).collect::<Vec<_>>();
    page += "\n| bench | machine | date | holds | missed | undecided |\n|---|---|---|---|---|---|\n";
    for stored in benches.iter().flat_map(|(name, _)| runs(name)) {
        page += &summary_text(stored);
    }
    for (name, question) in &benches {
        let runs = runs(name);
        if !runs.is_empty() {
            write!(page, "\n## {name}\n\n{question}.\n")?;
            page.extend(runs.into_iter().map(section_text));
        }
    }
    Ok(page)
}

fn read_stored_results(folder: &Path) -> Result<Vec<StoredResult>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "json") {
            all.push(StoredResult::read(&path).with_context(|| format!("cannot show {}", path.display()))?);
        }
    }
    Ok(all)
}

impl StoredResult {
    fn read(path: &Path) -> Result<Self> {
        let result: ResultFile = serde_json::from_slice(&fs::read(path)?)?;
        let run = result.run.clone().context("it does not say which command measured; write it with `--json FILE`")?;
        let is_known = bench_names_and_questions().iter().any(|(name, _)| *name == run.name);
        ensure!(is_known, "there is no command `sidelane-lab {}`; measure again, or delete the file", run.name);
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { file, run, result })
    }

    fn day(&self) -> &str {
        self.run.date.split_once('T').map_or(&self.run.date, |(day, _)| day)
    }

    /// Returns the number of checks with this verdict.
    fn count_checks(&self, verdict: Verdict) -> usize {
        self.result.checks.iter().filter(|check| check.verdict == verdict).count()
    }
}

/// Returns the name and the question of each command that measures, in the order of the help.
fn bench_names_and_questions() -> Vec<(String, String)> {
    let lab = Cli::command();
    let about = |command: &Command| command.get_about().map(ToString::to_string).unwrap_or_default();
    let demo = lab.find_subcommand("demo").into_iter().map(|demo| ("demo".to_owned(), about(demo)));
    let benches = lab.find_subcommand("bench").into_iter().flat_map(Command::get_subcommands);
    demo.chain(benches.map(|bench| (format!("bench {}", bench.get_name()), about(bench)))).collect()
}

fn summary_text(stored: &StoredResult) -> String {
    let count = |verdict| stored.count_checks(verdict);
    format!(
        "| [{}](#{}) | {} | {} | {} | {} | {} |\n",
        stored.run.name,
        stored.run.name.replace(' ', "-"),
        escape_cell(&cpus_text(&stored.result.machine)),
        stored.day(),
        count(Verdict::Holds),
        count(Verdict::Missed),
        count(Verdict::Undecided),
    )
}

/// Returns the section of one run.
fn section_text(stored: &StoredResult) -> String {
    let StoredResult { file, run, result } = stored;
    let mut text = format!("\n### [{file}]({file})\n\n    {}\n\n", run.command);
    text += &format!("{}: {}.", stored.day(), machine_text(&result.machine));
    if let Some(sibling) = result.text("sibling") {
        text += &format!(" With an {sibling}.");
    }
    let commit = run.commit.as_deref().map_or("a commit that is not known".to_owned(), |commit| format!("`{commit}`"));
    text += &format!(" Sources: {commit}.\n\n");
    text += "| question | measured | bound | verdict |\n|---|---|---|---|\n";
    text.extend(result.checks.iter().map(check_line));
    if !result.notes.is_empty() {
        text += "\nNotes of the run:\n\n";
        text.extend(result.notes.iter().map(|note| format!("- {note}\n")));
    }
    text
}

/// Returns the CPUs of a machine in words.
fn cpus_text(machine: &Machine) -> String {
    let kind = if machine.virtual_machine == Some(true) { ", virtual machine" } else { "" };
    format!("{}, {} CPUs{kind}", machine.cpu, machine.lanes)
}

/// Returns the machine in words.
fn machine_text(machine: &Machine) -> String {
    let mut parts = vec![cpus_text(machine)];
    parts.extend((machine.kernel != "none").then(|| format!("Linux {}", machine.kernel)));
    parts.push(match machine.pair {
        Pair::Smt => "lanes that share a core".to_owned(),
        Pair::Declared => "lanes that share no core".to_owned(),
    });
    parts.extend(machine.stolen_percent.map(|stolen| format!("{} of the time stolen", Unit::Percent.human(stolen))));
    parts.join(", ")
}

fn check_line(check: &Check) -> String {
    let interval = check.interval_text().map_or(String::new(), |interval| format!(" ({interval})"));
    let verdict = match check.verdict {
        Verdict::Holds => "holds",
        Verdict::Missed => "**missed**",
        Verdict::Undecided => "undecided",
    };
    format!(
        "| {} | {}{interval} | {} | {verdict} |\n",
        escape_cell(&check.name),
        check.measured_text(),
        check.bound_text()
    )
}

/// Escapes `|` in the text of a table cell, since an unescaped `|` would end the cell.
fn escape_cell(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use sidelane_report::Interval;

    use super::*;

    fn result_file_with_date(date: &str) -> ResultFile {
        let machine = Machine {
            cpu: "EPYC".into(),
            lanes: 2,
            pair: Pair::Declared,
            kernel: "6.18.1".into(),
            virtual_machine: Some(true),
            pmu: false,
            gates: Vec::new(),
            stolen_percent: Some(0.04),
            stolen_gap_max_us: None,
            notes: Vec::new(),
        };
        let mut result = ResultFile::new(machine, serde_json::Map::new());
        result.run = Some(Run {
            name: "bench hold".into(),
            command: "sidelane-lab bench hold --quick".into(),
            date: date.into(),
            commit: Some("0123abc".into()),
        });
        let wide = Interval::from_mean(90.0, 10.0);
        result.checks = vec![
            Check::at_most("a hold | begun", 11.0, 3.0, Unit::Us),
            Check::interval_at_most("a switch", wide, 100.0, Unit::Ns),
        ];
        result.notes = vec!["too short".into()];
        result
    }

    #[test]
    fn a_page_has_each_check_and_the_newest_run_first() {
        let folder = tempfile::tempdir().unwrap();
        for (name, date) in [("old.json", "2026-03-01T14:02:11Z"), ("new.json", "2026-03-02T09:00:00Z")] {
            result_file_with_date(date).write_json(&folder.path().join(name)).unwrap();
        }
        write_page(folder.path()).unwrap();
        let page = fs::read_to_string(folder.path().join(PAGE)).unwrap();
        assert!(
            page.contains("| [bench hold](#bench-hold) | EPYC, 2 CPUs, virtual machine | 2026-03-02 | 0 | 1 | 1 |"),
            "{page}"
        );
        assert!(page.contains("| a hold \\| begun | 11.0 µs | ≤ 3.0 µs | **missed** |"), "{page}");
        assert!(page.contains("| a switch | 90.0 ns (70.4 ns to 110 ns) | ≤ 100 ns | undecided |"), "{page}");
        let machine = "2026-03-01: EPYC, 2 CPUs, virtual machine, Linux 6.18.1, lanes that share no core, 0.04 % of the \
                       time stolen. Sources: `0123abc`.";
        assert!(page.contains(machine) && page.contains("\n- too short\n"), "{page}");
        let place = |text: &str| page.find(text).unwrap();
        assert!(place("### [new.json](new.json)\n\n    sidelane-lab bench hold --quick\n") < place("### [old.json]"));
        assert_eq!(page.matches("## bench hold\n").count(), 1, "one section for both");
    }

    #[test]
    fn error_names_the_file_that_is_no_bench_result() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.json");
        let other = |run: Option<Run>| ResultFile { run, ..result_file_with_date("2026-03-01T14:02:11Z") };
        let unknown = result_file_with_date("").run.map(|run| Run { name: "bench speed".into(), ..run });
        for (run, why) in [(None, "which command"), (unknown, "no command `sidelane-lab bench speed`")] {
            other(run).write_json(&path).unwrap();
            let refused = format!("{:#}", page(folder.path()).unwrap_err());
            assert!(refused.contains("run.json") && refused.contains(why), "{refused}");
        }
    }

    #[test]
    fn each_bench_says_what_it_measures() {
        let benches = bench_names_and_questions();
        assert!(benches.len() > 10 && benches.iter().all(|(_, question)| !question.is_empty()), "{benches:?}");
    }
}

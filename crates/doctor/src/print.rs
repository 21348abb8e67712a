//! Report of the doctor on the terminal.

use super::finding::{Finding, Group, State};
use super::gates::{Gate, Outcome};
use super::summary::Summary;
use crate::reaction::latency::Figures;
use crate::reaction::pair::TestPair;
use sidelane_host::topology::PairKind;
use sidelane_report::grid::{GAP, Grid, Ink, display_width, fit_to_width, fold};
use sidelane_report::unit::Unit;

/// Largest width of the details: longer lines are hard to read.
const WIDTH_MAX: usize = 110;
/// Indentation of all lines below a title.
const INDENT: &str = "  ";
/// Number of columns before the name of a finding: the indentation, the mark and one space.
const MARGIN: usize = 4;

const TITLES: [&str; 6] = ["gate", "off p50", "off p99", "on p50", "on p99", "rounds"];
const KEY: &str = "off: from the service's start to batch's last instruction; on: from the service's stop to \
                   batch's next instruction.";
const GONE_BEFORE: &str = " 0 ns: batch was off before the service's first instruction.";

/// Settings of the output.
#[derive(Clone, Copy)]
pub struct Printer {
    /// Number of columns of the terminal.
    pub width: usize,
    /// Colours, or plain text.
    pub ink: Ink,
}

impl Printer {
    /// Formats the verdict, and the problems that matter most.
    pub fn format_verdict(self, summary: &Summary, pair: Option<&TestPair>) -> String {
        let verdict = summary.verdict(pair);
        let lines: String = fold(&verdict, self.width.min(WIDTH_MAX)).iter().map(|line| format!("{line}\n")).collect();
        let problems = summary.top_problems();
        if problems.is_empty() {
            return format!("{lines}\n");
        }
        let name_width = longest_name_width(&problems);
        let problems: String = problems.iter().map(|finding| self.format_finding(finding, name_width)).collect();
        format!("{lines}\n{problems}\n")
    }

    /// Formats all findings, and the gates.
    pub fn format_details(self, summary: &Summary, pair: Option<&TestPair>) -> String {
        let groups: String = summary.groups.iter().map(|group| self.format_group(group)).collect();
        let measured = pair.filter(|_| !summary.gates.is_empty());
        let gates = measured.map(|pair| self.format_gates_title(pair) + "\n" + &self.format_gates(&summary.gates));
        groups + &gates.unwrap_or_default()
    }

    /// Formats a group of findings with its title.
    fn format_group(self, group: &Group) -> String {
        let name_width = longest_name_width(&group.findings.iter().collect::<Vec<_>>());
        let findings: String = group.findings.iter().map(|finding| self.format_finding(finding, name_width)).collect();
        format!("{}\n{findings}\n", self.ink.bold(group.title))
    }

    /// Formats the lanes on which the gates are measured.
    fn format_gates_title(self, pair: &TestPair) -> String {
        let (request, batch) = (pair.request, pair.batch);
        let share = match pair.kind {
            PairKind::Smt => "one core",
            PairKind::Declared => "declared; the kernel shows no common core",
        };
        let title = self.ink.bold("Gates");
        let line = format!("{title}: service on CPU {request}, batch on CPU {batch} ({share})");
        fit_to_width(&line, self.width)
    }

    /// Formats the gates: a table of those that were measured, and a line for each of the others.
    fn format_gates(self, gates: &[Gate]) -> String {
        let lacks: Vec<&Finding> = gates.iter().filter_map(Gate::why_unmeasured).collect();
        let name_width = longest_name_width(&lacks);
        let lacks: String = lacks.iter().map(|finding| self.format_finding(finding, name_width)).collect();
        format!("{}{lacks}\n", self.format_table(gates))
    }

    fn format_table(self, gates: &[Gate]) -> String {
        let rows: Vec<Vec<String>> = gates.iter().filter_map(table_cells).collect();
        if rows.is_empty() {
            return String::new();
        }
        let lines = Grid::draw_indented(&TITLES, &rows, self.width, INDENT, self.ink);
        let mut key = KEY.to_owned();
        if gates.iter().any(is_off_before_service) {
            key.push_str(GONE_BEFORE);
        }
        let width = self.width.min(WIDTH_MAX) - INDENT.len();
        lines + &fold(&key, width).iter().map(|line| format!("{INDENT}{}\n", self.ink.dim(line))).collect::<String>()
    }

    fn format_finding(self, finding: &Finding, name_width: usize) -> String {
        let width = self.width.min(WIDTH_MAX);
        let (mark, name) = (self.format_mark(finding.state), finding.name);
        // With long names, there is no room for details in the same line.
        let is_beside = MARGIN + name_width + GAP.len() <= width / 2;
        let column = if is_beside { MARGIN + name_width + GAP.len() } else { MARGIN + GAP.len() };
        let separator = format!("\n{:column$}", "");
        let begin = if is_beside { format!("{name:name_width$}{GAP}") } else { format!("{name}{separator}") };
        let fix = finding.fix.iter().flat_map(|fix| fold(&format!("→ {fix}"), width - column));
        let lines: Vec<String> = fold(&finding.detail, width - column).into_iter().chain(fix).collect();
        format!("{INDENT}{mark} {begin}{}\n", lines.join(&separator))
    }

    fn format_mark(self, state: State) -> String {
        match state {
            State::Works => self.ink.green("✓"),
            State::Blocks => self.ink.red("✗"),
            State::Degrades => self.ink.yellow("✗"),
            State::Optional => self.ink.dim("–"),
        }
    }
}

fn longest_name_width(findings: &[&Finding]) -> usize {
    findings.iter().map(|finding| display_width(finding.name)).max().unwrap_or(0)
}

fn table_cells(gate: &Gate) -> Option<Vec<String>> {
    let Outcome::Measured(Figures { off, on, samples }) = &gate.outcome else { return None };
    let times = [off.p50_ns, off.p99_ns, on.p50_ns, on.p99_ns].map(format_ns);
    Some([vec![gate.name.to_owned()], times.to_vec(), vec![samples.to_string()]].concat())
}

fn format_ns(ns: u64) -> String {
    Unit::Ns.human(ns as f64)
}

/// Returns whether batch is mostly off before the service's first instruction.
fn is_off_before_service(gate: &Gate) -> bool {
    matches!(gate.outcome, Outcome::Measured(figures) if figures.off.p50_ns == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printer_with_width(width: usize) -> Printer {
        Printer { width, ink: Ink { color: false } }
    }

    #[test]
    fn advice_is_printed_below_its_finding() {
        let findings = vec![Finding::works("BTF", "there"), Finding::degrades("cpuset", "none", "mount it")];
        let text = printer_with_width(80).format_group(&Group { title: "Kernel", findings });
        assert_eq!(text, "Kernel\n  ✓ BTF     there\n  ✗ cpuset  none\n            → mount it\n\n");
    }

    #[test]
    fn long_details_wrap_within_their_column() {
        let finding = Finding::optional("nap", "one two three four five six");
        let text = printer_with_width(30).format_group(&Group { title: "Machine", findings: vec![finding] });
        assert_eq!(text, "Machine\n  – nap  one two three four\n         five six\n\n");
    }

    #[test]
    fn details_go_below_long_names_on_a_narrow_terminal() {
        let finding = Finding::optional("a check of some length", "see /usr/local/lib/library");
        let text = printer_with_width(26).format_group(&Group { title: "Gates", findings: vec![finding] });
        assert_eq!(text, "Gates\n  – a check of some length\n      see /usr/local/lib/\n      library\n\n");
    }

    #[test]
    fn gates_without_figures_follow_the_table() {
        let spread = |p50_ns| crate::reaction::latency::LatencyPercentiles { p50_ns, p99_ns: 2 * p50_ns };
        let figures = Figures { off: spread(4_400), on: spread(1_500), samples: 500 };
        let idle = Finding::optional("SCHED_IDLE", "none: batch goes on");
        let gates = [
            Gate { name: "affinity", outcome: Outcome::Measured(figures) },
            Gate { name: "SCHED_IDLE", outcome: Outcome::Unmeasured(idle) },
        ];
        let text = printer_with_width(80).format_gates(&gates);
        assert!(text.contains("affinity  4.4 µs  8.8 µs  1.5 µs  3.0 µs     500"), "{text}");
        assert!(text.ends_with("  – SCHED_IDLE  none: batch goes on\n\n"), "{text}");
    }
}

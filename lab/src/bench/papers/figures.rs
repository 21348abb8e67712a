//! The simulated figures of Elfen, each with its scenario and the paper's statements about it.

use super::statement::Statement;
use super::{fig2, fig4, fig5, fig10, fig11, fig12, policies};
use sidelane_report::Unit;

/// Figure of a paper: its scenario and the paper's statements about it.
pub(super) struct Figure {
    /// Prefix of the names of the figure's rows.
    pub(super) name: &'static str,
    /// File name of the scenario, for messages, and its text, so that the benchmark reads no files at run time.
    pub(super) file: &'static str,
    pub(super) text: &'static str,
    pub(super) statements: &'static [Statement],
    /// Numbers from the paper's text, drawn as points in the picture.
    pub(super) paper: &'static [PaperPoint],
    /// Whether the figure is about idle periods, which need a separate simulation.
    pub(super) of_idle_periods: bool,
}

/// Number that the paper's text reads off a figure.
pub(super) struct PaperPoint {
    /// Name of the line in the paper's figure.
    pub(super) setting: &'static str,
    /// Unit of the panels to which the number belongs.
    pub(super) unit: Unit,
    /// Point in the chart: load in requests per second, and the number from the paper.
    pub(super) point: (f64, f64),
}

const fn paper_p99(setting: &'static str, rate_per_s: f64, p99_ms: f64) -> PaperPoint {
    PaperPoint { setting, unit: Unit::Us, point: (rate_per_s, p99_ms * 1e3) }
}

const fn paper_utilisation(setting: &'static str, rate_per_s: f64, utilisation: f64) -> PaperPoint {
    PaperPoint { setting, unit: Unit::Ratio, point: (rate_per_s, utilisation) }
}

macro_rules! figure {
    ($name:literal, $file:literal, $statements:expr, $paper:expr) => {
        Figure {
            name: $name,
            file: concat!("lab/scenarios/", $file),
            text: include_str!(concat!("../../../scenarios/", $file)),
            statements: &$statements,
            paper: &$paper,
            of_idle_periods: false,
        }
    };
}

/// All simulated figures of Elfen, and the comparison of policies.
pub(super) const FIGURES: [Figure; 8] = [
    figure!(
        "Fig. 2",
        "elfen-fig2.toml",
        fig2::STATEMENTS,
        [paper_p99("alone", 120.0, 100.0), paper_utilisation("alone", 120.0, 0.7)]
    ),
    figure!(
        "Fig. 4",
        "elfen-fig4.toml",
        fig4::STATEMENTS,
        [paper_p99("alone", 100.0, 76.0), paper_p99("unmanaged, IPC 0.01", 40.0, 76.0)]
    ),
    Figure { of_idle_periods: true, ..figure!("Fig. 5", "elfen-fig5.toml", fig5::STATEMENTS, []) },
    figure!("Fig. 10(a)", "elfen-fig10a.toml", fig10::ONE_CORE, [paper_p99("borrow-idle", 70.0, 60.0)]),
    figure!(
        "Fig. 10(b), (c)",
        "elfen-fig10bc.toml",
        fig10::SEVEN_CORES,
        [paper_p99("borrow-idle", 1000.0, 60.0), paper_utilisation("elfen-dynamic", 600.0, 1.75)]
    ),
    figure!("Fig. 11", "elfen-fig11.toml", fig11::STATEMENTS, []),
    figure!("Fig. 12", "elfen-fig12.toml", fig12::STATEMENTS, []),
    figure!("Policies", "policies.toml", policies::STATEMENTS, []),
];

#[cfg(test)]
mod tests {
    use super::super::evidence::Evidence;
    use super::*;

    #[test]
    fn no_statement_holds_without_evidence() {
        for figure in &FIGURES {
            for statement in figure.statements {
                assert_eq!(statement.check(&Evidence::default()).measured, None, "{}: {}", figure.name, statement.says);
            }
        }
    }

    #[test]
    fn names_of_statements_are_unique() {
        let mut names: Vec<String> = FIGURES
            .iter()
            .flat_map(|figure| figure.statements)
            .map(|statement| statement.check(&Evidence::default()).name)
            .collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}

//! Holmes (HPDC'22): what its evaluation says, checked on a simulated server.
//!
//! Figs. 7 to 13 and Tables 3 and 4 are runs of the same workloads, which are one scenario; Fig. 14 is another one.

mod evidence;
mod fig11;
mod fig12;
mod fig14;
mod fig7;

use sidelane_report::ResultFile;
use sidelane_sim::{Choices, Scenario, ScenarioError};

use super::statement::Statement;
use crate::sim::whole;
use evidence::Evidence;

/// A scenario of Holmes' figures, and what is said about them.
struct Figures {
    /// Prefix of its rows.
    name: &'static str,
    file: &'static str,
    text: &'static str,
    statements: &'static [&'static [Statement<Evidence>]],
}

const FIGURES: [Figures; 2] = [
    Figures {
        name: "Holmes",
        file: "scenarios/holmes-workloads.toml",
        text: include_str!("../../../../../../scenarios/holmes-workloads.toml"),
        statements: &[fig7::REDUCED.as_flattened(), &fig7::ALIKE, &fig11::STATEMENTS, &fig12::STATEMENTS],
    },
    Figures {
        name: "Holmes, Fig. 14",
        file: "scenarios/holmes-fig14.toml",
        text: include_str!("../../../../../../scenarios/holmes-fig14.toml"),
        statements: &[&fig14::STATEMENTS],
    },
];

/// The scenarios' names.
pub(super) fn files() -> impl Iterator<Item = &'static str> {
    FIGURES.iter().map(|figures| figures.file)
}

/// Runs them, and adds their rows and checks.
pub(super) fn add(result: &mut ResultFile, quick: bool) -> Result<(), ScenarioError> {
    for figures in &FIGURES {
        let choices = Choices { seed: None, quick };
        let Scenario::Machine(experiment) =
            Scenario::parse(figures.file, figures.text, choices, &super::names_no_file)?
        else {
            unreachable!("Holmes' scenarios are of whole machines")
        };
        let evidence = Evidence { outcomes: whole::outcomes(&experiment) };
        let statements = figures.statements.iter().copied().flatten();
        result.checks.extend(statements.map(|statement| statement.check(&evidence)));
        for row in whole::rows(&experiment, &evidence.outcomes) {
            let name = format!("{}: {}", figures.name, row.setting());
            result.rows.push(row.named(name));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_statement_holds_of_nothing_and_all_are_told_apart() {
        let statements = FIGURES.iter().flat_map(|figures| figures.statements.iter().copied().flatten());
        let checks: Vec<_> = statements.map(|statement| statement.check(&Evidence::default())).collect();
        assert!(checks.iter().all(|check| check.measured.is_none()));
        let mut names: Vec<_> = checks.iter().map(|check| &check.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), checks.len());
    }
}

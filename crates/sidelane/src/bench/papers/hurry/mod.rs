//! Hurry-up (Nishtala et al.): what its evaluation says, checked on a simulated Juno r1.
//!
//! Figs. 6 to 8 are runs at the same loads, which are one scenario; Fig. 9 is another one. Statements on the paper's rule
//! are about Algorithm 1 as printed, those that say "ours" about `sidelane_policy::hurryup` as it is by default.

mod evidence;
mod fig8;
mod fig9;

use sidelane_report::ResultFile;
use sidelane_sim::{Choices, Scenario, ScenarioError};

use super::statement::Statement;
use crate::sim::whole;
use evidence::Evidence;

/// A scenario, and what is said about it.
struct Figures {
    /// Prefix of its rows.
    name: &'static str,
    file: &'static str,
    text: &'static str,
    statements: &'static [Statement<Evidence>],
}

const FIGURES: [Figures; 2] = [
    Figures {
        name: "Hurry-up, Figs. 6 to 8",
        file: "scenarios/hurry-fig8.toml",
        text: include_str!("../../../../../../scenarios/hurry-fig8.toml"),
        statements: &fig8::STATEMENTS,
    },
    Figures {
        name: "Hurry-up, Fig. 9",
        file: "scenarios/hurry-fig9.toml",
        text: include_str!("../../../../../../scenarios/hurry-fig9.toml"),
        statements: &fig9::STATEMENTS,
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
            unreachable!("Hurry-up's scenarios are of whole machines")
        };
        let evidence = Evidence { outcomes: whole::outcomes(&experiment) };
        result.checks.extend(figures.statements.iter().map(|statement| statement.check(&evidence)));
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
        let statements = FIGURES.iter().flat_map(|figures| figures.statements);
        let checks: Vec<_> = statements.map(|statement| statement.check(&Evidence::default())).collect();
        assert!(checks.iter().all(|check| check.measured.is_none()));
        let mut names: Vec<_> = checks.iter().map(|check| &check.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), checks.len());
    }
}

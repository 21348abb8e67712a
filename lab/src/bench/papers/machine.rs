//! A figure of a paper on a whole machine: its scenario, and the paper's statements about it.

use sidelane_report::ResultFile;
use sidelane_sim::machine::figures::MachineFigures;
use sidelane_sim::{Choices, Outcome, Problems, Scenario};

use super::statement::Statement;
use sidelane_sim::run::whole;

/// Scenario of whole machines, with the paper's statements. `E` is the evidence from which statements take their
/// numbers.
pub(super) struct MachineFigure<E: 'static> {
    /// Prefix of the names of the figure's rows.
    pub(super) name: &'static str,
    /// File name of the scenario.
    pub(super) file: &'static str,
    pub(super) text: &'static str,
    pub(super) statements: &'static [&'static [Statement<E>]],
}

impl<E> MachineFigure<E> {
    fn statements(&self) -> impl Iterator<Item = &'static Statement<E>> {
        self.statements.iter().copied().flatten()
    }
}

impl<E: From<Vec<Outcome<MachineFigures>>>> MachineFigure<E> {
    /// Simulates the scenario, and adds its rows and checks to the result.
    pub(super) fn add_to_result(&self, result: &mut ResultFile, quick: bool) -> Result<(), Problems> {
        let choices = Choices { seed: None, quick };
        let Scenario::Machine(experiment) = Scenario::parse(self.file, self.text, choices, &refuse_file)? else {
            unreachable!("{} is of whole machines", self.file)
        };
        let outcomes = whole::run_experiment(&experiment);
        for row in whole::rows(&experiment, &outcomes) {
            let name = format!("{}: {}", self.name, row.setting());
            result.rows.push(row.named(name));
        }
        let evidence = E::from(outcomes);
        result.checks.extend(self.statements().map(|statement| statement.check(&evidence)));
        Ok(())
    }
}

/// Refuses to read a file that a scenario names; none of these scenarios names one.
pub(super) fn refuse_file(file: &str) -> Result<String, String> {
    Err(format!("{file}: the bench reads no files"))
}

/// Checks that no statement holds without evidence, and that all statements have different names.
#[cfg(test)]
pub(super) fn assert_statements_sound<E: Default>(figures: &[MachineFigure<E>]) {
    let statements = figures.iter().flat_map(MachineFigure::statements);
    let checks: Vec<_> = statements.map(|statement| statement.check(&E::default())).collect();
    assert!(checks.iter().all(|check| check.measured.is_none()));
    let mut names: Vec<_> = checks.iter().map(|check| &check.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), checks.len());
}

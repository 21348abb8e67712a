//! Helpers that make models from scenarios, for tests.

use sidelane_sim::{Choices, Experiment, Scenario};

/// Parses the scenario `text`, which names no files.
#[allow(dead_code, reason = "not every test has both")]
pub fn experiment(text: &str) -> Experiment {
    let files = |_: &str| Err("no files here".to_owned());
    Experiment::parse("test.toml", text, Choices::default(), &files).unwrap()
}

/// Parses the scenario `text`, which is about whole machines and names no files.
#[allow(dead_code, reason = "not every test has both")]
pub fn machine(text: &str) -> Experiment<sidelane_sim::machine::model::MachineModel> {
    let files = |_: &str| Err("no files here".to_owned());
    match Scenario::parse("test.toml", text, Choices::default(), &files).unwrap() {
        Scenario::Machine(experiment) => experiment,
        Scenario::Cores(_) => panic!("[service] describes cores of one service"),
    }
}

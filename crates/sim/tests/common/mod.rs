//! Models for tests, from scenarios.

use sidelane_sim::{Choices, Experiment};

/// The experiment of the scenario `text`, which names no files.
pub fn experiment(text: &str) -> Experiment {
    let files = |_: &str| Err("no files here".to_owned());
    Experiment::parse("test.toml", text, Choices::default(), &files).unwrap()
}

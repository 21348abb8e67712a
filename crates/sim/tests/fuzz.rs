//! Fuzz test of scenarios: a mutated one is read, or refused with the place of the error.

use sidelane_sim::Choices;
use sidelane_sim::scenario::Scenario;

#[test]
fn fuzzed_scenarios_are_read_or_refused_with_a_reason() {
    // Every file that a scenario names exists, and is short.
    let files = |_: &str| Ok("1.5\n2\n30\n".to_owned());
    sidelane_testing::fuzz("scenario", |bytes| {
        let text = String::from_utf8_lossy(bytes);
        for quick in [false, true] {
            match Scenario::parse("a.toml", &text, Choices { seed: None, quick }, &files) {
                Ok(Scenario::Cores(experiment)) => assert!(experiment.runs() <= experiment.machines()),
                Ok(Scenario::Machine(experiment)) => assert!(experiment.runs() <= experiment.machines()),
                Err(error) => assert!(error.to_string().contains("a.toml"), "{error}"),
            }
        }
    });
}

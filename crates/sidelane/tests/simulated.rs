//! Tests of `sidelane sim` from the command line.

use std::path::Path;
use std::process::{Command, Output};

const EXIT_OWN_FAILURE: i32 = 125;

fn sim(arguments: &[&str]) -> Output {
    let scenarios = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    Command::new(env!("CARGO_BIN_EXE_sidelane")).arg("sim").args(arguments).current_dir(scenarios).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn sim_writes_a_table_a_json_file_and_a_page() {
    let dir = tempfile::tempdir().unwrap();
    let [json, page] = ["a.json", "a.html"].map(|name| dir.path().join(name).display().to_string());
    let run = sim(&["lab/scenarios/elfen-fig11.toml", "--quick", "--json", &json, "--page", &page]);
    assert!(run.status.success(), "{}", text(&run.stderr));
    assert!(text(&run.stdout).contains("lucene+loop/borrow-idle"), "{}", text(&run.stdout));
    let result: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(result["settings"]["simulated"], true);
    assert_eq!(result["rows"].as_array().unwrap().len(), 30);
    assert!(result["notes"][0].as_str().unwrap().starts_with("simulated: "));
    assert!(std::fs::read_to_string(page).unwrap().contains("<svg"));
}

/// The result has two tables: a row for each service, and one for each machine.
#[test]
fn machine_scenario_has_rows_per_service_and_machine() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("a.json").display().to_string();
    let run = sim(&["lab/scenarios/chain.toml", "--quick", "--json", &json]);
    assert!(run.status.success(), "{}", text(&run.stderr));
    let result: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    let rows = result["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 6 * (3 + 1));
    let row = |setting: &str| rows.iter().find(|row| row["setting"] == setting).unwrap();
    assert_eq!(row("leaf/alone")["beside_batch_percent"], 0);
    assert!(row("leaf/unmanaged")["p99_over_alone"].as_f64() > row("leaf/holmes")["p99_over_alone"].as_f64());
    assert!(row("machine/holmes")["onset_to_action_p50_us"].is_number());
    assert!(row("machine/perfiso")["onset_to_action_p50_us"].is_null());
}

#[test]
fn result_of_a_scenario_is_fixed_by_its_seed() {
    let table = |seed: &str| text(&sim(&["lab/scenarios/elfen-fig11.toml", "--quick", "--seed", seed]).stdout);
    assert_eq!(table("5"), table("5"));
    assert_ne!(table("5"), table("6"));
}

#[test]
fn invalid_scenario_is_refused_with_its_line() {
    let gone = sim(&["lab/scenarios/gone.toml"]);
    assert_eq!(gone.status.code(), Some(EXIT_OWN_FAILURE));
    assert!(text(&gone.stderr).starts_with("sidelane: lab/scenarios/gone.toml: `file` cannot be read"), "{gone:?}");

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.toml");
    std::fs::write(&path, "run_s = 1\n[service]\nworker = 1\n").unwrap();
    let wrong = sim(&[path.to_str().unwrap()]);
    assert_eq!((wrong.status.code(), text(&wrong.stdout)), (Some(EXIT_OWN_FAILURE), String::new()));
    let place = format!("sidelane: {}:2: `service.demand.kind` is missing; write one of `constant`,", path.display());
    assert!(text(&wrong.stderr).starts_with(&place), "{}", text(&wrong.stderr));
}

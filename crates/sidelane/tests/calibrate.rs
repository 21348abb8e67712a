//! Tests of the command `sidelane calibrate`: its output, and cases in which it gives no conclusion.

mod common;

use std::process::{Command, Output};

use common::agent::SIDELANE;
use common::{lab_binary_path, lock_lanes};
use serde_json::Value;

fn calibrate(arguments: &[&str]) -> Output {
    Command::new(SIDELANE).arg("calibrate").args(arguments).output().expect("sidelane starts")
}

#[test]
fn calibration_without_counters_reports_latencies_only() {
    let Some(_turn) = lock_lanes() else { return };
    if lab_binary_path().is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("result.json");
    // No processor has this event.
    let events = "rffffffffffffffff / page-faults";
    let ended = calibrate(&["--quick", "--events", events, "--json", json.to_str().unwrap()]);
    // The output is compared without line breaks, which depend on the width.
    let said = String::from_utf8_lossy(&ended.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("no metric found: ") && said.contains("alone and up to"), "{said}");
    let result: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert!(result["settings"].get("interference_threshold").is_none());
    let rows = result["rows"].as_array().unwrap();
    let (alone, beside): (Vec<&Value>, Vec<&Value>) = rows
        .iter()
        .filter(|row| row.get("latency_us").is_some())
        .partition(|row| row["setting"].as_str().is_some_and(|name| name.starts_with("one thread")));
    assert!(alone.len() >= 3 && beside.len() >= 3, "{rows:?}");
    assert!(alone.iter().chain(&beside).all(|row| row["latency_us"].as_f64().is_some_and(|latency| latency > 0.0)));
    let notes: Vec<&str> = result["notes"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(notes.iter().any(|note| note.contains("no event could be counted on CPU")), "{notes:?}");
}

#[test]
fn invalid_formula_is_refused_before_any_measurement() {
    let Some(_turn) = lock_lanes() else { return };
    let ended = calibrate(&["--events", "reticulations / page-faults"]);
    assert_eq!(ended.status.code(), Some(125));
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(said.contains("`reticulations` is not an event that is known here"), "{said}");
}

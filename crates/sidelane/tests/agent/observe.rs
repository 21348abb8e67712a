//! Tests of an agent that only observes: it changes nothing, and says what could be lent.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::common::agent::SIDELANE;
use crate::common::process::allowed_cpus;
use crate::common::{Footprint, Loaded, SPIN, lock_lanes};
use crate::daemon::{Daemon, File, status};
use crate::groups::{Place, Tree};

#[test]
fn an_observer_changes_nothing_and_says_what_could_be_lent() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(service) = Loaded::start() else { return };
    let before = Footprint::capture();
    let Some(tree) = Tree::make(Place::Lists) else { return };
    let batch = tree.start_container_with_script("one", SPIN);
    let recordings = tempfile::tempdir().unwrap();
    let policy = format!("kind = \"observe\"\ndir = \"{}\"", recordings.path().display());
    let file = File::without_cpu_policy().replace("kind = \"unmanaged\"", &policy);
    let file = file.with_service(&format!("port = {}", service.port())).with_batch(tree.path()).with_lines("[lanes]");
    let cpus = allowed_cpus(service.pid());
    let mut daemon = Daemon::launch(&file, crate::common::Run::with_arguments(&[]));
    daemon.wait_for_managed_counts(1, 1);
    daemon.run.wait_until("two seconds were observed, with time that could be lent", |_| {
        let observed = &status()["services"][0]["observed"];
        let day = |key: &str| observed["days"][0][key].as_f64();
        observed["lanes"] == "1" && day("observed_s") > Some(2.0) && day("lendable_s") > Some(0.0)
    });
    let seen = status();
    let day = &seen["services"][0]["observed"]["days"][0];
    assert!(day["lendable_s"].as_f64() <= day["observed_s"].as_f64(), "{day}");
    assert!(seen["agent"]["policy"] == "observe" && seen["lanes"].as_array().map(Vec::len) == Some(2), "{seen}");
    assert_eq!((batch.cpus().as_str(), batch.is_frozen()), ("0-1", false));
    assert_eq!(allowed_cpus(service.pid()), cpus);

    // The command that an estimate recommends works beside the observer.
    let run = ["run", "--service", &service.target(), "--lanes", "0:1", "--max-slowdown", "none", "--", "true"];
    let run = Command::new(SIDELANE).args(run).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));

    let lending = file.replace(&policy, "kind = \"unmanaged\"");
    daemon.reload(&lending);
    daemon.run.wait_until("the reload was refused", |_| {
        let notes = status()["notes"].to_string();
        notes.contains("begins or ends to observe only at its start; restart it")
    });
    daemon.end();
    assert_eq!((batch.cpus().as_str(), batch.is_frozen()), ("0-1", false));
    drop((batch, tree));
    before.wait_until_restored();

    let kept: Vec<_> = fs::read_dir(recordings.path().join("the-service")).unwrap().collect();
    assert_eq!(kept.len(), 1, "{kept:?}");
    let json = recordings.path().join("estimate.json");
    let estimate = Command::new(SIDELANE).arg("estimate").arg(recordings.path()).arg("--json").arg(&json).output();
    let estimate = estimate.unwrap();
    assert!(estimate.status.success(), "{}", String::from_utf8_lossy(&estimate.stderr));
    let said = String::from_utf8_lossy(&estimate.stdout).into_owned();
    assert!(said.contains(&format!("{} for ", service.target())), "{said}");
    let result: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    assert!(result["rows"][0]["requests_count"].as_f64() > Some(0.0), "{result}");
}

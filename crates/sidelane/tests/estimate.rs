//! Tests of `sidelane estimate`: it changes nothing, keeps a recording without clients, and estimates from it again.

mod common;

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Output};

use flate2::read::GzDecoder;
use serde_json::Value;

use common::agent::SIDELANE;
use common::process::allowed_cpus;
use common::{Footprint, Loaded, lock_lanes};

const EXIT_FAILURE: i32 = 125;

fn estimate(arguments: &[&str]) -> Output {
    Command::new(SIDELANE).arg("estimate").args(arguments).output().expect("it can be started")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn estimate_changes_nothing_and_can_be_made_again() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(service) = Loaded::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (kept, json) = (path("recording"), path("result.json"));
    let before = (Footprint::capture(), allowed_cpus(service.pid()));
    let target = service.target();
    let recorded = estimate(&["--service", &target, "--lanes", "0:1", "--for", "1s", "--keep", &kept, "--json", &json]);
    assert_eq!(recorded.status.code(), Some(0), "{}", text(&recorded.stderr));
    before.0.wait_until_restored();
    assert_eq!(allowed_cpus(service.pid()), before.1);
    let said = text(&recorded.stdout);
    let command = format!("sidelane run --service {target} --lanes 0:1 -- COMMAND");
    assert!(said.contains("requests/s, CPU 0 busy for") && said.contains("borrow-idle"), "{said}");
    let result: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    let rows = result["rows"].as_array().unwrap();
    assert!(rows.len() == 10 && rows[0]["requests_count"].as_f64() > Some(0.0), "{result}");
    let recommended = &result["settings"]["recommended"];
    assert!(recommended.is_null() || recommended == &Value::from(command), "{result}");

    let mut content = Vec::new();
    GzDecoder::new(&*fs::read(&kept).unwrap()).read_to_end(&mut content).unwrap();
    let content = text(&content);
    assert!(content.starts_with("sidelane recording 1\n") && !content.contains("127.0.0.1"), "{content}");

    let again = estimate(&[&kept, "--slo", "p99=1h", "--slowdown", "1.5"]);
    let said = text(&again.stdout);
    assert!(
        again.status.success() && said.contains("deadline, p99=3600s") && said.contains("take 1.5 times"),
        "{said}"
    );
}

#[test]
fn recordings_of_several_services_are_summed_up() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(service) = Loaded::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let of = |name: &str| dir.path().join(name).join("1.sidelane").display().to_string();
    let (one, other, target) = (of("node-1/web"), of("node-2/web"), service.target());
    for kept in [&one, &other] {
        fs::create_dir_all(Path::new(kept).parent().unwrap()).unwrap();
    }
    let recorded = estimate(&["--service", &target, "--lanes", "0:1", "--for", "1s", "--keep", &one]);
    assert_eq!(recorded.status.code(), Some(0), "{}", text(&recorded.stderr));
    fs::copy(&one, &other).unwrap();
    let (folder, json) = (dir.path().display().to_string(), dir.path().join("result.json").display().to_string());
    let both = estimate(&[&folder, "--json", &json]);
    let said = text(&both.stdout);
    assert!(both.status.success() && said.contains("CPUs all day beside 2 services"), "{said}");
    assert!(["node-1/web", "node-2/web", "together"].iter().all(|name| said.contains(name)), "{said}");
    let result: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!(result["rows"].as_array().unwrap().len(), 20, "{result}");
    assert_eq!(result["settings"]["services"]["node-2/web"]["service"], Value::from(target), "{result}");
}

#[test]
fn what_cannot_be_estimated_is_refused_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("notes.txt");
    fs::write(&file, "no recording").unwrap();
    let refused = estimate(&[&file.display().to_string()]);
    assert_eq!(refused.status.code(), Some(EXIT_FAILURE));
    let said = text(&refused.stderr);
    assert!(said.contains("notes.txt: ") && said.contains("name a file that `sidelane estimate --keep`"), "{said}");

    let own = format!("pid:{}", std::process::id());
    let anywhere = estimate(&["--service", &own, "--lanes", "0:1", "--for", "1s"]);
    let said = text(&anywhere.stderr);
    assert!(anywhere.status.code() == Some(EXIT_FAILURE), "{said}");
    assert!(said.contains("confine it first (taskset") || said.contains("there is no CPU"), "{said}");
}

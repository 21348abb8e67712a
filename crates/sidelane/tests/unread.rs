//! Tests of output without a reader: Sidelane continues, and reports it if a disk is full.

mod common;

use std::fs::{self, File};
use std::io::pipe;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::agent::SIDELANE;
use common::lanes::LANES;
use common::{Footprint, Service, lock_lanes};

/// Returns the write end of a pipe whose read end is closed.
fn closed_pipe() -> Stdio {
    let (_, writer) = pipe().unwrap();
    writer.into()
}

fn sidelane(arguments: &[&str]) -> Command {
    let mut command = Command::new(SIDELANE);
    command.args(arguments).stdin(Stdio::null());
    command
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn closed_standard_output_is_no_error() {
    let scenario = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/scenarios/elfen-fig2.toml");
    for arguments in [&["agent", "example"][..], &["sim", "--quick", scenario.to_str().unwrap()]] {
        let output = sidelane(arguments).stdout(closed_pipe()).output().unwrap();
        assert_eq!((output.status.code(), errors(&output).as_str()), (Some(0), ""), "{arguments:?}");
    }
}

#[test]
fn output_to_a_full_disk_is_an_error() {
    check_full_disk_error(&["agent", "example"]);
}

#[test]
fn result_file_is_written_though_stdout_is_full() {
    let dir = tempfile::tempdir().unwrap();
    let (config, result) = (dir.path().join("sidelane.toml"), dir.path().join("result.json"));
    fs::write(&config, sidelane(&["agent", "example"]).output().unwrap().stdout).unwrap();
    let (config, own) = (config.to_str().unwrap(), format!("pid:{}", std::process::id()));
    for verb in [&["list", &own][..], &["agent", "show", "--config", config]] {
        check_full_disk_error(&[verb, &["--json", result.to_str().unwrap()]].concat());
        let written = fs::read(&result).unwrap();
        serde_json::from_slice::<serde_json::Value>(&written).expect("the result is whole");
        fs::remove_file(&result).unwrap();
    }
}

/// Fails unless output that cannot be written causes an error with a text.
fn check_full_disk_error(arguments: &[&str]) {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = sidelane(arguments).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{arguments:?}");
    let said = errors(&output);
    assert!(said.starts_with("sidelane: cannot write to standard output: No space left on device"), "{said}");
}

#[test]
fn batch_runs_to_its_end_with_closed_output() {
    let Some(_turn) = lock_lanes() else { return };
    let (before, service) = (Footprint::capture(), Service::idle());
    let target = service.target();
    let run = ["run", "--lanes", LANES, "--service", &target, "--status", "10ms", "--"];
    let batch = ["sh", "-c", "timeout 0.5 sh -c 'while :; do :; done'; exit 7"];
    let status = sidelane(&[&run[..], &batch].concat()).stdout(closed_pipe()).stderr(closed_pipe()).status().unwrap();
    assert_eq!(status.code(), Some(7));
    before.wait_until_restored();
}

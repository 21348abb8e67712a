//! `sidelane top` on a terminal: replays, a run, and how it ends.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use common::agent::SIDELANE;
use common::process::{MARK, mark_of_this_test, signal};
use common::screen::Interactive;
use common::{Run, SPIN, Service, lock_lanes};

/// Sequence that leaves the alternate screen.
const RESTORED: &str = "\x1b[?1049l";

fn start_top(arguments: &[&str], dir: &Path) -> Interactive {
    let mut command = Command::new(SIDELANE);
    command.arg("top").args(arguments).current_dir(dir).env(MARK, mark_of_this_test());
    Interactive::start(&mut command, 100)
}

/// Writes a recording of two lanes for `frames` frames, 100 ms apart.
fn write_recording(path: &Path, frames: u64) {
    let lane = |cpu: u64, role: &str, frame: u64| json!({"cpu": cpu, "role": role, "service": "redis", "service_ns": frame * 40, "idle_ns": frame * 60});
    let frame = |frame: u64| {
        let lanes = [lane(0, "request", frame), lane(1, "batch", frame)];
        json!({"at_ms": frame * 100, "status": {"agent": {"pid": 7, "config": "/nowhere"}, "lanes": lanes}}).to_string()
    };
    fs::write(path, (0..frames).map(|number| frame(number) + "\n").collect::<String>()).unwrap();
}

#[test]
fn terminal_is_restored_after_a_key_and_after_a_signal() {
    let dir = tempfile::tempdir().unwrap();
    write_recording(&dir.path().join("session.jsonl"), 3);
    type End = fn(&mut Interactive);
    let ends: [(&str, End); 5] = [
        ("q", |top| top.type_keys(b"q")),
        ("Ctrl-C", |top| top.type_keys(b"\x03")),
        ("SIGTERM", |top| signal(top.pid(), libc::SIGTERM)),
        ("SIGINT", |top| signal(top.pid(), libc::SIGINT)),
        ("SIGHUP", |top| signal(top.pid(), libc::SIGHUP)),
    ];
    for (name, end) in ends {
        let mut top = start_top(&["session.jsonl"], dir.path());
        top.wait_to_see("redis");
        let during = top.settings();
        end(&mut top);
        assert_eq!(top.wait_for_end(), Some(0), "{name}");
        top.wait_for(RESTORED);
        let after = top.settings();
        assert!(after != during && after.contains("ICANON") && after.contains("ECHO"), "{name}: {after}");
    }
}

#[test]
fn keys_change_the_picture_save_a_trace_and_copy() {
    let dir = tempfile::tempdir().unwrap();
    write_recording(&dir.path().join("session.jsonl"), 5);
    let mut top = start_top(&["session.jsonl"], dir.path());
    top.wait_to_see("■ end");
    top.type_keys(b"?");
    top.wait_to_see("show or hide this help");
    top.type_keys(b"?s");
    top.wait_to_see("sort: batch");
    top.type_keys(b"t");
    top.wait_to_see("is written; open it at ui.perfetto.dev");
    let traces = fs::read_dir(dir.path()).unwrap().flatten().filter(|entry| {
        entry.file_name().to_string_lossy().ends_with(".perfetto-trace")
            && entry.metadata().is_ok_and(|it| it.len() > 0)
    });
    assert_eq!(traces.count(), 1);
    top.type_keys(b"y");
    top.wait_to_see("cannot copy /nowhere");
    top.type_keys(b"q");
    assert_eq!(top.wait_for_end(), Some(0));
}

#[test]
fn wrong_recording_ends_the_view_with_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("session.jsonl");
    write_recording(&path, 2);
    fs::write(&path, fs::read_to_string(&path).unwrap() + "hello\n").unwrap();
    let mut top = start_top(&["session.jsonl"], dir.path());
    top.wait_for(RESTORED);
    top.wait_for("cannot read line 3 of the recording");
    assert_eq!(top.wait_for_end(), Some(125));
}

#[test]
fn without_a_terminal_the_error_names_the_json_status() {
    let output = Command::new(SIDELANE).arg("top").stdin(Stdio::null()).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125));
    assert!(error.contains("this is no terminal") && error.contains("`sidelane status --json`"), "{error}");
    assert!(output.stdout.is_empty());
}

#[test]
fn run_is_watched_recorded_and_replayed() {
    let Some(_turn) = lock_lanes() else { return };
    let service = Service::idle();
    let dir = tempfile::tempdir().unwrap();
    let running = Run::beside_service(service.target()).start_script(SPIN);
    let socket = format!("/run/sidelane-run-{}.sock", running.pid());
    common::wait_until("the run answers", || Path::new(&socket).exists());
    let mut top = start_top(&["--record", "session.jsonl"], dir.path());
    for text in ["run ", "lanes", "batch"] {
        top.wait_to_see(text);
    }
    let lines = || fs::read_to_string(dir.path().join("session.jsonl")).unwrap_or_default();
    common::wait_until("some frames were recorded", || lines().lines().count() > 5);
    top.type_keys(b"q");
    assert_eq!(top.wait_for_end(), Some(0));
    let frame: Value = serde_json::from_str(lines().lines().nth(4).unwrap()).unwrap();
    let lanes = frame["status"]["lanes"].as_array().unwrap();
    assert_eq!(lanes.iter().map(|lane| lane["cpu"].as_u64().unwrap()).collect::<Vec<_>>(), [0, 1]);
    assert!(lanes[0]["idle_ns"].as_u64() > Some(0) && lanes[1]["batch_ns"].as_u64() > Some(0), "{frame}");
    signal(running.pid(), libc::SIGTERM);
    running.wait_for_end();
    assert!(!Path::new(&socket).exists(), "{socket} is left");
    let mut top = start_top(&["session.jsonl"], dir.path());
    top.wait_to_see("run ");
    top.type_keys(b"q");
    assert_eq!(top.wait_for_end(), Some(0));
}

//! Tests of interference measured by counters: the kernel's own events replace the processor's. The rest of the path
//! from the kernel program to the cgroups is real.

use tempfile::NamedTempFile;

use crate::common::{lock_lanes, wait_until};
use crate::daemon::{Daemon, File, status};
use crate::groups::{Place, Tree};
use crate::service::Program;

#[test]
fn batch_leaves_a_disturbed_sibling_and_returns_after_calm() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(tree) = Tree::make(Place::Lists) else { return };
    let (program, mut service) = Program::start_faulting_on_command();
    let batch = tree.container("one");
    let file = File::with_holmes_policy().with_service(&program.service_match_line()).with_batch(tree.path());
    let file = file.replace(
        "[metric]\nsource = \"latency\"",
        "interference_threshold = 0.5\ncalm_time = \"50ms\"\n\n[metric]\nsource = \"counters\"\nformula = \"page-faults / context-switches\"",
    );
    let daemon = Daemon::start(&file, 1, 1);
    wait_until("batch had left the reserved CPU", || batch.cpus() == "1" && !batch.is_frozen());
    assert!(status()["agent"]["metric"].as_str().is_some_and(|words| words.starts_with("counters: ")));
    service.work();
    wait_until("batch that has nowhere to go was paused", || batch.is_frozen());
    service.rest();
    wait_until("batch came back", || !batch.is_frozen());
    let ended = daemon.end();
    let paused = ended.audit().into_iter().find(|line| line["action"] == "pause").expect("a pause was audited");
    assert!(paused["why"].as_str().is_some_and(|why| why.starts_with("interference")), "{paused}");
    assert!(paused["seen"]["interference"].as_f64() >= Some(0.5), "{paused}");
    assert!(!batch.is_frozen() && batch.cpus() == "0-1");
}

/// Returns whether the agent has a note that begins with this text.
fn has_note(begin: &str) -> bool {
    let begins = |note: &serde_json::Value| note["note"].as_str().is_some_and(|note| note.starts_with(begin));
    status()["notes"].as_array().is_some_and(|notes| notes.iter().any(begins))
}

#[test]
fn unpausable_batch_is_shown_as_running() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(mut tree) = Tree::make(Place::ListsAlone) else { return };
    let (program, mut service) = Program::start_faulting_on_command();
    let mut batch = tree.container("one");
    let file = File::with_holmes_policy().with_service(&program.service_match_line()).with_batch(tree.path());
    let file = file.replace(
        "[metric]\nsource = \"latency\"",
        "interference_threshold = 0.5\ncalm_time = \"50ms\"\n\n[metric]\nsource = \"counters\"\nformula = \"page-faults / context-switches\"",
    );
    let mut daemon = Daemon::start(&file, 1, 1);
    wait_until("batch had left the reserved CPU", || batch.cpus() == "1");
    let cannot = format!("container {}/one cannot be paused", tree.path());
    wait_until("it was noted that batch cannot be paused", || has_note(&cannot));
    service.work();
    // Every check of the agent during one second finds interference, and there is no other CPU for batch.
    let began = std::time::Instant::now();
    while began.elapsed() < std::time::Duration::from_secs(1) {
        let told = status();
        assert_eq!((&told["containers"][0]["state"], &told["containers"][0]["cpus"]), (&"running".into(), &"1".into()));
        assert_eq!(batch.cpus(), "1");
    }
    if tree.move_to_freezable_cgroup(&mut batch, "one") {
        wait_until("batch was paused", || batch.is_frozen());
        daemon
            .run
            .wait_until("that was told", |_| status()["containers"][0]["state"] == "paused" && !has_note(&cannot));
        service.rest();
        wait_until("batch came back", || !batch.is_frozen());
    }
    daemon.end();
    assert!(!batch.is_frozen() && batch.cpus() == "0-1");
}

/// Creates a recording of 15 s of interference on CPU 0, with a value every 5 ms.
fn create_recording() -> NamedTempFile {
    let file = NamedTempFile::new().unwrap();
    let line = |number: u64| format!("{{\"at_ns\":{},\"cpu\":0,\"value\":50.0}}\n", number * 5_000_000);
    std::fs::write(&file, (0..3_000).map(line).collect::<String>()).unwrap();
    file
}

/// Returns the lines of `[metric]` that replay the recording.
fn replay_config_lines(recording: &NamedTempFile) -> String {
    format!("source = \"replay\"\nreplay = \"{}\"", recording.path().display())
}

#[test]
fn recording_is_replayed_until_its_end() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(tree) = Tree::make(Place::Lists) else { return };
    let program = Program::new();
    let service = program.start("0");
    let batch = tree.container("one");
    let recording = create_recording();
    let metric =
        format!("interference_threshold = 40\ncalm_time = \"50ms\"\n\n[metric]\n{}", replay_config_lines(&recording));
    let file = File::with_holmes_policy().with_service(&program.service_match_line()).with_batch(tree.path());
    let daemon = Daemon::start(&file.replace("[metric]\nsource = \"latency\"", &metric), 1, 1);
    wait_until("batch was paused", || batch.is_frozen());
    wait_until("batch came back after the recording's end", || batch.cpus() == "1" && !batch.is_frozen());
    daemon.end();
    service.must_be_untouched();
}

#[test]
fn a_metric_that_is_read_at_the_start_alone_keeps_its_threshold() {
    let Some(_turn) = lock_lanes() else { return };
    let recording = create_recording();
    let table = format!("calm_time = \"50ms\"\n\n[metric]\n{}", replay_config_lines(&recording));
    let file = File::with_absent_targets().replace("[metric]\nsource = \"latency\"", &table);
    let mut daemon = Daemon::start(&file, 0, 0);
    let threshold = || status()["agent"]["threshold"].as_f64();
    assert_eq!(threshold(), Some(40.0));
    let latency = file
        .replace(&replay_config_lines(&recording), "source = \"latency\"")
        .with_lines("[metrics]\nlisten = \"127.0.0.1:0\"");
    daemon.reload(&latency.replace("calm_time = \"50ms\"", "calm_time = \"60ms\""));
    let is_noted = || has_note("the file has changed [metric], [metrics], which the agent reads only at its start");
    daemon.run.wait_until("it was noted which tables are not in effect", |_| is_noted());
    assert_eq!(threshold(), Some(40.0), "the recording is told on");
    assert!(status()["agent"]["metric"].as_str().is_some_and(|words| words.starts_with("replay: ")));
    daemon.reload(&latency.replace("calm_time = \"50ms\"", "interference_threshold = 7"));
    daemon.run.wait_until("a threshold of the policy's own was taken over", |_| threshold() == Some(7.0));
    daemon.reload(&file);
    daemon.run.wait_until("the file is in effect again", |_| threshold() == Some(40.0) && !is_noted());
    daemon.end();
}

#[test]
fn interference_policy_needs_a_metric_at_a_reload() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(tree) = Tree::make(Place::Lists) else { return };
    let program = Program::new();
    let service = program.start("0");
    let batch = tree.container("one");
    let recording = create_recording();
    let by = |source: &str| format!("interference_threshold = 40\ncalm_time = \"50ms\"\n\n[metric]\n{source}");
    let holmes = |source: &str| {
        let file = File::with_holmes_policy().with_service(&program.service_match_line()).with_batch(tree.path());
        file.replace("[metric]\nsource = \"latency\"", &by(source))
    };
    let replay = replay_config_lines(&recording);
    let perfiso = holmes(&replay).replace("kind = \"holmes\"\nreserved = \"0\"", "kind = \"perfiso\"");
    let mut daemon = Daemon::start(&perfiso.replace("interference_threshold = 40\ncalm_time = \"50ms\"\n", ""), 1, 1);
    daemon.reload(&holmes("source = \"counters\"\nformula = \"page-faults / context-switches\""));
    daemon.run.wait_until("it was refused", |run| {
        run.errors().contains("needs interference: the agent was started without measuring it; restart the agent")
    });
    assert_eq!(status()["agent"]["policy"], "perfiso");
    daemon.reload(&holmes(&replay));
    wait_until("batch was paused", || batch.is_frozen());
    daemon.end();
    service.must_be_untouched();
}

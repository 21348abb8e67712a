//! Tests of signals from HotSpot's counters.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::process::Command;

use sidelane_channels::hsperf;
use sidelane_channels::signal::{Kind, Signal};
use sidelane_timeline::record::Kind as RecordKind;
use sidelane_trace::pauses::Pauses;

use crate::common::wait_until;
use crate::program::{Program, fixture, read, run_tool_if_installed};
use crate::variables::{POSITION_INDEPENDENT, start_variables_program};

/// Starts a JVM that runs a garbage collection on command. Without a JVM, prints a message and returns `None`.
fn start_jvm(flags: &[&str]) -> Option<Program> {
    let dir = tempfile::tempdir().unwrap();
    let classes = dir.path().as_os_str().to_owned();
    run_tool_if_installed("javac", &[OsStr::new("-d"), &classes, fixture("Collects.java").as_os_str()])?;
    let mut java = Command::new("java");
    java.args(flags).arg("-cp").arg(classes).arg("Collects");
    Some(Program::start(&mut java, dir))
}

#[test]
fn jvm_counters_are_read_while_it_runs() {
    let Some(mut jvm) = start_jvm(&["-XX:+UseSerialGC", "-Xmx64m"]) else { return };
    let mut safepoints = jvm.channel("jvm:sun.rt.safepoints");
    let mut collections = jvm.channel("rate:jvm:sun.gc.collector.1.invocations");
    assert_eq!([safepoints.kind, collections.kind], [Kind::Counter; 2]);
    let before = [read(&mut safepoints).unwrap(), read(&mut collections).unwrap()];
    jvm.send_command("");
    wait_until("the collection was counted", || read(&mut collections).unwrap() == before[1] + 1);
    assert!(read(&mut safepoints).unwrap() > before[0]);
    let usual = jvm.channels("jvm").unwrap();
    assert!(usual.len() <= 8 && usual.iter().any(|channel| channel.name == "jvm:java.threads.live"), "{usual:?}");
}

#[test]
fn the_cause_of_a_collection_is_a_text() {
    let Some(mut jvm) = start_jvm(&["-XX:+UseG1GC", "-Xmx64m"]) else { return };
    let mut causes = ["jvm:sun.gc.cause", "jvm:sun.gc.lastCause"].map(|signal| jvm.channel(signal));
    let mut now =
        || causes.each_mut().map(|channel| (channel.meaning.clone().unwrap())(read(channel).unwrap()).unwrap());
    assert_eq!(now()[0], "No GC");
    jvm.send_command("");
    wait_until("the last cause was what it was", || now() == ["No GC", "System.gc()"]);
    assert!(jvm.channels("counter:jvm:sun.gc.cause").unwrap_err().contains("is a text"));
}

#[test]
fn trace_records_collections_of_a_later_jvm() {
    let mut pauses = Pauses::watch(&BTreeSet::new());
    let Some(mut jvm) = start_jvm(&["-XX:+UseSerialGC", "-Xmx64m"]) else { return };
    pauses.set_processes(&BTreeSet::from([jvm.pid()]));
    jvm.send_command("");
    let mut records = Vec::new();
    wait_until("the collection was told", || {
        pauses.merge(&mut records);
        records.iter().any(|record| record.kind == RecordKind::PauseEnded && record.task.pid == jvm.pid())
    });
}

#[test]
fn jvm_without_counters_is_distinguished_from_other_programs() {
    if let Some(jvm) = start_jvm(&["-XX:-UsePerfData"]) {
        assert!(jvm.channels("jvm").unwrap_err().contains("-XX:-UsePerfData"));
    }
    let Some(program) = start_variables_program(POSITION_INDEPENDENT) else { return };
    assert!(program.channels("jvm").unwrap_err().contains("is not a JVM"));
}

#[test]
fn counters_of_a_jvm_that_has_ended_stay_readable() {
    let Some(mut jvm) = start_jvm(&[]) else { return };
    assert!(jvm.channels("jvm:sun.rt.safepoint").unwrap_err().contains("did you mean sun.rt.safepoints"));
    let mut threads = jvm.channel("jvm:java.threads.live");
    assert!(read(&mut threads).unwrap() > 0);
    jvm.close_input_and_wait();
    assert!(read(&mut threads).is_ok());
}

#[test]
fn a_jvm_with_process_ids_and_a_tmp_of_its_own_is_read() {
    if !rustix::process::geteuid().is_root() {
        sidelane_testing::skip("needs root, to give a program a /tmp of its own");
        return;
    }
    // The classes are not below /tmp: the JVM gets its own /tmp, which hides the files of the host's /tmp.
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let Some(()) = run_tool_if_installed(
        "javac",
        &[OsStr::new("-d"), dir.path().as_os_str(), fixture("Collects.java").as_os_str()],
    ) else {
        return;
    };
    let script = format!("mount -t tmpfs none /tmp && exec java -cp {} Collects", dir.path().display());
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", &script]);
    let mut program = Program::start(&mut unshare, dir);
    let outer = program.pid();
    let inner = std::fs::read_to_string(format!("/proc/{outer}/task/{outer}/children")).unwrap();
    let pids = BTreeSet::from([inner.trim().parse().unwrap()]);
    let signal: Signal = "jvm:sun.rt.safepoints".parse().unwrap();
    let mut safepoints = hsperf::channels(&signal, Some("sun.rt.safepoints"), &pids).unwrap().remove(0);
    let before = read(&mut safepoints).unwrap();
    program.send_command("");
    wait_until("the program was stopped to collect", || read(&mut safepoints).unwrap() > before);
}

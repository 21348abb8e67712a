//! Tests of requests that a C program emits through `runtime/c/sidelane.h`, read while it runs.

mod common;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use common::agent::SIDELANE;
use common::c_program::compile;
use sidelane_requests::Request;
use sidelane_requests::emitted::Emitters;
use tempfile::TempDir;

/// Running C program that emits requests, ended when dropped.
struct Program {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    _dir: TempDir,
}

impl Program {
    /// Compiles and starts the program. Without a compiler, prints a message and returns `None`.
    fn start(compiler: &str, dialect: &[&str]) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mut child = Command::new(compile(compiler, dialect, "emit_requests", dir.path())?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Some(Self { child, input, output, _dir: dir })
    }

    /// Sends a command to the program, and waits until it is done.
    fn send_command(&mut self, what: &str) {
        writeln!(self.input, "{what}").unwrap();
        let mut answer = String::new();
        self.output.read_line(&mut answer).unwrap();
        assert_eq!(answer, "emitted\n", "after {what}");
    }

    fn pids(&self) -> BTreeSet<u32> {
        BTreeSet::from([self.child.id()])
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns all requests that can be read now.
fn read_all_requests(emitters: &mut Emitters) -> Vec<Request> {
    let mut requests = Vec::new();
    emitters.finish(|request| requests.push(*request));
    requests
}

fn check_requests_are_read_once(compiler: &str, dialect: &[&str]) {
    let Some(mut program) = Program::start(compiler, dialect) else { return };
    assert!(Emitters::find(&program.pids()).is_none(), "nothing has been emitted yet");
    program.send_command("1");
    let mut emitters = Emitters::find(&program.pids()).expect("it emits");
    assert_eq!(read_all_requests(&mut emitters), [], "what was before does not count");
    for count in [1, 7, 500] {
        program.send_command(&count.to_string());
        let requests = read_all_requests(&mut emitters);
        assert_eq!(requests.len(), count);
        assert!(requests.iter().all(|request| request.arrived_ns <= request.started_ns));
        assert!(requests.iter().all(|request| request.started_ns <= request.finished_ns));
        assert_eq!(requests.iter().map(|request| request.queue_len as usize).max(), Some(count));
    }
    let window = emitters.take_window();
    assert_eq!((window.answered_count(), window.counts.dropped, emitters.queue_len()), (508, 0, 0));
}

#[test]
fn every_request_of_c_is_read_once() {
    check_requests_are_read_once("cc", &["-std=c99", "-pedantic"]);
}

#[test]
fn every_request_of_cpp_is_read_once() {
    check_requests_are_read_once("c++", &["-std=c++11", "-x", "c++"]);
}

#[test]
fn overwritten_events_are_counted_and_the_rest_is_read() {
    let Some(mut program) = Program::start("cc", &["-std=c99"]) else { return };
    program.send_command("1");
    let mut emitters = Emitters::find(&program.pids()).unwrap();
    program.send_command("3000");
    let requests = read_all_requests(&mut emitters);
    // The worker writes 6,000 events, two for each request, into 2048 slots before the test reads them.
    assert!((1..=1024 + 2048).contains(&requests.len()), "{}", requests.len());
    assert!(emitters.take_window().counts.dropped > 0);
}

#[test]
fn slots_of_ended_threads_are_reused_and_children_are_separate() {
    let Some(mut program) = Program::start("cc", &["-std=c99"]) else { return };
    program.send_command("1");
    let mut emitters = Emitters::find(&program.pids()).unwrap();
    program.send_command("fork");
    assert_eq!(read_all_requests(&mut emitters), []);
    program.send_command("dead");
    assert_eq!(read_all_requests(&mut emitters).len(), 512);
    assert_eq!(emitters.take_window().counts.dropped, 0);
}

#[test]
fn requests_command_uses_emitted_requests() {
    let Some(mut program) = Program::start("cc", &["-std=c99"]) else { return };
    program.send_command("1");
    let target = format!("pid:{}", program.child.id());
    let mut command = Command::new(SIDELANE);
    command.args(["requests", "--service", &target, "--for", "100s"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut watching = command.spawn().unwrap();
    let mut said = String::new();
    BufReader::new(watching.stderr.as_mut().unwrap()).read_line(&mut said).unwrap();
    assert!(said.contains("emitted by the service"), "{said}");
    program.send_command("30");
    // SAFETY: plain system call; the child is not reaped yet.
    unsafe { libc::kill(watching.id() as libc::pid_t, libc::SIGINT) };
    let output = watching.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.starts_with("sidelane: 30 requests of "), "{said}");
}

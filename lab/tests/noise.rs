//! Tests of the noise tool: it ends on request or when its parent dies, and prints how much noise it made.

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use common::{lab_command, run_failing};

/// Options of the noise tool for little noise, since other tests run at the same time.
const LITTLE: [&str; 6] = ["noise", "--taken", "0.5", "--long-gaps", "0", "--no-neighbours"];
const REPORT: &str = "of each CPU the host took ";

fn start_noise_maker() -> (Child, BufReader<std::process::ChildStdout>) {
    let mut noise = lab_command(&LITTLE).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut said = BufReader::new(noise.stdout.take().unwrap());
    assert!(read_line(&mut said).starts_with("ready pid="));
    (noise, said)
}

fn read_line(output: &mut impl BufRead) -> String {
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    line
}

#[test]
fn signal_ends_the_noise_maker_with_a_report() {
    let (mut noise, mut said) = start_noise_maker();
    // SAFETY: kill touches no memory; the child is not reaped yet.
    assert_eq!(unsafe { libc::kill(noise.id() as libc::pid_t, libc::SIGTERM) }, 0);
    assert!(read_line(&mut said).starts_with(REPORT));
    assert!(noise.wait().unwrap().success());
}

#[test]
fn noise_maker_ends_with_its_parent() {
    let script = "\"$@\" & read -r _; kill -9 $$";
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", script, "sh", env!("CARGO_BIN_EXE_sidelane-lab")]).args(LITTLE);
    shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut shell = shell.spawn().unwrap();
    let mut said = BufReader::new(shell.stdout.take().unwrap());
    assert!(read_line(&mut said).starts_with("ready pid="));
    drop(shell.stdin.take());
    shell.wait().unwrap();
    assert!(read_line(&mut said).starts_with(REPORT), "it says so at its end");
    assert_eq!(read_line(&mut said), "", "no process holds its output any more");
}

#[test]
fn long_gaps_longer_than_all_time_are_refused() {
    let mut command = lab_command(&["noise"]);
    command.args(["--taken", "1", "--seconds", "1"]);
    assert!(run_failing(command, 125).contains("--long-gaps"));
}

//! Two processes that alternate on one CPU. The partner is the child of the other process, since child processes of a
//! service belong to the service. An experiment can make the partner a service and the other process a bystander.
//!
//! One byte goes back and forth through two pipes. Each bounce is two context switches and two wakeups, on one CPU that
//! is never idle. The cost of watching the switches, or of holding a lane at each switch, is the additional time for
//! the same number of bounces.

use std::io::{BufRead, Read, Write, stdin, stdout};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result};
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::clock::now_ns;
use crate::scheduling;

/// Options of `sidelane-lab bounce`.
#[derive(Debug, clap::Args)]
pub struct BounceArgs {
    /// CPU to run on
    #[arg(long)]
    cpu: usize,
    /// Rounds of an integer loop that each side works before it hands over
    #[arg(long, default_value_t = 0, value_name = "N")]
    work: u64,
    /// Run as the partner
    #[arg(long, hide = true)]
    partner: bool,
}

/// Prints `ready pid=N partner=N`. Each line `BOUNCES` on standard input is then answered with the nanoseconds that
/// this number of bounces took.
pub fn run(args: &BounceArgs) -> Result<()> {
    scheduling::pin_to(args.cpu)?;
    if args.partner {
        return run_partner(args.work);
    }
    let mut partner = Partner::start(args)?;
    // Uses SCHED_BATCH, since the partner could otherwise be preempted between its write and its sleep, and stay
    // runnable all the time.
    scheduling::use_batch_class()?;
    println!("ready pid={} partner={}", std::process::id(), partner.child.id());
    for line in stdin().lock().lines() {
        let bounces: u64 = line?.trim().parse().context("expected a number of bounces on standard input")?;
        println!("{}", partner.measure_bounces_ns(bounces, args.work)?);
        stdout().flush()?;
    }
    Ok(())
}

/// The child process that answers each byte, with the pipes to it.
struct Partner {
    child: Child,
    there: ChildStdin,
    back: ChildStdout,
}

impl Partner {
    fn start(args: &BounceArgs) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("bounce").arg("--partner").args(["--cpu", &args.cpu.to_string(), "--work", &args.work.to_string()]);
        // SAFETY: one async-signal-safe system call between fork and exec.
        unsafe { command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?)) };
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("cannot start partner")?;
        let there = child.stdin.take().context("the partner has no standard input")?;
        let back = child.stdout.take().context("the partner has no standard output")?;
        Ok(Self { child, there, back })
    }

    fn measure_bounces_ns(&mut self, bounces: u64, work_rounds: u64) -> Result<u64> {
        let began_ns = now_ns();
        for _ in 0..bounces {
            self.there.write_all(b"!")?;
            self.back.read_exact(&mut [0])?;
            spin_rounds(work_rounds);
        }
        Ok(now_ns() - began_ns)
    }
}

impl Drop for Partner {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run_partner(work_rounds: u64) -> Result<()> {
    let (mut input, mut output) = (stdin().lock(), stdout().lock());
    while input.read(&mut [0])? == 1 {
        spin_rounds(work_rounds);
        output.write_all(b"!")?;
        output.flush()?;
    }
    Ok(())
}

/// Works a fixed number of loop rounds, so that an interruption makes the call take longer.
fn spin_rounds(rounds: u64) {
    for round in 0..rounds {
        std::hint::black_box(round);
    }
}

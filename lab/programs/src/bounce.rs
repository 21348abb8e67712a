//! Two processes that hand a CPU to each other. One of them, the partner, can be a service, with the other as a
//! bystander. The partner is the child of the two: child processes of a service belong to the service.
//!
//! A byte goes back and forth through two pipes, so each bounce is two context switches, and
//! wake-ups, on one CPU that is never idle. The cost of watching the switches, or of holding a lane
//! at each of them, is the additional time that the same number of bounces takes.

use std::io::{BufRead, Read, Write, stdin, stdout};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result};
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::clock::now_ns;
use crate::place;

/// Options of `bounce`.
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

/// Prints `ready pid=N partner=N`. Then each line `BOUNCES` on standard input is answered with the
/// nanoseconds that this number of bounces took.
pub fn run(args: &BounceArgs) -> Result<()> {
    place::pin_to(args.cpu)?;
    if args.partner {
        return be_partner(args.work);
    }
    let mut partner = Partner::start(args)?;
    // Else the partner could be preempted while it hands over, and be ready to run all the time.
    place::preempt_nobody()?;
    println!("ready pid={} partner={}", std::process::id(), partner.child.id());
    for line in stdin().lock().lines() {
        let bounces: u64 = line?.trim().parse().context("expected a number of bounces on standard input")?;
        println!("{}", partner.bounce(bounces, args.work)?);
        stdout().flush()?;
    }
    Ok(())
}

/// The partner, and the pipes to it.
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

    fn bounce(&mut self, bounces: u64, work: u64) -> Result<u64> {
        let began_ns = now_ns();
        for _ in 0..bounces {
            self.there.write_all(b"!")?;
            self.back.read_exact(&mut [0])?;
            toil(work);
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

fn be_partner(work: u64) -> Result<()> {
    let (mut input, mut output) = (stdin().lock(), stdout().lock());
    while input.read(&mut [0])? == 1 {
        toil(work);
        output.write_all(b"!")?;
        output.flush()?;
    }
    Ok(())
}

/// A fixed amount of work, whatever time it takes: an interruption must make it longer.
fn toil(rounds: u64) {
    for round in 0..rounds {
        std::hint::black_box(round);
    }
}

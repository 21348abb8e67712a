//! `sidelane-lab slow-cpu`: a CPU that is slow, as a little core is.
//!
//! All cores of an ordinary machine are equally fast. An experiment with big and little cores needs a CPU on which
//! programs lose a share of their time. The [emulated sibling](crate::sibling) makes one: its other lane is not a real
//! CPU and always works. With a speed of 0.4, a program on the slow CPU loses 60 % of its time there.
//!
//! - *Built in:* a program with `--sibling PID:FD` emulates its loss itself, at the end of each request, on whichever
//!   CPU it runs at that time. The loss is exact even if a request moves to another CPU. In the time t on the slow CPU
//!   the request did work for t, but should have done work for speed × t. The difference, (1 − speed) × t, is therefore
//!   lost later, on any CPU. Before the end of a request an observer cannot tell the order of work and loss.
//! - *A steal emulator* takes the lost time from any other program, in slices of 0.5 to 2 ms. If a program sleeps, ends
//!   or moves before its loss makes a slice, the next program loses that time.
//!
//! A real-time thread loses nothing.

mod report;
mod speed;

use anyhow::Result;

use crate::clock::Nanos;
use crate::sibling::core::NO_CPU;
use crate::sibling::emulation::{self, Emulation};
use crate::sibling::program::Program;
use crate::sibling::steal_emulator::{StealEmulator, StealLane};
use report::SpeedReport;
use speed::Speed;

/// Index of the lane that is the slow CPU; the other lane is not real.
const LANE: usize = 1;
/// Longest time between two checks by the steal emulator while the CPU is idle. A request that arrives at an idle CPU
/// should not end before the next check.
const LOOK_IDLE_NS: Nanos = 4_000_000;

/// Options of `sidelane-lab slow-cpu`.
#[derive(Debug, clap::Args)]
pub struct SlowCpuArgs {
    /// The CPU
    #[arg(long, value_name = "CPU")]
    cpu: u32,
    /// How fast it is: a share of the speed that it has
    #[arg(long, value_name = "SPEED")]
    speed: Speed,
    /// No steal emulator: only programs with --sibling are slow there
    #[arg(long)]
    no_steal: bool,
}

/// Runs the emulation. Each line `on SPEED`, `off` or `report` on standard input is answered with one line.
pub fn run(args: &SlowCpuArgs) -> Result<()> {
    emulation::run(|| SlowCpu::start(args))
}

/// Emulation that makes a CPU slow until it is dropped.
struct SlowCpu {
    cpu: u32,
    speed: Speed,
    program: Program,
    emulator: Option<StealEmulator>,
}

impl SlowCpu {
    fn start(args: &SlowCpuArgs) -> Result<Self> {
        let program = Program::load([NO_CPU, args.cpu])?;
        let steal_lane = StealLane { lane: LANE, cpu: args.cpu, look_idle_ns: LOOK_IDLE_NS };
        let emulator = (!args.no_steal).then(|| StealEmulator::start(program.core(), steal_lane)).transpose()?;
        let mut cpu = Self { cpu: args.cpu, speed: args.speed, program, emulator };
        cpu.begin(args.speed)?;
        Ok(cpu)
    }

    fn speed_report(&self) -> SpeedReport {
        SpeedReport::from_core(self.cpu, self.speed, self.program.core(), self.emulator.as_ref())
    }
}

impl Emulation for SlowCpu {
    type How = Speed;
    const HOW: &str = "SPEED";

    fn memory_fd(&self) -> i32 {
        self.program.memory_fd()
    }

    fn begin(&mut self, speed: Speed) -> Result<()> {
        self.speed = speed;
        self.program.begin(&speed.slowdown(LANE))?;
        self.emulator.iter().for_each(StealEmulator::begin);
        Ok(())
    }

    fn end(&mut self) {
        self.program.end();
    }

    fn report_json(&self) -> serde_json::Result<String> {
        serde_json::to_string(&self.speed_report())
    }

    fn report_text(&self) -> String {
        self.speed_report().to_string()
    }
}

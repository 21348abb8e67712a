//! `sidelane-lab sibling`: two CPUs that behave like the lanes of one core.
//!
//! On a machine without SMT, batch takes nothing from a request on another CPU, so an experiment shows no harm. Here
//! both lanes lose the time that a busy sibling lane would take, while both work:
//!
//! - `bpf/`, `program`, `core`: the kernel program that measures how long both lanes worked at once
//! - `pace`: programs that spin for exactly the time that they should lose: `--sibling` of the lab's services and
//!   batch; `preload.c` does it in programs outside the lab
//! - `steal_emulator`: one thread for each lane, which takes the lost time from any other program
//! - `slowdown`: the size of the loss; `report`: the loss that was achieved
//! - `emulation`: the control over standard streams
//!
//! The steal emulator takes nothing from a thread that spins for its lost time itself, so both may be in use at once.
//! The emulation ends with the process: the kernel removes the process's programs, and readers of the stopwatches
//! notice the end.

pub mod core;
pub mod emulation;
mod pace;
pub mod program;
pub mod report;
pub mod slowdown;
pub mod steal_emulator;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::ValueEnum;

use crate::clock::Nanos;
use emulation::Emulation;
pub use pace::{Pace, PaceArgs, Sibling};
use program::Program;
use report::LaneReport;
use slowdown::{LANES, Slowdown};
use steal_emulator::{StealEmulator, StealLane};

/// Longest time between two wakeups of a steal emulator while the two lanes are not busy at the same time. At each
/// wakeup it checks how much time the lane should have lost.
const LOOK_IDLE_NS: Nanos = 16_000_000;

/// Options of `sidelane-lab sibling`.
#[derive(Debug, clap::Args)]
pub struct SiblingArgs {
    /// The two CPUs: where the service runs, and where batch does
    #[arg(long, value_name = "REQUEST:BATCH", value_parser = lanes)]
    lanes: [u32; LANES],
    /// How many times as long each lane takes beside its sibling's load: service:batch, batch:service, and, beside a
    /// holder that naps, service:nap and batch:nap. Without it the CPUs become a core when standard input says `on
    /// SLOWDOWN`
    #[arg(long, value_name = "VICTIM:AGGRESSOR=TIMES,…")]
    slowdown: Option<Slowdown>,
    /// On which lanes a steal emulator takes the loss from programs that do not make up for it themselves
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LANE,…", default_value = "service,batch")]
    steal: Vec<StealTarget>,
    /// While programs make up for their loss themselves, they make page faults, which stand in for a counter of stalls
    #[arg(long)]
    stand_in: bool,
    /// Write a library there: a program that is started with LD_PRELOAD=FILE and SIDELANE_LAB_SIBLING=PID:FD makes up
    /// for its loss itself
    #[arg(long, value_name = "FILE")]
    preload: Option<PathBuf>,
}

/// Shared library that programs outside the lab preload, so that they emulate the slowdown by a sibling lane
/// themselves.
static PRELOAD: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/preload.so"));

/// Lane from whose programs a steal emulator takes time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum StealTarget {
    /// The request lane
    Service,
    /// The batch lane
    Batch,
    /// Nowhere
    None,
}

fn lanes(text: &str) -> Result<[u32; LANES], String> {
    let parts = text.split_once(':').and_then(|(request, batch)| Some([request.parse().ok()?, batch.parse().ok()?]));
    parts.ok_or_else(|| "write REQUEST:BATCH, as in 0:1".to_owned())
}

/// Runs the emulation. Each line `on SLOWDOWN`, `off` or `report` on standard input is answered with one line.
pub fn run(args: &SiblingArgs) -> Result<()> {
    if let Some(file) = &args.preload {
        fs::write(file, PRELOAD).with_context(|| format!("cannot write {}", file.display()))?;
    }
    emulation::run(|| EmulatedCore::start(args))
}

/// Emulated core: the kernel program, and the steal emulators of its lanes.
struct EmulatedCore {
    program: Program,
    emulators: [Option<StealEmulator>; LANES],
}

impl EmulatedCore {
    fn start(args: &SiblingArgs) -> Result<Self> {
        program::ensure_not_siblings(args.lanes)?;
        let program = Program::load(args.lanes)?;
        program.core().set_page_fault_stand_in(args.stand_in);
        let start = |lane: usize, whose: StealTarget| {
            let wanted = args.steal.contains(&whose);
            let steal_lane = StealLane { lane, cpu: args.lanes[lane], look_idle_ns: LOOK_IDLE_NS };
            wanted.then(|| StealEmulator::start(program.core(), steal_lane)).transpose()
        };
        let emulators = [start(0, StealTarget::Service)?, start(1, StealTarget::Batch)?];
        let mut core = Self { program, emulators };
        args.slowdown.map_or(Ok(()), |slowdown| core.begin(slowdown))?;
        Ok(core)
    }

    fn lane_reports(&self) -> [LaneReport; LANES] {
        report::lane_reports(self.program.core(), &self.emulators)
    }
}

impl Emulation for EmulatedCore {
    type How = Slowdown;
    const HOW: &str = "SLOWDOWN";

    fn memory_fd(&self) -> i32 {
        self.program.memory_fd()
    }

    fn begin(&mut self, slowdown: Slowdown) -> Result<()> {
        self.program.begin(&slowdown)?;
        self.emulators.iter().flatten().for_each(StealEmulator::begin);
        Ok(())
    }

    fn end(&mut self) {
        self.program.end();
    }

    fn report_json(&self) -> serde_json::Result<String> {
        serde_json::to_string(&self.lane_reports())
    }

    fn report_text(&self) -> String {
        self.lane_reports().map(|lane| lane.to_string()).join("\n")
    }
}

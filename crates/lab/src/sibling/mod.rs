//! `sidelane-lab sibling`: two CPUs that behave like the lanes of one core.
//!
//! On a machine without SMT whatever batch does beside a request takes nothing from it, so an experiment shows
//! no harm. Here both lanes lose what a busy sibling would take, while both work:
//!
//! - `bpf/`, `program`, `core`: the kernel program that knows for how long both lanes worked at once
//! - `pace`: programs that make up for their own overlap, exactly: `--sibling` of the lab's services and batch
//! - `thief`: a thread a lane that takes it from any other program
//! - `slowdown`: how much; `report`: what came of it
//!
//! A thread that makes up for its overlap itself is left alone by the thief, so both may be in use at once.
//! Nothing outlives the process: the kernel drops its programs, and who looks at the stopwatches notices.

mod core;
mod pace;
mod program;
mod report;
mod slowdown;
mod thief;

use std::io::{BufRead, Write, stdin, stdout};
use std::sync::{Arc, Mutex};
use std::thread;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use crate::signals::EndingSignals;
pub use pace::{Pace, PaceArgs, Sibling};
use program::Program;
use report::LaneReport;
use slowdown::{LANES, Slowdown};
use thief::Thief;

/// Options of `sibling`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The two CPUs: where the service runs, and where batch does
    #[arg(long, value_name = "REQUEST:BATCH", value_parser = lanes)]
    lanes: [u32; LANES],
    /// Who takes how many times as long beside whom: service:batch, batch:service, and, beside a holder that naps,
    /// service:nap and batch:nap. Without it the CPUs become a core when standard input says `on SLOWDOWN`
    #[arg(long, value_name = "VICTIM:AGGRESSOR=TIMES,…")]
    slowdown: Option<Slowdown>,
    /// On which lanes a thief takes the loss from programs that do not make up for it themselves
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LANE,…", default_value = "service,batch")]
    thief: Vec<Whose>,
}

/// Where a thief works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Whose {
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

/// Prints `ready pid=N fd=N`, answers each line `on SLOWDOWN`, `off` or `report` on standard input with one
/// line, and says at the end what came of it.
pub fn run(args: &Args) -> Result<()> {
    let signals = EndingSignals::block()?;
    let core = Arc::new(Mutex::new(Emulated::start(args)?));
    let fd = core.lock().expect("nobody panics here").program.fd();
    println!("ready pid={} fd={fd}", std::process::id());
    let asked = Arc::clone(&core);
    thread::spawn(move || answer_all(&asked));
    signals.wait(None);
    let core = core.lock().expect("nobody panics here");
    core.report().iter().for_each(|lane| eprintln!("{lane}"));
    Ok(())
}

/// Until standard input ends; a sibling that nobody talks to goes on.
fn answer_all(core: &Mutex<Emulated>) {
    for line in stdin().lock().lines().map_while(Result::ok) {
        let answer = core.lock().expect("nobody panics here").answer(&line);
        println!("{}", answer.unwrap_or_else(|error| format!("error: {error:#}")));
        let _ = stdout().flush();
    }
}

/// The emulated core.
struct Emulated {
    program: Program,
    thieves: [Option<Thief>; LANES],
}

impl Emulated {
    fn start(args: &Args) -> Result<Self> {
        let program = Program::load(args.lanes)?;
        let thief = |lane: usize, whose: Whose| {
            let wanted = args.thief.contains(&whose);
            wanted.then(|| Thief::start(program.core(), lane, args.lanes[lane])).transpose()
        };
        let thieves = [thief(0, Whose::Service)?, thief(1, Whose::Batch)?];
        let mut core = Self { program, thieves };
        args.slowdown.as_ref().map_or(Ok(()), |slowdown| core.begin(slowdown))?;
        Ok(core)
    }

    fn begin(&mut self, slowdown: &Slowdown) -> Result<()> {
        self.program.begin(slowdown)?;
        self.thieves.iter().flatten().for_each(Thief::begin);
        Ok(())
    }

    fn answer(&mut self, line: &str) -> Result<String> {
        match line.trim().split_once(' ').unwrap_or((line.trim(), "")) {
            ("on", slowdown) => self.begin(&slowdown.parse()?).map(|()| "on".to_owned()),
            ("off", "") => {
                self.program.end();
                Ok("off".to_owned())
            }
            ("report", "") => serde_json::to_string(&self.report()).context("cannot write the report"),
            _ => bail!("`{line}` is not understood: write `on SLOWDOWN`, `off` or `report`"),
        }
    }

    fn report(&self) -> [LaneReport; LANES] {
        report::of(self.program.core(), &self.thieves)
    }
}

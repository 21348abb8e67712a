//! The observed programs of `runtime/c/examples` on one lane, and the observer on the other.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::bench::c_build::CBuild;
use sidelane_channels::app::EmittedSignals;
use sidelane_channels::signal::Signal;
use sidelane_host::priority::with_this_thread_on;
use sidelane_host::service::Target;
use sidelane_observe::observed::Observed;
use sidelane_observe::period::Period;
use sidelane_observe::session;
use sidelane_observe::session::ObserveOptions;

const SOURCES: [(&str, &str); 6] = [
    ("abi/signal.h", include_str!("../../../../abi/signal.h")),
    ("runtime/c/sidelane_file.h", include_str!("../../../../runtime/c/sidelane_file.h")),
    ("runtime/c/sidelane_signal.h", include_str!("../../../../runtime/c/sidelane_signal.h")),
    ("runtime/c/examples/phases.c", include_str!("../../../../runtime/c/examples/phases.c")),
    ("runtime/c/examples/bursts.c", include_str!("../../../../runtime/c/examples/bursts.c")),
    ("runtime/c/examples/bare.c", include_str!("bare.c")),
];
/// Longest time from a program's start until it emits.
const READY_WITHIN: Duration = Duration::from_secs(5);

/// Built programs, and the lanes on which they and the observer run.
pub(super) struct ObserveFixture {
    _c_build: CBuild,
    phases: PathBuf,
    bursts: PathBuf,
    bare: PathBuf,
    pub(super) target_cpu: u32,
    pub(super) observer_cpu: u32,
}

impl ObserveFixture {
    pub(super) fn set(target_cpu: u32, observer_cpu: u32) -> Result<Self> {
        let c_build = CBuild::open(&SOURCES)?;
        let build = |name: &str| c_build.build(&format!("runtime/c/examples/{name}.c"), name, &[]);
        let (phases, bursts, bare) = (build("phases")?, build("bursts")?, build("bare")?);
        Ok(Self { phases, bursts, bare, _c_build: c_build, target_cpu, observer_cpu })
    }

    /// Starts a target that stores its tag once in `cycles` cycles.
    pub(super) fn phases(&self, cycles: u64) -> Result<Running> {
        Running::start(&self.phases, &[cycles.to_string()], self.target_cpu)
    }

    /// Starts a target whose speed changes every `cycles` cycles.
    pub(super) fn bursts(&self, cycles: u64) -> Result<Running> {
        Running::start(&self.bursts, &[cycles.to_string()], self.target_cpu)
    }

    /// Returns the cycles per turn of the bare loop on the target's tag.
    pub(super) fn bare(&self, target: &Running, tag: &str, length: Duration) -> Result<f64> {
        let mut command = Command::new(&self.bare);
        command.args([target.pid().to_string(), tag.to_owned(), length.as_secs_f64().to_string()]);
        command.stderr(Stdio::inherit());
        let output = with_this_thread_on(&[self.observer_cpu], || command.output())??;
        let text = String::from_utf8_lossy(&output.stdout);
        text.trim().parse().with_context(|| format!("the bare loop printed `{text}` where cycles were expected"))
    }

    /// Observes a running target.
    pub(super) fn observe(&self, target: &Running, look: &Look) -> Result<Observed> {
        let signals: Result<Vec<Signal>, _> = look.signals.iter().map(|signal| signal.parse()).collect();
        session::run(&ObserveOptions {
            target: Some(Target::Pid(target.pid())),
            command: Vec::new(),
            signals: signals?,
            progress: look.progress.map(str::parse).transpose()?,
            length: Some(look.length),
            period: look.period,
            cpu: Some(self.target_cpu),
            observer_cpu: Some(self.observer_cpu),
            tolerance: 0.01,
            log: None,
            live: false,
        })
    }
}

/// Options of one observation: signals, period and length.
pub(super) struct Look {
    pub(super) signals: &'static [&'static str],
    pub(super) progress: Option<&'static str>,
    pub(super) period: Period,
    pub(super) length: Duration,
}

/// Target process that runs until it is dropped.
pub(super) struct Running(Child);

impl Running {
    fn start(program: &PathBuf, args: &[String], cpu: u32) -> Result<Self> {
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
        let child = with_this_thread_on(&[cpu], || command.spawn())?;
        let running = Self(child.with_context(|| format!("cannot run {}", program.display()))?);
        running.wait_until_it_emits()?;
        Ok(running)
    }

    fn wait_until_it_emits(&self) -> Result<()> {
        let began = Instant::now();
        while EmittedSignals::find(self.pid()).iter().all(|emitted| emitted.names().len() < 2) {
            ensure!(began.elapsed() < READY_WITHIN, "the target emits nothing after {READY_WITHIN:?}");
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    pub(super) fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

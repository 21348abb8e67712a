//! The observed programs of `runtime/c/examples` on one lane, and the observer on the other.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::bench::c_build::CBuild;
use sidelane_channels::app::EmittedSignals;
use sidelane_channels::signal::Signal;
use sidelane_host::priority::run_with_this_thread_on;
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
/// Longest time from the start of an observed program until it emits its signals.
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
    pub(super) fn prepare(target_cpu: u32, observer_cpu: u32) -> Result<Self> {
        let c_build = CBuild::with_sources(&SOURCES)?;
        let build = |name: &str| c_build.build(&format!("runtime/c/examples/{name}.c"), name, &[]);
        let (phases, bursts, bare) = (build("phases")?, build("bursts")?, build("bare")?);
        Ok(Self { phases, bursts, bare, _c_build: c_build, target_cpu, observer_cpu })
    }

    /// Starts a target that stores its tag once in `store_period_cycles` cycles.
    pub(super) fn start_phases_target(&self, store_period_cycles: u64) -> Result<TargetProcess> {
        TargetProcess::start(&self.phases, &[store_period_cycles.to_string()], self.target_cpu)
    }

    /// Starts a target whose speed changes every `phase_cycles` cycles.
    pub(super) fn start_bursts_target(&self, phase_cycles: u64) -> Result<TargetProcess> {
        TargetProcess::start(&self.bursts, &[phase_cycles.to_string()], self.target_cpu)
    }

    /// Returns the cycles per iteration of a C loop that does nothing but read the target's tag.
    pub(super) fn measure_bare_loop_cycles(&self, target: &TargetProcess, tag: &str, length: Duration) -> Result<f64> {
        let mut command = Command::new(&self.bare);
        command.args([target.pid().to_string(), tag.to_owned(), length.as_secs_f64().to_string()]);
        command.stderr(Stdio::inherit());
        let output = run_with_this_thread_on(&[self.observer_cpu], || command.output())??;
        let text = String::from_utf8_lossy(&output.stdout);
        text.trim().parse().with_context(|| format!("the bare loop printed `{text}` where cycles were expected"))
    }

    /// Observes a running target.
    pub(super) fn observe(&self, target: &TargetProcess, options: &ObservationOptions) -> Result<Observed> {
        let signals: Result<Vec<Signal>, _> = options.signals.iter().map(|signal| signal.parse()).collect();
        session::run(&ObserveOptions {
            target: Some(Target::Pid(target.pid())),
            command: Vec::new(),
            signals: signals?,
            progress: options.progress.map(str::parse).transpose()?,
            length: Some(options.length),
            period: options.period,
            cpu: Some(self.target_cpu),
            observer_cpu: Some(self.observer_cpu),
            tolerance: 0.01,
            log: None,
            live: false,
        })
    }
}

/// Options of one observation: signals, period and length.
pub(super) struct ObservationOptions {
    pub(super) signals: &'static [&'static str],
    pub(super) progress: Option<&'static str>,
    pub(super) period: Period,
    pub(super) length: Duration,
}

/// Target process that runs until it is dropped.
pub(super) struct TargetProcess(Child);

impl TargetProcess {
    fn start(program: &PathBuf, args: &[String], cpu: u32) -> Result<Self> {
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
        let child = run_with_this_thread_on(&[cpu], || command.spawn())?;
        let running = Self(child.with_context(|| format!("cannot run {}", program.display()))?);
        running.wait_for_signals()?;
        Ok(running)
    }

    fn wait_for_signals(&self) -> Result<()> {
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

impl Drop for TargetProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

//! The agent of the guard bench: its process, its configuration file and its cost.

use std::fs;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;

use super::plan::GuardVariant;
use crate::experiment::fixture::cpu_ns;
use crate::experiment::place::ExperimentCpus;
use crate::programs::find_sidelane;
use crate::programs::signal_on_parent_exit;
use sidelane_agent::status::{SOCKET, Snapshot};

/// Interference metric: page faults per nanosecond of the service, which stand in for memory stalls. A thread makes the
/// page faults while it emulates its loss to the sibling lane.
const FORMULA: &str = "page-faults / task-clock";
/// Threshold of interference in page faults per ns of CPU time: two faults in a window of 50 µs. Even without batch, a
/// few windows of Redis and memcached have one fault.
const THRESHOLD: &str = "interference_threshold = 0.00004\n";
/// Longest wait for the agent's first observation, which finds services by their ports.
const START_TIMEOUT: Duration = Duration::from_secs(10);
const END_TIMEOUT: Duration = Duration::from_secs(10);
const ASK_EVERY: Duration = Duration::from_millis(10);

/// Running agent process. It gets SIGTERM when this is dropped.
pub(super) struct Agent {
    child: Child,
    log: PathBuf,
}

impl Agent {
    /// Starts the agent, and waits until it has found `services` services, and also a container if `services` is not 0.
    pub(super) fn start(config: &str, folder: &Path, services: usize) -> Result<Self> {
        let (file, log) = (folder.join("sidelane.toml"), folder.join("agent.log"));
        fs::write(&file, config).context("cannot write the agent's file")?;
        let said = fs::File::create(&log).context("cannot make a file for what the agent says")?;
        let mut command = Command::new(find_sidelane()?);
        command.args(["agent", "--config"]).arg(&file).stdin(Stdio::null());
        command.stdout(said.try_clone()?).stderr(said);
        // Sends SIGTERM to the agent when this process ends, so that the agent undoes its changes.
        let child = signal_on_parent_exit(command, Signal::TERM).spawn().context("cannot start the agent")?;
        let mut agent = Self { child, log };
        let knows = |seen: &Snapshot| services == 0 || (seen.services.len() >= services && !seen.containers.is_empty());
        agent.wait_for_snapshot(knows)?;
        Ok(agent)
    }

    fn wait_for_snapshot(&mut self, is_reached: impl Fn(&Snapshot) -> bool) -> Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        while !query_agent_snapshot().is_some_and(|seen| is_reached(&seen)) {
            ensure!(self.child.try_wait()?.is_none(), "the agent has ended: {}", self.log_text());
            ensure!(Instant::now() < deadline, "the agent does not know its services after 10 s: {}", self.log_text());
            thread::sleep(ASK_EVERY);
        }
        Ok(())
    }

    /// Returns the CPU time that the agent has used so far, in nanoseconds.
    pub(super) fn cpu_ns(&self) -> Result<u64> {
        cpu_ns(self.child.id()).with_context(|| format!("the agent has ended: {}", self.log_text()))
    }

    /// Returns the peak memory of the agent, in MiB.
    pub(super) fn memory_mib(&self) -> Option<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        let kib: f64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
        Some(kib / 1024.0)
    }

    /// Returns the agent's description of its interference metric.
    pub(super) fn metric(&self) -> Option<String> {
        query_agent_snapshot().map(|seen| seen.agent.metric)
    }

    /// Sends SIGTERM to the agent, and waits until it has undone all changes.
    pub(super) fn end(mut self) -> Result<()> {
        self.send_sigterm();
        let deadline = Instant::now() + END_TIMEOUT;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                ensure!(status.success(), "the agent failed ({status}): {}", self.log_text());
                return Ok(());
            }
            thread::sleep(ASK_EVERY);
        }
        bail!("the agent does not end after 10 s: {}", self.log_text())
    }

    fn send_sigterm(&self) {
        // SAFETY: kill touches no memory; the child is not reaped yet.
        unsafe { libc::kill(self.child.id() as libc::pid_t, libc::SIGTERM) };
    }

    fn log_text(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default().trim().to_owned()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            self.send_sigterm();
            let _ = self.child.wait();
        }
    }
}

/// Asks the running agent for its status; `None` if it does not answer.
fn query_agent_snapshot() -> Option<Snapshot> {
    let mut text = String::new();
    UnixStream::connect(SOCKET).ok()?.read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

/// Source of the interference that the agent observes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum InterferenceSource {
    /// The services' own request times
    Latency,
    /// Counted page faults, made by the thread that makes up for an emulated sibling's load
    StandIn,
}

/// Returns the reason why an agent cannot count page faults, the stand-in for stalls, on this machine; `None` if it
/// can.
pub(super) fn counting_failure_reason(settings: &AgentSettings<'_>, folder: &Path) -> Result<Option<String>> {
    match Agent::start(&settings.to_toml(), folder, 0) {
        Ok(agent) => agent.end().map(|()| None),
        Err(why) => Ok(Some(format!("{why:#}"))),
    }
}

/// Way in which the agent learns of interference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotificationMode {
    /// The kernel program notifies the agent, with the default tick interval.
    Wakeup,
    /// The kernel program notifies the agent, with ticks every 50 µs: as often as the daemon of Holmes' paper polls.
    ShortTicks,
    /// The agent polls as often as the daemon of Holmes' paper (§6.5).
    Polling,
}

impl NotificationMode {
    pub(super) const ALL: [Self; 3] = [Self::Wakeup, Self::ShortTicks, Self::Polling];

    /// Returns the name of this notification mode in results.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Wakeup => "holmes",
            Self::ShortTicks => "holmes_tick_50us",
            Self::Polling => "holmes_poll_50us",
        }
    }

    fn intervals_toml(self) -> &'static str {
        match self {
            Self::Wakeup => "",
            Self::ShortTicks => "\n[intervals]\ntick = \"50us\"\n",
            Self::Polling => "\n[intervals]\npoll = \"50us\"\n",
        }
    }
}

/// Settings of an agent for this experiment.
pub(super) struct AgentSettings<'a> {
    pub(super) variant: GuardVariant,
    pub(super) place: ExperimentCpus,
    /// Ports by which the agent finds the services.
    pub(super) ports: &'a [u32],
    /// Path of the cgroup of all containers.
    pub(super) batch: &'a str,
    /// Time without interference after which batch comes back (S in Holmes' paper).
    pub(super) calm: Duration,
    pub(super) source: InterferenceSource,
    pub(super) notification: NotificationMode,
}

impl AgentSettings<'_> {
    /// Returns the text of the agent's configuration file.
    pub(super) fn to_toml(&self) -> String {
        let (request, batch) = (self.place.request, self.place.batch);
        let service =
            |port: &u32| format!("[[service]]\nname = \"port-{port}\"\nport = {port}\ncpus = \"{request}\"\n\n");
        let services: String = self.ports.iter().map(service).collect();
        let kind = match self.variant {
            GuardVariant::PerfIso => "kind = \"perfiso\"\nidle = 1\n".to_owned(),
            _ => format!("kind = \"holmes\"\ncalm_time = \"{}us\"\nreserved = \"{request}\"\n", self.calm.as_micros()),
        };
        let (e, metric) = match (self.variant, self.source) {
            (GuardVariant::PerfIso, _) => ("", String::new()),
            (_, InterferenceSource::StandIn) => {
                (THRESHOLD, format!("\n[metric]\nsource = \"counters\"\nformula = \"{FORMULA}\"\n"))
            }
            (_, InterferenceSource::Latency) => ("", "\n[metric]\nsource = \"latency\"\n".to_owned()),
        };
        let siblings = format!("siblings = [\"{request},{batch}\"]\n");
        let gate = if self.variant == GuardVariant::HolmesGate {
            "\n[lanes]\ngate = \"holder\"\npolicy = \"borrow-idle\"\n"
        } else {
            ""
        };
        let (batch, intervals) = (self.batch, self.notification.intervals_toml());
        format!("{services}[[batch]]\ncgroup = \"{batch}\"\n\n[policy]\n{kind}{e}{siblings}{metric}{gate}{intervals}")
    }
}

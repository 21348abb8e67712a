//! Other tools that record the same events as a trace.

use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

/// Other tool than Sidelane that records the events of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PeerTool {
    /// `perf record` of the same tracepoints as a trace.
    PerfRecord,
    /// `perf sched record`: switches and wakeups alone.
    PerfSched,
    /// A script of bpftrace that prints a line for each event.
    Bpftrace,
}

/// Frequent events of a trace that the kernel also exposes to other tools.
const EVENTS: [&str; 12] = [
    "sched:sched_switch",
    "sched:sched_waking",
    "sched:sched_migrate_task",
    "irq:softirq_entry",
    "irq:softirq_exit",
    "net:netif_receive_skb",
    "net:net_dev_start_xmit",
    "sock:sk_data_ready",
    "sock:sock_send_length",
    "sock:sock_recv_length",
    "tcp:tcp_probe",
    "exceptions:page_fault_user",
];

impl PeerTool {
    pub(super) const ALL: [PeerTool; 3] = [PeerTool::PerfRecord, PeerTool::PerfSched, PeerTool::Bpftrace];

    /// Returns the name of the tool in a row.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::PerfRecord => "perf_record",
            Self::PerfSched => "perf_sched_record",
            Self::Bpftrace => "bpftrace",
        }
    }

    /// Returns the program of the tool.
    pub(super) fn program(self) -> &'static str {
        match self {
            Self::PerfRecord | Self::PerfSched => "perf",
            Self::Bpftrace => "bpftrace",
        }
    }

    fn arguments(self, output: &str) -> Vec<String> {
        match self {
            Self::PerfRecord => {
                let events = EVENTS.iter().flat_map(|event| ["-e", event]);
                ["record", "-q", "-a", "-o", output].into_iter().chain(events).map(str::to_owned).collect()
            }
            Self::PerfSched => ["sched", "record", "-q", "-a", "-o", output].map(str::to_owned).to_vec(),
            Self::Bpftrace => vec!["-o".into(), output.into(), "-e".into(), bpftrace_script()],
        }
    }
}

fn bpftrace_script() -> String {
    let probes: Vec<String> = EVENTS.iter().map(|event| format!("tracepoint:{event}")).collect();
    format!("{} {{ printf(\"%llu %s %d\\n\", nsecs, probe, tid); }}", probes.join(", "))
}

/// Running tool. It is interrupted when this is dropped.
pub(super) struct RunningPeer {
    child: Child,
    _output: tempfile::TempDir,
}

impl RunningPeer {
    pub(super) fn start(peer: PeerTool) -> Result<Self> {
        let directory = tempfile::tempdir().context("cannot make a directory for what a peer records")?;
        let output = directory.path().join("recorded");
        let mut command = Command::new(peer.program());
        command.args(peer.arguments(&output.to_string_lossy()));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().with_context(|| format!("cannot start {}", peer.program()))?;
        Ok(Self { child, _output: directory })
    }

    /// Returns whether the tool still runs: a tool that cannot work here ends at once.
    pub(super) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for RunningPeer {
    fn drop(&mut self) {
        let pid = Pid::from_child(&self.child);
        // Sends SIGINT, as a user does, so that the tool undoes its changes.
        let _ = kill_process(pid, Signal::INT);
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_peer_records_the_events_that_a_trace_has() {
        for peer in [PeerTool::PerfRecord, PeerTool::Bpftrace] {
            let words = peer.arguments("out").join(" ");
            assert!(EVENTS.iter().all(|event| words.contains(event)), "{words}");
        }
    }
}

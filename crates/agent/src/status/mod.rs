//! The status of the agent: which services and containers run on which CPUs, and why. The running agent reports it, and
//! `sidelane status` prints it.

mod show;

use std::fs;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use sidelane_host::cgroup::Hierarchy;
use sidelane_report::terminal::{print, print_fitted};

pub use sidelane_lanes::status::{
    DecisionStatus, IdleTimeStatus, LaneStatus, ObservedDay, ObservedStatus, OfferStatus, OverlapStatus, RequestStatus,
    ServiceStatus, SlowdownStatus, SlowerStatus,
};

/// Path of the agent's socket.
pub const SOCKET: &str = "/run/sidelane-agent.sock";

/// Status of an agent at one moment. Figures are of the last fraction of a second; unknown values are missing.
///
/// A `sidelane run` reports the same form, with the parts that it has. Its batch is the only container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Snapshot {
    /// Status of the agent itself.
    pub agent: AgentStatus,
    /// Status of each CPU that is online.
    pub cpus: Vec<CpuStatus>,
    /// Status of each lane: the CPUs of services that lend lanes, and the lanes beside them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lanes: Vec<LaneStatus>,
    /// Status of each service.
    pub services: Vec<ServiceStatus>,
    /// Status of each container.
    pub containers: Vec<ContainerStatus>,
    /// Status of each proxy.
    #[serde(default)]
    pub proxies: Vec<ProxyStatus>,
    /// Status of each flight recorder.
    #[serde(default, rename = "flight_recorders")]
    pub flights: Vec<FlightStatus>,
    /// Status of each mapper of threads to big and little cores.
    #[serde(default, rename = "mappers")]
    pub hurries: Vec<HurryStatus>,
    /// Number of times of each action, by its reason.
    pub decisions: Vec<DecisionCount>,
    /// Last actions with their reasons, the newest last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub last_decisions: Vec<DecisionStatus>,
    /// Notes on what failed or is degraded.
    pub notes: Vec<NoteStatus>,
    /// Rules of the file that match nothing on this machine, with what to do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unmatched_rules: Vec<String>,
    /// Number of notes left out because the status was too long.
    #[serde(default, skip_serializing_if = "is_none_left_out")]
    pub notes_left_out: usize,
    /// Number of containers left out because the status was too long.
    #[serde(default, skip_serializing_if = "is_none_left_out")]
    pub containers_left_out: usize,
    /// Number of services left out because the status was too long.
    #[serde(default, skip_serializing_if = "is_none_left_out")]
    pub services_left_out: usize,
}

fn is_none_left_out(count: &usize) -> bool {
    *count == 0
}

impl Snapshot {
    /// Returns the snapshot as JSON of at most `max_bytes` bytes. If it is longer, half of its longest list is left
    /// out, and counted, until it fits. Among lists of one length, notes are shortened first, and services last.
    pub fn to_json_within(mut self, max_bytes: usize) -> Vec<u8> {
        loop {
            let text = serde_json::to_vec(&self).unwrap_or_default();
            if text.len() <= max_bytes || !self.leave_out_half() {
                return text;
            }
        }
    }

    /// Leaves out half of the snapshot's longest list. Returns whether there was anything to leave out.
    fn leave_out_half(&mut self) -> bool {
        let lengths = [self.notes.len(), self.containers.len(), self.services.len()];
        let longest = lengths.into_iter().max().unwrap_or(0);
        let kept = longest / 2;
        if lengths[0] == longest {
            self.notes.truncate(kept);
            self.notes_left_out += longest - kept;
        } else if lengths[1] == longest {
            self.containers.truncate(kept);
            self.containers_left_out += longest - kept;
        } else {
            self.services.truncate(kept);
            self.services_left_out += longest - kept;
        }
        longest > 0
    }
}

/// Status of the agent itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentStatus {
    /// Process id of the agent.
    pub pid: u32,
    /// Version of Sidelane.
    pub version: String,
    /// Path of the agent's file.
    pub config: String,
    /// Time since the agent's start, in seconds.
    pub uptime_s: f64,
    /// Policy: `holmes`, `perfiso` or `unmanaged`.
    pub policy: String,
    /// Source of interference values, as text.
    pub metric: String,
    /// Interference at which batch leaves; `None` if the policy does not use interference.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub threshold: Option<f64>,
    /// Reason of the policy's last action.
    pub why: String,
    /// Number of settings that other processes changed and the agent restored.
    #[serde(rename = "repairs_count")]
    pub repaired: u64,
    /// Number of onsets of interference at which batch was taken away at once.
    #[serde(default)]
    pub reactions_count: u64,
    /// Median of the times from an onset of interference until batch had been taken away.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reaction_p50_ns: Option<u64>,
    /// 99th percentile of the times from an onset of interference until batch had been taken away.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reaction_p99_ns: Option<u64>,
    /// Share of one CPU that the agent used recently, in percent.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cpu_percent: Option<f64>,
    /// CPU time of the agent since its start, in seconds.
    pub cpu_s: f64,
    /// Resident memory of the agent.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub resident_bytes: Option<u64>,
    /// Number of lines of the audit log that could not be written and are lost; `None` without an audit log.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub audit_lost_lines: Option<u64>,
    /// Reason why the audit log cannot be written now; `None` if it can.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub audit_error: Option<String>,
    /// Batch of a `sidelane run`, as text; `None` for an agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
}

/// Status of one CPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuStatus {
    /// Number of the CPU.
    pub cpu: u32,
    /// Owner of the CPU, which decides whether batch gets it.
    pub owner: String,
    /// Number of containers that may run on the CPU.
    pub containers_count: usize,
    /// Whether batch never runs on the CPU.
    pub reserved: bool,
    /// Share of the time in which the CPU ran any task, in percent.
    pub busy_percent: f64,
    /// Share of the time in which the CPU ran a service, in percent.
    pub service_percent: f64,
    /// Share of the time in which the CPU ran batch, in percent.
    pub batch_percent: f64,
    /// Interference with the service that runs on the CPU; `None` if unknown.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub interference: Option<f64>,
}

/// Status of one container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContainerStatus {
    /// Name of the container.
    pub name: String,
    /// State of the container: `running`, `paused`, or `as found` if nothing was decided for it.
    pub state: String,
    /// CPUs that the container may run on.
    pub cpus: String,
    /// CPUs that the container may be given.
    pub allowed: String,
    /// Number of CPUs that the container wants.
    #[serde(rename = "wanted_cpus")]
    pub wanted: u32,
    /// Source of the number of CPUs that the container wants.
    pub wanted_from: String,
    /// Priority of the container. Containers with a higher priority are given CPUs first.
    pub priority: i32,
    /// Path of the container's cgroup.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cgroup: String,
    /// CPU time that the container has used, in ns; `None` if it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_ns: Option<u64>,
}

/// Status of one proxy, with counts since its start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProxyStatus {
    /// Address at which clients connect.
    pub listen: String,
    /// Server that gets new requests.
    pub active: String,
    /// Servers of the proxy; the first is the one that was active at the start.
    pub servers: Vec<String>,
    /// Reason why the active server is active; `None` while the proxy begins.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub why: Option<String>,
    /// Whether the proxy accepts no more clients, and answers pending requests.
    #[serde(default)]
    pub draining: bool,
    /// Servers that are out of service because they fail their requests, with time and reason.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub out_of_service: Vec<String>,
    /// Number of connected clients.
    pub clients: usize,
    /// Number of requests without an answer.
    pub in_flight: usize,
    /// Number of requests that the proxy has received.
    pub requests: u64,
    /// Number of requests whose answer was forwarded completely.
    pub answered: u64,
    /// Number of requests that were sent to a second server, too.
    pub hedges: u64,
    /// Number of these requests that the second server answered first.
    pub hedge_wins: u64,
    /// Number of times that a backup took the place of the active server.
    pub swaps: u64,
}

/// Status of the flight recorder of a service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlightStatus {
    /// Name of the service.
    pub service: String,
    /// State of the recorder: `begins` while it waits for the service to listen or for the kernel; `records`; or
    /// `ended`.
    pub state: String,
    /// Reason why the recorder has ended.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub why: Option<String>,
    /// Objective of the service, as text.
    pub slo: String,
    /// Number of recordings that were written.
    pub recordings: u32,
    /// Path of the page of the last recording.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub last: Option<String>,
}

/// Status of the mapper of a service's threads to big and little cores, with counts since it began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HurryStatus {
    /// Name of the service.
    pub service: String,
    /// State of the mapper: `begins` while it waits for the service to listen or for the kernel; `maps`; or `ended`.
    pub state: String,
    /// Reason why the mapper has ended.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub why: Option<String>,
    /// Big and little cores, as text.
    pub sizes: String,
    /// Number of threads that work on requests, each bound to one CPU. `None` until the mapper begins to map.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub threads: Option<usize>,
    /// Number of requests that were answered.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub requests: Option<u64>,
    /// Number of requests that moved to big cores.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub moved: Option<u64>,
    /// Number of moves that the system refused.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub refused: Option<u64>,
    /// Present time on a little core after which a request is long, in ns.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub threshold_ns: Option<u64>,
    /// Source of the threshold: `learnt`, or `given`.
    pub threshold_from: String,
    /// Share of one CPU that the mapper used since it began, in percent.
    #[serde(rename = "own_cpu_percent", skip_serializing_if = "Option::is_none", default)]
    pub own_percent: Option<f64>,
}

/// Number of times that an action was taken for a reason.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DecisionCount {
    /// Name of the action.
    pub action: String,
    /// Reason of the action.
    pub why: String,
    /// Number of times that the action was taken.
    pub count: u64,
}

/// Note on something that failed or is degraded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NoteStatus {
    /// Text of the note.
    pub note: String,
    /// Number of times that the note was made.
    pub times: u64,
}

/// Longest wait for an answer. An agent answers between two checks, which come every few milliseconds.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Options of `sidelane status`.
#[derive(Clone, Copy, Debug)]
pub struct StatusOptions {
    /// Whether to print JSON, for programs.
    pub json: bool,
}

/// Prints the status of the running agent.
pub fn run(options: StatusOptions) -> Result<u8> {
    let snapshot = request_snapshot()?;
    match options.json {
        true => print(&format!("{}\n", serde_json::to_string_pretty(&snapshot)?))?,
        false => print_fitted(&snapshot.to_string())?,
    }
    Ok(0)
}

fn request_snapshot() -> Result<Snapshot> {
    match read_snapshot(Path::new(SOCKET)) {
        Ok(snapshot) => Ok(snapshot),
        Err(error) if is_absent(&error) => {
            bail!("no agent runs on this machine; start one with `sidelane agent --config FILE`")
        }
        Err(error) => Err(error)
            .with_context(|| format!("cannot read the agent's status at {SOCKET}; run `sidelane status` as root")),
    }
}

/// Returns whether the error says that no process listens at a socket.
pub fn is_absent(error: &io::Error) -> bool {
    [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused].contains(&error.kind())
}

/// Reads the status of an agent or a `run` from its socket.
///
/// # Errors
/// If the socket cannot be used, if no answer comes in time, or if the answer has another form.
pub fn read_snapshot(socket: &Path) -> io::Result<Snapshot> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let mut snapshot: Snapshot = serde_json::from_str(&text)?;
    let hierarchies = Hierarchy::all();
    for container in snapshot.containers.iter_mut().filter(|container| container.cpu_ns.is_none()) {
        container.cpu_ns = used_cpu_ns(&hierarchies, &container.cgroup);
    }
    Ok(snapshot)
}

/// Returns the CPU time that a cgroup has used; `None` if no hierarchy counts it.
fn used_cpu_ns(hierarchies: &[Hierarchy], cgroup: &str) -> Option<u64> {
    let read = |hierarchy: &Hierarchy, file: &str| fs::read_to_string(hierarchy.dir(cgroup).join(file)).ok();
    let unified = hierarchies.iter().filter(|hierarchy| hierarchy.is_v2()).find_map(|hierarchy| {
        let text = read(hierarchy, "cpu.stat")?;
        let us: u64 = text.lines().find_map(|line| line.strip_prefix("usage_usec "))?.parse().ok()?;
        us.checked_mul(1_000)
    });
    let counted = hierarchies.iter().filter(|hierarchy| hierarchy.has_controller("cpuacct"));
    unified.or_else(|| counted.into_iter().find_map(|hierarchy| read(hierarchy, "cpuacct.usage")?.trim().parse().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_never_longer_than_its_limit() {
        let note = |number| NoteStatus { note: format!("note {number} {}", "x".repeat(200)), times: 1 };
        let container = |number| ContainerStatus { name: format!("/batch/{number}"), ..Default::default() };
        let notes: Vec<NoteStatus> = (0..10_000).map(note).collect();
        let all = Snapshot { notes, containers: (0..256).map(container).collect(), ..Default::default() };
        for limit in [10_000, 100_000, 1_000_000] {
            let text = all.clone().to_json_within(limit);
            let told: Snapshot = serde_json::from_slice(&text).expect("it is whole");
            assert!(text.len() <= limit, "{} of {limit} bytes", text.len());
            assert_eq!(told.notes.len() + told.notes_left_out, 10_000);
            assert_eq!(told.containers.len() + told.containers_left_out, 256);
            assert!(told.to_string().contains("left out"), "{told}");
        }
        let small = Snapshot { notes: vec![note(1)], ..Default::default() };
        assert_eq!(serde_json::from_slice::<Snapshot>(&small.clone().to_json_within(100_000)).unwrap(), small);
    }
}

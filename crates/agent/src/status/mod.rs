//! What runs where and why: as the running agent tells it, and as `sidelane status` shows it.

mod show;

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use sidelane_report::terminal::{print, print_fitted};

/// Where the agent is found.
pub const SOCKET: &str = "/run/sidelane-agent.sock";

/// All that an agent tells about itself at one moment. Figures are of the last fraction of a second; what is not known
/// is missing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The agent.
    pub agent: AgentStatus,
    /// CPUs that are online.
    pub cpus: Vec<CpuStatus>,
    /// Services.
    pub services: Vec<ServiceStatus>,
    /// Containers.
    pub containers: Vec<ContainerStatus>,
    /// Proxies.
    #[serde(default)]
    pub proxies: Vec<ProxyStatus>,
    /// Flight recorders.
    #[serde(default)]
    pub flights: Vec<FlightStatus>,
    /// Mappers of threads to big and little cores.
    #[serde(default)]
    pub hurries: Vec<HurryStatus>,
    /// How often each action was taken, and why.
    pub decisions: Vec<DecisionCount>,
    /// What went wrong or is degraded.
    pub notes: Vec<NoteStatus>,
    /// Notes that are left out because all of them were too much to send.
    #[serde(default, skip_serializing_if = "is_none_left_out")]
    pub notes_left_out: usize,
    /// The same of containers.
    #[serde(default, skip_serializing_if = "is_none_left_out")]
    pub containers_left_out: usize,
    /// The same of services.
    #[serde(default, skip_serializing_if = "is_none_left_out")]
    pub services_left_out: usize,
}

fn is_none_left_out(count: &usize) -> bool {
    *count == 0
}

impl Snapshot {
    /// Returns the snapshot as JSON of at most `limit` bytes: as many notes, containers and services as needed are left
    /// out, and counted. What matters least goes first.
    pub fn within(mut self, limit: usize) -> Vec<u8> {
        loop {
            let text = serde_json::to_vec(&self).unwrap_or_default();
            if text.len() <= limit || !self.leave_out_half() {
                return text;
            }
        }
    }

    /// Leaves out half of the longest of its lists. Whether there was anything to leave out.
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

/// The agent itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentStatus {
    /// Its process id.
    pub pid: u32,
    /// Its version.
    pub version: String,
    /// Its file.
    pub config: String,
    /// For how long it has run.
    pub uptime_s: f64,
    /// Who decides: `holmes`, `perfiso` or `unmanaged`.
    pub policy: String,
    /// From what interference is told.
    pub metric: String,
    /// Interference from which on batch leaves.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub threshold: Option<f64>,
    /// Why the last action was taken.
    pub why: String,
    /// Changes of somebody else that were put right.
    pub repaired: u64,
    /// Onsets of interference at which batch was taken away at once.
    #[serde(default)]
    pub reactions_count: u64,
    /// From such an onset until batch had been taken away.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reaction_p50_ns: Option<u64>,
    /// From such an onset until batch had been taken away.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reaction_p99_ns: Option<u64>,
    /// Its part of one CPU, lately.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cpu_percent: Option<f64>,
    /// Its CPU time since it began.
    pub cpu_s: f64,
    /// Its memory.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub resident_bytes: Option<u64>,
    /// Lines of the audit log that could not be written and are lost; missing without an audit log.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub audit_lost_lines: Option<u64>,
    /// Why the audit log cannot be written now.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub audit_error: Option<String>,
}

/// One CPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuStatus {
    /// Its number.
    pub cpu: u32,
    /// Who may give it to batch.
    pub owner: String,
    /// Containers that may run there.
    pub containers_count: usize,
    /// Batch never runs there.
    pub reserved: bool,
    /// The share of the time in which it ran anything, in percent.
    pub busy_percent: f64,
    /// The share in which it ran a service.
    pub service_percent: f64,
    /// The share in which it ran batch.
    pub batch_percent: f64,
    /// How much whoever runs there is disturbed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub interference: Option<f64>,
}

/// One service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServiceStatus {
    /// Its name.
    pub name: String,
    /// The CPUs that it ran on lately.
    pub ran_on: String,
    /// The CPUs that it was found with.
    pub allowed: String,
    /// The CPUs that it was placed on, where its file allows that.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub placed: Option<String>,
    /// CPUs' worth of time that it used, in percent of one CPU.
    pub used_percent: f64,
    /// The most interference on any CPU that it ran on.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub interference: Option<f64>,
    /// Its requests; missing where they cannot be seen.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub requests: Option<RequestStatus>,
    /// Why its requests cannot be seen.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub requests_missing: Option<String>,
    /// What batch beside it costs its requests; missing where that is not measured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub slowdown: Option<SlowdownStatus>,
    /// Overlap of batch beside it in the last minute; missing where no lane is kept beside it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub overlap: Option<OverlapStatus>,
}

/// Time in which batch ran beside a service without leave.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OverlapStatus {
    /// Part of the service's time. Missing if the service did not run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub percent: Option<f64>,
    /// What is promised.
    pub bound_percent: f64,
    /// Says that the promise is broken, why, and what to do; missing while it is kept.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub broken: Option<String>,
}

/// By how much requests are slower where batch may have the lanes beside the service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SlowdownStatus {
    /// Of the median. Missing as long as too few requests were seen.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p50: Option<SlowerStatus>,
    /// Of the 99th percentile. Missing as long as too few requests were seen.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p99: Option<SlowerStatus>,
    /// What is allowed.
    pub allowed_percent: f64,
    /// How long the service is idle before batch has the lanes. Missing where batch is kept off.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub min_idle_ns: Option<u64>,
}

/// By how much a percentile is longer, and the interval in which that lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SlowerStatus {
    /// What was measured.
    pub percent: f64,
    /// From here...
    pub low_percent: f64,
    /// ...to here.
    pub high_percent: f64,
}

/// A service's requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RequestStatus {
    /// Since the agent began to look.
    pub count: u64,
    /// From arrival to finish.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub latency_p50_ns: Option<u64>,
    /// From arrival to finish.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub latency_p99_ns: Option<u64>,
    /// What is owed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub slo: Option<String>,
    /// The share of requests that were in time, in percent.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub in_time_percent: Option<f64>,
    /// Requests whose records were lost.
    pub lost: u64,
}

/// One container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ContainerStatus {
    /// Its name.
    pub name: String,
    /// `running`, `paused`, or `as found`: nothing was decided for it.
    pub state: String,
    /// The CPUs that it may run on.
    pub cpus: String,
    /// The CPUs that it may be given.
    pub allowed: String,
    /// How many it asks for, and who says so.
    pub wanted: u32,
    /// Who says so.
    pub wanted_from: String,
    /// Who has more is given CPUs before others.
    pub priority: i32,
}

/// One proxy. What it counts is since it was started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProxyStatus {
    /// Where clients come.
    pub listen: String,
    /// The server that new requests go to.
    pub active: String,
    /// Its servers, the one that was active at first before the other.
    pub servers: Vec<String>,
    /// Why that one is active; missing while the proxy begins.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub why: Option<String>,
    /// It takes no more clients, and answers what it has.
    #[serde(default)]
    pub draining: bool,
    /// Servers that are out of service because they fail their requests, for how long and why.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub out_of_service: Vec<String>,
    /// Clients that are connected.
    pub clients: usize,
    /// Requests that are not answered.
    pub in_flight: usize,
    /// Requests that came.
    pub requests: u64,
    /// Those whose answer was forwarded to the end.
    pub answered: u64,
    /// Requests that were sent to both servers.
    pub hedges: u64,
    /// Those of them that the second server answered first.
    pub hedge_wins: u64,
    /// Times that the servers changed places.
    pub swaps: u64,
}

/// The flight recorder of a service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlightStatus {
    /// The service.
    pub service: String,
    /// `begins`: it waits for the service to listen, or for the kernel; `records`; or `ended`.
    pub state: String,
    /// Why it has ended.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub why: Option<String>,
    /// What is owed.
    pub slo: String,
    /// Recordings that were written.
    pub recordings: u32,
    /// The page of the last one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub last: Option<String>,
}

/// The mapper of a service's threads to big and little cores. What it counts is since it began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HurryStatus {
    /// The service.
    pub service: String,
    /// `begins`: it waits for the service to listen, or for the kernel; `maps`; or `ended`.
    pub state: String,
    /// Why it has ended.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub why: Option<String>,
    /// Which cores are big and which little.
    pub sizes: String,
    /// Threads that work on requests, each bound to one CPU; missing, like what follows, until it maps.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub threads: Option<usize>,
    /// Requests that were answered.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub requests: Option<u64>,
    /// Requests that moved to big cores.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub moved: Option<u64>,
    /// Moves that the system refused.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub refused: Option<u64>,
    /// The time on a little core after which a request is long, now.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub threshold_ns: Option<u64>,
    /// `learnt`, or `given`.
    pub threshold_from: String,
    /// Its part of one CPU, since it began.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub own_percent: Option<f64>,
}

/// How often something was done.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DecisionCount {
    /// What.
    pub action: String,
    /// Why.
    pub why: String,
    /// How often.
    pub count: u64,
}

/// Something that went wrong or is degraded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NoteStatus {
    /// In words.
    pub note: String,
    /// How often.
    pub times: u64,
}

/// An agent answers between two looks, which come every few milliseconds.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// What `sidelane status` was asked.
#[derive(Clone, Copy, Debug)]
pub struct StatusOptions {
    /// As JSON, for programs.
    pub json: bool,
}

/// Prints what the running agent says.
pub fn run(options: StatusOptions) -> Result<u8> {
    let snapshot = ask()?;
    match options.json {
        true => print(&format!("{}\n", serde_json::to_string_pretty(&snapshot)?))?,
        false => print_fitted(&snapshot.to_string())?,
    }
    Ok(0)
}

fn ask() -> Result<Snapshot> {
    let mut stream = match UnixStream::connect(SOCKET) {
        Ok(stream) => stream,
        Err(error) if [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused].contains(&error.kind()) => {
            bail!("no agent runs on this machine: start one with `sidelane agent --config FILE`")
        }
        Err(error) => return Err(error).with_context(|| format!("cannot ask the agent at {SOCKET}, which takes root")),
    };
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    let mut text = String::new();
    stream.read_to_string(&mut text).context("the agent does not answer")?;
    serde_json::from_str(&text).context("the agent's answer is not of this version: restart the agent")
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
            let text = all.clone().within(limit);
            let told: Snapshot = serde_json::from_slice(&text).expect("it is whole");
            assert!(text.len() <= limit, "{} of {limit} bytes", text.len());
            assert_eq!(told.notes.len() + told.notes_left_out, 10_000);
            assert_eq!(told.containers.len() + told.containers_left_out, 256);
            assert!(told.to_string().contains("left out"), "{told}");
        }
        let small = Snapshot { notes: vec![note(1)], ..Default::default() };
        assert_eq!(serde_json::from_slice::<Snapshot>(&small.clone().within(100_000)).unwrap(), small);
    }
}

//! Services whose requests are known, to compare with the observed requests.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::programs::{LabBinary, LabProcess, kill_with_parent};
use sidelane_host::service::{Service as Tracked, Target};
use sidelane_host::topology::{Lanes, Topology};
use sidelane_requests::truth::{Agreement, compare_with_journal, read_journal};
use sidelane_requests::{Request, Requests, Window};
use sidelane_tracker::tracker::Purpose;
use sidelane_tracker::tracking::{LaneUse, ServiceTracking};

/// Real-time priority of the echo server, above all other threads on its CPU, so that it reads its clock on time.
const SERVER_PRIORITY: &str = "10";
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// Thread designs of the echo server.
pub const DESIGNS: [&str; 3] = ["event-loop", "thread-per-connection", "pool"];

/// CPUs of service and client.
#[derive(Clone, Copy, Debug)]
pub struct ServiceCpus {
    /// CPU of the service.
    pub server_cpu: u32,
    /// CPU of the client.
    pub client_cpu: u32,
}

impl ServiceCpus {
    /// Returns the service's lane alone, beside which no batch runs.
    pub fn without_batch_lanes(self) -> Lanes {
        Lanes::without_batch_lanes([self.server_cpu].into_iter().collect())
    }

    /// Returns the service's lane with the client's as its batch lane.
    pub fn lane_pair(self) -> Result<Lanes> {
        let pair = format!("{}:{}", self.server_cpu, self.client_cpu);
        Ok(Topology::read(Path::new("/sys"))?.declared_pairs(&pair)?)
    }
}

/// Observes a service's requests while `load` runs. The records stay in the kernel until `load` ends, so there may be
/// at most 40 000 requests.
pub fn observe_requests_during(
    pid: u32,
    place: ServiceCpus,
    load: impl FnOnce() -> Result<()>,
) -> Result<(Vec<Request>, Window)> {
    let tracking = start_service_tracking(pid, &place.without_batch_lanes(), true)?;
    let mut requests = Requests::track(&tracking, &format!("pid:{pid}"), &Target::Pid(pid).find()?.pids)?;
    tracking.tracker().attach()?;
    load()?;
    tracking.tracker().detach();
    let mut seen = Vec::new();
    requests.finish(|request| seen.push(*request))?;
    Ok((seen, requests.take_window()))
}

/// Returns a tracker for the service `pid`.
pub fn start_service_tracking(pid: u32, lanes: &Lanes, with_requests: bool) -> Result<ServiceTracking> {
    let service: Tracked = Target::Pid(pid).find()?;
    Ok(ServiceTracking::with_own_tracker(
        &service,
        lanes,
        LaneUse::default(),
        Purpose::Watch { requests: with_requests },
    )?)
}

/// Runs an echo server under its client's load, and compares the observed requests with the server's record.
pub fn compare_echo_server(
    lab: &LabBinary,
    design: &str,
    ip: &str,
    place: ServiceCpus,
    rate_per_s: f64,
    seconds: f64,
) -> Result<(Agreement, Window)> {
    let scratch = tempfile::tempdir().context("cannot make a directory for scratch files")?;
    let journal = scratch.path().join("journal");
    let mut server = start_echo_server(lab, design, ip, place, &journal)?;
    let target = SocketAddr::new(ip.parse()?, server.ready_number("port")? as u16);
    let client_log = scratch.path().join("client");
    let (seen, window) = observe_requests_during(server.pid(), place, || {
        let (cpu, rate, seconds) = (place.client_cpu.to_string(), rate_per_s.to_string(), seconds.to_string());
        let options = ["--cpu", &cpu, "--rate", &rate, "--seconds", &seconds, "--target", &target.to_string()];
        let options = ["echo-client"].into_iter().chain(options).map(AsRef::as_ref);
        lab.run(options.chain(["--log".as_ref(), client_log.as_os_str()]))
    })?;
    server.query("write the journal")?;
    Ok((compare_with_journal(&read_journal(&journal)?, &seen), window))
}

fn start_echo_server(
    lab: &LabBinary,
    design: &str,
    ip: &str,
    place: ServiceCpus,
    journal: &Path,
) -> Result<LabProcess> {
    let cpu = place.server_cpu.to_string();
    let options = ["echo-server", "--design", design, "--ip", ip, "--cpu", &cpu, "--fifo", SERVER_PRIORITY, "--log"];
    lab.start(options.map(AsRef::as_ref).into_iter().chain([journal.as_os_str()]))
}

/// Real server that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RealServerKind {
    /// `redis-server`: one thread.
    Redis,
    /// `memcached`: one thread that accepts, and two that serve.
    Memcached,
}

impl RealServerKind {
    /// Returns the name of the server's program.
    pub fn program(self) -> &'static str {
        match self {
            RealServerKind::Redis => "redis-server",
            RealServerKind::Memcached => "memcached",
        }
    }

    fn protocol(self) -> &'static str {
        match self {
            RealServerKind::Redis => "redis",
            RealServerKind::Memcached => "memcached",
        }
    }

    /// Returns whether the server's program is on the PATH.
    pub fn is_installed(self) -> bool {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|dir| dir.join(self.program()).is_file())
    }

    fn arguments(self, port: u16) -> Vec<String> {
        let port = port.to_string();
        let words: Vec<&str> = match self {
            RealServerKind::Redis => vec!["--bind", "127.0.0.1", "--port", &port, "--save", "", "--appendonly", "no"],
            // Keeps the user root: a server that changes its user would not be killed when this process dies.
            RealServerKind::Memcached => vec!["-l", "127.0.0.1", "-p", &port, "-U", "0", "-t", "2", "-u", "root"],
        };
        words.into_iter().map(str::to_owned).collect()
    }
}

/// Running server. It is killed when this is dropped.
pub struct RealServer {
    kind: RealServerKind,
    child: Child,
    address: SocketAddr,
}

impl RealServer {
    /// Starts the server on its CPU and waits until it listens.
    pub fn start(kind: RealServerKind, place: ServiceCpus) -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut command = Command::new("taskset");
        command.args(["-c", &place.server_cpu.to_string(), kind.program()]).args(kind.arguments(port));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = kill_with_parent(command).spawn().with_context(|| format!("cannot start {}", kind.program()))?;
        let server = Self { kind, child, address: (Ipv4Addr::LOCALHOST, port).into() };
        let began = Instant::now();
        while TcpStream::connect(server.address).is_err() {
            if began.elapsed() > START_TIMEOUT {
                bail!("{} does not listen on {} after {START_TIMEOUT:?}", kind.program(), server.address);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(server)
    }

    /// Returns the process id of the server.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the address on which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends the server a whole load; returns the client's measurements.
    pub fn run_load(&self, lab: &LabBinary, place: ServiceCpus, rate_per_s: f64, seconds: f64) -> Result<Value> {
        let scratch = tempfile::tempdir().context("cannot make a directory for scratch files")?;
        let json: PathBuf = scratch.path().join("load.json");
        let (cpu, rate, seconds) = (place.client_cpu.to_string(), rate_per_s.to_string(), seconds.to_string());
        let target = self.address.to_string();
        let options = ["--protocol", self.kind.protocol(), "--target", &target, "--rate", &rate, "--seconds", &seconds];
        // Does not fill memcached with records, since it also answers requests for missing records. All observed
        // requests then belong to the load.
        let unprepared = ["--filled"].into_iter().filter(|_| self.kind == RealServerKind::Memcached);
        let options = ["load"].into_iter().chain(options).chain(unprepared);
        let options = options.chain(["--warmup-seconds", "0", "--cpu", &cpu, "--json"]);
        lab.run(options.map(AsRef::as_ref).chain([json.as_os_str()]))?;
        serde_json::from_slice(&fs::read(&json)?).context("the client's result is not JSON")
    }

    /// Returns the CPU time that the server's threads have used, as the scheduler counts it.
    pub fn cpu_ns(&self) -> u64 {
        let threads = fs::read_dir(format!("/proc/{}/task", self.pid())).into_iter().flatten().flatten();
        let used = |path: PathBuf| -> Option<u64> {
            fs::read_to_string(path.join("schedstat")).ok()?.split(' ').next()?.parse().ok()
        };
        threads.filter_map(|thread| used(thread.path())).sum::<u64>()
    }

    /// Returns a new connection to the server, and the smallest request and reply of its protocol.
    pub fn open_connection(&self) -> Result<(TcpStream, &'static [u8], &'static [u8])> {
        let stream = TcpStream::connect(self.address).with_context(|| format!("cannot connect to {}", self.address))?;
        stream.set_nodelay(true)?;
        match self.kind {
            RealServerKind::Redis => Ok((stream, b"PING\r\n", b"+PONG\r\n")),
            RealServerKind::Memcached => Ok((stream, b"get none\r\n", b"END\r\n")),
        }
    }

    /// Returns the number of observed requests of the client's load. Requests on the first connection to Redis are
    /// excluded, since they filled Redis with records.
    pub fn count_load_requests(&self, seen: &[Request]) -> u64 {
        let first = seen.iter().map(|request| request.connection).min().filter(|_| self.kind == RealServerKind::Redis);
        seen.iter().filter(|request| Some(request.connection) != first).count() as u64
    }
}

impl Drop for RealServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

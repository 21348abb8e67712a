//! A real key-value store on the request lane: Redis, memcached, or an engine behind the lab's server.

use std::cell::RefCell;
use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;

use super::fixture::{Fixture, cpu_ns};
use super::load::{LoadPattern, RunningClient, Shape};
use super::place::ExperimentCpus;
use super::sibling::EmulatedSibling;
use super::socket::SocketObserver;
use crate::programs::{LabBinary, LabProcess, kill_with_parent};
use sidelane_host::priority::run_with_this_thread_on;

/// Request rate of the first trial, low enough for any machine.
const TRIAL_PER_S: f64 = 2_000.0;
const TRIAL_LOAD: f64 = 0.5;
const TRIAL: Duration = Duration::from_secs(1);
const START_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest time for a store to write its memory to files; ten megabytes take about 0.1 s.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(30);
const SAVED: &[u8; 5] = b"+OK\r\n";

/// Key-value stores that an experiment can start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Store {
    /// `redis-server`
    Redis,
    /// `memcached`, with one thread that serves
    Memcached,
    /// RocksDB, behind the lab's server
    #[value(name = "rocksdb")]
    RocksDb,
    /// WiredTiger, behind the lab's server
    #[value(name = "wiredtiger")]
    WiredTiger,
}

impl Store {
    /// Returns the name of the store in results.
    pub fn name(self) -> &'static str {
        match self {
            Store::Redis => "redis",
            Store::Memcached => "memcached",
            Store::RocksDb => "rocksdb",
            Store::WiredTiger => "wiredtiger",
        }
    }

    /// Checks that the store can be started, so that an experiment fails at its beginning rather than at its end.
    pub fn ensure_installed(self, lab: &LabBinary) -> Result<()> {
        match self {
            Store::Redis => ensure_program_runs("redis-server"),
            Store::Memcached => ensure_program_runs("memcached"),
            Store::RocksDb | Store::WiredTiger => {
                let scratch = tempfile::tempdir().context("cannot make a directory for scratch files")?;
                self.start_engine(lab, scratch.path(), None, None).map(drop)
            }
        }
    }

    /// Makes the server on this port do all deferred work for its writes: RocksDB and WiredTiger flush memory to their
    /// files. Redis and memcached keep all data in memory and have no deferred work.
    pub fn flush_writes(self, port: u32) -> Result<()> {
        if matches!(self, Store::Redis | Store::Memcached) {
            return Ok(());
        }
        let settled = || -> Result<bool> {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, u16::try_from(port)?))?;
            stream.set_read_timeout(Some(SETTLE_TIMEOUT))?;
            stream.write_all(b"*1\r\n$4\r\nSAVE\r\n")?;
            let mut answer = [0; SAVED.len()];
            stream.read_exact(&mut answer)?;
            Ok(&answer == SAVED)
        };
        let settled = settled().with_context(|| format!("cannot ask {} to save", self.name()))?;
        ensure!(settled, "{} cannot save", self.name());
        Ok(())
    }

    /// Returns the load generator's name for the protocol of the store.
    fn protocol(self) -> &'static str {
        if self == Store::Memcached { "memcached" } else { "redis" }
    }

    /// Starts the engine behind the lab's server.
    fn start_engine(
        self,
        lab: &LabBinary,
        dir: &Path,
        cpu: Option<u32>,
        sibling: Option<&EmulatedSibling>,
    ) -> Result<LabProcess> {
        let words = ["kv", self.name(), "--port", "0", "--dir"].map(OsString::from);
        let cpu = cpu.map(|cpu| ["--cpu".into(), cpu.to_string().into()]);
        let sibling = sibling.into_iter().flat_map(EmulatedSibling::options).map(OsString::from);
        let words = words.into_iter().chain([dir.join(self.name()).into()]);
        lab.start(words.chain(cpu.into_iter().flatten()).chain(sibling))
            .with_context(|| format!("cannot start {}", self.name()))
    }
}

/// Contents of a store, and the requests to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    /// Name of the mix in the load generator.
    pub name: &'static str,
    /// Number of records in the store.
    pub records: u64,
}

impl Mix {
    /// The lab's own mix: reads and some updates of small values, all keys equally likely.
    pub const PLAIN: Self = Self { name: "plain", records: 20_000 };
}

/// Starts a store at `place`, fills it, and measures roughly the time of a request. With an emulated sibling, lab
/// programs emulate the slowdown themselves. It is `sibling`, which the fixture then owns, or `shared_sibling` of
/// another fixture.
pub fn start_store(
    place: ExperimentCpus,
    lab: LabBinary,
    sibling: Option<EmulatedSibling>,
    shared_sibling: Option<&EmulatedSibling>,
    store: Store,
    mix: Mix,
) -> Result<Fixture> {
    let scratch = tempfile::tempdir().context("cannot make a directory for scratch files")?;
    let server = Server::start(store, &lab, place.request, scratch.path(), sibling.as_ref().or(shared_sibling))?;
    let records = mix.records.to_string();
    let questions = ["--protocol", store.protocol(), "--mix", mix.name, "--records", &records].map(OsString::from);
    let mut fixture = Fixture {
        lab,
        place,
        pid: server.pid(),
        port: server.port()?,
        questions: questions.to_vec(),
        mean_service_us: 0.0,
        sibling,
        sockets: None,
        _service: Box::new(server),
        scratch,
    };
    // Fills the store and measures a first request time in one trial.
    fixture.mean_service_us = mean_service_us(&fixture, TRIAL_PER_S)?;
    fixture.questions.push("--filled".into());
    fixture.sockets = SocketObserver::open(place, fixture.pid)?.map(RefCell::new);
    Ok(fixture)
}

/// Starts a store like [`start_store`], and measures the time per request at half load. A request takes longer at low
/// load, since a loaded server reads several requests at a time.
pub fn start_measured_store(
    place: ExperimentCpus,
    lab: LabBinary,
    sibling: Option<EmulatedSibling>,
    store: Store,
    mix: Mix,
) -> Result<Fixture> {
    let mut fixture = start_store(place, lab, sibling, None, store, mix)?;
    let watched = fixture.sockets.take();
    fixture.mean_service_us = mean_service_us(&fixture, fixture.rate_per_s(TRIAL_LOAD))?;
    fixture.sockets = watched;
    Ok(fixture)
}

/// Returns the server's CPU time per request of a trial, in microseconds.
fn mean_service_us(fixture: &Fixture, rate_per_s: f64) -> Result<f64> {
    let rhythm = LoadPattern { rate_per_s, run: TRIAL, warm_up: Duration::ZERO, seed: 1, shape: Shape::Steady };
    let before_ns = fixture.service_cpu_ns()?;
    let seen = RunningClient::start(fixture, rhythm)?.finish()?;
    Ok((fixture.service_cpu_ns()? - before_ns) as f64 / 1e3 / seen.requests.max(1) as f64)
}

fn ensure_program_runs(server: &str) -> Result<()> {
    let found = Command::new(server).arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).status();
    ensure!(
        found.is_ok_and(|status| status.success()),
        "cannot run {server}: `apt-get install {server}`, or use --quick"
    );
    Ok(())
}

/// Server process that ends with this process.
enum Server {
    Program { child: Child, port: u16 },
    Lab(LabProcess),
}

impl Server {
    fn start(store: Store, lab: &LabBinary, cpu: u32, dir: &Path, sibling: Option<&EmulatedSibling>) -> Result<Self> {
        let port = free_port()?;
        let text = port.to_string();
        let words: &[&str] = match store {
            Store::Redis => {
                &["redis-server", "--port", &text, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
            }
            // Keeps the user root: a server that changes its user would not be killed when this process dies.
            Store::Memcached => {
                &["memcached", "-l", "127.0.0.1", "-p", &text, "-U", "0", "-t", "1", "-m", "1024", "-u", "root"]
            }
            Store::RocksDb | Store::WiredTiger => {
                return store.start_engine(lab, dir, Some(cpu), sibling).map(Server::Lab);
            }
        };
        let server = Server::Program { child: spawn_server(words, cpu, sibling)?, port };
        server.wait_until_ready(words[0], port)?;
        Ok(server)
    }

    fn pid(&self) -> u32 {
        match self {
            Server::Program { child, .. } => child.id(),
            Server::Lab(service) => service.pid(),
        }
    }

    fn port(&self) -> Result<u32> {
        match self {
            Server::Program { port, .. } => Ok(u32::from(*port)),
            Server::Lab(service) => service.ready_number("port"),
        }
    }

    fn wait_until_ready(&self, name: &str, port: u16) -> Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            ensure!(cpu_ns(self.pid()).is_some(), "{name} has ended: is port {port} taken?");
            ensure!(Instant::now() < deadline, "{name} does not listen on port {port} after 5 s");
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Server::Program { child, .. } = self {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn spawn_server(command_line: &[&str], cpu: u32, sibling: Option<&EmulatedSibling>) -> Result<Child> {
    let mut command = Command::new(command_line[0]);
    command.envs(sibling.into_iter().flat_map(EmulatedSibling::environment_variables));
    command.args(&command_line[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let spawned = run_with_this_thread_on(&[cpu], || kill_with_parent(command).spawn())?;
    spawned.with_context(|| format!("cannot start {0}: `apt-get install {0}`", command_line[0]))
}

fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port on the loopback interface")?;
    Ok(listener.local_addr()?.port())
}

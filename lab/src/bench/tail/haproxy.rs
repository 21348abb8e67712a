//! A HAProxy in front of two search servers, one of which collects garbage: alone, with hazards from `sidelane hazards`,
//! and `sidelane proxy` in its place.
//!
//! Each round has a run of each variant, in another order. HAProxy's file is the same in both of its variants: it may
//! send requests again.

use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::fixture::TailFixture;
use super::lucene::{ClientReport, HeapSettings, Lucene, LuceneLoad, LuceneVariant, Server, prepare_lucene};
use super::proxied::{ProxySettings, RunningProxy};
use crate::experiment::comparison::{self, Experiment};
use crate::note::LabNote;
use crate::programs::{find_sidelane, kill_with_parent, require_program};
use sidelane_host::priority::{make_this_thread_fifo, run_with_this_thread_on};
use sidelane_report::{Check, Row, Unit};
use sidelane_stats::interval::median_interval;
use sidelane_stats::rounds::Limit;

/// Heap of the server that collects garbage: young collections of tens of milliseconds, about twice a second.
const COLLECTS: HeapSettings = HeapSettings { heap_mib: 256, live_mib: 64, renewed: 2_000, marks: false };
/// Heap of the other server, which has room for all objects of some runs.
const ROOMY: HeapSettings = HeapSettings { heap_mib: 4_096, ..COLLECTS };

const ROUNDS: Limit = Limit { first: 6, rounds: 12, time: Duration::from_secs(540) };
/// Number of rounds with `--quick`, too few to decide anything.
const ROUNDS_QUICK: Limit = Limit { first: 1, rounds: 1, time: Duration::from_secs(8) };
const SECONDS: f64 = 12.0;
const SECONDS_QUICK: f64 = 2.2;
/// Real-time priority of the load balancer: below the client's, above all other threads on their CPU.
const PRIORITY: i32 = 70;
const RATE_PER_S: f64 = 400.0;
const WARM_UP_S: f64 = 0.3;
/// Largest p99.9 of HAProxy with hazards, as a fraction of its p99.9 alone.
const P999_RATIO: f64 = 0.6;
/// Largest number of clients of the proxy: more than the load has, because the test whether it listens is one, too.
const PLACES: &str = "128";
const START_TIMEOUT: Duration = Duration::from_secs(10);

type Samples = comparison::Samples<Variant, ClientReport>;

/// Load balancer of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    Haproxy,
    HaproxyWithHazards,
    Proxy,
}

impl Variant {
    const ALL: [Self; 3] = [Self::Haproxy, Self::HaproxyWithHazards, Self::Proxy];

    fn name(self) -> &'static str {
        match self {
            Self::Haproxy => "haproxy",
            Self::HaproxyWithHazards => "haproxy with hazards",
            Self::Proxy => "sidelane proxy",
        }
    }
}

/// Two servers that are warmed up; the first collects garbage.
struct Servers<'a> {
    fixture: &'a TailFixture<'a>,
    lucene: &'a Lucene,
    ports: (u32, u32),
    seconds: f64,
}

/// Compares the load balancers until the check is decided.
pub(super) fn compare_hazards_in_haproxy(fixture: &TailFixture<'_>, report: &mut comparison::Report) -> Result<()> {
    if require_program("haproxy").is_err() {
        report.notes.push(LabNote::NotInstalled { program: "haproxy" }.to_string());
        return Ok(());
    }
    let Some(lucene) = prepare_lucene(fixture, report) else { return Ok(()) };
    let start = |cpu, heap| Server::start(&lucene, LuceneVariant::Pretouch, cpu, heap, 0);
    let started = [start(fixture.place.request, COLLECTS)?, start(fixture.place.batch, ROOMY)?];
    for server in &started {
        LuceneLoad::WARM_UP.send(fixture, &lucene, server.port()?)?;
    }
    let seconds = if fixture.options.round_options.quick { SECONDS_QUICK } else { SECONDS };
    let ports = (started[0].port()?, started[1].port()?);
    let servers = Servers { fixture, lucene: &lucene, ports, seconds };
    let (limit, title) =
        (fixture.options.round_options.limit(ROUNDS_QUICK, ROUNDS), |variant: &Variant| variant.name().to_owned());
    let haproxy = Experiment { name: "haproxy", limit, turns: &turns, title, checks: &checks };
    let (samples, _) = haproxy.run(|variant, round, samples| {
        let seen = servers.run(variant, round)?;
        samples.add(round, variant, seen);
        Ok(())
    })?;
    report.rows.extend(Variant::ALL.map(|variant| row(&samples, variant)));
    report.checks.extend(checks(&samples));
    Ok(())
}

/// Returns the order of the runs in a round: another variant is first in each.
fn turns(round: u64, _: &Samples) -> Vec<Variant> {
    let mut order = Variant::ALL;
    order.rotate_left(round as usize % Variant::ALL.len());
    order.to_vec()
}

impl Servers<'_> {
    /// Runs the load through one load balancer. All runs of a round have the same load.
    fn run(&self, variant: Variant, round: u64) -> Result<ClientReport> {
        let load = LuceneLoad {
            per_s: RATE_PER_S,
            warm_up_s: WARM_UP_S,
            requests: RATE_PER_S * self.seconds,
            seed: round + 1,
        };
        let send = |port: u32| load.send(self.fixture, self.lucene, port);
        match variant {
            Variant::Proxy => {
                let settings =
                    ProxySettings { hazards: "jvm-gc", hedge: "hazard", clients: PLACES, priority: Some(PRIORITY) };
                let proxy = RunningProxy::start(self.fixture, self.ports, settings)?;
                send(proxy.port())
            }
            Variant::Haproxy => send(RunningHaproxy::start(self.fixture, self.ports)?.port),
            Variant::HaproxyWithHazards => {
                let haproxy = RunningHaproxy::start(self.fixture, self.ports)?;
                let _hazards = haproxy.start_hazards(self.fixture, self.ports)?;
                send(haproxy.port)
            }
        }
    }
}

/// Process that is killed when this is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Running HAProxy on the client's CPU.
struct RunningHaproxy {
    port: u32,
    socket: PathBuf,
    lines: PathBuf,
    _process: Killed,
    _scratch: tempfile::TempDir,
}

impl RunningHaproxy {
    fn start(fixture: &TailFixture<'_>, ports: (u32, u32)) -> Result<Self> {
        let scratch = tempfile::tempdir().context("cannot make a directory for scratch files")?;
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let (socket, lines) = (scratch.path().join("runtime"), scratch.path().join("lines"));
        let file = scratch.path().join("haproxy.cfg");
        fs::write(&file, config(port, &socket, ports))?;
        let mut command = Command::new(require_program("haproxy")?);
        command.arg("-db").arg("-f").arg(&file);
        let process = start_on_client_cpu(fixture, command)?;
        wait_for("HAProxy", || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok())?;
        Ok(Self { port: port.into(), socket, lines, _process: process, _scratch: scratch })
    }

    /// Starts `sidelane hazards` for the two servers, and waits until it watches them.
    fn start_hazards(&self, fixture: &TailFixture<'_>, (first, second): (u32, u32)) -> Result<Killed> {
        let mut command = Command::new(find_sidelane()?);
        command.args(["hazards", "--resend", "--hazard", "jvm-gc", "--haproxy"]).arg(&self.socket);
        for (name, port) in [("web/s1", first), ("web/s2", second)] {
            command.args(["--server", &format!("{name}=127.0.0.1:{port}")]);
        }
        command.arg("--socket").arg(&self.lines);
        let process = start_on_client_cpu(fixture, command)?;
        wait_for("sidelane hazards", || UnixStream::connect(&self.lines).is_ok())?;
        Ok(process)
    }
}

fn config(port: u16, socket: &Path, (first, second): (u32, u32)) -> String {
    format!(
        "global\n  nbthread 1\n  maxconn 4096\n  stats socket {} mode 600 level admin\ndefaults\n  mode http\n  \
         timeout connect 5s\n  timeout client 60s\n  timeout server 60s\n  http-reuse always\n\
         frontend f\n  bind 127.0.0.1:{port}\n  default_backend web\n\
         backend web\n  option redispatch 1\n  retry-on conn-failure empty-response\n  \
         server s1 127.0.0.1:{first} weight 100\n  server s2 127.0.0.1:{second} weight 100\n",
        socket.display()
    )
}

/// Starts a program on the client's CPU in SCHED_FIFO: it stands in for one on another machine, which no server can
/// delay.
fn start_on_client_cpu(fixture: &TailFixture<'_>, mut command: Command) -> Result<Killed> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut command = kill_with_parent(command);
    // SAFETY: one async-signal-safe system call between fork and exec.
    unsafe { command.pre_exec(|| make_this_thread_fifo(PRIORITY)) };
    let child = run_with_this_thread_on(&[fixture.place.client], || command.spawn())?
        .with_context(|| format!("cannot start {}", command.get_program().to_string_lossy()))?;
    Ok(Killed(child))
}

fn wait_for(what: &str, is_ready: impl Fn() -> bool) -> Result<()> {
    let began = Instant::now();
    while !is_ready() {
        ensure!(began.elapsed() < START_TIMEOUT, "{what} does not listen after {START_TIMEOUT:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Returns the check that HAProxy with hazards is better than alone.
fn checks(samples: &Samples) -> Vec<Check> {
    let late = samples.compare_by_round(Variant::HaproxyWithHazards, Variant::Haproxy, |with, alone| {
        Some(with.p999_us / alone.p999_us)
    });
    let at = "haproxy: p99.9 with hazards over that of HAProxy alone";
    vec![Check::interval_at_most(at, median_interval(late), P999_RATIO, Unit::Ratio)]
}

/// Returns the row of a variant: medians over the runs.
fn row(samples: &Samples, variant: Variant) -> Row {
    let each = |figure: fn(&ClientReport) -> f64| samples.median(variant, |seen| Some(figure(seen)));
    let mut row = Row::new(format!("haproxy/{}", variant.name()));
    row.put("p50_us", each(|seen| seen.p50_us));
    row.put("p99_us", each(|seen| seen.p99_us));
    row.put("p999_us", each(|seen| seen.p999_us));
    row.put("max_us", each(|seen| seen.max_us));
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use sidelane_report::Verdict;

    fn seen(p999_us: f64) -> ClientReport {
        ClientReport { p50_us: 0.0, p99_us: 0.0, p999_us, max_us: 0.0, curve: Vec::new(), iterations: Vec::new() }
    }

    fn verdict(with_hazards_us: f64) -> Verdict {
        let mut samples = Samples::default();
        for round in 0..6 {
            let slower = (round + 1) as f64;
            samples.add(round, Variant::HaproxyWithHazards, seen(with_hazards_us * slower));
            samples.add(round, Variant::Haproxy, seen(10_000.0 * slower));
        }
        // A run of an incomplete round, which the check must ignore.
        samples.add(6, Variant::HaproxyWithHazards, seen(1e9));
        checks(&samples)[0].verdict
    }

    #[test]
    fn check_compares_within_a_round() {
        assert_eq!((verdict(5_000.0), verdict(7_000.0)), (Verdict::Holds, Verdict::Missed));
    }

    #[test]
    fn another_variant_is_first_in_each_round() {
        let firsts = [0, 1, 2, 3].map(|round| turns(round, &Samples::default())[0].name());
        assert_eq!(firsts, ["haproxy", "haproxy with hazards", "sidelane proxy", "haproxy"]);
    }
}

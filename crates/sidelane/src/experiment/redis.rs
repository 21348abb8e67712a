//! A real Redis server on the request lane: requests of some tens of microseconds, all alike.

use std::cell::RefCell;
use std::ffi::OsString;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Signal, set_parent_process_death_signal};

use super::load::{Load, Rhythm};
use super::place::Place;
use super::sibling::{Carrier, Sibling};
use super::socket::SocketView;
use super::stage::{Stage, cpu_ns};
use crate::lab::Lab;
use sidelane_host::priority::with_this_thread_on;

const SERVER: &str = "redis-server";
const INSTALL: &str = "`apt-get install redis-server`";
/// Low enough for any machine.
const TRIAL_PER_S: f64 = 2_000.0;
const TRIAL_LOAD: f64 = 0.5;
const TRIAL: Duration = Duration::from_secs(1);
const START_TIMEOUT: Duration = Duration::from_secs(5);

/// Fails if there is no server to put up: to be found out before an experiment, not at its end.
pub fn ensure_installed() -> Result<()> {
    let found = Command::new(SERVER).arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).status();
    ensure!(found.is_ok_and(|status| status.success()), "cannot run {SERVER}: {INSTALL}, or use --quick");
    Ok(())
}

/// Puts it up at `place`, beside the emulated sibling that was chosen, and finds out what a request takes.
pub fn stage(place: Place, sibling: Option<Carrier>) -> Result<Stage> {
    let scratch = tempfile::tempdir().context("cannot make a directory for scratch files")?;
    let lab = Lab::find()?;
    let sibling = Sibling::choose(sibling, place, &lab)?;
    let port = free_port()?;
    let server = Server::start(place.request, port)?;
    let mut stage = Stage {
        lab,
        place,
        pid: server.0.id(),
        port: u32::from(port),
        questions: ["--protocol", "redis"].map(OsString::from).to_vec(),
        mean_service_us: 0.0,
        sibling,
        sockets: None,
        _service: Box::new(server),
        scratch,
    };
    // The first trial fills it with keys; the second is at the load that the first makes out,
    // because a server that is asked often takes several requests at a time.
    stage.mean_service_us = mean_service_us(&stage, TRIAL_PER_S)?;
    stage.mean_service_us = mean_service_us(&stage, stage.rate_per_s(TRIAL_LOAD))?;
    stage.sockets = SocketView::open(place, stage.pid)?.map(RefCell::new);
    Ok(stage)
}

/// The server's CPU time for each request of a trial.
fn mean_service_us(stage: &Stage, rate_per_s: f64) -> Result<f64> {
    let rhythm = Rhythm { rate_per_s, run: TRIAL, warm_up: Duration::ZERO, seed: 1, step: None };
    let before_ns = stage.service_cpu_ns()?;
    let seen = Load::start(stage, rhythm)?.finish()?;
    Ok((stage.service_cpu_ns()? - before_ns) as f64 / 1e3 / seen.requests.max(1) as f64)
}

/// A server that ends with this process.
struct Server(Child);

impl Server {
    fn start(cpu: u32, port: u16) -> Result<Self> {
        let mut command = Command::new(SERVER);
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        // SAFETY: one async-signal-safe system call between fork and exec.
        unsafe { command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?)) };
        let spawned = with_this_thread_on(&[cpu], || command.spawn())?;
        let server = Self(spawned.with_context(|| format!("cannot start {SERVER}: {INSTALL}"))?);
        server.wait_until_ready(port)?;
        Ok(server)
    }

    fn wait_until_ready(&self, port: u16) -> Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            ensure!(cpu_ns(self.0.id()).is_some(), "redis-server has ended: is port {port} taken?");
            ensure!(Instant::now() < deadline, "redis-server does not listen on port {port} after 5 s");
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port on the loopback interface")?;
    Ok(listener.local_addr()?.port())
}

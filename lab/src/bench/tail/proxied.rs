//! A running `sidelane proxy` in front of two servers.

use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use tempfile::TempDir;

use super::fixture::TailFixture;
use crate::programs::find_sidelane;
use crate::programs::kill_with_parent;
use sidelane_host::priority::{make_this_thread_fifo, run_with_this_thread_on};

const START_TIMEOUT: Duration = Duration::from_secs(10);

/// Options of a proxy.
#[derive(Clone, Copy)]
pub(super) struct ProxySettings<'a> {
    /// Hazards that the proxy watches: the value of its option `--hazard`.
    pub(super) hazards: &'a str,
    /// Rule for hedges: the value of the proxy's option `--hedge`.
    pub(super) hedge: &'a str,
    /// Largest number of clients: the value of the proxy's option `--clients`.
    pub(super) clients: &'a str,
    /// Priority in SCHED_FIFO, if any. With it the proxy stands in for a proxy on another machine, which no server can
    /// delay.
    pub(super) priority: Option<i32>,
}

/// Running proxy. It is killed when this is dropped.
pub(super) struct RunningProxy {
    child: Child,
    port: u32,
    scratch: TempDir,
}

/// Counts of a proxy, from its report at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct ProxyCounts {
    pub(super) requests: u64,
    /// Number of requests that were also sent to the other server.
    pub(super) hedges: u64,
    /// Number of hedges that answered first.
    pub(super) wins: u64,
}

#[derive(Deserialize)]
struct Summary {
    counts: ProxyCounts,
}

impl RunningProxy {
    /// Starts a proxy on the client's CPU in front of two servers: `ports` has the port of the active server, then of
    /// the backup.
    pub(super) fn start(
        fixture: &TailFixture<'_>,
        (active, backup): (u32, u32),
        settings: ProxySettings<'_>,
    ) -> Result<Self> {
        let scratch = tempfile::tempdir().context("cannot make a directory for scratch files")?;
        let wanted_priority = settings.priority;
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let mut command = Command::new(find_sidelane()?);
        let address = |port: u32| format!("127.0.0.1:{port}");
        command.args(["proxy", "--listen", &address(port.into()), "--clients", settings.clients]);
        command.args(["--active", &address(active), "--backup", &address(backup)]);
        command.args(["--hazard", settings.hazards, "--hedge", settings.hedge]);
        command.arg("--json").arg(scratch.path().join("proxy.json"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut command = kill_with_parent(command);
        // SAFETY: one async-signal-safe system call between fork and exec.
        unsafe { command.pre_exec(move || wanted_priority.map_or(Ok(()), make_this_thread_fifo)) };
        let child =
            run_with_this_thread_on(&[fixture.place.client], || command.spawn())?.context("cannot start the proxy")?;
        let proxy = Self { child, port: port.into(), scratch };
        let began = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            ensure!(began.elapsed() < START_TIMEOUT, "the proxy does not listen after {START_TIMEOUT:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(proxy)
    }

    /// Returns the port to which clients connect.
    pub(super) fn port(&self) -> u32 {
        self.port
    }

    /// Ends the proxy, and returns its counts.
    pub(super) fn end(mut self) -> Result<ProxyCounts> {
        let process = Pid::from_raw(self.child.id() as i32).context("a process has a number")?;
        kill_process(process, Signal::TERM).context("cannot end the proxy")?;
        let status = self.child.wait().context("cannot wait for the proxy")?;
        ensure!(status.success(), "the proxy failed ({status})");
        let text = fs::read(self.scratch.path().join("proxy.json")).context("the proxy said nothing at its end")?;
        let summary: Summary = serde_json::from_slice(&text).context("what the proxy says is not JSON")?;
        Ok(summary.counts)
    }
}

impl Drop for RunningProxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

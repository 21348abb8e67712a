//! What the client asks: the server itself, or `sidelane proxy` in front of two.
//!
//! With a backup, the active server is started again while the proxy watches it, so that a run begins for all ways alike:
//! with a server that has just been started.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::jar::Lucene;
use super::load::{CONNECTIONS, Load};
use super::server::Server;
use super::way::Way;
use crate::bench::tail::stage::Stage;
use crate::lab::dying_with_us;
use sidelane_host::priority::with_this_thread_on;

/// What the proxy watches for.
const HAZARDS: &str = "jvm-gc,safepoint,stopped,restart";
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// So much load warms a backup server up.
const WARM_UP: Load = Load { per_s: 500.0, requests: 1_000.0, seed: 0 };

/// A server that has just been started, and what is in front of it.
pub(super) struct Front {
    port: u32,
    _servers: Vec<Server>,
    _proxy: Option<Proxy>,
}

impl Front {
    /// Puts it up.
    pub(super) fn start(stage: &Stage<'_>, lucene: &Lucene, way: Way) -> Result<Self> {
        let start = |cpu, port| Server::start(lucene, way, cpu, 0, port);
        let active = start(stage.place.request, 0)?;
        if way != Way::Backup {
            return Ok(Self { port: active.port()?, _servers: vec![active], _proxy: None });
        }
        let backup = start(stage.place.batch, 0)?;
        let port = active.port()?;
        let proxy = Proxy::start(stage, port, backup.port()?)?;
        WARM_UP.send(stage, lucene, backup.port()?)?;
        drop(active);
        let active = start(stage.place.request, port)?;
        Ok(Self { port: proxy.port, _servers: vec![active, backup], _proxy: Some(proxy) })
    }

    /// Where the client goes.
    pub(super) fn port(&self) -> u32 {
        self.port
    }
}

/// A running `sidelane proxy`. Ended when dropped.
struct Proxy {
    child: Child,
    port: u32,
}

impl Proxy {
    fn start(stage: &Stage<'_>, active: u32, backup: u32) -> Result<Self> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let mut command = Command::new(std::env::current_exe()?);
        let address = |port: u32| format!("127.0.0.1:{port}");
        command.args(["proxy", "--listen", &address(port.into()), "--hazard", HAZARDS, "--clients", CONNECTIONS]);
        command.args(["--active", &address(active), "--backup", &address(backup)]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut command = dying_with_us(command);
        let child =
            with_this_thread_on(&[stage.place.client], || command.spawn())?.context("cannot start the proxy")?;
        let proxy = Self { child, port: port.into() };
        let began = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            ensure!(began.elapsed() < START_TIMEOUT, "the proxy does not listen after {START_TIMEOUT:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(proxy)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

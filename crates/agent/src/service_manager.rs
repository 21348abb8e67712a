//! Messages to the service manager that started the agent: it has started, reloads, ends, and still works.
//!
//! The protocol is systemd's `sd_notify(3)`: datagrams of `KEY=VALUE` lines to the socket that `NOTIFY_SOCKET` names.

use std::env;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use sidelane_policy::Nanos;

/// The service manager; without one, messages go nowhere.
#[derive(Debug, Default)]
pub struct ServiceManager {
    socket: Option<UnixDatagram>,
    /// Interval of signs of life, half of what the manager allows; `None` if it expects none.
    interval_ns: Option<Nanos>,
    last_sign_ns: Nanos,
    /// Last status that was sent.
    status: String,
}

impl ServiceManager {
    /// Finds the service manager by the environment.
    pub fn from_environment() -> io::Result<Self> {
        let Some(path) = env::var_os("NOTIFY_SOCKET") else { return Ok(Self::default()) };
        let address = match path.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            _ => SocketAddr::from_pathname(&path)?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.connect_addr(&address)?;
        // The agent must not wait for a manager that reads nothing.
        socket.set_nonblocking(true)?;
        let is_own = env::var("WATCHDOG_PID").map_or(true, |pid| pid == std::process::id().to_string());
        let limit_us = env::var("WATCHDOG_USEC").ok().filter(|_| is_own).and_then(|limit| limit.parse::<u64>().ok());
        let interval_ns = limit_us.map(|limit_us| limit_us.saturating_mul(1_000) / 2);
        Ok(Self { socket: Some(socket), interval_ns, ..Self::default() })
    }

    /// Reports that the agent has started, or has read its file again.
    pub fn report_ready(&self) {
        self.send("READY=1");
    }

    /// Reports that the agent reads its file again.
    pub fn report_reload(&self, now_ns: Nanos) {
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={}", now_ns / 1_000));
    }

    /// Reports that the agent ends.
    pub fn report_end(&self) {
        self.send("STOPPING=1");
    }

    /// Sends a sign of life if one is due, and the status if it has changed.
    pub fn report_life(&mut self, now_ns: Nanos, status: impl FnOnce() -> String) {
        if self.socket.is_none() {
            return;
        }
        if self.interval_ns.is_some_and(|interval_ns| now_ns.saturating_sub(self.last_sign_ns) >= interval_ns) {
            self.last_sign_ns = now_ns;
            self.send("WATCHDOG=1");
        }
        let status = status();
        if status != self.status {
            self.send(&format!("STATUS={status}"));
            self.status = status;
        }
    }

    /// Sends a message. A message that cannot be sent is left out, since the agent works without the manager.
    fn send(&self, message: &str) {
        if let Some(socket) = &self.socket {
            let _ = socket.send(message.as_bytes());
        }
    }
}

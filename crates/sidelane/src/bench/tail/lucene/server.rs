//! A running server.

use std::process::Command;

use anyhow::Result;

use super::jar::Lucene;
use super::way::Way;
use crate::lab::{Service, dying_with_us};
use sidelane_host::priority::with_this_thread_on;

/// Small enough that a run of some seconds collects garbage.
const HEAP: &str = "128m";
/// The thesis has six, on six cores.
const WORKERS: &str = "2";

/// Ended when dropped.
pub struct Server(Service);

impl Server {
    /// Starts it on `cpu` with other live objects of `live_mib`, and waits until it listens: on `port`, or on a free one
    /// if that is 0.
    pub fn start(lucene: &Lucene, way: Way, cpu: u32, live_mib: u32, port: u32) -> Result<Self> {
        let mut java = Command::new("java");
        java.args([format!("-Xms{HEAP}"), format!("-Xmx{HEAP}")]).args(["-XX:+UseG1GC", "-XX:TieredStopAtLevel=1"]);
        java.args(["-XX:+AlwaysPreTouch"].into_iter().filter(|_| way.has_pretouch()));
        java.arg("-jar").arg(&lucene.jar).arg("serve").arg(&lucene.index);
        java.args([
            WORKERS,
            if way.has_nodelay() { "nodelay" } else { "nagle" },
            &live_mib.to_string(),
            &port.to_string(),
        ]);
        Ok(Self(with_this_thread_on(&[cpu], || Service::start(dying_with_us(java)))??))
    }

    pub fn port(&self) -> Result<u32> {
        self.0.ready("port")
    }

    pub fn pid(&self) -> u32 {
        self.0.pid()
    }
}

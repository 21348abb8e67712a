//! A running search server over Lucene.

use std::process::Command;

use anyhow::Result;

use super::LuceneVariant;
use super::jar::Lucene;
use crate::programs::{LabProcess, kill_with_parent};
use sidelane_host::priority::run_with_this_thread_on;

/// Options of the JVM that prevent concurrent marking.
const NO_MARKING: [&str; 2] = ["-XX:-G1UseAdaptiveIHOP", "-XX:InitiatingHeapOccupancyPercent=100"];
/// Number of worker threads. The SHIM thesis has six, on six cores.
const WORKERS: &str = "2";

/// Heap of a server's JVM.
#[derive(Clone, Copy)]
pub struct HeapSettings {
    pub heap_mib: u32,
    /// Size of additional live objects, which the search does not need, in MiB.
    pub live_mib: u32,
    /// Number of additional live objects that each search replaces.
    pub renewed: u32,
    /// Whether the JVM marks dead objects concurrently with requests. If not, it stops for all collection work.
    pub marks: bool,
}

impl HeapSettings {
    /// Heap so small that a run of some seconds collects garbage.
    pub const SMALL: HeapSettings = HeapSettings { heap_mib: 128, live_mib: 0, renewed: 0, marks: true };
}

/// Server process. It is killed when this is dropped.
pub struct Server(LabProcess);

impl Server {
    /// Starts the server on `cpu`, and waits until it listens on `port`; 0 takes a free port.
    pub fn start(lucene: &Lucene, variant: LuceneVariant, cpu: u32, memory: HeapSettings, port: u32) -> Result<Self> {
        let mut java = Command::new("java");
        let heap = memory.heap_mib;
        java.args([format!("-Xms{heap}m"), format!("-Xmx{heap}m")]).args(["-XX:+UseG1GC", "-XX:TieredStopAtLevel=1"]);
        java.args(["-XX:+AlwaysPreTouch"].into_iter().filter(|_| variant.has_pretouch()));
        java.args(NO_MARKING.into_iter().filter(|_| !memory.marks));
        java.arg("-jar").arg(&lucene.jar).arg("serve").arg(&lucene.index);
        java.args([
            WORKERS,
            if variant.has_nodelay() { "nodelay" } else { "nagle" },
            &memory.live_mib.to_string(),
            &memory.renewed.to_string(),
            &port.to_string(),
        ]);
        Ok(Self(run_with_this_thread_on(&[cpu], || LabProcess::start(kill_with_parent(java)))??))
    }

    pub fn port(&self) -> Result<u32> {
        self.0.ready_number("port")
    }

    pub fn pid(&self) -> u32 {
        self.0.pid()
    }
}

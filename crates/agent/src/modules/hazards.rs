//! Servers whose hazards the agent tells HAProxy and other programs, as the file says.

use anyhow::{Context, Result};
use sidelane_hazards::note::HazardNote;
use sidelane_hazards::run::options::HazardOptions;
use sidelane_hazards::run::{ReadyHazards, RunningHazards, describe, metric_families};
use sidelane_host::priority::run_with_this_thread_on;
use sidelane_metrics::Family;

/// All tables `[[hazards]]` that are in effect.
pub struct HazardTables {
    running: Vec<(HazardOptions, RunningHazards)>,
    /// CPUs of the threads: those that the agent could use when it was started.
    cpus: Vec<u32>,
}

impl HazardTables {
    /// Makes an empty list. The threads will run on these CPUs.
    pub fn new(cpus: Vec<u32>) -> Self {
        Self { running: Vec::new(), cpus }
    }

    /// Puts exactly these tables into effect. A table that is unchanged keeps running. Returns notes, and texts on what
    /// has changed.
    ///
    /// # Errors
    /// If a table cannot be started. The tables that are still wanted keep running.
    pub fn update_running(&mut self, wanted: &[HazardOptions]) -> Result<(Vec<HazardNote>, Vec<String>)> {
        // A changed table may have the address or the servers of its predecessor, which therefore ends first.
        let ended = self.running.extract_if(.., |(options, _)| !wanted.contains(options));
        let ended: Vec<Result<String>> = ended.map(|(_, running)| end(running)).collect();
        let mut changes: Vec<String> = ended.into_iter().collect::<Result<_>>()?;
        let mut notes = Vec::new();
        for options in wanted {
            if self.running.iter().any(|(known, _)| known == options) {
                continue;
            }
            let name = options.servers.first().map_or("", |server| &server.name);
            let start = || {
                let ready = ReadyHazards::new(options.clone())?;
                notes.extend(ready.notes().to_vec());
                ready.start()
            };
            let started = run_with_this_thread_on(&self.cpus, start).context("cannot choose CPUs for the threads")?;
            let started = started.with_context(|| format!("cannot watch the hazards of {name}"))?;
            changes.push(describe(&started));
            self.running.push((options.clone(), started));
        }
        Ok((notes, changes))
    }

    /// Returns whether one of the tables has a server with this address.
    pub fn uses_server(&self, address: &str) -> bool {
        let servers = self.running.iter().flat_map(|(options, _)| &options.servers);
        servers.into_iter().any(|server| server.address.to_string() == address)
    }

    /// Returns the messages since the last call.
    pub fn take_messages(&mut self) -> Vec<String> {
        self.running.iter().flat_map(|(_, running)| running.take_messages()).collect()
    }

    /// Returns the metrics of all servers.
    pub fn metric_families(&self) -> Vec<Family> {
        metric_families(self.running.iter().map(|(_, running)| running))
    }

    /// Ends all tables, and gives all servers their weights back. Returns texts on the ends.
    pub fn end(&mut self) -> Vec<Result<String>> {
        self.running.drain(..).map(|(_, running)| end(running)).collect()
    }
}

fn end(running: RunningHazards) -> Result<String> {
    let told = describe(&running);
    running.end().map(|_| format!("{told} no more"))
}

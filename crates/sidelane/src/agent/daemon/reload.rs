//! SIGHUP: the file is read again. What stays as it is in it is not let go of.

use std::path::Path;

use anyhow::Result;
use sidelane_host::clock::now_ns;
use sidelane_host::topology::Topology;

use super::Agent;
use crate::agent::choice::{choose, cores};
use crate::agent::config::Config;

impl Agent {
    /// Reads the file again. With a bad one everything goes on as before.
    pub(super) fn reload(&mut self) {
        let config = match Config::load(&self.options.config) {
            Ok(config) => config,
            Err(problems) => {
                return self.note(format!("the file was not taken over, and nothing is changed: {problems}"));
            }
        };
        if config.metric != self.config.metric
            || config.metrics != self.config.metrics
            || config.audit != self.config.audit
        {
            self.note(
                "[metric], [metrics] and [audit] are read at the start alone: restart the agent for them".to_owned(),
            );
        }
        let policy_changed = config.policy != self.config.policy;
        self.config = config;
        if policy_changed && let Err(error) = self.choose_again() {
            self.note(format!("{error:#}"));
        }
        if let Err(error) = self.find_again() {
            self.note(format!("{error:#}"));
        }
        self.log_note("reload", "the file was read again");
        let now_ns = now_ns();
        (self.times.slow_ns, self.times.look_ns) = (now_ns, now_ns);
    }

    fn choose_again(&mut self) -> Result<()> {
        let topology = Topology::read(Path::new("/sys"))?;
        self.cores = cores(&topology, &self.config.policy.siblings);
        self.chosen = choose(&self.config.policy, &self.cores, &self.usable, self.metric.default_e());
        Ok(())
    }

    /// Who is named still is kept, with what was decided.
    fn find_again(&mut self) -> Result<()> {
        self.finder.reload(&self.config);
        let changes = self.finder.look(now_ns());
        self.follow(changes)?;
        for (_, served) in self.tracked.services.iter_mut() {
            if let Some(found) = self.finder.service(served.found.id) {
                served.found = found.clone();
            }
        }
        for (_, contained) in self.tracked.containers.iter_mut() {
            if let Some(container) = self.finder.container(&contained.container.id) {
                contained.container = container.clone();
            }
        }
        Ok(())
    }
}

//! SIGHUP: the file is read again. What stays as it is in it is not let go of.

use anyhow::{Error, Result};
use sidelane_host::clock::now_ns;

use super::Agent;
use super::start::fit;
use crate::agent::choice::choose;
use crate::agent::config::Config;

impl Agent {
    /// Reads the file again. With a bad one everything goes on as before.
    pub(super) fn reload(&mut self) {
        let read = Config::load(&self.options.config).map_err(Error::from);
        let (config, here) = match read.and_then(|config| Ok((fit(&config)?, config))) {
            Ok((here, config)) => (config, here),
            Err(error) => return self.note(format!("the file was not taken over, and nothing is changed: {error:#}")),
        };
        if config.metric != self.config.metric
            || config.lanes != self.config.lanes
            || config.metrics != self.config.metrics
            || config.audit != self.config.audit
        {
            self.note(
                "[metric], [lanes], [metrics] and [audit] are read at the start alone: restart the agent for them"
                    .to_owned(),
            );
        }
        if config.policy != self.config.policy {
            self.policy = choose(&config.policy, &here);
            self.metric.set_threshold(&here.online, here.e);
        }
        self.beside_batch = None;
        (self.config, self.here) = (config, here);
        if let Err(error) = self.find_again() {
            self.note(format!("{error:#}"));
        }
        self.log_note("reload", "the file was read again");
        let now_ns = now_ns();
        (self.times.slow_ns, self.times.look_ns) = (now_ns, now_ns);
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

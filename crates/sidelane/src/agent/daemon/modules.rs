//! Proxies beside the agent's own work: started, read and told of.

use anyhow::Result;

use super::Agent;

impl Agent {
    /// Has those run that the file names, and no others.
    pub(super) fn follow_proxies(&mut self) -> Result<()> {
        let told = self.proxies.follow(&self.config.proxies)?;
        told.notes.into_iter().for_each(|note| self.note(note));
        for change in told.changes {
            eprintln!("sidelane: {change}");
            self.log_note("proxy", &change);
        }
        Ok(())
    }

    /// Reads what they do, and tells of those that could not go on.
    pub(super) fn look_at_modules(&mut self) {
        self.proxies.look().into_iter().for_each(|error| self.failed(error));
    }
}

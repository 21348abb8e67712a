//! Proxies and flight recorders beside the agent's own work: started, read, told of and ended.

use anyhow::Result;

use super::Agent;
use crate::agent::modules::{News, flight_of};
use crate::note::Note;

impl Agent {
    /// Has those proxies run that the file names, and no others.
    pub(super) fn follow_proxies(&mut self) -> Result<()> {
        let told = self.proxies.follow(&self.config.proxies)?;
        let is_left = |note: &Note| matches!(note, Note::HazardsUnwatched { server } if !self.proxies.ask(server));
        self.diary.notes.retain(|note, _| !is_left(note));
        told.notes.into_iter().for_each(|note| self.note(note));
        told.changes.iter().for_each(|change| self.say("proxy", change));
        Ok(())
    }

    /// Has those services recorded that are there and that the file names, and no others.
    pub(super) fn follow_flights(&mut self) {
        if self.hands.is_none() {
            return;
        }
        let services = self.tracked.services.iter();
        let wanted = services.filter_map(|(_, served)| flight_of(&served.found, &self.config)).collect();
        if let Err(error) = self.flights.follow(wanted) {
            self.failed(error);
        }
    }

    /// Reads what they do, and tells of it.
    pub(super) fn look_at_modules(&mut self) {
        self.proxies.look().into_iter().for_each(|error| self.failed(error));
        for (service, news) in self.flights.look() {
            match news {
                News::Said(what) => self.say("trace", &format!("{service}: {what}")),
                News::Lost(note) => self.note(note),
            }
        }
    }

    /// Ends them, and waits until all is written.
    pub(super) fn end_modules(&mut self) -> Result<()> {
        let ended = self.proxies.end().and(self.flights.end());
        self.look_at_modules();
        ended
    }

    fn say(&mut self, action: &str, what: &str) {
        eprintln!("sidelane: {what}");
        self.log_note(action, what);
    }
}

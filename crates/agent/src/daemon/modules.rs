//! Modules beside the agent's own work: starts, reads and ends proxies, flight recorders and mappers of threads.

use anyhow::Result;
use sidelane_host::posix_signals::PosixSignals;

use super::Agent;
use crate::modules::{ModuleEvent, flight_of, hurry_of};
use sidelane_proxy::note::ProxyNote;
use sidelane_report::terminal::eprint_fitted;

impl Agent {
    /// Runs exactly the proxies that the file names.
    pub(super) fn follow_proxies(&mut self) -> Result<()> {
        let told = self.proxies.follow(&self.config.proxies)?;
        let is_left = |note: &ProxyNote| {
            let (ProxyNote::HazardsUnwatched { server, .. } | ProxyNote::HazardUnseen { server, .. }) = note;
            !self.proxies.ask(server)
        };
        self.stats.notes.retain(|note, _| !note.is(is_left));
        told.notes.into_iter().for_each(|note| self.note(note));
        told.changes.iter().for_each(|change| self.say("proxy", change));
        Ok(())
    }

    /// Runs flight recorders and mappers of threads for exactly those services that exist and that the file names.
    pub(super) fn follow_services(&mut self) {
        if self.actuator.is_none() {
            return;
        }
        let Self { tracked, config, here, .. } = self;
        let found = || tracked.services.iter().map(|(_, served)| &served.found);
        let recorded = found().filter_map(|found| flight_of(found, config)).collect();
        let mapped = found().filter_map(|found| hurry_of(found, config, here)).collect();
        let followed = [self.flights.follow(recorded), self.hurries.follow(mapped)];
        followed.into_iter().filter_map(Result::err).for_each(|error| self.failed(error));
    }

    /// Reads the events of modules, and notes them.
    pub(super) fn look_at_modules(&mut self) {
        let ended = self.proxies.look();
        ended.into_iter().for_each(|ended| self.say_of_proxy(ended));
        let flights = self.flights.look().into_iter().map(|news| ("trace", news));
        let hurries = self.hurries.look().into_iter().map(|news| ("hurry", news));
        for (action, (service, news)) in flights.chain(hurries).collect::<Vec<_>>() {
            match news {
                ModuleEvent::Said(what) => self.say(action, &format!("{service}: {what}")),
                ModuleEvent::Noted(note) => self.note(note),
            }
        }
    }

    /// Ends all modules, and waits until all files are written and threads have their CPUs back.
    pub(super) fn end_modules(&mut self, signals: &PosixSignals) -> Result<()> {
        let ended = self.proxies.end(signals);
        ended.into_iter().for_each(|ended| self.say_of_proxy(ended));
        let ended = [self.hurries.end(), self.flights.end()];
        let ended = ended.into_iter().collect();
        self.look_at_modules();
        ended
    }

    fn say_of_proxy(&mut self, ended: Result<String>) {
        match ended {
            Ok(what) => self.say("proxy", &what),
            Err(error) => self.failed(error),
        }
    }

    fn say(&mut self, action: &str, what: &str) {
        eprint_fitted(&format!("sidelane: {what}"));
        self.log_note(action, what);
    }
}

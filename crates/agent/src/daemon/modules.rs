//! Modules beside the agent's own work: starts, reads and ends proxies, watchers of hazards, flight recorders and mappers of threads.

use anyhow::Result;
use sidelane_host::posix_signals::PosixSignals;

use super::Agent;
use crate::modules::{ModuleEvent, flight_options_for, hurry_target_for};
use sidelane_hazards::note::HazardNote;
use sidelane_report::terminal::eprint_fitted;

impl Agent {
    /// Runs exactly the proxies that the file names.
    pub(super) fn update_proxies(&mut self) -> Result<()> {
        let told = self.proxies.update_running(&self.config.proxies)?;
        let is_left = |note: &HazardNote| {
            let (HazardNote::HazardsUnwatched { server, .. } | HazardNote::HazardUnseen { server, .. }) = note;
            !self.proxies.uses_server(server) && !self.hazards.uses_server(server)
        };
        self.stats.notes.retain(|note, _| !note.matches(is_left));
        told.notes.into_iter().for_each(|note| self.note(note));
        told.changes.iter().for_each(|change| self.print_and_log("proxy", change));
        Ok(())
    }

    /// Tells of hazards exactly as the file says.
    pub(super) fn update_hazards(&mut self) -> Result<()> {
        let (notes, changes) = self.hazards.update_running(&self.config.hazards)?;
        notes.into_iter().for_each(|note| self.note(note));
        changes.iter().for_each(|change| self.print_and_log("hazards", change));
        Ok(())
    }

    /// Runs flight recorders, and mappers of threads to big and little cores, for exactly those services that exist and
    /// that the file names.
    pub(super) fn update_service_modules(&mut self) {
        if self.actuator.is_none() {
            return;
        }
        let Self { tracked, config, here, .. } = self;
        let found = || tracked.services.iter().map(|(_, served)| &served.found);
        let recorded = found().filter_map(|found| flight_options_for(found, config)).collect();
        let mapped = found().filter_map(|found| hurry_target_for(found, config, here)).collect();
        let followed = [self.flights.update_running(recorded), self.hurries.update_running(mapped)];
        followed.into_iter().filter_map(Result::err).for_each(|error| self.note_error(error));
    }

    /// Reads the events of modules, and notes them.
    pub(super) fn report_module_events(&mut self) {
        let ended = self.proxies.take_events();
        ended.into_iter().for_each(|ended| self.report_event("proxy", ended));
        let messages = self.hazards.take_messages();
        messages.iter().for_each(|message| self.print_and_log("hazards", message));
        let flights = self.flights.take_events().into_iter().map(|news| ("trace", news));
        let hurries = self.hurries.take_events().into_iter().map(|news| ("hurry", news));
        let unwritten = self.observers.iter_mut().flat_map(|observers| observers.recordings.take_notes());
        unwritten.collect::<Vec<_>>().into_iter().for_each(|note| self.note(note));
        for (action, (service, news)) in flights.chain(hurries).collect::<Vec<_>>() {
            match news {
                ModuleEvent::Said(what) => self.print_and_log(action, &format!("{service}: {what}")),
                ModuleEvent::Noted(note) => self.note(note),
            }
        }
    }

    /// Ends all modules, and waits until all files are written and threads have their CPUs back.
    pub(super) fn end_modules(&mut self, signals: &PosixSignals) -> Result<()> {
        let hazards = self.hazards.end();
        hazards.into_iter().for_each(|ended| self.report_event("hazards", ended));
        let ended = self.proxies.end(signals);
        ended.into_iter().for_each(|ended| self.report_event("proxy", ended));
        let recorded = self.observers.as_mut().map_or(Ok(()), |observers| observers.recordings.end());
        let ended = [self.hurries.end(), self.flights.end(), recorded];
        let ended = ended.into_iter().collect();
        self.report_module_events();
        ended
    }

    fn report_event(&mut self, action: &str, event: Result<String>) {
        match event {
            Ok(what) => self.print_and_log(action, &what),
            Err(error) => self.note_error(error),
        }
    }

    fn print_and_log(&mut self, action: &str, text: &str) {
        eprint_fitted(&format!("sidelane: {text}"));
        self.log_note(action, text);
    }
}

//! Notes on what is degraded or failed: each is made once, and removed when its cause has ended.

use std::collections::BTreeSet;

use anyhow::Error;
use sidelane_diagnostics::note::Note;
use sidelane_host::clock::now_ns;
use sidelane_policy::Nanos;
use sidelane_policy::cpus::MAX_SERVICES;
use sidelane_report::terminal::{Level, eprint_fitted, eprint_with_level};

use super::births::Lacking;
use super::{Agent, MAKING_NS};
use crate::discover::DiscoveryProblem;
use crate::note::AgentNote;
use crate::status::SOCKET;

/// Limit of the number of different notes that are kept.
const NOTES_MAX: usize = 500;
/// Limit of the number of services that one note names.
const NAMES_MAX: usize = 5;

impl Agent {
    /// Adds a note, and prints it if it is new.
    pub(super) fn note(&mut self, note: impl Into<Note>) {
        let note = note.into();
        self.promises.record_note(&note, now_ns());
        let notes = &mut self.stats.notes;
        let is_kept = notes.contains_key(&note) || notes.len() < NOTES_MAX;
        let what = note.to_string();
        let times = notes.entry(if is_kept { note } else { AgentNote::NotesLeftOut.into() }).or_default();
        *times += 1;
        if *times == 1 || !is_kept {
            eprint_with_level(Level::Warning, &format!("sidelane: {what}"));
            self.log_note("note", &what);
        }
    }

    /// Notes an error after which the agent goes on.
    pub(super) fn note_error(&mut self, error: impl Into<Error>) {
        self.note(AgentNote::Failed { what: format!("{:#}", error.into()) });
    }

    /// Notes an error about a service or container. [`Agent::remove_notes_about`] removes the note.
    pub(super) fn note_error_about(&mut self, name: &str, error: impl Into<Error>) {
        self.note_about(name, AgentNote::Failed { what: format!("{:#}", error.into()) });
    }

    /// Adds a note about a service or container. [`Agent::remove_notes_about`] removes it.
    pub(super) fn note_about(&mut self, name: &str, note: impl Into<Note>) {
        let note = note.into();
        self.stats.about.entry(name.to_owned()).or_default().insert(note.clone());
        self.note(note);
    }

    /// Returns whether there is a note about a service or container.
    pub(super) fn has_note_about(&self, name: &str) -> bool {
        self.stats.about.contains_key(name)
    }

    /// Removes the notes about a service or container that has gone, or is in order again.
    pub(super) fn remove_notes_about(&mut self, name: &str) {
        let over: BTreeSet<Note> = self.stats.about.remove(name).unwrap_or_default();
        self.stats.notes.retain(|note, _| !over.contains(note));
    }

    /// Adds a note for each thing that the file names and the machine has lacked for a second, or lacks at the start.
    /// Removes the note when the machine has the thing.
    pub(super) fn note_discovery_problems(&mut self, now_ns: Nanos) {
        let grace_ns = if self.stats.is_announced { MAKING_NS } else { 0 };
        let now: BTreeSet<DiscoveryProblem> = self.lacks.iter().map(DiscoveryProblem::without_counts).collect();
        let over: Vec<DiscoveryProblem> = self.stats.lacks.keys().filter(|lack| !now.contains(lack)).cloned().collect();
        for note in over.iter().filter_map(|lack| self.stats.lacks.remove(lack)?.noted).collect::<Vec<_>>() {
            self.log_note("over", &note.to_string());
            self.stats.notes.remove(&note);
        }
        for lack in self.lacks.clone() {
            let lacking = Lacking { since_ns: now_ns, noted: None };
            let lacking = self.stats.lacks.entry(lack.without_counts()).or_insert(lacking);
            if lacking.noted.is_none() && now_ns.saturating_sub(lacking.since_ns) >= grace_ns {
                let note = Note::from(AgentNote::Lacking { what: lack.to_string() });
                lacking.noted = Some(note.clone());
                self.note(note);
            }
        }
    }

    /// Prints once what the agent found at its start, and where it answers.
    pub(super) fn announce(&mut self) {
        if std::mem::replace(&mut self.stats.is_announced, true) {
            return;
        }
        let (services, containers) = (self.tracked.services.iter().count(), self.tracked.containers.iter().count());
        let asks = match self.actuator {
            Some(_) => format!("`sidelane status` asks {SOCKET}"),
            None => "dry run: nothing is changed".to_owned(),
        };
        let metrics = self.config.metrics.filter(|_| self.actuator.is_some());
        let metrics = metrics.map_or_else(String::new, |address| format!("; metrics at http://{address}/metrics"));
        let found = format!("found {services} service(s) and {containers} batch container(s)");
        eprint_fitted(&format!("sidelane: agent: {found}; {asks}{metrics}"));
    }

    /// Returns the rules of the file that match nothing on this machine, as texts.
    pub(super) fn unmatched_rules(&self) -> Vec<String> {
        self.lacks.iter().filter(|lack| lack.is_unmatched_rule()).map(ToString::to_string).collect()
    }

    /// Returns the services for which there is no slot.
    pub(super) fn services_without_slot(&self) -> Vec<&str> {
        let is_full = !self.tracked.services.has_room();
        let names = self.left_alone.iter().filter(|_| is_full).map(|waiting| waiting.item.name.as_str());
        let mut names: Vec<&str> = names.collect();
        names.sort_unstable();
        names
    }

    /// Adds a note with the services that have no slot, and removes the note when all services have one.
    pub(super) fn note_services_without_slot(&mut self) {
        let names = self.services_without_slot();
        let (count, shown) = (names.len(), names.iter().take(NAMES_MAX).copied().collect::<Vec<_>>().join(", "));
        let more = count.saturating_sub(NAMES_MAX);
        let services = if more == 0 { shown } else { format!("{shown} and {more} more") };
        let note =
            (count > 0).then_some(AgentNote::ServicesLeftOut { count, most: MAX_SERVICES, services }).map(Note::from);
        let is_such = |other: &Note| other.matches(|other| matches!(other, AgentNote::ServicesLeftOut { .. }));
        self.stats.notes.retain(|other, _| !is_such(other) || Some(other) == note.as_ref());
        if let Some(note) = note.filter(|note| !self.stats.notes.contains_key(note)) {
            self.note(note);
        }
    }
}

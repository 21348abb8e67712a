//! What a run says while it goes on, to standard error: a line each, with the time of day.

use std::time::{Duration, Instant};

use super::session::Session;
use sidelane_host::wall_clock::local_time;
use sidelane_report::Unit;
use sidelane_report::terminal::eprint_fitted;

/// How much of it is wanted.
#[derive(Clone, Copy, Debug, Default)]
pub struct TalkOptions {
    /// Nothing at all.
    pub quiet: bool,
    /// How batch is getting on, so often.
    pub status_every: Option<Duration>,
}

/// Says what is new.
#[derive(Debug)]
pub struct Talk {
    options: TalkOptions,
    told_at: Instant,
    batch_ns: u64,
}

impl Talk {
    /// Has said nothing yet.
    pub fn new(options: TalkOptions) -> Self {
        Self { options, told_at: Instant::now(), batch_ns: 0 }
    }

    /// A line of its own.
    pub fn say(&self, what: &str) {
        if !self.options.quiet {
            eprint_fitted(&format!("sidelane: {} {what}", local_time()));
        }
    }

    /// What the session has noted, and how batch is getting on, if it is time for that.
    pub fn go_on(&mut self, session: &mut Session) {
        session.take_news().iter().for_each(|note| self.say(&format!("note: {note}")));
        if self.options.status_every.is_some_and(|every| self.told_at.elapsed() >= every) {
            let status = self.status(session);
            self.say(&status);
        }
    }

    /// Of the time since the last one.
    fn status(&mut self, session: &Session) -> String {
        let wall_s = self.told_at.elapsed().as_secs_f64();
        let (lanes, books) = (session.lanes(), session.books());
        let batch_ns = books.batch_ns(lanes);
        let percent = (batch_ns - self.batch_ns) as f64 / 1e7 / wall_s / lanes.batch.len() as f64;
        (self.told_at, self.batch_ns) = (Instant::now(), batch_ns);
        let cpu = Unit::Ns.human(batch_ns as f64);
        let so_far = format!("batch had {percent:.0} % of its lanes, and {cpu} of CPU so far");
        match session.blocked().filter(|(since, _)| *since >= Duration::from_secs(1)) {
            Some((since, why)) => format!("{so_far}; kept off for {:.0} s: {why}", since.as_secs_f64()),
            None => so_far,
        }
    }
}

//! A flight recorder on a thread of its own. Whoever started it never waits for it while it records.

use std::sync::Arc;

use anyhow::Result;

use super::super::source::Source;
use super::event::{Event, Tell};
use super::{FlightOptions, run};
use sidelane_host::aside::Aside;

/// A flight recorder that runs. Dropping this ends it, and does not wait for its end.
pub struct RunningFlight {
    options: FlightOptions,
    thread: Aside<Event, ()>,
}

impl RunningFlight {
    /// Records as soon as the service listens at a port.
    pub fn start(options: FlightOptions) -> Result<Self> {
        let its = options.clone();
        let thread = Aside::start("sidelane-flight", move |until, events| {
            let tell: Tell = Arc::new(move |event| drop(events.send(event)));
            match until.wait_until(|| Source::is_there(&its.target))? {
                true => run(&its, None, until, tell),
                false => Ok(()),
            }
        })?;
        Ok(Self { options, thread })
    }

    /// What it was asked to do.
    pub fn options(&self) -> &FlightOptions {
        &self.options
    }

    /// What it has told since the last call.
    pub fn events(&self) -> impl Iterator<Item = Event> {
        self.thread.events()
    }

    /// Why it has ended by itself, once it has.
    pub fn why_ended(&mut self) -> Option<anyhow::Error> {
        self.thread.why_ended()
    }

    /// Ends it, and waits until all is written. What it told last can still be asked for.
    ///
    /// # Errors
    /// If it could not go on before, or could not write.
    pub fn end(&mut self) -> Result<()> {
        self.ask_to_end();
        self.thread.join().unwrap_or(Ok(()))
    }

    /// Has it end, and does not wait for that.
    pub fn ask_to_end(&self) {
        self.thread.ask_to_end();
    }
}

//! A flight recorder on a thread of its own. Whoever started it never waits for it while it records.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, anyhow};
use sidelane_host::ports::listeners;
use sidelane_host::service::Target;

use super::event::{Event, Tell};
use super::{FlightOptions, run};
use crate::until::Until;

/// A flight recorder that runs. Dropping this ends it, and does not wait for its end.
pub struct RunningFlight {
    options: FlightOptions,
    events: Receiver<Event>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl RunningFlight {
    /// Records as soon as the service listens at a port.
    pub fn start(options: FlightOptions) -> Result<Self> {
        let (sender, events) = channel();
        let ends = Arc::new(AtomicBool::new(false));
        // Nobody hears it any more once its owner has dropped it.
        let tell: Tell = Arc::new(move |event| drop(sender.send(event)));
        let (its, until) = (options.clone(), Until::Told(Arc::clone(&ends)));
        let record = move || match until.wait_until(|| listens(&its.target))? {
            true => run(&its, None, until, tell),
            false => Ok(()),
        };
        let thread = thread::Builder::new().name("sidelane-flight".to_owned()).spawn(record);
        Ok(Self { options, events, ends, thread: Some(thread.context("cannot start a thread")?) })
    }

    /// What it was asked to do.
    pub fn options(&self) -> &FlightOptions {
        &self.options
    }

    /// What it has told since the last call.
    pub fn events(&self) -> impl Iterator<Item = Event> {
        self.events.try_iter()
    }

    /// Why it has ended by itself, once it has.
    pub fn why_ended(&mut self) -> Option<anyhow::Error> {
        self.thread.as_ref().filter(|thread| thread.is_finished())?;
        self.join().err()
    }

    /// Ends it, and waits until all is written. What it told last can still be asked for.
    ///
    /// # Errors
    /// If it could not go on before, or could not write.
    pub fn end(&mut self) -> Result<()> {
        self.ask_to_end();
        self.join()
    }

    fn join(&mut self) -> Result<()> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        thread.join().map_err(|_| anyhow!("its thread ended early"))?
    }

    /// Has it end, and does not wait for that.
    pub fn ask_to_end(&self) {
        self.ends.store(true, Ordering::Release);
        self.thread.iter().for_each(|thread| thread.thread().unpark());
    }
}

impl Drop for RunningFlight {
    fn drop(&mut self) {
        self.ask_to_end();
    }
}

/// Whether the service listens: one that has just been started does not yet.
fn listens(target: &Target) -> bool {
    target.find().is_ok_and(|service| !listeners(&service.pids).is_empty())
}

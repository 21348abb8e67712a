//! A mapper on a thread of its own.

use anyhow::{Context, Result};

use super::figures::{Figures, Summary};
use super::session::run;
use super::settings::Settings;
use super::work::WorkSource;
use sidelane_host::aside::Aside;
use sidelane_host::until::Until;

/// A mapper that runs. Dropping this ends it, and does not wait for its end.
pub struct RunningHurry {
    settings: Settings,
    thread: Aside<Figures, Summary>,
}

impl RunningHurry {
    /// Maps the service's threads from now on: when this returns, or soon after.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn start(settings: Settings) -> Result<Self> {
        Self::start_when(settings, |_, _| Ok(true))
    }

    /// Maps them as soon as the service is there and its requests can be seen.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn start_when_seen(settings: Settings) -> Result<Self> {
        Self::start_when(settings, |settings, until| {
            until.wait_until(|| settings.service.find().is_ok_and(|found| WorkSource::is_there(settings, &found)))
        })
    }

    /// `begins` waits for the begin; false if there is to be none.
    fn start_when(
        settings: Settings,
        begins: impl FnOnce(&Settings, &Until) -> Result<bool> + Send + 'static,
    ) -> Result<Self> {
        let its = settings.clone();
        let thread = Aside::start("sidelane-hurry", move |until, told| match begins(&its, &until)? {
            true => run(&its, None, &until, |figures| drop(told.send(figures.clone()))),
            false => Ok(Summary::of_nothing(its)),
        })?;
        Ok(Self { settings, thread })
    }

    /// What it was asked to do.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Waits until it maps threads.
    ///
    /// # Errors
    /// If it cannot.
    pub fn wait_until_it_maps(&mut self) -> Result<()> {
        match self.thread.next_event() {
            Some(_) => Ok(()),
            None => self.join().map(drop),
        }
    }

    /// What it has told last since the last call.
    pub fn figures(&self) -> Option<Figures> {
        self.thread.events().last()
    }

    /// Why it has ended by itself, once it has.
    pub fn why_ended(&mut self) -> Option<anyhow::Error> {
        self.thread.why_ended()
    }

    /// Ends it, and waits until all threads have their CPUs back.
    ///
    /// # Errors
    /// If it could not go on before, or could not give them back.
    pub fn end(mut self) -> Result<Summary> {
        self.ask_to_end();
        self.join()
    }

    fn join(&mut self) -> Result<Summary> {
        self.thread.join().context("it has ended already")?
    }

    /// Whether nothing is left to wait for at its end.
    pub fn has_ended(&self) -> bool {
        self.thread.has_ended()
    }

    /// Has it end, and does not wait for that.
    pub fn ask_to_end(&self) {
        self.thread.ask_to_end();
    }
}

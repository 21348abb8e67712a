//! Mapper of a service's threads that runs on a separate thread.

use anyhow::{Context, Result};

use super::figures::{Figures, Summary};
use super::session::run;
use super::settings::Settings;
use super::work::WorkSource;
use sidelane_host::background::Background;
use sidelane_host::shutdown::Shutdown;

/// Handle of a mapper that runs on a separate thread. Dropping it asks the mapper to end, and does not wait.
pub struct RunningHurry {
    settings: Settings,
    thread: Background<Figures, Summary>,
}

impl RunningHurry {
    /// Starts to map the threads of the service. The mapping begins at once, or shortly after this function returns.
    ///
    /// # Errors
    /// Fails if the thread cannot be started.
    pub fn start(settings: Settings) -> Result<Self> {
        Self::start_after(settings, |_, _| Ok(true))
    }

    /// Starts a mapper that waits until the service exists and its requests can be observed.
    ///
    /// # Errors
    /// Fails if the thread cannot be started.
    pub fn start_when_observable(settings: Settings) -> Result<Self> {
        Self::start_after(settings, |settings, until| {
            until.wait_until(|| settings.service.find().is_ok_and(|found| WorkSource::exists_for(settings, &found)))
        })
    }

    /// Starts a mapper after the function `wait_to_begin` returns true. If it returns false, the mapper does not start.
    fn start_after(
        settings: Settings,
        wait_to_begin: impl FnOnce(&Settings, &Shutdown) -> Result<bool> + Send + 'static,
    ) -> Result<Self> {
        let its = settings.clone();
        let thread = Background::start("sidelane-hurry", move |until, told| match wait_to_begin(&its, &until)? {
            true => run(&its, None, &until, |figures| drop(told.send(figures.clone()))),
            false => Ok(Summary::for_unstarted_mapper(its)),
        })?;
        Ok(Self { settings, thread })
    }

    /// Returns the settings of the mapper.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Waits until the mapper has begun to map threads.
    ///
    /// # Errors
    /// Fails if the mapper cannot begin.
    pub fn wait_until_mapping(&mut self) -> Result<()> {
        match self.thread.next_event() {
            Some(_) => Ok(()),
            None => self.join().map(drop),
        }
    }

    /// Returns the newest figures since the last call; `None` if there are none.
    pub fn figures(&self) -> Option<Figures> {
        self.thread.events().last()
    }

    /// Returns the error with which the mapper ended by itself; `None` while it runs.
    pub fn why_ended(&mut self) -> Option<anyhow::Error> {
        self.thread.why_ended()
    }

    /// Ends the mapper, and waits until all threads have their original CPUs back.
    ///
    /// # Errors
    /// Fails if the mapper had failed before, or could not give the CPUs back.
    pub fn stop(mut self) -> Result<Summary> {
        self.request_stop();
        self.join()
    }

    fn join(&mut self) -> Result<Summary> {
        self.thread.join().context("the mapper has ended already")?
    }

    /// Returns whether the mapper has ended, so that [`RunningHurry::stop`] would not wait.
    pub fn has_ended(&self) -> bool {
        self.thread.has_ended()
    }

    /// Asks the mapper to end, and does not wait.
    pub fn request_stop(&self) {
        self.thread.ask_to_end();
    }
}

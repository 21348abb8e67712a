//! A mapper on a thread of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, anyhow};

use super::figures::{Figures, Summary};
use super::session::run;
use super::settings::Settings;
use super::work::WorkSource;
use crate::until::Until;

/// A mapper that runs. Dropping this ends it, and does not wait for its end.
pub struct RunningHurry {
    settings: Settings,
    figures: Receiver<Figures>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Summary>>>,
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
        let (sender, figures) = channel();
        let ends = Arc::new(AtomicBool::new(false));
        let (its, until) = (settings.clone(), Until::Told(Arc::clone(&ends)));
        let map = move || match begins(&its, &until)? {
            // Nobody hears it any more once its owner has dropped it.
            true => run(&its, None, &until, |figures| drop(sender.send(figures.clone()))),
            false => Ok(Summary::of_nothing(its)),
        };
        let thread = thread::Builder::new().name("sidelane-hurry".to_owned()).spawn(map);
        Ok(Self { settings, figures, ends, thread: Some(thread.context("cannot start a thread")?) })
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
        match self.figures.recv() {
            Ok(_) => Ok(()),
            Err(_) => self.join().map(drop),
        }
    }

    /// What it has told last since the last call.
    pub fn figures(&self) -> Option<Figures> {
        self.figures.try_iter().last()
    }

    /// Why it has ended by itself, once it has.
    pub fn why_ended(&mut self) -> Option<anyhow::Error> {
        self.thread.as_ref().filter(|thread| thread.is_finished())?;
        self.join().err()
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
        let thread = self.thread.take().context("it has ended already")?;
        thread.join().map_err(|_| anyhow!("its thread ended early"))?
    }

    /// Whether nothing is left to wait for at its end.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Has it end, and does not wait for that.
    pub fn ask_to_end(&self) {
        self.ends.store(true, Ordering::Release);
        self.thread.iter().for_each(|thread| thread.thread().unpark());
    }
}

impl Drop for RunningHurry {
    fn drop(&mut self) {
        self.ask_to_end();
    }
}

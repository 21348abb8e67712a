//! Work on a thread of its own, which goes on until its owner ends it and tells of what happens.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Error, Result, anyhow};

use crate::until::Shutdown;

/// Such work, which tells of `E` and comes to `T`. Dropping this ends it, and does not wait for its end.
pub struct Background<E, T> {
    events: Receiver<E>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<T>>>,
}

impl<E: Send + 'static, T: Send + 'static> Background<E, T> {
    /// Starts it. `work` goes on until its first argument says that it is to end, and sends events through the second one. A
    /// send fails once the owner has dropped this.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn start(name: &str, work: impl FnOnce(Shutdown, Sender<E>) -> Result<T> + Send + 'static) -> Result<Self> {
        let (sender, events) = channel();
        let ends = Arc::new(AtomicBool::new(false));
        let until = Shutdown::Flag(Arc::clone(&ends));
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || work(until, sender));
        Ok(Self { events, ends, thread: Some(thread.context("cannot start a thread")?) })
    }
}

impl<E, T> Background<E, T> {
    /// What it has told since the last call.
    pub fn events(&self) -> impl Iterator<Item = E> {
        self.events.try_iter()
    }

    /// Waits until it tells something; `None` if it ends before.
    pub fn next_event(&self) -> Option<E> {
        self.events.recv().ok()
    }

    /// Why it has ended by itself, once it has.
    pub fn why_ended(&mut self) -> Option<Error> {
        self.thread.as_ref().filter(|thread| thread.is_finished())?;
        self.join()?.err()
    }

    /// Whether nothing is left to wait for at its end.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for its end: what it came to, unless that was told already.
    pub fn join(&mut self) -> Option<Result<T>> {
        let joined = self.thread.take()?.join();
        Some(joined.unwrap_or_else(|_| Err(anyhow!("the thread ended early"))))
    }

    /// Has it end, and does not wait for that.
    pub fn ask_to_end(&self) {
        self.ends.store(true, Ordering::Release);
        self.thread.iter().for_each(|thread| thread.thread().unpark());
    }
}

impl<E, T> Drop for Background<E, T> {
    fn drop(&mut self) {
        self.ask_to_end();
    }
}

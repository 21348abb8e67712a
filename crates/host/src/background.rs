//! Background work: a thread that runs until its owner stops it, and sends events to the owner.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Error, Result, anyhow};

use crate::shutdown::Shutdown;

/// A background thread that sends events of type `E` and returns a `T`. Drop asks the thread to end, without waiting.
pub struct Background<E, T> {
    events: Receiver<E>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<T>>>,
}

impl<E: Send + 'static, T: Send + 'static> Background<E, T> {
    /// Starts the thread. `work` runs until its first argument says to stop, and sends events through its second
    /// argument. A send fails after the owner has dropped this handle.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn start(name: &str, work: impl FnOnce(Shutdown, Sender<E>) -> Result<T> + Send + 'static) -> Result<Self> {
        let (sender, events) = channel();
        let ends = Arc::new(AtomicBool::new(false));
        let until = Shutdown::Flag(Arc::clone(&ends));
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || work(until, sender));
        Ok(Self {
            events,
            ends,
            thread: Some(thread.with_context(|| {
                format!("cannot start the thread {name}; check the limit of processes (ulimit -u)")
            })?),
        })
    }
}

impl<E, T> Background<E, T> {
    /// Returns the events that the thread has sent since the last call.
    pub fn events(&self) -> impl Iterator<Item = E> {
        self.events.try_iter()
    }

    /// Waits for the next event of the thread; `None` if it ends before.
    pub fn next_event(&self) -> Option<E> {
        self.events.recv().ok()
    }

    /// Returns the error with which the thread ended; `None` while it runs, and if it ended without an error.
    pub fn why_ended(&mut self) -> Option<Error> {
        self.thread.as_ref().filter(|thread| thread.is_finished())?;
        self.join()?.err()
    }

    /// Whether the thread has ended, so that a join returns at once.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for the end of the thread and returns its result; `None` if an earlier call has returned it.
    pub fn join(&mut self) -> Option<Result<T>> {
        let joined = self.thread.take()?.join();
        Some(joined.unwrap_or_else(|_| {
            Err(anyhow!("a background thread panicked; report the message of the panic above as a bug"))
        }))
    }

    /// Asks the thread to end, without waiting for that.
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

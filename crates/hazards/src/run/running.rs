//! Watched servers, with the threads that watch them and tell others.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sidelane_host::clock::now_ns;
use sidelane_host::eventfd::EventFd;
use sidelane_policy::hedge::Hazards;

use super::answers::{Answers, Listeners, lock};
use super::counts::ServerCounts;
use super::options::HazardOptions;
use super::teller::Teller;
use crate::note::HazardNote;
use crate::watch::Watch;

/// Watchers that are ready to start.
pub struct ReadyHazards {
    options: HazardOptions,
    watches: Vec<(usize, Watch)>,
    notes: Vec<HazardNote>,
    listeners: Listeners,
}

impl ReadyHazards {
    /// Opens the sockets, and finds out which hazards can be watched.
    ///
    /// # Errors
    /// Fails if the options contradict each other, an address is in use, or a named hazard cannot be seen.
    pub fn new(mut options: HazardOptions) -> Result<Self> {
        options.contradiction().map_or(Ok(()), Err)?;
        let (mut watches, mut notes) = (Vec::new(), Vec::new());
        for (number, server) in options.servers.iter().enumerate() {
            let (watch, lacks) = Watch::new(server.address, &options.hazards, options.poll)?;
            watches.extend(watch.map(|watch| (number, watch)));
            notes.extend(lacks);
        }
        let listeners = Listeners::open(options.agent_check, options.socket.as_deref())?;
        options.agent_check = listeners.agent_check();
        Ok(Self { options, watches, notes, listeners })
    }

    /// Returns notes about degraded functions.
    pub fn notes(&self) -> &[HazardNote] {
        &self.notes
    }

    /// Starts the threads.
    ///
    /// # Errors
    /// Fails if HAProxy does not know a server, or a thread or the guardian cannot be started.
    pub fn start(self) -> Result<RunningHazards> {
        let (messages, received) = mpsc::channel();
        let teller = Arc::new(Mutex::new(Teller::new(&self.options, messages)?));
        let changed =
            Arc::new(EventFd::new().context("cannot create an eventfd; check the limit of open files (ulimit -n)")?);
        let news =
            Arc::new(EventFd::new().context("cannot create an eventfd; check the limit of open files (ulimit -n)")?);
        let answers = Answers::start(self.listeners, Arc::clone(&teller))?;
        let ends = Arc::<AtomicBool>::default();
        let mut running = RunningHazards {
            options: self.options,
            teller,
            answers,
            checks: None,
            ends,
            changed,
            news,
            messages: received,
        };
        running.start_checks()?;
        for (number, watch) in self.watches {
            let (teller, changed) = (Arc::clone(&running.teller), Arc::clone(&running.changed));
            let mut before = Hazards::NONE;
            let report = move |hazards, now| {
                if hazards != before {
                    before = hazards;
                    lock(&teller).tell(number, hazards, now);
                    changed.notify();
                }
            };
            watch.start(report, Arc::clone(&running.ends))?;
        }
        Ok(running)
    }
}

/// Watched servers. Dropping this gives them their weights back.
pub struct RunningHazards {
    options: HazardOptions,
    teller: Arc<Mutex<Teller>>,
    answers: Answers,
    checks: Option<JoinHandle<()>>,
    ends: Arc<AtomicBool>,
    /// Eventfd that is notified after a change of hazards.
    changed: Arc<EventFd>,
    /// Eventfd that is notified after a check, so that the owner reads messages.
    news: Arc<EventFd>,
    messages: mpsc::Receiver<String>,
}

impl RunningHazards {
    /// Returns the options. The address for agent checks has the port that was chosen.
    pub fn options(&self) -> &HazardOptions {
        &self.options
    }

    /// Returns the address at which agent checks are answered.
    pub fn agent_check(&self) -> Option<SocketAddr> {
        self.options.agent_check
    }

    /// Returns the messages since the last call.
    pub fn take_messages(&self) -> Vec<String> {
        self.news.clear();
        self.messages.try_iter().collect()
    }

    /// Returns a file descriptor that is readable if there may be a message. [`Self::take_messages`] resets it.
    pub fn eventfd(&self) -> BorrowedFd<'_> {
        self.news.as_fd()
    }

    /// Returns the counts of all servers, and the number of errors of HAProxy.
    pub fn counts(&self) -> (Vec<ServerCounts>, u64) {
        lock(&self.teller).counts()
    }

    /// Starts the thread that checks HAProxy again, and lets time pass for the policy.
    fn start_checks(&mut self) -> Result<()> {
        let (teller, changed) = (Arc::clone(&self.teller), Arc::clone(&self.changed));
        let (ends, news) = (Arc::clone(&self.ends), Arc::clone(&self.news));
        let check = move || {
            while !ends.load(Ordering::Acquire) {
                let now = now_ns();
                let next = lock(&teller).check(now);
                news.notify();
                let left = next.map(|at| Duration::from_nanos(at.saturating_sub(now)));
                let timeout = left.and_then(|left| Timespec::try_from(left).ok());
                let _ = poll(&mut [PollFd::new(&*changed, PollFlags::IN)], timeout.as_ref());
                changed.clear();
            }
        };
        let thread = std::thread::Builder::new().name("sidelane-hazard".to_owned()).spawn(check);
        self.checks = Some(
            thread.context("cannot start the thread that checks HAProxy; check the limit of processes (ulimit -u)")?,
        );
        Ok(())
    }

    /// Ends the threads, and gives all servers their weights back. Returns the counts.
    ///
    /// # Errors
    /// Fails if HAProxy did not take a weight.
    pub fn end(mut self) -> Result<Vec<ServerCounts>> {
        let counts = self.counts().0;
        self.stop().map(|()| counts)
    }

    fn stop(&mut self) -> Result<()> {
        self.ends.store(true, Ordering::Release);
        self.changed.notify();
        let _ = self.checks.take().map(JoinHandle::join);
        let is_check_owed = self.answers.end();
        lock(&self.teller).end(is_check_owed)
    }
}

impl Drop for RunningHazards {
    fn drop(&mut self) {
        // After `end` there is nothing left to give back. An error was reported to the owner of `end` alone.
        let _ = self.stop();
    }
}

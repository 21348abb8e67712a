//! A proxy on a thread of its own, beside the threads that watch its servers.
//!
//! The thread that started the proxy never waits for it: the proxy publishes its state, and a reader skips a state that is
//! being written.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use sidelane_host::eventfd::EventFd;
use sidelane_policy::hedge::Server;
use sidelane_rollback::own_threads::Fixed;
use tokio::sync::Notify;
use tokio::task::LocalSet;

use super::access_log::{LogEnd, LogHandle, OpenLog};
use super::ejections::changes;
use super::options::ProxyOptions;
use super::traced::Traces;
use super::watch::Watch;
use crate::access::Sender;
use crate::config::{Config, TraceLookup};
use crate::edge::{Proxy, State, View};
use crate::hazard_board::HazardBoard;
use crate::note::ProxyNote;

/// How often a proxy is asked to write down what it does.
const ASK_EVERY: Duration = Duration::from_millis(50);
/// A proxy that does not write down what it does in this time is too busy to be waited for.
const ANSWER_TIME: Duration = Duration::from_secs(1);

/// A proxy that is ready to start.
pub struct ReadyProxy {
    options: ProxyOptions,
    listener: TcpListener,
    watches: Vec<Watch>,
    notes: Vec<ProxyNote>,
    log: Option<OpenLog>,
}

impl ReadyProxy {
    /// Listens, and finds out what can be watched.
    ///
    /// # Errors
    /// If the address is taken, a hazard that was named cannot be seen, or the access log cannot be opened.
    pub fn new(options: ProxyOptions) -> Result<Self> {
        let listen = options.listen;
        let listener = sidelane_host::listen::listen(listen).with_context(|| {
            format!("cannot listen at {listen}: choose another address for it, or see who does with ss -ltnp")
        })?;
        Self::at(listener, options)
    }

    fn at(listener: TcpListener, options: ProxyOptions) -> Result<Self> {
        let log = options.access_log.as_ref().map(|path| OpenLog::open(path, options.log_format)).transpose()?;
        let mut ready = Self { options, listener, watches: Vec::new(), notes: Vec::new(), log };
        if !ready.options.hazards.is_none() {
            ready.find_watches()?;
        }
        Ok(ready)
    }

    fn find_watches(&mut self) -> Result<()> {
        let servers = [(Server::First, Some(self.options.active)), (Server::Second, self.options.backup)];
        for (server, address) in servers.into_iter().filter_map(|(server, address)| Some((server, address?))) {
            let (watch, notes) = Watch::new(server, address, &self.options.hazards, self.options.poll)?;
            self.watches.extend(watch);
            self.notes.extend(notes);
        }
        Ok(())
    }

    /// What is degraded.
    pub fn notes(&self) -> &[ProxyNote] {
        &self.notes
    }

    /// Serves clients from now on, on threads of its own.
    pub fn start(self) -> Result<RunningProxy> {
        let board = Arc::new(HazardBoard::new().context("cannot create the hazard board")?);
        let shared = Arc::new(Shared::new().context("cannot create an eventfd for the proxy")?);
        let (address, listener) = (self.listener.local_addr()?, self.listener.try_clone()?);
        let traces = Traces::start(&self.options)?;
        let (trace_lookup, for_proxy, its_board) = (traces.trace_lookup(), Arc::clone(&shared), Arc::clone(&board));
        let config = self.options.config();
        let servers = [self.options.active, self.options.backup.unwrap_or(self.options.active)];
        let log = self
            .log
            .map(|log| log.start(servers, Arc::clone(&shared.eventfd)))
            .transpose()
            .context("cannot start the access log's thread")?;
        let (sender, log, log_end) =
            log.map_or((None, None, None), |(sender, log, end)| (Some(sender), Some(log), Some(end)));
        let serve = move || {
            let _ending = Ending(&for_proxy);
            // Requests pass through it: where it runs is for the user to say, as for any service.
            let _fixed = Fixed::this_thread();
            let state = run(listener, config, (its_board, trace_lookup, sender), &for_proxy);
            let lost = log_end.map_or(0, LogEnd::wait);
            state.map(|state| State { log_lost: lost, ..state })
        };
        let thread = thread::Builder::new().name("sidelane-proxy".to_owned()).spawn(serve);
        let running = RunningProxy {
            options: self.options,
            address,
            listener: Some(self.listener),
            state: None,
            asked: Instant::now(),
            thread: Some(thread.context("cannot start a thread")?),
            shared,
            log,
            _traces: traces,
        };
        for watch in self.watches {
            watch.start(Arc::clone(&board), Arc::clone(&running.shared.watches_end))?;
        }
        Ok(running)
    }
}

/// What the proxy's threads and their owner share.
struct Shared {
    drains: Notify,
    ends: Notify,
    watches_end: Arc<AtomicBool>,
    /// Asks for what the proxy does.
    asks: Notify,
    state: Mutex<Option<State>>,
    /// What the proxy does was written down.
    told: Condvar,
    /// Rings when there is something to tell, and when the proxy has ended.
    eventfd: Arc<EventFd>,
    has_ended: AtomicBool,
}

impl Shared {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            drains: Notify::default(),
            ends: Notify::default(),
            watches_end: Arc::default(),
            asks: Notify::default(),
            state: Mutex::default(),
            told: Condvar::default(),
            eventfd: Arc::new(EventFd::new()?),
            has_ended: AtomicBool::default(),
        })
    }
}

/// Tells of the end of the proxy's thread, however it ends.
struct Ending<'a>(&'a Shared);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.has_ended.store(true, Ordering::Release);
        self.0.eventfd.notify();
    }
}

/// A proxy that runs. Dropping this ends it, and does not wait for its end.
pub struct RunningProxy {
    options: ProxyOptions,
    address: SocketAddr,
    /// `None`: it drains.
    listener: Option<TcpListener>,
    /// What it had done at the last look.
    state: Option<State>,
    /// When it was last asked for that.
    asked: Instant,
    thread: Option<JoinHandle<Result<State>>>,
    shared: Arc<Shared>,
    log: Option<LogHandle>,
    _traces: Traces,
}

impl RunningProxy {
    /// What it was asked to be.
    pub fn options(&self) -> &ProxyOptions {
        &self.options
    }

    /// Where clients come.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Prepares a successor at the same address; no client is refused while it takes over.
    ///
    /// # Errors
    /// As those of [`ReadyProxy::new`].
    pub fn successor(&self, options: ProxyOptions) -> Result<ReadyProxy> {
        let listener = self.listener.as_ref().context("it takes no more clients")?;
        ReadyProxy::at(listener.try_clone().context("cannot hand the address on")?, options)
    }

    /// Reads what it did up to the look before, unless it is being written now, and asks for what it does now. Returns what
    /// is to be told of its servers and its access log.
    pub fn look(&mut self) -> Vec<String> {
        self.shared.eventfd.clear();
        let news = self.read();
        if self.asked.elapsed() >= ASK_EVERY {
            self.asked = Instant::now();
            self.shared.asks.notify_one();
        }
        news
    }

    fn read(&mut self) -> Vec<String> {
        let Ok(state) = self.shared.state.try_lock() else { return Vec::new() };
        let news = state.as_ref().map(|state| changes(self.state.as_ref(), state));
        self.state.clone_from(&state);
        let of_log = self.log.as_ref().map(LogHandle::take_news);
        [news, of_log].into_iter().flatten().flatten().collect()
    }

    /// Waits until it has written down what it does now, and reads that as [`Self::look`] does.
    pub fn look_now(&mut self) -> Vec<String> {
        let shared = Arc::clone(&self.shared);
        let state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        // It cannot be written before this waits for it.
        shared.asks.notify_one();
        drop(shared.told.wait_timeout(state, ANSWER_TIME));
        self.look()
    }

    /// Readable when there is something to tell, or it has ended; a look silences it.
    pub fn eventfd(&self) -> BorrowedFd<'_> {
        self.shared.eventfd.as_fd()
    }

    /// What it did up to the last look; nothing before it has written anything down.
    pub fn state(&self) -> Option<&State> {
        self.state.as_ref()
    }

    /// Has its access log's file opened again. Whether there is one.
    pub fn open_log_again(&self) -> bool {
        self.log.as_ref().is_some_and(LogHandle::open_again)
    }

    /// Begins its orderly end: it takes no more clients, and ends when all requests are answered, or their time is up.
    pub fn drain(&mut self) {
        self.listener = None;
        self.shared.drains.notify_one();
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&self) -> bool {
        self.shared.has_ended.load(Ordering::Acquire)
    }

    /// Ends it at once, and waits until its last client is gone. The watchers of hazards end soon after.
    ///
    /// # Errors
    /// If it could not go on before.
    pub fn end(mut self) -> Result<State> {
        self.ask_to_end();
        let thread = self.thread.take().expect("it is taken here alone");
        thread.join().map_err(|_| anyhow!("the proxy's thread ended early"))?
    }

    fn ask_to_end(&self) {
        self.shared.watches_end.store(true, Ordering::Relaxed);
        self.shared.ends.notify_one();
    }
}

impl Drop for RunningProxy {
    fn drop(&mut self) {
        self.ask_to_end();
    }
}

/// The thread of a proxy.
fn run(
    listener: TcpListener,
    config: Config,
    (board, trace_lookup, log): (Arc<HazardBoard>, TraceLookup, Option<Sender>),
    shared: &Shared,
) -> Result<State> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start tokio")?;
    LocalSet::new().block_on(&runtime, async {
        let proxy = Proxy::open(listener, config, board, trace_lookup, log).context("cannot take clients")?;
        let view = proxy.view();
        tokio::select! {
            result = proxy.run(shared.drains.notified()) => result.context("the proxy cannot go on")?,
            () = shared.ends.notified() => {}
            () = tell(&view, shared) => {}
        }
        Ok(view.state())
    })
}

/// Writes down what the proxy does: at first, when it is asked, and when there is something to tell. For ever.
async fn tell(view: &View, shared: &Shared) {
    let mut is_news = false;
    loop {
        let now = view.state();
        *shared.state.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
        shared.told.notify_all();
        if is_news {
            shared.eventfd.notify();
        }
        is_news = tokio::select! {
            () = view.changed() => true,
            () = shared.asks.notified() => false,
        };
    }
}

//! Proxy that runs on a separate thread, together with the threads that watch its servers.
//!
//! The thread that started the proxy never waits for it. The proxy publishes its state, and a reader skips a state that
//! is being written.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use sidelane_hazards::note::HazardNote;
use sidelane_hazards::watch::Watch;
use sidelane_host::eventfd::EventFd;
use sidelane_policy::hedge::Server;
use sidelane_report::otlp::Destination;
use sidelane_rollback::own_threads::SelfPlacedThread;
use tokio::sync::Notify;
use tokio::task::LocalSet;

use super::access_log::{LogEnd, LogHandle, OpenLog};
use super::ejections::ejection_messages;
use super::options::ProxyOptions;
use super::traced::{ExportEnd, Traces};
use crate::access::Sender;
use crate::config::{Config, TraceLookup};
use crate::edge::{Proxy, State, StateView};
use crate::export::ExportSender;
use crate::hazard_board::HazardBoard;
use crate::tls::Tls;

/// Minimum interval between two requests to a proxy to publish its state.
const ASK_EVERY: Duration = Duration::from_millis(50);
/// Maximum time to wait until a proxy publishes its state. A proxy that needs longer is overloaded.
const ANSWER_TIME: Duration = Duration::from_secs(1);

/// Proxy that is ready to start.
pub struct ReadyProxy {
    options: ProxyOptions,
    listener: TcpListener,
    watches: Vec<(Server, Watch)>,
    notes: Vec<HazardNote>,
    log: Option<OpenLog>,
    tls: Option<Tls>,
}

impl ReadyProxy {
    /// Opens the listening socket, and finds out which hazards can be watched.
    ///
    /// # Errors
    /// Fails if the address is in use, a named hazard cannot be seen, the access log cannot be opened, or certificate and
    /// key cannot be used.
    pub fn new(options: ProxyOptions) -> Result<Self> {
        let listen = options.listen;
        let listener = sidelane_host::listen::listen(listen).with_context(|| {
            format!(
                "cannot listen at {listen}; choose another address, or find the process that listens there with \
                     `ss -ltnp`"
            )
        })?;
        Self::from_listener(listener, options)
    }

    fn from_listener(listener: TcpListener, options: ProxyOptions) -> Result<Self> {
        options.otlp.as_ref().map_or(Ok(()), Destination::check)?;
        let log = options.access_log.as_ref().map(|path| OpenLog::open(path, options.log_format)).transpose()?;
        let tls = options.tls.as_ref().map(|files| Tls::open(files, options.protocol)).transpose()?;
        let mut ready = Self { options, listener, watches: Vec::new(), notes: Vec::new(), log, tls };
        if !ready.options.hazards.is_none() {
            ready.create_watchers()?;
        }
        Ok(ready)
    }

    fn create_watchers(&mut self) -> Result<()> {
        let servers = [(Server::First, Some(self.options.active)), (Server::Second, self.options.backup)];
        for (server, address) in servers.into_iter().filter_map(|(server, address)| Some((server, address?))) {
            let (watch, notes) = Watch::new(address, &self.options.hazards, self.options.poll)?;
            self.watches.extend(watch.map(|watch| (server, watch)));
            self.notes.extend(notes);
        }
        Ok(())
    }

    /// Returns notes about degraded functions.
    pub fn notes(&self) -> &[HazardNote] {
        &self.notes
    }

    /// Starts the proxy, and the threads that watch its servers.
    pub fn start(self) -> Result<RunningProxy> {
        let board = Arc::new(HazardBoard::new().context("cannot create the hazard board")?);
        let shared = Arc::new(Shared::new().context("cannot create an eventfd for the proxy")?);
        let (address, listener) = (self.listener.local_addr()?, self.listener.try_clone()?);
        let traces = Traces::start(&self.options)?;
        let (trace_lookup, for_proxy, its_board) = (traces.trace_lookup(), Arc::clone(&shared), Arc::clone(&board));
        let config = Config { tls: self.tls.as_ref().map(Tls::config), ..self.options.config() };
        let servers = [self.options.active, self.options.backup.unwrap_or(self.options.active)];
        let log = self
            .log
            .map(|log| log.start(servers, Arc::clone(&shared.eventfd)))
            .transpose()
            .context("cannot start the access log's thread")?;
        let (sender, log, log_end) =
            log.map_or((None, None, None), |(sender, log, end)| (Some(sender), Some(log), Some(end)));
        let (exports, export_end) = traces.start_export(&self.options)?.unzip();
        let serve = move || {
            let _ending = Ending(&for_proxy);
            // Leave the CPU affinity of this thread alone: as for any service, the user decides where it runs.
            let _fixed = SelfPlacedThread::for_this_thread();
            let state = run(listener, config, (its_board, trace_lookup), (sender, exports), &for_proxy);
            let lost = log_end.map_or(0, LogEnd::wait_for_writer);
            let exported = export_end.map(ExportEnd::wait_for_exporter);
            state.map(|state| State {
                log_lines_lost: lost,
                slow_requests: exported.unwrap_or(state.slow_requests),
                ..state
            })
        };
        let thread = thread::Builder::new().name("sidelane-proxy".to_owned()).spawn(serve);
        let running = RunningProxy {
            options: self.options,
            address,
            listener: Some(self.listener),
            state: None,
            asked: Instant::now(),
            thread: Some(thread.with_context(|| {
                format!("cannot start the thread of the proxy at {address}; check the limit of processes (ulimit -u)")
            })?),
            shared,
            log,
            tls: self.tls,
            messages: Vec::new(),
            _traces: traces,
        };
        for (server, watch) in self.watches {
            let board = Arc::clone(&board);
            let publish = move |hazards, now| board.publish(server, hazards, now);
            watch.start(publish, Arc::clone(&running.shared.watches_end))?;
        }
        Ok(running)
    }
}

/// State that the proxy's threads share with their owner.
struct Shared {
    drains: Notify,
    ends: Notify,
    watches_end: Arc<AtomicBool>,
    /// Notification that asks the proxy to publish its state.
    asks: Notify,
    state: Mutex<Option<State>>,
    /// Notification that the proxy has published its state.
    told: Condvar,
    /// Eventfd that is notified when there is a message for the user, and when the proxy has ended.
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

/// Guard that reports the end of the proxy's thread, even after a panic.
struct Ending<'a>(&'a Shared);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.has_ended.store(true, Ordering::Release);
        self.0.eventfd.notify();
    }
}

/// Handle of a running proxy. Dropping it asks the proxy to end, and does not wait.
pub struct RunningProxy {
    options: ProxyOptions,
    address: SocketAddr,
    /// Listening socket, for a successor; `None` once the proxy drains.
    listener: Option<TcpListener>,
    /// State of the proxy when the owner last read it.
    state: Option<State>,
    /// Time of the last request to publish the state.
    asked: Instant,
    thread: Option<JoinHandle<Result<State>>>,
    shared: Arc<Shared>,
    log: Option<LogHandle>,
    tls: Option<Tls>,
    /// Messages for the user that [`Self::refresh_state`] returns next.
    messages: Vec<String>,
    _traces: Traces,
}

impl RunningProxy {
    /// Returns the options of the proxy.
    pub fn options(&self) -> &ProxyOptions {
        &self.options
    }

    /// Returns the address at which the proxy listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Prepares a successor at the same address. No client is refused during the change.
    ///
    /// # Errors
    /// Fails for the same reasons as [`ReadyProxy::new`].
    pub fn prepare_successor(&self, options: ProxyOptions) -> Result<ReadyProxy> {
        let listener = self
            .listener
            .as_ref()
            .context("the present proxy drains and takes no more clients; try again after it has ended")?;
        ReadyProxy::from_listener(
            listener.try_clone().context("cannot pass the listening socket on to the new proxy")?,
            options,
        )
    }

    /// Reads the state that the proxy published last, and asks for a new one. Reads nothing while the proxy writes the
    /// state. Returns messages about the servers, the access log and the certificate.
    pub fn refresh_state(&mut self) -> Vec<String> {
        self.shared.eventfd.clear();
        let news = self.read_published_state();
        if self.asked.elapsed() >= ASK_EVERY {
            self.asked = Instant::now();
            self.shared.asks.notify_one();
        }
        news
    }

    fn read_published_state(&mut self) -> Vec<String> {
        let Ok(state) = self.shared.state.try_lock() else { return Vec::new() };
        let news = state.as_ref().map(|state| ejection_messages(self.state.as_ref(), state));
        self.state.clone_from(&state);
        let of_log = self.log.as_ref().map(LogHandle::take_messages);
        [news, of_log, Some(std::mem::take(&mut self.messages))].into_iter().flatten().flatten().collect()
    }

    /// Waits until the proxy has published its present state, and reads it as [`Self::refresh_state`] does.
    pub fn refresh_state_now(&mut self) -> Vec<String> {
        let shared = Arc::clone(&self.shared);
        let state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Ask while the lock is held, so that the state cannot be published before this thread waits.
        shared.asks.notify_one();
        drop(shared.told.wait_timeout(state, ANSWER_TIME));
        self.refresh_state()
    }

    /// Returns a file descriptor that is readable if there is a message or the proxy has ended. [`Self::refresh_state`]
    /// resets it.
    pub fn eventfd(&self) -> BorrowedFd<'_> {
        self.shared.eventfd.as_fd()
    }

    /// Returns the state that was read last; `None` if the proxy has not published any.
    pub fn state(&self) -> Option<&State> {
        self.state.as_ref()
    }

    /// Opens the file of the access log again, and reads certificate and key again. Returns whether the proxy has any of
    /// these files. [`Self::refresh_state`] tells of errors.
    pub fn reload_files(&mut self) -> bool {
        let has_log = self.log.as_ref().is_some_and(LogHandle::request_reopen);
        if let Some(Err(error)) = self.tls.as_ref().map(Tls::reload) {
            self.messages.push(format!("new clients still get the old certificate: {error}, and send SIGHUP again"));
            self.shared.eventfd.notify();
        }
        has_log || self.tls.is_some()
    }

    /// Starts the drain: the proxy accepts no more clients, and ends after the last answer, or when its time limit is
    /// over.
    pub fn drain(&mut self) {
        self.listener = None;
        self.shared.drains.notify_one();
    }

    /// Returns whether the proxy has ended.
    pub fn has_ended(&self) -> bool {
        self.shared.has_ended.load(Ordering::Acquire)
    }

    /// Ends the proxy at once, and waits for its thread. The watchers of hazards end soon after.
    ///
    /// # Errors
    /// Fails if an error had ended the proxy before.
    pub fn end(mut self) -> Result<State> {
        self.ask_to_end();
        let thread = self.thread.take().expect("it is taken here alone");
        thread.join().map_err(|_| {
            anyhow!("the proxy's thread panicked, and unfinished requests were cut; report the panic above as a bug")
        })?
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

/// Runs the thread of a proxy.
fn run(
    listener: TcpListener,
    config: Config,
    (board, trace_lookup): (Arc<HazardBoard>, TraceLookup),
    outputs: (Option<Sender>, Option<ExportSender>),
    shared: &Shared,
) -> Result<State> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start tokio")?;
    LocalSet::new().block_on(&runtime, async {
        let proxy = Proxy::open(listener, config, board, trace_lookup, outputs).context("cannot accept clients")?;
        let view = proxy.view();
        tokio::select! {
            result = proxy.run(shared.drains.notified()) => result.context("the proxy failed")?,
            () = shared.ends.notified() => {}
            () = publish_state(&view, shared) => {}
        }
        Ok(view.state())
    })
}

/// Publishes the proxy's state at the start, on request, and after a change that is reported to the user. Never
/// returns.
async fn publish_state(view: &StateView, shared: &Shared) {
    let mut is_news = false;
    loop {
        let now = view.state();
        *shared.state.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
        shared.told.notify_all();
        if is_news {
            shared.eventfd.notify();
        }
        is_news = tokio::select! {
            () = view.wait_for_ejection_change() => true,
            () = shared.asks.notified() => false,
        };
    }
}

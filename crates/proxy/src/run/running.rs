//! Proxy that runs on threads of its own, together with the threads that watch its servers.
//!
//! The thread that started the proxy never waits for it. The proxy publishes its state, and a reader skips a state that
//! is being written.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use sidelane_hazards::note::HazardNote;
use sidelane_hazards::watch::Watch;
use sidelane_host::eventfd::EventFd;
use sidelane_host::priority::pin_this_thread;
use sidelane_host::run_times::thread_affinity;
use sidelane_policy::hedge::Server;
use sidelane_report::otlp::Destination;
use sidelane_rollback::own_threads::{SelfPlacedThread, this_tid};
use tokio::sync::Notify;
use tokio::task::LocalSet;

use super::access_log::{LogEnd, LogHandle, OpenLog};
use super::ejections::ejection_messages;
use super::options::ProxyOptions;
use super::traced::{ExportEnd, Traces};
use crate::access::Sender;
use crate::config::Config;
use crate::edge::{Member, Proxy, State, StateView, open_team};
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
        for (server, address) in Server::ALL.into_iter().zip(self.options.servers()) {
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
        let threads = self.options.threads;
        let shared = Arc::new(Shared::new(threads).context("cannot create an eventfd for the proxy")?);
        let (address, listener) = (self.listener.local_addr()?, self.listener.try_clone()?);
        let traces = Traces::start(&self.options)?;
        let (trace_lookup, for_proxy, its_board) = (traces.trace_lookup(), Arc::clone(&shared), Arc::clone(&board));
        let config = Config { tls: self.tls.as_ref().map(Tls::config), ..self.options.config() };
        let servers = self.options.servers().collect();
        let log = self
            .log
            .map(|log| log.start(servers, threads, Arc::clone(&shared.eventfd)))
            .transpose()
            .context("cannot start the access log's thread")?;
        let (senders, log, log_end) =
            log.map_or((Vec::new(), None, None), |(senders, log, end)| (senders, Some(log), Some(end)));
        let (exports, export_end) = traces.start_export(&self.options)?.unzip();
        let (mut senders, mut listener) = (senders.into_iter(), Some(listener));
        let cpus: Vec<u32> = thread_affinity(this_tid()).unwrap_or_default().iter().collect();
        let members = open_team(config, its_board, trace_lookup, threads).into_iter().enumerate();
        let mut serving = members.map(|(index, member)| ServingThread {
            index,
            member,
            listener: listener.take(),
            outputs: (senders.next(), exports.clone()),
            cpus: cpus.clone(),
            shared: Arc::clone(&for_proxy),
        });
        let first = serving.next().expect("a proxy has at least one thread");
        let others = serving.map(|thread| start_thread(address, || thread.run())).collect::<Result<Vec<_>>>();
        // A thread that was started before another one failed must not go on.
        let others = others.inspect_err(|_| shared.end_threads())?;
        drop(exports);
        let serve = move || {
            let _ending = Ending(&for_proxy);
            let states = [first.run()].into_iter().chain(others.into_iter().map(join_thread));
            let state = states.collect::<Result<Vec<State>>>().map(merge_states);
            let lost = log_end.map_or(0, LogEnd::wait_for_writer);
            let exported = export_end.map(ExportEnd::wait_for_exporter);
            state.map(|state| State {
                log_lines_lost: lost,
                slow_requests: exported.unwrap_or(state.slow_requests),
                ..state
            })
        };
        let thread = start_thread(address, serve).inspect_err(|_| shared.end_threads())?;
        let running = RunningProxy {
            options: self.options,
            address,
            listener: Some(self.listener),
            state: None,
            asked: Instant::now(),
            thread: Some(thread),
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
    threads: Vec<ThreadControl>,
    watches_end: Arc<AtomicBool>,
    published: Mutex<Published>,
    /// Notification that a thread has published its state.
    told: Condvar,
    /// Eventfd that is notified when there is a message for the user, and when the proxy has ended.
    eventfd: Arc<EventFd>,
    has_ended: AtomicBool,
}

/// Notifications for one thread.
#[derive(Default)]
struct ThreadControl {
    ends: Notify,
    /// Notification that asks the thread to publish its state.
    asks: Notify,
}

/// States of the threads, as they were published last.
#[derive(Default)]
struct Published {
    /// Number of times that the owner has asked for the states.
    asked: u64,
    /// Number of states that were published.
    count: u64,
    /// Published state of each thread.
    threads: Vec<PublishedState>,
}

#[derive(Clone, Default)]
struct PublishedState {
    state: Option<State>,
    /// Number of the state, in the order of publishing.
    number: u64,
    /// Last question of the owner that this state answers.
    answers: u64,
}

impl Published {
    /// Publishes the state of a thread. The last one answers all further questions.
    fn publish(&mut self, index: usize, state: State, is_last: bool) {
        self.count += 1;
        let answers = if is_last { u64::MAX } else { self.asked };
        self.threads[index] = PublishedState { state: Some(state), number: self.count, answers };
    }

    fn is_answered(&self) -> bool {
        self.threads.iter().all(|thread| thread.answers >= self.asked)
    }

    /// Returns the state of the proxy; `None` if no thread has published any.
    fn state(&self) -> Option<State> {
        let mut all: Vec<&PublishedState> = self.threads.iter().filter(|thread| thread.state.is_some()).collect();
        // What is known of servers is common, and the last state knows it best.
        all.sort_by_key(|thread| std::cmp::Reverse(thread.number));
        let states: Vec<State> = all.into_iter().filter_map(|thread| thread.state.clone()).collect();
        (!states.is_empty()).then(|| merge_states(states))
    }
}

/// Adds up the states of a proxy's threads. What is known of servers is taken from the first one.
fn merge_states(states: Vec<State>) -> State {
    let mut states = states.into_iter();
    let mut all = states.next().expect("a proxy has at least one thread");
    states.for_each(|state| all.add_thread(&state));
    all
}

impl Shared {
    fn new(threads: usize) -> std::io::Result<Self> {
        let published = Published { threads: vec![PublishedState::default(); threads], ..Published::default() };
        Ok(Self {
            drains: Notify::default(),
            threads: (0..threads).map(|_| ThreadControl::default()).collect(),
            watches_end: Arc::default(),
            published: Mutex::new(published),
            told: Condvar::default(),
            eventfd: Arc::new(EventFd::new()?),
            has_ended: AtomicBool::default(),
        })
    }

    fn lock_published(&self) -> MutexGuard<'_, Published> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks all threads to publish their states.
    fn ask(&self) {
        self.threads.iter().for_each(|thread| thread.asks.notify_one());
    }

    /// Asks all threads to end at once.
    fn end_threads(&self) {
        self.threads.iter().for_each(|thread| thread.ends.notify_one());
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
            self.shared.ask();
        }
        news
    }

    fn read_published_state(&mut self) -> Vec<String> {
        let Ok(published) = self.shared.published.try_lock() else { return Vec::new() };
        let state = published.state();
        drop(published);
        let news = state.as_ref().map(|state| ejection_messages(self.state.as_ref(), state));
        self.state = state;
        let of_log = self.log.as_ref().map(LogHandle::take_messages);
        [news, of_log, Some(std::mem::take(&mut self.messages))].into_iter().flatten().flatten().collect()
    }

    /// Waits until the proxy has published its present state, and reads it as [`Self::refresh_state`] does.
    pub fn refresh_state_now(&mut self) -> Vec<String> {
        let shared = Arc::clone(&self.shared);
        let mut published = shared.lock_published();
        published.asked += 1;
        shared.ask();
        drop(shared.told.wait_timeout_while(published, ANSWER_TIME, |published| !published.is_answered()));
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

    /// Ends the proxy at once, and waits for its threads. The watchers of hazards end soon after.
    ///
    /// # Errors
    /// Fails if an error had ended the proxy before.
    pub fn end(mut self) -> Result<State> {
        self.ask_to_end();
        join_thread(self.thread.take().expect("it is taken here alone"))
    }

    fn ask_to_end(&self) {
        self.shared.watches_end.store(true, Ordering::Relaxed);
        self.shared.end_threads();
    }
}

impl Drop for RunningProxy {
    fn drop(&mut self) {
        self.ask_to_end();
    }
}

/// Starts a thread that serves clients.
fn start_thread<T: Send + 'static>(
    address: SocketAddr,
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>> {
    thread::Builder::new().name("sidelane-proxy".to_owned()).spawn(run).with_context(|| {
        format!("cannot start a thread of the proxy at {address}; check the limit of processes (ulimit -u)")
    })
}

fn join_thread(thread: JoinHandle<Result<State>>) -> Result<State> {
    thread.join().map_err(|_| {
        anyhow!("a thread of the proxy panicked, and unfinished requests were cut; report the panic above as a bug")
    })?
}

/// One of the threads that serve clients, before it runs.
struct ServingThread {
    index: usize,
    member: Member,
    listener: Option<TcpListener>,
    /// Ways to the access log and to the export of slow requests.
    outputs: (Option<Sender>, Option<ExportSender>),
    /// CPUs that the thread may use: those of the thread that starts it.
    cpus: Vec<u32>,
    shared: Arc<Shared>,
}

/// Guard that ends all threads if one of them fails or panics: its clients would be lost, and more would be given to it.
struct EndingAll<'a>(Option<&'a Shared>);

impl Drop for EndingAll<'_> {
    fn drop(&mut self) {
        self.0.into_iter().for_each(Shared::end_threads);
    }
}

impl ServingThread {
    fn run(self) -> Result<State> {
        let shared = Arc::clone(&self.shared);
        let mut failing = EndingAll(Some(&shared));
        // As for any service, the user decides where this thread runs. It may have been moved before it was marked.
        let _fixed = SelfPlacedThread::for_this_thread();
        let _ = pin_this_thread(&self.cpus);
        let state = self.serve();
        failing.0 = failing.0.filter(|_| state.is_err());
        state
    }

    fn serve(self) -> Result<State> {
        let Self { index, member, listener, outputs, shared, cpus: _ } = self;
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start tokio")?;
        LocalSet::new().block_on(&runtime, async {
            let proxy = Proxy::open(member, listener, outputs).context("cannot accept clients")?;
            let view = proxy.view();
            tokio::select! {
                result = proxy.run(shared.drains.notified()) => result.context("the proxy failed")?,
                () = shared.threads[index].ends.notified() => {}
                () = publish_states(&view, index, &shared) => {}
            }
            shared.lock_published().publish(index, view.state(), true);
            shared.told.notify_all();
            Ok(view.state())
        })
    }
}

/// Publishes the state of a thread at the start, on request, and after a change that is reported to the user. Never
/// returns.
async fn publish_states(view: &StateView, index: usize, shared: &Shared) {
    let mut is_news = false;
    loop {
        let now = view.state();
        shared.lock_published().publish(index, now, false);
        shared.told.notify_all();
        if is_news {
            shared.eventfd.notify();
        }
        is_news = tokio::select! {
            () = view.wait_for_ejection_change() => true,
            () = shared.threads[index].asks.notified() => false,
        };
    }
}

//! Traces of a proxy's requests at its servers. Each server on this machine is traced by its own recorder in this
//! process. A request is found in the trace by the proxy's port and by time.

mod answer;
mod export;
mod recent_timelines;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::Value;
use sidelane_host::background::Background;
use sidelane_host::clock::now_ns;
use sidelane_host::service::Target;
use sidelane_host::shutdown::Shutdown;
use sidelane_report::terminal::eprint_fitted;
use sidelane_timeline::builder::{Builder, Settings};
use sidelane_trace::slow_threshold::SlowThreshold;
use sidelane_trace::source::Source;

use super::options::ProxyOptions;
use crate::config::{SentCopy, TraceLookup};
use crate::export::ExportSender;
pub(super) use export::ExportEnd;
use recent_timelines::RecentTimelines;
use sidelane_hazards::watch::is_on_this_machine;

/// Interval at which the names of threads are read. It is shorter than the time until a timeline is complete, so a name
/// is known by then.
const NAMES_EVERY: Duration = Duration::from_millis(200);

/// Traces of a proxy's servers. Dropping it asks the recorders to end, and does not wait.
pub(super) struct Traces {
    /// Trace of each server; empty without traces.
    servers: Vec<Arc<Traced>>,
    _recorders: Vec<Background<(), ()>>,
}

/// Trace of one server.
struct Traced {
    server: SocketAddr,
    state: Mutex<State>,
}

/// State of a server's trace.
enum State {
    /// The server does not listen yet, or the kernel program is being loaded.
    Begins,
    /// The trace records requests.
    Records(RecentTimelines),
    /// The trace has failed or ended, for the given reason.
    Ended(String),
}

impl Traces {
    /// Starts recorders for the servers on this machine, if the options ask for traces.
    ///
    /// # Errors
    /// Fails if a thread cannot be started.
    pub(super) fn start(options: &ProxyOptions) -> Result<Self> {
        let addresses = options.servers().filter(|_| options.trace);
        let servers: Vec<_> = addresses.map(|server| Arc::new(Traced::new(server))).collect();
        let here = servers.iter().filter(|traced| is_on_this_machine(traced.server));
        let recorder = |traced: &Arc<Traced>| {
            let traced = Arc::clone(traced);
            Background::start("sidelane-trace", move |until, _| {
                traced.run_recorder(until);
                Ok(())
            })
        };
        let recorders = here.map(recorder).collect::<Result<_>>()?;
        Ok(Self { servers, _recorders: recorders })
    }

    /// Starts the export of slow requests, if the options ask for it.
    ///
    /// # Errors
    /// Fails if the thread cannot be started.
    pub(super) fn start_export(&self, options: &ProxyOptions) -> Result<Option<(ExportSender, ExportEnd)>> {
        let limit_ns = options.slo.and_then(SlowThreshold::limit_ns);
        let wanted = options.otlp.clone().zip(limit_ns);
        wanted.map(|(to, limit_ns)| export::start(self.servers.clone(), to, limit_ns)).transpose()
    }

    /// Returns a function that finds a request in the traces.
    pub(super) fn trace_lookup(&self) -> TraceLookup {
        let servers = self.servers.clone();
        Arc::new(move |asked| match servers.get(asked.server.index()) {
            Some(traced) => traced.look_up(asked),
            None => answer::untraced_answer(
                "the proxy's servers are not traced",
                "start the proxy as root with --trace, or set `trace = true` at its [[proxy]] of the agent's file",
            ),
        })
    }
}

impl Traced {
    fn new(server: SocketAddr) -> Self {
        let state = match is_on_this_machine(server) {
            true => State::Begins,
            false => State::Ended("the server is not on this machine: run sidelane trace there".to_owned()),
        };
        Self { server, state: Mutex::new(state) }
    }

    /// Locks the state. The lock is held only while a request is added or looked up.
    fn lock_state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look_up(&self, copy: &SentCopy) -> Value {
        match &*self.lock_state() {
            State::Begins => {
                answer::untraced_answer("the trace of its server has not begun", "ask for a later request")
            }
            State::Records(kept) => answer::trace_answer(kept, copy, self.server),
            State::Ended(why) => answer::untraced_answer("its server is not traced", why),
        }
    }

    /// Runs the recording thread.
    fn run_recorder(&self, shutdown: Shutdown) {
        if let Err(error) = self.record_requests(shutdown) {
            let why = format!("{error:#}");
            eprint_fitted(&format!("sidelane: requests at {} are not traced: {why}", self.server));
            *self.lock_state() = State::Ended(why);
        }
    }

    fn record_requests(&self, shutdown: Shutdown) -> Result<()> {
        let target = Target::Port(self.server.port());
        if !shutdown.wait_until(|| Source::is_listening(&target))? {
            return Ok(());
        }
        let mut source = Source::start(&target, false, shutdown)?;
        let mut builder = Builder::new(Settings { kinds: source.recorded(), ..Settings::default() });
        builder.set_tracer_pid(std::process::id());
        *self.lock_state() = State::Records(RecentTimelines::since(now_ns()));
        eprint_fitted(&format!("sidelane: tracing the requests at {}", self.server));
        let (mut records, mut ended, mut named_at) = (Vec::new(), Vec::new(), Instant::now());
        while source.wait_for_records()? {
            let until_ns = source.fetch_records(&mut records)?;
            records.drain(..).for_each(|record| builder.push(record, &mut |timeline| ended.push(timeline)));
            builder.advance(until_ns, &mut |timeline| ended.push(timeline));
            let names = (named_at.elapsed() >= NAMES_EVERY).then(|| source.names());
            named_at = names.as_ref().map_or(named_at, |_| Instant::now());
            let State::Records(kept) = &mut *self.lock_state() else { return Ok(()) };
            ended.drain(..).for_each(|timeline| kept.add(timeline));
            kept.until_ns = until_ns;
            kept.names = names.unwrap_or_else(|| std::mem::take(&mut kept.names));
        }
        Ok(())
    }
}

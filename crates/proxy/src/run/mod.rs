//! `sidelane proxy`: the command that runs a proxy in front of a server and its backups, and watches them for hazards.
//!
//! The rest of the crate is the proxy itself. This module contains the options and messages for the user, and the
//! threads of a proxy (`running.rs`). The agent uses this module too.

mod access_log;
mod ejections;
mod metrics;
pub mod options;
mod running;
mod summary;
mod traced;

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use std::{io, mem, slice};

use anyhow::{Context, Result, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sidelane_host::posix_signals::{CaughtSignal, PosixSignals, wait_for_any};
use sidelane_metrics::{Exposition, Listener};
use sidelane_report::terminal::eprint_fitted;

use crate::edge::State;
pub use access_log::STDOUT;
pub use ejections::describe_out_of_service;
pub use metrics::{ProxyMetrics, metric_families};
use options::{BACKUPS_MAX, OptionError, ProxyOptions};
pub use running::{ReadyProxy, RunningProxy};
pub use summary::Summary;

/// Maximum time between two checks of the proxy if no event comes.
const SLEEP_MAX: Duration = Duration::from_secs(3600);

/// Options of `sidelane proxy`.
#[derive(Clone, Debug)]
pub struct ProxyRun {
    /// Options of the proxy.
    pub proxy: ProxyOptions,
    /// Address at which Prometheus reads metrics; `None` for no metrics.
    pub metrics: Option<SocketAddr>,
    /// Time after which the proxy ends; `None` for no limit.
    pub length: Option<Duration>,
}

/// Runs the proxy until a POSIX signal, the time limit, or an error ends it.
pub fn run(settings: ProxyRun) -> Result<Summary> {
    settings.proxy.duplicate_address().map_or(Ok(()), |twice| Err(OptionError::Twice(twice)))?;
    let backups = settings.proxy.backups.len();
    ensure!(backups <= BACKUPS_MAX, OptionError::TooManyBackups(backups));
    ensure!(!settings.proxy.is_trace_unusable(), OptionError::UntoldTrace);
    let signals = PosixSignals::listen()
        .context("cannot open the descriptor for POSIX signals; check the limit of open files (ulimit -n)")?;
    let metrics = settings.metrics.map(Listener::open).transpose()?;
    let ready = ReadyProxy::new(settings.proxy.clone())?;
    ready.notes().iter().for_each(|note| eprint_fitted(&format!("sidelane: {note}")));
    let mut proxy = ready.start()?;
    eprint_fitted(&format!("sidelane: proxy at {}", proxy.address()));
    let tell = |proxy: &mut RunningProxy| {
        let reader = metrics.as_ref().filter(|listener| has_pending_connection(listener));
        let news = if reader.is_some() { proxy.refresh_state_now() } else { proxy.refresh_state() };
        news.iter().for_each(|news| eprint_fitted(&format!("sidelane: {news}")));
        reader.into_iter().for_each(|listener| listener.answer_requests(|| exposition(proxy)));
    };
    let end = settings.length.map(|length| Instant::now() + length);
    while end.is_none_or(|end| Instant::now() < end) && !proxy.has_ended() {
        let left = end.map_or(SLEEP_MAX, |end| end.saturating_duration_since(Instant::now()));
        let caught = wait_for_event(&signals, metrics.as_ref(), &proxy, left)?;
        if caught.is_some_and(|caught| asks_to_end(caught, slice::from_mut(&mut proxy))) {
            break;
        }
        tell(&mut proxy);
    }
    let mut is_said = false;
    drain(slice::from_mut(&mut proxy), &signals, |proxies| {
        for proxy in proxies {
            tell(proxy);
            if !mem::replace(&mut is_said, true) {
                print_drain_status(proxy);
            }
        }
    })?;
    Ok(Summary::new(&settings.proxy, proxy.end()?))
}

/// Waits for a signal, a reader of metrics, or a message of the proxy.
fn wait_for_event(
    signals: &PosixSignals,
    metrics: Option<&Listener>,
    proxy: &RunningProxy,
    timeout: Duration,
) -> io::Result<Option<CaughtSignal>> {
    let files = [Some(signals.as_fd()), Some(proxy.eventfd()), metrics.map(Listener::as_fd)];
    let mut files: Vec<PollFd> =
        files.into_iter().flatten().map(|file| PollFd::from_borrowed_fd(file, PollFlags::IN)).collect();
    wait_for_any(&mut files, timeout.min(SLEEP_MAX))?;
    signals.wait(Duration::ZERO)
}

/// Tells the user what the drain waits for, and how to end it at once.
fn print_drain_status(proxy: &RunningProxy) {
    let Some(state) = proxy.state() else { return };
    let limit = proxy.options().limits.drain;
    if let Some(told) = describe_unfinished_work(state) {
        eprint_fitted(&format!(
            "sidelane: the proxy takes no more clients, and gives {told} up to {limit:?} to end; press Ctrl-C again to \
             cut them"
        ));
    }
}

fn exposition(proxy: &RunningProxy) -> Exposition {
    let counted = proxy.state().map(|state| {
        let draining = usize::from(state.drains);
        ProxyMetrics { listen: None, options: proxy.options(), state, draining }
    });
    Exposition(metric_families(counted.as_slice()))
}

fn has_pending_connection(listener: &Listener) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
}

/// Interval at which the drain checks whether a proxy has ended.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Time after a first signal in which another one is ignored. `timeout` and service managers send a signal to the
/// process and to its group.
const SAME_SIGNAL: Duration = Duration::from_millis(500);

/// Waits until the proxies have drained, or until a second signal asks them to end. Calls `observe` at each check.
pub fn drain(
    proxies: &mut [RunningProxy],
    signals: &PosixSignals,
    mut observe: impl FnMut(&mut [RunningProxy]),
) -> io::Result<()> {
    proxies.iter_mut().for_each(RunningProxy::drain);
    let began = Instant::now();
    while proxies.iter().any(|proxy| !proxy.has_ended()) {
        let is_second = |asks: bool| asks && began.elapsed() > SAME_SIGNAL;
        if is_second(signals.wait(LOOK_EVERY)?.is_some_and(|caught| asks_to_end(caught, proxies))) {
            break;
        }
        observe(proxies);
    }
    Ok(())
}

/// Returns whether a signal asks the proxies to end. SIGHUP does so only if no proxy has an access log file or a
/// certificate; otherwise it reloads these files.
pub fn asks_to_end(caught: CaughtSignal, proxies: &mut [RunningProxy]) -> bool {
    let reload = |proxies: &mut [RunningProxy]| proxies.iter_mut().fold(false, |any, proxy| proxy.reload_files() | any);
    let is_reload = caught.signal == libc::SIGHUP && reload(proxies);
    !is_reload && caught.asks_to_end()
}

/// Describes the unfinished requests and tunnels of a proxy; `None` if there are none.
pub fn describe_unfinished_work(state: &State) -> Option<String> {
    let counted = |count: usize, what: &str| match count {
        0 => None,
        1 => Some(format!("1 {what}")),
        _ => Some(format!("{count} {what}s")),
    };
    let all = [counted(state.in_flight, "request"), counted(state.tunnels, "tied connection")];
    let told: Vec<String> = all.into_iter().flatten().collect();
    (!told.is_empty()).then(|| told.join(" and "))
}

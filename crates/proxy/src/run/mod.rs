//! `sidelane proxy`: a proxy in front of two servers, and what watches them for hazards.
//!
//! The proxy itself is `crates/proxy`. Here is what it cannot know: where a hazard can be seen on this machine
//! (`watch/`), what a user asks for and is told, and the threads on which it runs (`running.rs`), which the agent starts,
//! too.

mod access_log;
mod bell;
mod draining;
mod ejections;
mod metrics;
pub mod options;
mod running;
mod summary;
mod traced;
mod watch;

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use std::{mem, slice};

use anyhow::{Context, Result, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sidelane_host::posix_signals::{Caught, PosixSignals, wait_for_any};

pub use access_log::STDOUT;
use draining::asks_to_end;
pub use draining::{drain, in_flight_in_words};
pub use ejections::out_of_service;
pub use metrics::{Counted, families};
use options::{OptionError, ProxyOptions};
pub use running::{ReadyProxy, RunningProxy};
use sidelane_metrics::{Exposition, Listener};
use sidelane_report::terminal::eprint_fitted;
pub use summary::Summary;

/// The longest sleep, if nothing comes.
const SLEEP_MAX: Duration = Duration::from_secs(3600);

/// What `sidelane proxy` was asked to do.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The proxy.
    pub proxy: ProxyOptions,
    /// Where Prometheus reads.
    pub metrics: Option<SocketAddr>,
    /// For how long; nothing: until it is ended.
    pub length: Option<Duration>,
}

/// Runs the proxy until it is asked to end.
pub fn run(wanted: Wanted) -> Result<Summary> {
    wanted.proxy.twice().map_or(Ok(()), |twice| Err(OptionError::Twice(twice)))?;
    ensure!(!wanted.proxy.traces_in_vain(), OptionError::UntoldTrace);
    let signals = PosixSignals::listen().context("cannot wait for POSIX signals")?;
    let metrics = wanted.metrics.map(Listener::open).transpose()?;
    let ready = ReadyProxy::new(wanted.proxy.clone())?;
    ready.notes().iter().for_each(|note| eprint_fitted(&format!("sidelane: {note}")));
    let mut proxy = ready.start()?;
    eprint_fitted(&format!("sidelane: proxy at {}", proxy.address()));
    let tell = |proxy: &mut RunningProxy| {
        let reader = metrics.as_ref().filter(|listener| has_reader(listener));
        let news = if reader.is_some() { proxy.look_now() } else { proxy.look() };
        news.iter().for_each(|news| eprint_fitted(&format!("sidelane: {news}")));
        reader.into_iter().for_each(|listener| listener.tell(|| exposition(proxy)));
    };
    let end = wanted.length.map(|length| Instant::now() + length);
    while end.is_none_or(|end| Instant::now() < end) && !proxy.has_ended() {
        let left = end.map_or(SLEEP_MAX, |end| end.saturating_duration_since(Instant::now()));
        let caught = wait(&signals, metrics.as_ref(), &proxy, left)?;
        if caught.is_some_and(|caught| asks_to_end(caught, slice::from_ref(&proxy))) {
            break;
        }
        tell(&mut proxy);
    }
    let mut is_said = false;
    drain(slice::from_mut(&mut proxy), &signals, |proxies| {
        for proxy in proxies {
            tell(proxy);
            if !mem::replace(&mut is_said, true) {
                say_what_goes_on(proxy);
            }
        }
    })?;
    Ok(Summary::new(&wanted.proxy, proxy.end()?))
}

/// Waits for a signal, a reader of metrics, or something that the proxy has to tell.
fn wait(
    signals: &PosixSignals,
    metrics: Option<&Listener>,
    proxy: &RunningProxy,
    at_most: Duration,
) -> io::Result<Option<Caught>> {
    let files = [Some(signals.as_fd()), Some(proxy.bell()), metrics.map(Listener::as_fd)];
    let mut files: Vec<PollFd> =
        files.into_iter().flatten().map(|file| PollFd::from_borrowed_fd(file, PollFlags::IN)).collect();
    wait_for_any(&mut files, at_most.min(SLEEP_MAX))?;
    signals.wait(Duration::ZERO)
}

/// A user who does not wait has to know how to end it.
fn say_what_goes_on(proxy: &RunningProxy) {
    let Some(state) = proxy.state() else { return };
    let limit = proxy.options().limits.drain;
    if let Some(told) = in_flight_in_words(state) {
        eprint_fitted(&format!(
            "sidelane: the proxy takes no more clients, and finishes {told} within {limit:?}; press Ctrl-C again to cut \
             them"
        ));
    }
}

fn exposition(proxy: &RunningProxy) -> Exposition {
    let counted = proxy.state().map(|state| {
        let draining = usize::from(state.drains);
        Counted { listen: None, options: proxy.options(), state, draining }
    });
    Exposition(families(counted.as_slice()))
}

fn has_reader(listener: &Listener) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
}

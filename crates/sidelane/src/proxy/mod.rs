//! `sidelane proxy`: a proxy in front of two servers, and what watches them for hazards.
//!
//! The proxy itself is `crates/proxy`. Here is what it cannot know: where a hazard can be seen on this machine
//! (`watch/`), and what a user asks for and is told.

mod metrics;
pub mod options;
mod summary;
mod watch;

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sidelane_host::posix_signals::PosixSignals;
use sidelane_policy::hedge::Server;
use sidelane_proxy::edge::{Proxy, View};
use sidelane_proxy::page::HazardPage;
use tokio::task::LocalSet;
use tokio::time::sleep;

use crate::agent::metrics::Listener;
use options::ProxyOptions;
pub use summary::Summary;
use watch::Watch;

/// How often signals to this process and readers of metrics are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Runs the proxy until it is asked to end.
pub fn run(options: ProxyOptions) -> Result<Summary> {
    options.check()?;
    let signals = PosixSignals::listen().context("cannot wait for POSIX signals")?;
    let page = Arc::new(HazardPage::new().context("cannot make the page of hazards")?);
    let metrics = options.metrics.map(Listener::open).transpose()?;
    let ends = Arc::new(AtomicBool::new(false));
    let watches = start_watches(&options, &page, &ends)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start tokio")?;
    let view = LocalSet::new().block_on(&runtime, serve(&options, page, &signals, metrics.as_ref()))?;
    ends.store(true, Ordering::Relaxed);
    watches.into_iter().for_each(|watch| drop(watch.join()));
    Ok(Summary::new(&options, &view.state()))
}

/// One thread for each server that is watched.
fn start_watches(
    options: &ProxyOptions,
    page: &Arc<HazardPage>,
    ends: &Arc<AtomicBool>,
) -> Result<Vec<std::thread::JoinHandle<()>>> {
    let servers = [(Server::First, Some(options.active)), (Server::Second, options.backup)];
    let there = servers.into_iter().filter_map(|(server, address)| Some((server, address?)));
    let mut watches = Vec::new();
    for (server, address) in there {
        if options.hazards.is_none() {
            continue;
        }
        match Watch::new(server, address, &options.hazards, options.poll)? {
            Some(watch) => watches.push(watch.start(Arc::clone(page), Arc::clone(ends))?),
            None => eprintln!("sidelane: {address} is not on this machine: its hazards are not watched"),
        }
    }
    Ok(watches)
}

async fn serve(
    options: &ProxyOptions,
    page: Arc<HazardPage>,
    signals: &PosixSignals,
    metrics: Option<&Listener>,
) -> Result<Rc<View>> {
    let proxy = Proxy::open(options.config(), page).with_context(|| {
        format!("cannot listen at {}: choose another --listen, or see who does with ss -ltnp", options.listen)
    })?;
    let view = Rc::new(proxy.view());
    eprintln!("sidelane: proxy at {}", proxy.address()?);
    tokio::select! {
        result = proxy.run() => result.context("the proxy cannot go on")?,
        result = until_end(options, &view, signals, metrics) => result?,
    }
    Ok(view)
}

/// Ready when the proxy is to end. Serves readers of metrics meanwhile.
async fn until_end(
    options: &ProxyOptions,
    view: &View,
    signals: &PosixSignals,
    metrics: Option<&Listener>,
) -> Result<()> {
    let end = options.length.map(|length| Instant::now() + length);
    while end.is_none_or(|end| Instant::now() < end) {
        if signals.wait(0)?.is_some_and(|caught| caught.asks_to_end()) {
            break;
        }
        if let Some(listener) = metrics.filter(|listener| has_reader(listener)) {
            listener.tell(&metrics::exposition(options, &view.state()).text()?);
        }
        sleep(LOOK_EVERY).await;
    }
    Ok(())
}

fn has_reader(listener: &Listener) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
}

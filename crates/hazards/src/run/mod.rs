//! `sidelane hazards`: the command that watches servers for hazards, and tells HAProxy and other programs. The agent
//! uses this module too.

mod answers;
mod counts;
mod events;
mod metrics;
pub mod options;
mod running;
mod summary;
mod teller;
mod weights;

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags};
use sidelane_host::posix_signals::{PosixSignals, wait_for_any};
use sidelane_metrics::{Exposition, Listener};
use sidelane_report::terminal::eprint_fitted;

pub use counts::ServerCounts;
pub use metrics::metric_families;
use options::HazardOptions;
pub use running::{ReadyHazards, RunningHazards};
pub use summary::Summary;

/// Maximum time between two checks if no event comes.
const SLEEP_MAX: Duration = Duration::from_secs(3600);

/// Options of `sidelane hazards`.
#[derive(Clone, Debug)]
pub struct HazardsRun {
    /// Servers, and who is told of their hazards.
    pub hazards: HazardOptions,
    /// Address at which Prometheus reads metrics; `None` for no metrics.
    pub metrics: Option<SocketAddr>,
    /// Time after which the command ends; `None` for no limit.
    pub length: Option<Duration>,
}

/// Watches the servers until a POSIX signal or the time limit ends it.
pub fn run(settings: HazardsRun) -> Result<Summary> {
    let signals = PosixSignals::listen()
        .context("cannot open the descriptor for POSIX signals; check the limit of open files (ulimit -n)")?;
    let metrics = settings.metrics.map(Listener::open).transpose()?;
    let ready = ReadyHazards::new(settings.hazards)?;
    ready.notes().iter().for_each(|note| eprint_fitted(&format!("sidelane: {note}")));
    let running = ready.start()?;
    eprint_fitted(&format!("sidelane: {}", describe(&running)));
    let end = settings.length.map(|length| Instant::now() + length);
    while end.is_none_or(|end| Instant::now() < end) {
        let left = end.map_or(SLEEP_MAX, |end| end.saturating_duration_since(Instant::now()));
        let files = [Some(signals.as_fd()), Some(running.eventfd()), metrics.as_ref().map(Listener::as_fd)];
        let mut files: Vec<PollFd> =
            files.into_iter().flatten().map(|file| PollFd::from_borrowed_fd(file, PollFlags::IN)).collect();
        wait_for_any(&mut files, left.min(SLEEP_MAX))?;
        if signals.wait(Duration::ZERO)?.is_some_and(|caught| caught.asks_to_end()) {
            break;
        }
        running.take_messages().iter().for_each(|message| eprint_fitted(&format!("sidelane: {message}")));
        metrics.iter().for_each(|listener| {
            listener.answer_requests(|| Exposition(metric_families([&running])));
        });
    }
    let options = running.options().clone();
    Ok(Summary::new(&options, running.end()?))
}

/// Describes who is told of the hazards of which servers.
pub fn describe(running: &RunningHazards) -> String {
    let options = running.options();
    let names: Vec<&str> = options.servers.iter().map(|server| server.name.as_str()).collect();
    let haproxy = options.haproxy.as_ref().map(|socket| format!("drained in HAProxy at {}", socket.display()));
    let agent_check = options.agent_check.map(|address| format!("answered to agent checks at {address}"));
    let socket = options.socket.as_ref().map(|socket| format!("told at {}", socket.display()));
    let told: Vec<String> = [haproxy, agent_check, socket].into_iter().flatten().collect();
    format!("hazards of {} are {}", names.join(", "), told.join(" and "))
}

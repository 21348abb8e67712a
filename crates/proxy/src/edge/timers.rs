//! Tasks that pass time and hazards to the request table.

use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use sidelane_host::clock::now_ns;
use sidelane_policy::Nanos;
use sidelane_policy::hedge::{Hazards, HedgeEvent, SERVERS_MAX};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, sleep_until};

use super::shared::Shared;

/// Interval of the search for idle connections that servers have closed.
const SWEEP_EVERY: Duration = Duration::from_secs(10);

/// Passes changes on the hazard board to the request table. The first thread does so for all. Returns only on an error.
pub(super) async fn watch_hazards(shared: Rc<Shared>) -> std::io::Result<()> {
    if !shared.seat.is_first() {
        return std::future::pending().await;
    }
    let board = &shared.seat.team.board;
    let eventfd: OwnedFd = board.changed.as_fd().try_clone_to_owned()?;
    // SAFETY: `OwnedFd` keeps its file descriptor open and unchanged, and is dropped after the registration.
    let eventfd = unsafe { AsyncFd::register_with_interest(eventfd, Interest::READABLE) }?;
    let mut told = [Hazards::NONE; SERVERS_MAX];
    loop {
        let mut heard = eventfd.readable().await?;
        board.changed.clear();
        heard.clear_ready();
        for server in shared.servers() {
            let hazards = board.hazards(server);
            if std::mem::replace(&mut told[server.index()], hazards) != hazards {
                shared.observe(HedgeEvent::Watched(server, hazards));
            }
        }
    }
}

/// Calls the request table whenever its next wakeup time has come. Never returns.
pub(super) async fn run_timers(shared: Rc<Shared>) {
    let mut swept = Instant::now();
    loop {
        let at = shared.table.borrow().next_wakeup();
        shared.rings_at.set(at.unwrap_or(Nanos::MAX));
        let until = at.map(|at| Instant::now() + Duration::from_nanos(at.saturating_sub(now_ns())));
        let sweep = swept + SWEEP_EVERY;
        tokio::select! {
            () = sleep_until(until.map_or(sweep, |until| until.min(sweep))) => {}
            () = shared.sooner.notified() => continue,
        }
        if Instant::now() >= sweep {
            shared.close_stale_connections();
            swept = Instant::now();
        }
        shared.observe(HedgeEvent::Nothing);
    }
}

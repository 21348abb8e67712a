//! The orderly end of proxies, and a user who does not wait for it.

use std::io;
use std::time::{Duration, Instant};

use crate::edge::State;
use sidelane_host::posix_signals::{Caught, PosixSignals};

use super::running::RunningProxy;

/// How often it is looked whether a proxy has drained.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// A signal so soon after the first one is the same: `timeout` and service managers send it to the process and to its
/// group.
const SAME_SIGNAL: Duration = Duration::from_millis(500);

/// Waits until these proxies have drained, or until a second signal asks for their end. `observe` is called at each
/// look.
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

/// Whether a signal asks for the end of these proxies. SIGHUP does only if none of them has a file of an access log: those
/// files are opened again.
pub fn asks_to_end(caught: Caught, proxies: &[RunningProxy]) -> bool {
    let is_for_logs =
        caught.signal == libc::SIGHUP && proxies.iter().filter(|proxy| proxy.open_log_again()).count() > 0;
    !is_for_logs && caught.asks_to_end()
}

/// What is in flight at a proxy, in words, if anything is.
pub fn in_flight_in_words(state: &State) -> Option<String> {
    let counted = |count: usize, what: &str| match count {
        0 => None,
        1 => Some(format!("1 {what}")),
        _ => Some(format!("{count} {what}s")),
    };
    let all = [counted(state.in_flight, "request"), counted(state.tunnels, "tied connection")];
    let told: Vec<String> = all.into_iter().flatten().collect();
    (!told.is_empty()).then(|| told.join(" and "))
}

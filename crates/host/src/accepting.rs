//! Processes that accept connections made to an address of this machine.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use crate::ports::listening_at;
use crate::procfs::command_name;
use crate::service::{StandIn, holders};

/// Result of [`accepting`]: which processes accept connections at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Accepting {
    /// No process listens at the address in this network namespace. One may listen in another namespace, to which the
    /// kernel forwards.
    NoProcess,
    /// Numbers of the processes that hold the listening sockets at the address.
    These(BTreeSet<u32>),
    /// A process that accepts connections for others, such as a port proxy.
    StandIn(StandIn),
    /// The listening process cannot be inspected, or is not visible.
    Hidden,
}

/// Returns which processes accept connections at `address`, other than the process `own`.
pub fn accepting(address: SocketAddr, own: u32) -> Accepting {
    let sockets = listening_at(address);
    let mut holders = holders(&sockets);
    let is_own = holders.remove(&own);
    let (stands, rest): (Vec<_>, Vec<_>) = holders
        .into_iter()
        .map(|pid| (pid, StandIn::of(pid, &command_name(pid).unwrap_or_default())))
        .partition(|(_, stand)| stand.is_some());
    match stands.into_iter().find_map(|(_, stand)| stand) {
        _ if !rest.is_empty() => Accepting::These(rest.into_iter().map(|(pid, _)| pid).collect()),
        Some(stand) => Accepting::StandIn(stand),
        None if is_own || sockets.is_empty() => Accepting::NoProcess,
        None => Accepting::Hidden,
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    /// Waits up to 60 s until `accepting` returns `wanted`. A child that another test forks holds this process's
    /// sockets until it calls exec.
    #[track_caller]
    fn becomes(address: SocketAddr, own: u32, wanted: &Accepting) {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let found = accepting(address, own);
            if found == *wanted {
                return;
            }
            assert!(Instant::now() < deadline, "{found:?}, and never {wanted:?}");
            thread::yield_now();
        }
    }

    #[test]
    fn only_listeners_at_the_given_address_are_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, me) = (listener.local_addr().unwrap(), std::process::id());
        becomes(address, 0, &Accepting::These(BTreeSet::from([me])));
        becomes(address, me, &Accepting::NoProcess);
        let other = SocketAddr::new("127.0.0.2".parse().unwrap(), address.port());
        assert_eq!(accepting(other, 0), Accepting::NoProcess);
        drop(listener);
        becomes(address, 0, &Accepting::NoProcess);
    }
}

//! Processes that accept connections made to an address of this machine.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use crate::ports::sockets_listening_at;
use crate::procfs::command_name;
use crate::service::{StandIn, processes_holding_sockets};

/// Result of [`find_accepting_processes`]: which processes accept connections at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AcceptingProcesses {
    /// No process listens at the address in this network namespace. One may listen in another namespace, to which the
    /// kernel forwards.
    NoProcess,
    /// Numbers of the processes that hold the listening sockets at the address.
    Processes(BTreeSet<u32>),
    /// A process that accepts connections for others, such as a port proxy.
    StandIn(StandIn),
    /// The listening process cannot be inspected, or is not visible.
    Hidden,
}

/// Returns which processes accept connections at `address`, other than the process `own_pid`.
pub fn find_accepting_processes(address: SocketAddr, own_pid: u32) -> AcceptingProcesses {
    let sockets = sockets_listening_at(address);
    let mut holders = processes_holding_sockets(&sockets);
    let is_own = holders.remove(&own_pid);
    let (stands, rest): (Vec<_>, Vec<_>) = holders
        .into_iter()
        .map(|pid| (pid, StandIn::detect(pid, &command_name(pid).unwrap_or_default())))
        .partition(|(_, stand)| stand.is_some());
    match stands.into_iter().find_map(|(_, stand)| stand) {
        _ if !rest.is_empty() => AcceptingProcesses::Processes(rest.into_iter().map(|(pid, _)| pid).collect()),
        Some(stand) => AcceptingProcesses::StandIn(stand),
        None if is_own || sockets.is_empty() => AcceptingProcesses::NoProcess,
        None => AcceptingProcesses::Hidden,
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    /// Waits up to 60 s until [`find_accepting_processes`] returns `wanted`. A child that another test forks holds this
    /// process's sockets until it calls exec.
    #[track_caller]
    fn wait_until_accepting(address: SocketAddr, own_pid: u32, wanted: &AcceptingProcesses) {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let found = find_accepting_processes(address, own_pid);
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
        wait_until_accepting(address, 0, &AcceptingProcesses::Processes(BTreeSet::from([me])));
        wait_until_accepting(address, me, &AcceptingProcesses::NoProcess);
        let other = SocketAddr::new("127.0.0.2".parse().unwrap(), address.port());
        assert_eq!(find_accepting_processes(other, 0), AcceptingProcesses::NoProcess);
        drop(listener);
        wait_until_accepting(address, 0, &AcceptingProcesses::NoProcess);
    }
}

//! Published ports: the processes that accept the connections that docker's proxy forwards to a container.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::ports::{find_receiving_tcp_sockets, network_namespace_of};
use crate::procfs::{all_pids, text_of};
use crate::service::processes_holding_sockets;

/// Returns the processes that accept the connections which the process `proxy` forwards, and their port. `None` if
/// the proxy's command line names no address, no process listens there, or the address exists in two networks.
pub(crate) fn processes_behind_proxy(proxy: u32) -> Option<(BTreeSet<u32>, u16)> {
    let told = parse_forwarding_address(&fs::read(format!("/proc/{proxy}/cmdline")).ok()?)?;
    let own = network_namespace_of(&proxy.to_string())?;
    let others = process_of_each_network_namespace()
        .into_iter()
        .filter(|(network, pid)| *network != own && namespace_has_address(*pid, told.ip()));
    let found = others
        .map(|(_, pid)| processes_holding_sockets(&find_receiving_tcp_sockets(pid, told)))
        .filter(|pids| !pids.is_empty());
    let found: Vec<BTreeSet<u32>> = found.collect();
    <[_; 1]>::try_from(found).ok().map(|[pids]| (pids, told.port()))
}

/// Parses the address to which a proxy with this command line forwards connections.
fn parse_forwarding_address(command: &[u8]) -> Option<SocketAddr> {
    let words: Vec<&str> = command.split(|byte| *byte == 0).filter_map(|word| std::str::from_utf8(word).ok()).collect();
    let value = |name: &str| {
        let at = words.iter().position(|word| word.trim_start_matches('-') == name && word.starts_with('-'))?;
        words.get(at + 1).copied()
    };
    Some(SocketAddr::new(value("container-ip")?.parse().ok()?, value("container-port")?.parse().ok()?))
}

/// Returns each network namespace, with one of its processes.
fn process_of_each_network_namespace() -> BTreeMap<u32, u32> {
    all_pids().into_iter().filter_map(|pid| Some((network_namespace_of(&pid.to_string())?, pid))).collect()
}

/// Whether an address belongs to the network namespace of a process.
fn namespace_has_address(pid: u32, ip: IpAddr) -> bool {
    let table = |name: &str| text_of(&format!("/proc/{pid}/net/{name}")).unwrap_or_default();
    match ip {
        IpAddr::V4(ip) => is_local_in_routes(&table("fib_trie"), &ip.to_string()),
        IpAddr::V6(ip) => table("if_inet6").lines().any(|line| parse_if_inet6_address(line) == Some(ip)),
    }
}

/// Whether a table of routes (`fib_trie`) marks an address as local. The marks of an address are in the lines after
/// it.
fn is_local_in_routes(routes: &str, ip: &str) -> bool {
    let mut is_of_ip = false;
    routes.lines().any(|line| {
        match line.trim().strip_prefix("|-- ") {
            Some(address) => is_of_ip = address == ip,
            None if is_of_ip => return line.trim() == "/32 host LOCAL",
            None => {}
        }
        false
    })
}

fn parse_if_inet6_address(line: &str) -> Option<Ipv6Addr> {
    u128::from_str_radix(line.split_whitespace().next()?, 16).ok().map(Ipv6Addr::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_of_docker_proxy_is_read_from_its_command_line() {
        let of = |command: &str| {
            parse_forwarding_address(command.replace(' ', "\0").as_bytes()).map(|told| told.to_string())
        };
        let docker = "/usr/bin/docker-proxy -proto tcp -host-ip 0.0.0.0 -host-port 8080 -container-ip 172.17.0.2 \
                      -container-port 6379 -use-listen-fd";
        assert_eq!(of(docker).as_deref(), Some("172.17.0.2:6379"));
        assert_eq!(of("docker-proxy -container-ip fd00::2 -container-port 80").as_deref(), Some("[fd00::2]:80"));
        for other in ["docker-proxy", "docker-proxy -container-ip 172.17.0.2", "p -container-ip x -container-port 80"] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn local_addresses_of_a_namespace_are_found() {
        let routes = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.0.0.0\n        /8 universe UNICAST\n     |-- 10.0.0.2\n        /32 host LOCAL\n";
        assert!(
            is_local_in_routes(routes, "10.0.0.2")
                && !is_local_in_routes(routes, "10.0.0.0")
                && !is_local_in_routes(routes, "10.0.0.3")
        );
        assert!(namespace_has_address(std::process::id(), "127.0.0.1".parse().unwrap()));
        let line = "fd000000000000000000000000000002 02 40 00 80     eth0";
        assert_eq!(parse_if_inet6_address(line), "fd00::2".parse().ok());
    }
}

//! Tests of the agent's tables `[[hazards]]`: HAProxy is told, a reload changes it, and the end gives weights back.

use std::net::SocketAddr;

use crate::common::haproxy::Haproxy;
use crate::common::nginx::Nginx;
use crate::common::process::{scheduling_class, threads_named};
use crate::common::scripted::unused_address;
use crate::common::{Footprint, lock_lanes, wait_until};
use crate::daemon::{Daemon, File};
use crate::metrics::http_get;

/// Number of the ordinary scheduling class in the kernel.
const ORDINARY: &str = "0";

fn table(haproxy: &Haproxy, addresses: &[SocketAddr], hazard: &str) -> String {
    let servers = addresses.iter().enumerate().map(|(at, address)| format!("\"web/s{}={address}\"", at + 1));
    let servers = servers.collect::<Vec<_>>().join(", ");
    let socket = haproxy.socket();
    format!("[[hazards]]\nservers = [{servers}]\nhaproxy = \"{}\"\nhazard = \"{hazard}\"", socket.display())
}

#[test]
fn agent_drains_servers_until_its_table_is_gone() {
    let Some(_turn) = lock_lanes() else { return };
    let before = Footprint::capture();
    let Some((one, two)) = Nginx::start("one").zip(Nginx::start("two")) else { return };
    let addresses = [one.address, two.address];
    let lines = addresses.iter().enumerate().map(|(at, address)| format!("server s{} {address} weight 100", at + 1));
    let Some(haproxy) = Haproxy::start(&lines.collect::<Vec<_>>()) else { return };
    let metrics = unused_address();
    let file = File::with_absent_targets().with_lines(&format!("[metrics]\nlisten = \"{metrics}\""));
    let with_hazards = file.clone().with_lines(&table(&haproxy, &addresses, "stopped"));
    let daemon = Daemon::start(&with_hazards, 0, 0);
    one.signal(libc::SIGSTOP);
    wait_until("it was drained", || haproxy.weight("s1") == 0);
    let counted = "sidelane_hazard_share_ratio{server=\"web/s1\"} 0";
    wait_until("it was counted", || http_get(metrics.port(), "/metrics").contains(counted));
    let watches = threads_named(daemon.run.pid(), "sidelane-watch");
    assert_eq!(watches.iter().filter_map(|tid| scheduling_class(*tid)).collect::<Vec<_>>(), [ORDINARY; 2]);
    daemon.reload(&file);
    wait_until("the weight was given back", || haproxy.weight("s1") == 100);
    daemon.reload(&with_hazards);
    wait_until("it was drained again", || haproxy.weight("s1") == 0);
    daemon.end();
    assert_eq!(haproxy.weight("s1"), 100);
    one.signal(libc::SIGCONT);
    drop((one, two, haproxy));
    before.wait_until_restored();
}

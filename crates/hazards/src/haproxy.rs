//! Runtime API of HAProxy: what it says about servers and sessions, and commands that change weights and end sessions.

use std::io;
use std::path::PathBuf;

use sidelane_rollback::command_socket::exchange;

/// State `running` of a server (`srv_op_state`); `starting` is the state before it, in which a server is used, too.
const RUNNING: [u32; 2] = [1, 2];
/// Bit of a session's response analysers until the head of the response has come (`AN_RES_WAIT_HTTP`, from 2.2 to 3.5).
const WAITS_FOR_HEAD: u32 = 0x0040_0000;
/// Number of sessions that one line of commands ends. HAProxy reads a line of 16 kB.
const ENDED_AT_ONCE: usize = 256;

/// Runtime socket of a HAProxy. Each command has its own connection: after a reload, a kept one would reach the old
/// process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeSocket(pub PathBuf);

/// Server of a backend, as HAProxy reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendServer {
    /// Name of the server in its backend.
    pub name: String,
    /// Numbers of the backend and of the server.
    pub ids: (u32, u32),
    /// Whether checks and administrators let HAProxy use the server. The weight does not count.
    pub is_up: bool,
    /// Present weight.
    pub weight: u32,
}

/// Counts of requests at a server that HAProxy neither answered nor sent to another server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut(pub u64);

impl RuntimeSocket {
    /// Returns the servers of a backend.
    pub fn servers(&self, backend: &str) -> io::Result<Vec<BackendServer>> {
        let answer = exchange(&self.0, &format!("show servers state {backend}"))?;
        let servers = parse_servers(&answer);
        if servers.is_empty() {
            return Err(io::Error::other(first_line(&answer)));
        }
        Ok(servers)
    }

    /// Returns the number of requests that were cut at a server so far.
    pub fn cut(&self, server: &BackendServer) -> io::Result<Cut> {
        let (backend, number) = server.ids;
        let answer = exchange(&self.0, &format!("show stat {backend} 4 {number}"))?;
        parse_cut(&answer).ok_or_else(|| io::Error::other(first_line(&answer)))
    }

    /// Returns the sessions that wait for a server's response. HAProxy can send the requests of these alone to another
    /// server: any other session would be cut in the middle of its answer.
    pub fn waiting_sessions(&self, backend: &str, server: &BackendServer) -> io::Result<Vec<String>> {
        let answer = exchange(&self.0, "show sess")?;
        let sessions = parse_sessions(&answer);
        // The connection of this command is a session, too.
        if sessions.is_empty() {
            return Err(io::Error::other(first_line(&answer)));
        }
        let waiting = |of: &Session<'_>| of.waits && of.backend == backend && of.server == server.name;
        Ok(sessions.into_iter().filter(waiting).map(|session| session.id.to_owned()).collect())
    }

    /// Ends sessions. Those that have ended by themselves are left out.
    pub fn end_sessions(&self, sessions: &[String]) -> io::Result<()> {
        for some in sessions.chunks(ENDED_AT_ONCE) {
            let commands: Vec<String> = some.iter().map(|session| format!("shutdown session {session}")).collect();
            exchange(&self.0, &commands.join(";"))?;
        }
        Ok(())
    }

    /// Sends commands that have no answer if they succeed.
    pub fn command(&self, commands: &str) -> io::Result<()> {
        let answer = exchange(&self.0, commands)?;
        let said = first_line(&answer);
        if said.is_empty() { Ok(()) } else { Err(io::Error::other(said)) }
    }
}

/// Returns the command that sets the weight of the server BACKEND/SERVER.
pub fn weight_command(name: &str, weight: u32) -> String {
    format!("set server {name} weight {weight}")
}

/// Returns the part of a usual weight that corresponds to a share, rounded up, so that only a share of 0 drains.
pub fn weight_of_share(usual: u32, percent: u8) -> u32 {
    (usual * u32::from(percent)).div_ceil(100)
}

fn first_line(answer: &str) -> String {
    answer.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default().to_owned()
}

/// Reads the answer to `show servers state`. Lines that are incomplete are left out.
fn parse_servers(answer: &str) -> Vec<BackendServer> {
    let mut lines = answer.lines();
    let header = lines.find_map(|line| line.strip_prefix("# ")).unwrap_or_default();
    let columns: Vec<&str> = header.split(' ').collect();
    let server = |line: &str| {
        let fields: Vec<&str> = line.split(' ').collect();
        let field = |name: &str| fields.get(columns.iter().position(|column| *column == name)?).copied();
        let number = |name: &str| field(name)?.parse::<u32>().ok();
        Some(BackendServer {
            name: field("srv_name")?.to_owned(),
            ids: (number("be_id")?, number("srv_id")?),
            is_up: RUNNING.contains(&number("srv_op_state")?) && number("srv_admin_state")? == 0,
            weight: number("srv_uweight")?.min(256),
        })
    };
    lines.filter_map(server).collect()
}

/// Session, as HAProxy reports it.
#[derive(Debug, PartialEq, Eq)]
struct Session<'a> {
    id: &'a str,
    backend: &'a str,
    server: &'a str,
    /// Whether its response has not begun.
    waits: bool,
}

/// Reads the answer to `show sess`. Lines that are incomplete are left out.
fn parse_sessions(answer: &str) -> Vec<Session<'_>> {
    let session = |line| {
        let (id, said): (&str, &str) = str::split_once(line, ": ")?;
        u64::from_str_radix(id.strip_prefix("0x")?, 16).ok()?;
        let field = |name| said.split(' ').find_map(|field| field.strip_prefix(name));
        let analysers = field("rp[")?.split(',').find_map(|part| part.strip_prefix("an=")?.strip_suffix('h'))?;
        let waits = u32::from_str_radix(analysers, 16).ok()? & WAITS_FOR_HEAD != 0;
        Some(Session { id, backend: field("be=")?, server: field("srv=")?, waits })
    };
    answer.lines().filter_map(session).collect()
}

/// Reads the answer to `show stat` for one server: responses that were invalid or incomplete, and transfers that ended
/// in the middle.
fn parse_cut(answer: &str) -> Option<Cut> {
    let mut lines = answer.lines();
    let columns: Vec<&str> = lines.find_map(|line| line.strip_prefix("# "))?.split(',').collect();
    let fields: Vec<&str> = lines.find(|line| !line.is_empty())?.split(',').collect();
    let count = |name: &str| fields.get(columns.iter().position(|column| *column == name)?)?.parse::<u64>().ok();
    Some(Cut(count("eresp")?.saturating_add(count("srv_abrt")?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers of HAProxy 2.6.12.
    const SERVERS: &str = include_str!("../../../tests/fuzz/haproxy/servers");
    const STAT: &str = include_str!("../../../tests/fuzz/haproxy/stat");
    const SESSIONS: &str = include_str!("../../../tests/fuzz/haproxy/sessions");

    #[test]
    fn servers_are_up_unless_a_check_or_an_administrator_says_no() {
        let found = parse_servers(SERVERS);
        let told: Vec<_> = found.iter().map(|server| (server.name.as_str(), server.is_up, server.weight)).collect();
        assert_eq!(told, [("s1", true, 0), ("s2", true, 100), ("s3", false, 100), ("s4", false, 1), ("s5", false, 1)]);
        assert_eq!(found[1].ids, (3, 2));
        assert_eq!(parse_servers("Can't find backend.\n"), []);
    }

    #[test]
    fn responses_that_were_not_sent_again_are_cut() {
        assert_eq!(parse_cut(STAT), Some(Cut(4)));
        assert_eq!(parse_cut("# pxname,svname\n"), None);
    }

    #[test]
    fn sessions_wait_until_their_response_begins() {
        let read = parse_sessions(SESSIONS);
        let told: Vec<_> = read.iter().map(|of| (&of.id[11..], of.backend, of.server, of.waits)).collect();
        let (web, own) = (("2e0", "reads", "s1", false), ("d50", "<NONE>", "<none>", false));
        let waiting = [("e10", "other", "s1", true), ("fd0", "reads", "s1", true), ("060", "reads", "s1", true)];
        assert_eq!(told, [web, waiting[0], own, waiting[1], waiting[2]]);
        assert_eq!(parse_sessions("Permission denied\n"), []);
    }

    #[test]
    fn share_of_a_weight_is_rounded_up() {
        let weights = [(1, 0), (1, 10), (1, 100), (100, 10), (256, 50), (3, 40)];
        assert_eq!(weights.map(|(usual, percent)| weight_of_share(usual, percent)), [0, 1, 1, 10, 128, 2]);
    }

    #[test]
    fn fuzzed_answers_of_haproxy_are_read_or_left_out() {
        sidelane_testing::fuzz("haproxy", |bytes| {
            let text = String::from_utf8_lossy(bytes);
            let _ = parse_cut(&text);
            assert!(parse_sessions(&text).iter().all(|session| !session.id.contains([';', ' '])));
            for server in parse_servers(&text) {
                assert!(server.weight <= 256 && !server.name.contains([' ', '\n']));
            }
        });
    }
}

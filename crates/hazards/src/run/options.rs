//! Options of `sidelane hazards`, and of a `[[hazards]]` table of the agent's file.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use sidelane_policy::hedge::Drains;
use thiserror::Error;

use crate::WatchedHazards;

/// Server that is watched, with its name for others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedServer {
    /// Name for others; BACKEND/SERVER for HAProxy.
    pub name: String,
    /// Address at which the server listens.
    pub address: SocketAddr,
}

impl NamedServer {
    /// Returns the backend that the name contains; `None` if it contains none.
    pub fn backend(&self) -> Option<&str> {
        let (backend, server) = self.name.split_once('/')?;
        (!backend.is_empty() && !server.is_empty()).then_some(backend)
    }
}

impl fmt::Display for NamedServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.address)
    }
}

impl FromStr for NamedServer {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Self, OptionError> {
        let wrong = || OptionError::Server(text.to_owned());
        let (name, address) = text.split_once('=').ok_or_else(wrong)?;
        // The name becomes a part of commands to HAProxy, which end with `;` and the end of the line.
        let is_name = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:/".contains(&byte));
        if name.is_empty() || !is_name(name) {
            return Err(wrong());
        }
        Ok(Self { name: name.to_owned(), address: address.parse().map_err(|_| wrong())? })
    }
}

/// Error in the options.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum OptionError {
    /// The text is not a server.
    #[error("`{0}` is not a server; write NAME=ADDRESS:PORT, as in web/s1=127.0.0.1:9001")]
    Server(String),
    /// No program is told of hazards.
    #[error(
        "cannot tell anyone of hazards: no receiver is named; use --haproxy SOCKET, --agent-check ADDRESS or --socket PATH"
    )]
    NoReceiver,
    /// HAProxy would get weights in two ways.
    #[error(
        "cannot use --haproxy and --agent-check together: both set the weights in HAProxy; use --haproxy if HAProxy \
         runs on this machine, else --agent-check"
    )]
    TwoWays,
    /// Two servers have one name.
    #[error("cannot tell two servers named `{0}` apart; give each its own name")]
    TwiceNamed(String),
    /// HAProxy knows servers by other names.
    #[error(
        "cannot find `{0}` in HAProxy: it is not BACKEND/SERVER; write web/s1=127.0.0.1:9001 for the server s1 of the backend web"
    )]
    NoBackend(String),
    /// Only HAProxy's runtime API can send requests again.
    #[error("cannot use --resend without --haproxy; leave it out, or name HAProxy's socket")]
    UntoldResend,
    /// A single server would never be drained.
    #[error(
        "cannot drain the only server {0}; name the others (--server), or say how many there are elsewhere (--others 1)"
    )]
    OnlyServer(String),
    /// There are too many servers.
    #[error("cannot watch {0} servers; name at most {max}", max = Drains::SERVERS_MAX)]
    TooMany(usize),
}

/// Options of `sidelane hazards`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HazardOptions {
    /// Servers that are watched.
    pub servers: Vec<NamedServer>,
    /// Hazards to watch for.
    pub hazards: WatchedHazards,
    /// Runtime socket of the HAProxy in which servers are drained; `None` for none.
    pub haproxy: Option<PathBuf>,
    /// Whether HAProxy is made to send requests in flight to another server.
    pub resend: bool,
    /// Address at which agent checks of HAProxy are answered; `None` for none.
    pub agent_check: Option<SocketAddr>,
    /// Path of the Unix socket at which programs read hazards; `None` for none.
    pub socket: Option<PathBuf>,
    /// Number of ready servers elsewhere. HAProxy's runtime API says itself how many there are.
    pub others: usize,
    /// Time in which the share of a server that comes back rises.
    pub warm_up: Duration,
    /// Interval at which hazards are checked.
    pub poll: Duration,
}

impl Default for HazardOptions {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            hazards: WatchedHazards::All,
            haproxy: None,
            resend: false,
            agent_check: None,
            socket: None,
            others: 0,
            warm_up: Duration::from_secs(10),
            poll: Duration::from_micros(200),
        }
    }
}

impl HazardOptions {
    /// Returns the first contradiction in the options; `None` if there is none.
    pub fn contradiction(&self) -> Option<OptionError> {
        let is_twice = |(at, server): &(usize, &NamedServer)| {
            self.servers[..*at].iter().any(|earlier| earlier.name == server.name)
        };
        let twice = self.servers.iter().enumerate().find(is_twice).map(|(_, server)| server);
        let without_backend = self.servers.iter().find(|server| server.backend().is_none());
        match (&self.haproxy, self.agent_check, &self.socket) {
            (None, None, None) => Some(OptionError::NoReceiver),
            (Some(_), Some(_), _) => Some(OptionError::TwoWays),
            _ if self.servers.len() > Drains::SERVERS_MAX => Some(OptionError::TooMany(self.servers.len())),
            _ if twice.is_some() => twice.map(|server| OptionError::TwiceNamed(server.name.clone())),
            (Some(_), ..) if without_backend.is_some() => {
                without_backend.map(|server| OptionError::NoBackend(server.name.clone()))
            }
            (None, ..) if self.resend => Some(OptionError::UntoldResend),
            (None, Some(_), _) if self.servers.len() == 1 && self.others == 0 => {
                Some(OptionError::OnlyServer(self.servers[0].name.clone()))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_is_a_name_and_an_address() {
        let server: NamedServer = "web/s1=[::1]:80".parse().unwrap();
        assert_eq!((server.backend(), server.to_string().as_str()), (Some("web"), "web/s1=[::1]:80"));
        assert_eq!("s1=127.0.0.1:80".parse::<NamedServer>().unwrap().backend(), None);
        for wrong in ["", "web/s1", "=127.0.0.1:80", "web/s1=80", "web/s1;x=127.0.0.1:80", "web s1=127.0.0.1:80"] {
            assert_eq!(wrong.parse::<NamedServer>(), Err(OptionError::Server(wrong.to_owned())));
        }
    }

    #[test]
    fn contradictions_are_found() {
        let server = |text: &str| text.parse::<NamedServer>().unwrap();
        let two = vec![server("web/s1=127.0.0.1:1"), server("web/s2=127.0.0.1:2")];
        let agent_check = "127.0.0.1:9".parse().ok();
        let good = HazardOptions { servers: two.clone(), haproxy: Some("/s".into()), ..HazardOptions::default() };
        let by_check = HazardOptions { haproxy: None, agent_check, ..good.clone() };
        assert_eq!((good.contradiction(), by_check.contradiction()), (None, None));
        let wrong = [
            (HazardOptions { haproxy: None, ..good.clone() }, OptionError::NoReceiver),
            (HazardOptions { agent_check, ..good.clone() }, OptionError::TwoWays),
            (
                HazardOptions { servers: vec![two[0].clone(); 2], ..good.clone() },
                OptionError::TwiceNamed("web/s1".to_owned()),
            ),
            (
                HazardOptions { servers: vec![server("s1=127.0.0.1:1")], ..good },
                OptionError::NoBackend("s1".to_owned()),
            ),
            (HazardOptions { resend: true, ..by_check.clone() }, OptionError::UntoldResend),
            (
                HazardOptions { servers: two[..1].to_vec(), ..by_check.clone() },
                OptionError::OnlyServer("web/s1".to_owned()),
            ),
        ];
        for (options, error) in wrong {
            assert_eq!(options.contradiction(), Some(error));
        }
        assert_eq!(HazardOptions { servers: two[..1].to_vec(), others: 1, ..by_check }.contradiction(), None);
    }
}

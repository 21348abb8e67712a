//! Options of a proxy, parsed from text.

use std::fmt;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use sidelane_hazards::WatchedHazards;
use sidelane_host::units::parse_time;
use sidelane_policy::hedge::{HedgeBudgetConfig, Mode, RolesConfig, SERVERS_MAX};
use sidelane_report::otlp::Destination;
use sidelane_trace::slow_threshold::SlowThreshold;
use thiserror::Error;

use crate::access::Format;
use crate::config::{Config, Limits, METHODS, Protocol};
use crate::http::Forwarded;
use crate::request_table::TableConfig;
use crate::resp::Repeatable;
use crate::tls::TlsFiles;

/// Error in an option of the proxy.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum OptionError {
    /// The text is not an address to listen at.
    #[error(
        "`{0}` is not an address; write ADDRESS:PORT, as in 127.0.0.1:9001, or :8080 for every address of this machine"
    )]
    Listen(String),
    /// The text is not an address of a server.
    #[error("`{0}` is not an address of a server; write ADDRESS:PORT, as in 127.0.0.1:9001")]
    Server(String),
    /// Two options have the same address.
    #[error("cannot use {} for {}; give each its own address", .0.address, .0.options())]
    Twice(DuplicateAddress),
    /// There are too many backups.
    #[error("cannot use {0} backups; name at most {BACKUPS_MAX}")]
    TooManyBackups(usize),
    /// The option `--trace` has no effect with this protocol.
    #[error("cannot use --trace with --protocol redis; leave --trace out")]
    UntoldTrace,
    /// The text is not a condition for hedging.
    #[error("`{0}` does not say when to hedge; write hazard, timer:TIME (as in timer:20ms) or none")]
    Hedge(String),
}

/// Address that two options have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DuplicateAddress {
    /// Common address.
    pub address: SocketAddr,
    /// Name of the first option with this address.
    pub first: &'static str,
    /// Name of the second option with this address.
    pub second: &'static str,
}

impl DuplicateAddress {
    fn options(&self) -> String {
        match self.first == self.second {
            true => format!("two --{}", self.first),
            false => format!("both --{} and --{}", self.first, self.second),
        }
    }
}

/// Parses an address to listen at. `:8080` stands for all IPv6 and IPv4 addresses of this machine.
pub fn parse_listen(text: &str) -> Result<SocketAddr, OptionError> {
    let parsed = match text.strip_prefix(':') {
        Some(port) => port.parse().ok().map(|port| SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))),
        None => text.parse().ok(),
    };
    parsed.ok_or_else(|| OptionError::Listen(text.to_owned()))
}

/// Parses the address of a server.
pub fn parse_server(text: &str) -> Result<SocketAddr, OptionError> {
    text.parse().map_err(|_| OptionError::Server(text.to_owned()))
}

/// Condition for sending a request to a second server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hedge(pub Mode);

impl FromStr for Hedge {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Self, OptionError> {
        let wrong = || OptionError::Hedge(text.to_owned());
        match text.split_once(':') {
            None if text == "hazard" => Ok(Self(Mode::Hazard)),
            None if text == "none" => Ok(Self(Mode::Never)),
            Some(("timer", time)) => {
                let after = parse_time(time).ok().filter(|after| !after.is_zero()).ok_or_else(wrong)?;
                Ok(Self(Mode::Timer { after_ns: after.as_nanos() as u64 }))
            }
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Hedge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Mode::Hazard => f.write_str("hazard"),
            Mode::Timer { after_ns } => write!(f, "timer:{}us", after_ns / 1000),
            Mode::Never => f.write_str("none"),
        }
    }
}

/// Name of the option for a backup.
pub const BACKUP_OPTION: &str = "backup";
/// Largest number of backups.
pub const BACKUPS_MAX: usize = SERVERS_MAX - 1;

/// Largest number of threads that serve clients.
pub const THREADS_MAX: usize = 256;

/// Names of the protocols in options.
pub const PROTOCOLS: [(&str, Protocol); 2] = [("http", Protocol::Http), ("redis", Protocol::Redis)];
/// Names of the targets for requests that are not safe to repeat. The value tells whether these requests stay at the
/// first server.
pub const ONCE_TO: [(&str, bool); 2] = [("active", false), ("first", true)];

/// Names of the modes for fields that tell servers who the client is.
pub const FORWARDED: [(&str, Forwarded); 3] =
    [("set", Forwarded::Set), ("add", Forwarded::Add), ("off", Forwarded::Off)];

/// Names of the formats of the access log.
pub const LOG_FORMATS: [(&str, Format); 2] = [("text", Format::Text), ("json", Format::Json)];

/// Options of a proxy, from `sidelane proxy` or from a `[[proxy]]` table of the agent's file.
#[derive(Clone, Debug, PartialEq)]
pub struct ProxyOptions {
    /// Address at which the proxy listens for clients.
    pub listen: SocketAddr,
    /// Address of the server that is active at first.
    pub active: SocketAddr,
    /// Addresses of its backups, in the order of preference; none for a proxy with one server.
    pub backups: Vec<SocketAddr>,
    /// Protocol that clients and servers use.
    pub protocol: Protocol,
    /// Hazards to watch for.
    pub hazards: WatchedHazards,
    /// Condition for sending a request to a second server.
    pub hedge: Hedge,
    /// HTTP methods or Redis commands that are safe to repeat. An empty list stands for the default.
    pub repeat: Vec<String>,
    /// Whether requests that are not safe to repeat stay at the server that the user named as active.
    pub unsafe_stay: bool,
    /// Mode for the fields that tell servers who the client is.
    pub forwarded: Forwarded,
    /// Maximum number of hedges in percent of the requests.
    pub budget_percent: f64,
    /// Maximum number of hedges in a burst.
    pub burst: u64,
    /// Number of requests to warm up a server; 0 for no warm-up.
    pub warm_up: u32,
    /// Whether a server that fails requests is taken out of service.
    pub outlier_detection: bool,
    /// Interval at which hazards are checked.
    pub poll: Duration,
    /// Whether the servers are traced.
    pub trace: bool,
    /// Destination to which slow requests are exported; `None` for none.
    pub otlp: Option<Destination>,
    /// Latency above which a request is exported.
    pub slo: Option<SlowThreshold>,
    /// Path of the access log; `None` for no log.
    pub access_log: Option<PathBuf>,
    /// Format of the access log.
    pub log_format: Format,
    /// Number of threads that serve clients.
    pub threads: usize,
    /// Certificate and key for TLS to clients; `None` for no TLS.
    pub tls: Option<TlsFiles>,
    /// Limits of size, time and number for clients and servers.
    pub limits: Limits,
}

impl ProxyOptions {
    /// Returns the default options with the given addresses.
    pub fn new(listen: SocketAddr, active: SocketAddr) -> Self {
        Self {
            listen,
            active,
            backups: Vec::new(),
            protocol: Protocol::Http,
            hazards: WatchedHazards::All,
            hedge: Hedge(Mode::Hazard),
            repeat: Vec::new(),
            unsafe_stay: false,
            forwarded: Forwarded::Set,
            budget_percent: 10.0,
            burst: 100,
            warm_up: 200,
            outlier_detection: true,
            poll: Duration::from_micros(200),
            trace: false,
            otlp: None,
            slo: None,
            access_log: None,
            log_format: Format::default(),
            threads: 1,
            tls: None,
            limits: Limits::default(),
        }
    }

    /// Returns the addresses of the servers: the one that is active at first, and its backups.
    pub fn servers(&self) -> impl Iterator<Item = SocketAddr> {
        [self.active].into_iter().chain(self.backups.iter().copied())
    }

    /// Returns the first address that two options have in common; `None` if all differ.
    pub fn duplicate_address(&self) -> Option<DuplicateAddress> {
        let mut given = vec![("listen", self.listen), ("active", self.active)];
        given.extend(self.backups.iter().map(|backup| (BACKUP_OPTION, *backup)));
        given.iter().enumerate().find_map(|(i, (second, address))| {
            let (first, _) = given[..i].iter().find(|(_, earlier)| earlier == address)?;
            Some(DuplicateAddress { address: *address, first, second })
        })
    }

    /// Returns whether the options trace servers although no client can request the traces.
    pub fn is_trace_unusable(&self) -> bool {
        self.trace && self.protocol == Protocol::Redis
    }

    /// Converts the options into the configuration of the proxy, except for TLS, whose files are not read here.
    pub(super) fn config(&self) -> Config {
        let usual = RolesConfig::default();
        let roles = RolesConfig {
            mode: self.hedge.0,
            servers: self.servers().count(),
            warm_up_ns: if self.warm_up > 0 { usual.warm_up_ns } else { 0 },
            out_ns: if self.outlier_detection { usual.out_ns } else { 0 },
            ..usual
        };
        let per_success_milli = (self.budget_percent * 10.0) as u64;
        let budget = HedgeBudgetConfig { per_success_milli, burst: self.burst };
        Config {
            servers: self.servers().collect(),
            protocol: self.protocol,
            repeatable: self.repeatable(),
            table: TableConfig { roles, budget, unsafe_stay: self.unsafe_stay, ..TableConfig::default() },
            limits: self.limits,
            warm_up_requests: self.warm_up,
            forwarded: self.forwarded,
            tls: None,
        }
    }

    fn repeatable(&self) -> Repeatable {
        match (self.repeat.is_empty(), self.protocol) {
            (false, _) => Repeatable::from_names(self.repeat.iter().map(String::as_str)),
            (true, Protocol::Http) => Repeatable::from_names(METHODS),
            (true, Protocol::Redis) => Repeatable::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_need_a_port() {
        assert_eq!(parse_listen(":8080").unwrap().to_string(), "[::]:8080");
        assert_eq!(parse_listen("[::1]:80").unwrap().to_string(), "[::1]:80");
        assert!(parse_server("127.0.0.1:80").is_ok() && parse_server(":80").is_err());
        for wrong in ["", "8080", "localhost", ":", ":70000", "1.2.3.4"] {
            assert!(parse_listen(wrong).unwrap_err().to_string().contains("127.0.0.1:9001"), "{wrong}");
            assert!(parse_server(wrong).unwrap_err().to_string().contains("127.0.0.1:9001"), "{wrong}");
        }
    }

    #[test]
    fn same_address_of_two_options_is_named_with_both() {
        let addresses = [1, 2, 3, 4].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let [listen, active, one, two] = addresses;
        let error = |backups: &[SocketAddr]| {
            let options = ProxyOptions { backups: backups.to_vec(), ..ProxyOptions::new(listen, active) };
            options.duplicate_address().map(|twice| OptionError::Twice(twice).to_string())
        };
        assert_eq!((error(&[]), error(&[one, two])), (None, None));
        for (backups, options) in [
            (&[active][..], "127.0.0.1:2 for both --active and --backup"),
            (&[one, listen], "127.0.0.1:1 for both --listen and --backup"),
            (&[one, two, one], "127.0.0.1:3 for two --backup"),
        ] {
            assert_eq!(error(backups), Some(format!("cannot use {options}; give each its own address")));
        }
    }

    #[test]
    fn hedge_modes_are_read_as_printed() {
        for text in ["hazard", "timer:20000us", "none"] {
            assert_eq!(text.parse::<Hedge>().unwrap().to_string(), text);
        }
        for wrong in ["", "timer", "timer:", "timer:0ms", "timer:5", "always"] {
            assert!(wrong.parse::<Hedge>().unwrap_err().to_string().contains("timer:20ms"), "{wrong}");
        }
    }
}

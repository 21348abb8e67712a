//! Contradictions between rules of the file: claims of the same thing by two rules.

use std::net::SocketAddr;

use sidelane_toml::Problem;

use super::glob::Glob;
use super::{BatchTree, Config, Kubernetes, Match, ServiceRule};

/// Line numbers of the rules, in the order of the file.
#[derive(Debug, Default)]
pub(super) struct Lines {
    pub(super) services: Vec<Option<usize>>,
    pub(super) batch: Vec<Option<usize>>,
    pub(super) kubernetes: Option<usize>,
    pub(super) proxies: Vec<Option<usize>>,
    pub(super) hazards: Vec<Option<usize>>,
    pub(super) metrics: Option<usize>,
    pub(super) trace: Option<usize>,
    pub(super) hurry: Option<usize>,
}

/// Claim of a thing that only one rule may have.
struct Claim {
    key: &'static str,
    value: String,
    resource: ClaimedResource,
    line: Option<usize>,
}

enum ClaimedResource {
    Name(String),
    Groups(Glob),
    Unit(String),
    Port(u16),
    /// Name of processes, cut to the length that the kernel keeps.
    Comm(String),
    Pods(String),
    /// Address at which the agent listens.
    Address(SocketAddr),
}

/// Returns a problem for every claim that contradicts an earlier claim.
pub(super) fn contradictions(config: &Config, lines: &Lines) -> Vec<Problem> {
    let claims = claims(config, lines);
    let contradicts = |number: usize, claim: &Claim| {
        let earlier = claims[..number].iter().find(|earlier| claim.resource.contradicts(&earlier.resource))?;
        Some(claim.conflict_with(earlier))
    };
    claims.iter().enumerate().filter_map(|(number, claim)| contradicts(number, claim)).collect()
}

fn claims(config: &Config, lines: &Lines) -> Vec<Claim> {
    let services = config.services.iter().zip(&lines.services).flat_map(|(rule, line)| service_claims(rule, *line));
    let batch = config.batch.iter().zip(&lines.batch).map(|(tree, line)| batch_claim(tree, *line));
    let kubernetes = config.kubernetes.iter().flat_map(|kubernetes| kubernetes_claims(kubernetes, lines.kubernetes));
    let mut claims: Vec<Claim> =
        services.chain(batch).chain(kubernetes).chain(listen_address_claims(config, lines)).collect();
    claims.sort_by_key(|claim| claim.line);
    claims
}

fn service_claims(rule: &ServiceRule, line: Option<usize>) -> [Claim; 2] {
    let quoted = |text: &dyn std::fmt::Display| format!("\"{text}\"");
    let (key, value, what) = match &rule.matches {
        Match::Cgroup(glob) => ("service.cgroup", quoted(glob), ClaimedResource::Groups(glob.clone())),
        Match::Unit(unit) => ("service.unit", quoted(unit), ClaimedResource::Unit(unit.clone())),
        Match::Pod(glob) => ("service.pod", quoted(glob), ClaimedResource::Pods(glob.to_string())),
        Match::Port(port) => ("service.port", port.to_string(), ClaimedResource::Port(*port)),
        Match::Comm(comm) => ("service.comm", quoted(comm), ClaimedResource::Comm(comm.chars().take(15).collect())),
    };
    let name = Claim {
        key: "service.name",
        value: quoted(&rule.name),
        resource: ClaimedResource::Name(rule.name.clone()),
        line,
    };
    [name, Claim { key, value, resource: what, line }]
}

fn batch_claim(tree: &BatchTree, line: Option<usize>) -> Claim {
    let value = format!("\"{}\"", tree.cgroup);
    Claim { key: "batch.cgroup", value, resource: ClaimedResource::Groups(tree.cgroup.clone()), line }
}

fn kubernetes_claims(kubernetes: &Kubernetes, line: Option<usize>) -> Vec<Claim> {
    let claim = |glob: Glob| Claim {
        key: "kubernetes",
        value: glob.to_string(),
        resource: ClaimedResource::Groups(glob),
        line,
    };
    kubernetes.top_groups().into_iter().map(claim).collect()
}

/// Returns the addresses at which the agent listens.
fn listen_address_claims(config: &Config, lines: &Lines) -> impl Iterator<Item = Claim> {
    let claim = |key, address: SocketAddr, line| {
        let value = format!("\"{address}\"");
        Claim { key, value, resource: ClaimedResource::Address(address), line }
    };
    let proxies = config.proxies.iter().zip(&lines.proxies);
    let proxies = proxies.map(move |(proxy, line)| claim("proxy.listen", proxy.listen, *line));
    let checks = config.hazards.iter().zip(&lines.hazards);
    let checks = checks.filter_map(move |(table, line)| Some(claim("hazards.agent_check", table.agent_check?, *line)));
    proxies.chain(checks).chain(config.metrics.map(|address| claim("metrics.listen", address, lines.metrics)))
}

/// Returns whether the agent can listen at only one of the two addresses. Port 0 conflicts with no address, because the
/// system chooses a free port.
fn share_a_port(one: &SocketAddr, other: &SocketAddr) -> bool {
    let (any, port) = ([one, other].iter().any(|address| address.ip().is_unspecified()), one.port());
    port != 0 && port == other.port() && (any || one.ip() == other.ip())
}

impl ClaimedResource {
    fn contradicts(&self, other: &Self) -> bool {
        match (self, other) {
            (ClaimedResource::Groups(one), ClaimedResource::Groups(other)) => one.overlaps(other),
            (ClaimedResource::Groups(glob), ClaimedResource::Unit(unit))
            | (ClaimedResource::Unit(unit), ClaimedResource::Groups(glob)) => glob.last_part() == unit,
            (ClaimedResource::Name(one), ClaimedResource::Name(other))
            | (ClaimedResource::Pods(one), ClaimedResource::Pods(other)) => one == other,
            (ClaimedResource::Unit(one), ClaimedResource::Unit(other))
            | (ClaimedResource::Comm(one), ClaimedResource::Comm(other)) => one == other,
            (ClaimedResource::Port(one), ClaimedResource::Port(other)) => one == other,
            (ClaimedResource::Address(one), ClaimedResource::Address(other)) => share_a_port(one, other),
            _ => false,
        }
    }
}

impl Claim {
    fn conflict_with(&self, earlier: &Claim) -> Problem {
        let place = earlier.line.map_or_else(String::new, |line| format!(" of line {line}"));
        let (problem, advice) = match &self.resource {
            ClaimedResource::Groups(_) | ClaimedResource::Unit(_) => (
                format!(
                    "is {}, which may match the same groups as `{}`{place}, {}",
                    self.value, earlier.key, earlier.value
                ),
                "write patterns that cannot match the same group: a group has one role",
            ),
            ClaimedResource::Address(_) => (
                format!("is {}, which clashes with `{}`{place}, {}", self.value, earlier.key, earlier.value),
                "write another address or port for one of the two",
            ),
            _ => (format!("is {}, the same as `{}`{place}", self.value, earlier.key), "write each once"),
        };
        Problem { line: self.line, key: self.key.to_owned(), problem, advice: advice.to_owned() }
    }
}

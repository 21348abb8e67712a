//! Reading of the whole file: reads its tables one after the other, and checks contradictions between tables.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf, absolute};

use sidelane_toml::{Document, Problem, Problems, Reader};

use super::overlap::{Lines, contradictions};
use super::{Config, Kind, LaneGate, Match, MetricSource, hazards, lanes, modules, policy, proxy, roles};

impl Config {
    /// Reads the agent's file. Paths in the file are relative to the file's directory.
    ///
    /// # Errors
    /// All problems of the file.
    pub fn load(path: &Path) -> Result<Self, Problems> {
        let name = path.display().to_string();
        let text = fs::read_to_string(path).map_err(|why| {
            Problems::unreadable(
                &name,
                &why,
                "name the agent's file with --config; `sidelane agent example` prints \
                                               one",
            )
        })?;
        let mut config = Self::parse(&name, &text)?;
        let beside = path.parent().unwrap_or(Path::new(""));
        config.audit = config.audit.map(|file| beside.join(file));
        // Paths are made absolute, because messages with the path of a recording go to users in other directories.
        let in_full = |dir: &Path| absolute(beside.join(dir)).unwrap_or_else(|_| beside.join(dir));
        if let Some(trace) = &mut config.trace {
            trace.dir = in_full(&trace.dir);
        }
        if let Some(log) = config.hurry.as_mut().and_then(|hurry| hurry.log.as_mut()) {
            *log = in_full(log);
        }
        for log in config.proxies.iter_mut().filter_map(|proxy| proxy.access_log.as_mut()) {
            *log = in_full(log);
        }
        for socket in config.hazards.iter_mut().flat_map(|table| [&mut table.haproxy, &mut table.socket]).flatten() {
            *socket = in_full(socket);
        }
        if let Kind::Observe(observe) = &mut config.policy.kind {
            observe.dir = in_full(&observe.dir);
        }
        if let MetricSource::Replay(file) = &mut config.metric.source {
            *file = beside.join(&*file);
        }
        Ok(config)
    }

    /// Parses the text of a file. `file` is the name of the file in messages.
    ///
    /// # Errors
    /// All problems of the text.
    pub fn parse(file: &str, text: &str) -> Result<Self, Problems> {
        let root = sidelane_toml::parse(file, text, "see https://toml.io, or `sidelane agent example`")?;
        let document = Document::new(text, root.get_ref(), Vec::new());
        let config = read_config(document.top());
        let problems = document.problems.take();
        if problems.is_empty() { Ok(config) } else { Err(Problems::new(file, problems)) }
    }
}

impl Config {
    /// Returns whether the agent only observes.
    pub fn observes(&self) -> bool {
        matches!(self.policy.kind, Kind::Observe(_))
    }

    /// Returns the settings by which lanes are lent; `None` if no lanes are lent.
    pub fn lent_lanes(&self) -> Option<&LaneGate> {
        self.lanes.as_ref().filter(|_| !self.observes())
    }

    /// Returns a line of text on a valid file: its numbers of services, batch trees and other parts.
    pub fn summary(&self) -> String {
        let some = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        let pods = if self.kubernetes.is_some() { ", pods" } else { "" };
        let (services, trees) = (some(self.services.len(), "service"), some(self.batch.len(), "tree"));
        let proxies = match self.proxies.len() {
            0 => String::new(),
            1 => ", 1 proxy".to_owned(),
            count => format!(", {count} proxies"),
        };
        let hazards = if self.hazards.is_empty() { "" } else { ", hazards told" };
        let trace = if self.trace.is_some() { ", flight recorders" } else { "" };
        let hurry = if self.hurry.is_some() { ", long requests move to big cores" } else { "" };
        let policy = self.policy.kind.name();
        format!("{services}, {trees} of batch{pods}, policy {policy}{proxies}{hazards}{trace}{hurry}; nothing is wrong")
    }
}

fn read_config(top: Reader) -> Config {
    let (services, batch) = (top.tables("service"), top.tables("batch"));
    let (metrics, traced, hurried) = (top.table("metrics"), top.table("trace"), top.table("hurry"));
    let mut lines = Lines {
        kubernetes: top.line("kubernetes"),
        metrics: metrics.line("listen"),
        trace: traced.line("services"),
        hurry: hurried.line("services"),
        ..Lines::default()
    };
    let rules =
        services.into_iter().filter_map(|reader| read_with_line(reader, &mut lines.services, roles::read_service));
    let services = rules.collect();
    let trees = batch.into_iter().filter_map(|reader| read_with_line(reader, &mut lines.batch, roles::read_batch_tree));
    let batch = trees.collect();
    let proxies = top.tables("proxy").into_iter();
    let proxies = proxies.filter_map(|reader| read_with_line(reader, &mut lines.proxies, proxy::read_proxy)).collect();
    let tables = top.tables("hazards").into_iter();
    let hazards =
        tables.filter_map(|reader| read_with_line(reader, &mut lines.hazards, hazards::read_hazards)).collect();
    let config = Config {
        services,
        batch,
        kubernetes: roles::read_kubernetes(&top),
        policy: policy::read_policy(top.table("policy")),
        intervals: policy::read_intervals(top.table("intervals")),
        metric: policy::read_metric(top.table("metric")),
        lanes: lanes::read_lane_gate(top.table("lanes")),
        proxies,
        hazards,
        trace: modules::read_trace(traced),
        hurry: modules::read_hurry(hurried),
        metrics: read_listen_address(metrics),
        audit: read_audit_path(top.table("audit")),
        settings: top.document().settings.take(),
    };
    check_across_tables(&top, &config, &lines);
    top.record_unknown_keys();
    config
}

/// Reads a rule of the file, and adds the line of its table to `lines`; `None` if the rule is invalid.
fn read_with_line<'d, 't, T>(
    reader: Reader<'d, 't>,
    lines: &mut Vec<Option<usize>>,
    read: impl Fn(Reader<'d, 't>) -> Option<T>,
) -> Option<T> {
    let line = reader.table_line();
    let rule = read(reader)?;
    lines.push(line);
    Some(rule)
}

fn read_listen_address(reader: Reader) -> Option<SocketAddr> {
    const ADVICE: &str = "write an address and a port, as in \"127.0.0.1:9099\"";
    if !reader.exists() {
        return None;
    }
    let parse = |text: &str| text.parse::<SocketAddr>().map_err(|_| "is not an address with a port");
    let address = reader.require("listen", reader.parse_text("listen", parse, ADVICE), ADVICE).ok();
    reader.record_unknown_keys();
    address
}

fn read_audit_path(reader: Reader) -> Option<PathBuf> {
    if !reader.exists() {
        return None;
    }
    let file =
        reader.required_text("file", "write the path of the audit log, as in \"/var/log/sidelane-audit.jsonl\"").ok();
    reader.record_unknown_keys();
    file.map(PathBuf::from)
}

/// Checks what concerns several tables: missing tables, contradictions, and rules that need another table.
fn check_across_tables(top: &Reader, config: &Config, lines: &Lines) {
    let has_any = |keys: [&'static str; 2]| keys.into_iter().any(|key| top.has(key));
    if !has_any(["service", "kubernetes"]) {
        top.record_missing("service", "name a service in [[service]], or write kubernetes = true");
    }
    if !has_any(["batch", "kubernetes"]) && !config.observes() {
        top.record_missing("batch", "name a tree of cgroups in [[batch]], or write kubernetes = true");
    }
    let mut problems = contradictions(config, lines);
    problems.extend(missing_kubernetes_problems(config, lines));
    problems.extend(missing_budget_problems(config, lines));
    problems.extend(modules::trace_service_problems(config, lines));
    problems.extend(modules::hurry_service_problems(config, lines));
    top.document().problems.borrow_mut().extend(problems);
}

/// Returns problems for services that are pods, if the file has no table `kubernetes`.
fn missing_kubernetes_problems(config: &Config, lines: &Lines) -> Vec<Problem> {
    let services = config.services.iter().zip(&lines.services).filter(|_| config.kubernetes.is_none());
    let pods = services.filter(|(rule, _)| matches!(rule.matches, Match::Pod(_)));
    let problem = |line: Option<usize>| Problem {
        line,
        key: "service.pod".to_owned(),
        problem: "is given, but kubernetes is not true".to_owned(),
        advice: "write kubernetes = true above the first table of the file".to_owned(),
    };
    pods.map(|(_, line)| problem(*line)).collect()
}

/// Returns problems for services that have neither budget nor objective, although the policy of lanes needs a budget or
/// an objective.
fn missing_budget_problems(config: &Config, lines: &Lines) -> Vec<Problem> {
    let Some(lanes) = config.lanes.as_ref().filter(|lanes| lanes.budget.is_none()) else { return Vec::new() };
    let services =
        config.services.iter().zip(&lines.services).map(|(rule, line)| (&rule.settings, "service.slo", *line));
    let pods = config.kubernetes.iter().map(|pods| (&pods.settings, "kubernetes.slo", lines.kubernetes));
    let lacking = services.chain(pods).filter(|(settings, ..)| lanes.lending(settings.slo).is_err());
    let problem = |key: &str, line| Problem {
        line,
        key: key.to_owned(),
        problem: format!(
            "is missing, but the policy {} of [lanes] needs an slo or a budget",
            lending_policy_text(config)
        ),
        advice: "write an objective, as in slo = \"p99=5ms\", or a budget in [lanes]".to_owned(),
    };
    lacking.map(|(_, key, line)| problem(key, line)).collect()
}

fn lending_policy_text(config: &Config) -> String {
    config.lanes.as_ref().and_then(|lanes| lanes.policy).map_or_else(String::new, |policy| policy.to_string())
}

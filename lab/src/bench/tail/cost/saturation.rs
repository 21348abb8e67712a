//! The throughput of a service that has no idle time, and its p99 at a rate that it can serve.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::peer::{PeerTool, RunningPeer};
use super::setting::{Observers, Setting};
use crate::bench::tail::fixture::TailFixture;
use crate::bench::workload::{RealServer, ServiceCpus};
use crate::experiment::comparison::{self, Experiment, Report};
use crate::note::LabNote;
use sidelane_report::{Check, Row, Unit};
use sidelane_stats::interval::median_interval;
use sidelane_stats::ranks::median;
use sidelane_stats::rounds::{Limit, RoundOptions};

const CLIENT: &str = "redis-benchmark";
const CONNECTIONS: &str = "20";
const REQUESTS: &str = "40000";
const REQUESTS_QUICK: &str = "10000";
const RATE_PER_S: f64 = 20_000.0;
const OF_UNTRACED_MIN: f64 = 0.85;
const LIGHT_OF_UNTRACED_MIN: f64 = 0.93;
/// Least throughput of the service under a trace, as a share of its throughput under another tool.
const OF_PEER_MIN: f64 = 1.0;

const ROUNDS: Limit = Limit { first: 12, rounds: 48, time: Duration::from_secs(300) };
const ROUNDS_QUICK: Limit = Limit { first: 6, rounds: 6, time: Duration::from_secs(9) };

/// Figures of one turn of one setting.
struct SaturationFigures {
    requests_per_s: f64,
    p99_us: Option<f64>,
}

type Samples = comparison::Samples<Setting, SaturationFigures>;

/// Adds a row for each setting, and the checks of a trace.
pub(super) fn measure_saturation(
    fixture: &TailFixture<'_>,
    server: &RealServer,
    place: ServiceCpus,
    report: &mut Report,
) -> Result<()> {
    let mut watchers = Observers::load(server)?;
    let peers = usable_peer_tools(fixture.options.round_options, report);
    let own = [Setting::Untraced, Setting::Empty, Setting::Traced, Setting::EmptyLight, Setting::Light];
    let settings: Vec<Setting> = own.into_iter().chain(peers.into_iter().map(Setting::Peer)).collect();
    let limit = fixture.options.round_options.limit(ROUNDS_QUICK, ROUNDS);
    // Rotates the order of settings, since the machine's speed changes during a round.
    let turns = |round: u64, _: &Samples| {
        let first = round as usize % settings.len();
        [&settings[first..], &settings[..first]].concat()
    };
    let checks = |samples: &Samples| checks(samples, &settings);
    let title = |setting: &Setting| setting.name().to_owned();
    let saturation = Experiment { name: "saturation", limit, turns: &turns, title, checks: &checks };
    let (samples, _) = saturation.run(|setting, round, samples| {
        samples.add(round, setting, measure_setting(fixture, server, place, &mut watchers, setting)?);
        Ok(())
    })?;
    report.rows.extend(settings.iter().map(|setting| row(&samples, *setting)));
    report.checks.extend(checks(&samples));
    report.checks.push(Check::at_most("cost: records lost", watchers.lost_records() as f64, 0.0, Unit::Count));
    Ok(())
}

/// Returns the tools that can be compared on this machine in the available time. The result notes the missing ones.
fn usable_peer_tools(round_options: RoundOptions, report: &mut Report) -> Vec<PeerTool> {
    if round_options.quick {
        report.notes.push(LabNote::TracedWithoutPeers.to_string());
        return Vec::new();
    }
    let (peers, missing): (Vec<PeerTool>, Vec<PeerTool>) =
        PeerTool::ALL.into_iter().partition(|peer| can_record(*peer));
    let absent = missing.iter().map(|peer| LabNote::NotInstalled { program: peer.program() }.to_string());
    report.notes.extend(absent);
    peers
}

/// Returns whether a tool can record anything on this machine.
fn can_record(peer: PeerTool) -> bool {
    let began = RunningPeer::start(peer).ok();
    began.is_some_and(|mut peer| {
        std::thread::sleep(Duration::from_millis(500));
        peer.is_running()
    })
}

fn measure_setting(
    fixture: &TailFixture<'_>,
    server: &RealServer,
    place: ServiceCpus,
    observers: &mut Observers,
    setting: Setting,
) -> Result<SaturationFigures> {
    let quick = fixture.options.round_options.quick;
    let (requests, seconds) = if quick { (REQUESTS_QUICK, 0.2) } else { (REQUESTS, 1.0) };
    observers.run_observed(setting, || {
        // Saturates the service once without measurement, so that all threads that were started or moved are running.
        measure_requests_per_s(server, place, REQUESTS_QUICK)?;
        let requests_per_s = measure_requests_per_s(server, place, requests)?;
        let load = server.run_load(&fixture.lab, place, RATE_PER_S, seconds)?;
        Ok(SaturationFigures { requests_per_s, p99_us: load["p99_us"].as_f64() })
    })
}

/// Returns the requests per second of a client that waits for every answer, on [`CONNECTIONS`] connections.
fn measure_requests_per_s(server: &RealServer, place: ServiceCpus, request_count: &str) -> Result<f64> {
    let (cpu, port) = (place.client_cpu.to_string(), server.address().port().to_string());
    let mut command = Command::new("taskset");
    command.args(["-c", &cpu, CLIENT, "-p", &port, "-c", CONNECTIONS, "-n", request_count, "-t", "get", "--csv"]);
    let output = command.output().with_context(|| format!("cannot start {CLIENT}"))?;
    ensure!(output.status.success(), "{CLIENT}: {}", String::from_utf8_lossy(&output.stderr));
    parse_requests_per_s(&String::from_utf8_lossy(&output.stdout))
        .with_context(|| format!("{CLIENT} has not said how many it sent"))
}

/// Parses the rate from output such as `"GET","71942.45","0.150",…`.
fn parse_requests_per_s(csv: &str) -> Option<f64> {
    let line = csv.lines().find(|line| line.starts_with("\"GET\""))?;
    line.split(',').nth(1)?.trim_matches('"').parse().ok()
}

/// Returns the throughput of one setting as a share of that of another setting in the same round.
fn throughput_ratios(samples: &Samples, setting: Setting, baseline: Setting) -> Vec<f64> {
    samples.compare_by_round(setting, baseline, |of, to| Some(of.requests_per_s / to.requests_per_s))
}

fn checks(samples: &Samples, settings: &[Setting]) -> Vec<Check> {
    let at_least = |name: String, of, to, least| {
        Check::interval_at_least(name, median_interval(throughput_ratios(samples, of, to)), least, Unit::Ratio)
    };
    let own = [(Setting::Traced, OF_UNTRACED_MIN), (Setting::Light, LIGHT_OF_UNTRACED_MIN)];
    let own = own.map(|(of, least)| {
        at_least(format!("requests/s at saturation, {} / untraced", of.name()), of, Setting::Untraced, least)
    });
    let peers = settings.iter().filter(|setting| matches!(setting, Setting::Peer(_))).map(|peer| {
        let name = format!("requests/s at saturation, traced / {}", peer.name());
        at_least(name, Setting::Traced, *peer, OF_PEER_MIN)
    });
    own.into_iter().chain(peers).collect()
}

fn row(samples: &Samples, setting: Setting) -> Row {
    let mut row = Row::new(format!("cost/saturation/{}", setting.name()));
    row.put("requests_per_s", samples.median(setting, |measured| Some(measured.requests_per_s)));
    row.put("of_untraced_ratio", median(throughput_ratios(samples, setting, Setting::Untraced)));
    row.put("p99_us", samples.median(setting, |measured| measured.p99_us));
    row.put("rounds_count", samples.of_variant(setting).count() as f64);
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_per_s_are_parsed_from_the_clients_csv() {
        let csv = "\"test\",\"rps\",\"avg_latency_ms\"\n\"GET\",\"71942.45\",\"0.150\"\n";
        assert_eq!(parse_requests_per_s(csv), Some(71_942.45));
        assert_eq!(parse_requests_per_s("\"test\",\"rps\"\n"), None);
    }
}

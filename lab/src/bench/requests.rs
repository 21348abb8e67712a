//! `sidelane-lab bench requests`: how exactly requests are observed at a service's sockets, and what the observation
//! costs the service.
//!
//! The echo servers record each request themselves, and every observed request is compared with that record. For Redis
//! and memcached the comparison uses the client's number of requests and its latencies: a request cannot take longer in
//! the server than for the client. Costs are measured in pairs: the same load runs alternately with and without the
//! kernel programs, and the service's CPU time per request is compared.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::request_cost;
use super::workload::{DESIGNS, RealServer, RealServerKind, ServiceCpus, compare_echo_server, observe_requests_during};
use crate::experiment::comparison::Report;
use crate::note::LabNote;
use crate::programs::LabBinary;
use sidelane_host::topology::{PairKind, Topology};
use sidelane_report::{Check, ResultFile, Row, Unit};
use sidelane_requests::{Times, Window, can_track};
use sidelane_stats::interval::{bootstrap_interval, median_interval};
use sidelane_stats::ranks::median;
use sidelane_stats::rounds::{Limit, RoundOptions, Turn, run_until_decided};

const RATE_PER_S: f64 = 5_000.0;
const NEAR_NS: u64 = 20_000;
const NEAR_LIMIT_PERCENT: f64 = 99.0;
const COST_LIMIT_US: f64 = 1.2;
/// CPU time of a request that `sidelane estimate` may cost beyond what `sidelane requests` costs.
const ESTIMATE_LIMIT_US: f64 = 0.1;

/// Rounds of a load: `first` rounds always, then more until the checks are decided, up to `rounds` rounds or `time`.
const LOADS: Limit = Limit { first: 6, rounds: 24, time: Duration::from_secs(60) };
const LOADS_QUICK: Limit = Limit { first: 6, rounds: 12, time: Duration::from_secs(10) };
/// Pairs of runs in a cost measurement: `first` pairs always, then more until the checks are decided, up to `rounds`
/// pairs or `time`.
const PAIRS: Limit = Limit { first: 41, rounds: 164, time: Duration::from_secs(60) };
const PAIRS_QUICK: Limit = Limit { first: 11, rounds: 44, time: Duration::from_secs(10) };

struct Bench {
    lab: LabBinary,
    place: ServiceCpus,
    seconds: f64,
    loads: Limit,
    pairs: Limit,
}

/// Measures the observation of echo servers, Redis and memcached, and its cost.
pub fn run(lanes: &str, round_options: RoundOptions) -> Result<ResultFile> {
    can_track()?;
    let place = service_cpus(lanes)?;
    let seconds = if round_options.quick { 0.3 } else { 1.0 };
    let (loads, pairs) = (round_options.limit(LOADS_QUICK, LOADS), round_options.limit(PAIRS_QUICK, PAIRS));
    let bench = Bench { lab: LabBinary::find()?, place, seconds, loads, pairs };
    let mut report = Report::with_settings(json!({
        "server_cpu": place.server_cpu,
        "client_cpu": place.client_cpu,
        "requests_per_s": RATE_PER_S,
        "each_s": seconds,
    }));
    for design in DESIGNS {
        bench.measure_echo_design(design, &mut report).with_context(|| format!("echo server, {design}"))?;
    }
    for real in [RealServerKind::Redis, RealServerKind::Memcached] {
        bench.measure_real_server(real, &mut report).with_context(|| real.program().to_owned())?;
    }
    Ok(report.into_result_file(PairKind::Declared, round_options, pairs.rounds))
}

/// Returns the CPUs of service and client: the two lanes of the pair.
fn service_cpus(lanes: &str) -> Result<ServiceCpus> {
    let pair = Topology::read(Path::new("/sys"))?.declared_pairs(lanes)?;
    let server_cpu = pair.request_lanes.iter().next().context("no request lane")?;
    let client_cpu = pair.batch.first().context("no batch lane")?.cpu;
    Ok(ServiceCpus { server_cpu, client_cpu })
}

/// Comparison of the observed requests of an echo server with its own record, in one round.
struct EchoRound {
    told: u64,
    near: u64,
    missed: u64,
    invented: u64,
    apart_p50_ns: Option<u64>,
    window: Window,
}

/// Comparison of the observed requests of a real server with its client's count, in one round.
struct LoadRound {
    sent: f64,
    off: f64,
    client_p50_ns: Option<f64>,
    window: Window,
}

impl Bench {
    fn measure_echo_design(&self, design: &str, report: &mut Report) -> Result<()> {
        let mut rounds = Vec::new();
        let round = |rounds: &mut Vec<EchoRound>, _: Turn<'_>| {
            rounds.push(self.measure_echo_round(design)?);
            Ok(())
        };
        run_until_decided(design, self.loads, &mut rounds, round, |rounds| {
            vec![observed_within_20_us_check(design, rounds)]
        })?;
        let sum = |of: fn(&EchoRound) -> u64| rounds.iter().map(of).sum::<u64>() as f64;
        let (told, invented) = (sum(|round| round.told), sum(|round| round.invented));
        let wrong = invented + sum(|round| round.missed);
        let near = observed_within_20_us_check(design, &rounds);
        let mut row = Row::new(design.replace('-', "_"));
        row.put("requests_count", told);
        row.put("missed_count", sum(|round| round.missed));
        row.put("invented_count", invented);
        row.put("within_20_us_percent", near.measured);
        row.put("apart_p50_ns", median(rounds.iter().filter_map(|round| round.apart_p50_ns).map(|ns| ns as f64)));
        put_time_percentiles(&mut row, rounds.iter().map(|round| &round.window));
        report.rows.push(row);
        report.checks.extend([
            near,
            Check::at_most(format!("{design}: requests invented"), invented, 0.0, Unit::Count),
            Check::at_most(format!("{design}: requests missed or invented"), wrong, told / 100.0, Unit::Count),
        ]);
        Ok(())
    }

    fn measure_echo_round(&self, design: &str) -> Result<EchoRound> {
        let (agreement, window) =
            compare_echo_server(&self.lab, design, "127.0.0.1", self.place, RATE_PER_S, self.seconds)?;
        Ok(EchoRound {
            told: agreement.told,
            near: agreement.matched_within(NEAR_NS),
            missed: agreement.missed,
            invented: agreement.invented,
            apart_p50_ns: agreement.median_ns(),
            window,
        })
    }

    fn measure_real_server(&self, kind: RealServerKind, report: &mut Report) -> Result<()> {
        if !kind.is_installed() {
            report.notes.push(LabNote::NotInstalled { program: kind.program() }.to_string());
            return Ok(());
        }
        let name = kind.program();
        let server = RealServer::start(kind, self.place)?;
        let mut rounds = Vec::new();
        let round = |rounds: &mut Vec<LoadRound>, _: Turn<'_>| {
            rounds.push(self.measure_load_round(&server)?);
            Ok(())
        };
        run_until_decided(name, self.loads, &mut rounds, round, |rounds| {
            vec![server_over_client_latency_check(name, rounds)]
        })?;
        let cost_check = |cost_us: &[f64]| {
            let name = format!("{name}: CPU time that tracking adds to a request");
            Check::interval_at_most(name, median_interval(cost_us.iter().copied()), COST_LIMIT_US, Unit::Us)
        };
        let cost = request_cost::measure_tracking_cost(&server, self.place, self.pairs, cost_check)?;
        let off: f64 = rounds.iter().map(|round| round.off).sum();
        let mut row = Row::new(name.replace('-', "_"));
        row.put("requests_count", rounds.iter().map(|round| round.sent).sum::<f64>());
        row.put("off_count", off);
        put_time_percentiles(&mut row, rounds.iter().map(|round| &round.window));
        row.put("client_p50_ns", median(rounds.iter().filter_map(|round| round.client_p50_ns)));
        row.put("round_trip_us", median(cost.untracked_us.iter().copied()));
        row.put("lanes_cost_us", median(cost.lanes_us.iter().copied()));
        row.put("requests_cost_us", median(cost.requests_us.iter().copied()));
        row.put("estimate_cost_us", median(cost.estimate_us.iter().copied()));
        row.put("pairs_count", cost.requests_us.len() as f64);
        report.rows.push(row);
        report.checks.extend([
            Check::at_most(format!("{name}: requests more or fewer than the client sent"), off, 0.0, Unit::Count),
            server_over_client_latency_check(name, &rounds),
            cost_check(&cost.requests_us),
            Check::interval_at_most(
                format!("{name}: CPU time that an estimate adds to a request, beyond tracking it"),
                median_interval(
                    cost.estimate_us.iter().zip(&cost.requests_us).map(|(estimate, requests)| estimate - requests),
                ),
                ESTIMATE_LIMIT_US,
                Unit::Us,
            ),
        ]);
        Ok(())
    }

    fn measure_load_round(&self, server: &RealServer) -> Result<LoadRound> {
        let mut client = Value::Null;
        let (seen, window) = observe_requests_during(server.pid(), self.place, || {
            client = server.run_load(&self.lab, self.place, RATE_PER_S, self.seconds)?;
            Ok(())
        })?;
        let sent = client["requests"].as_f64().context("the client counted no requests")?;
        let off = (server.count_load_requests(&seen) as f64 - sent).abs();
        Ok(LoadRound { sent, off, client_p50_ns: client["p50_us"].as_f64().map(|us| us * 1e3), window })
    }
}

fn observed_within_20_us_check(design: &str, rounds: &[EchoRound]) -> Check {
    let percent = bootstrap_interval(rounds, |drawn| {
        let sum = |of: fn(&EchoRound) -> u64| drawn.iter().map(|round| of(round)).sum::<u64>() as f64;
        let told = sum(|round| round.told);
        (told > 0.0).then(|| sum(|round| round.near) * 100.0 / told)
    });
    let name = format!("{design}: requests seen within 20 µs");
    Check::interval_at_least(name, percent, NEAR_LIMIT_PERCENT, Unit::Percent)
}

fn server_over_client_latency_check(name: &str, rounds: &[LoadRound]) -> Check {
    let part = |round: &LoadRound| Some(round.window.latency.percentile_ns(50.0)? as f64 / round.client_p50_ns?);
    let name = format!("{name}: latency in the server over the client's");
    Check::interval_at_most(name, median_interval(rounds.iter().filter_map(part)), 1.0, Unit::Ratio)
}

/// Adds to a row the percentiles of the request times over all windows together.
fn put_time_percentiles<'a>(row: &mut Row, windows: impl Iterator<Item = &'a Window>) {
    let (mut server, mut queueing) = (Times::default(), Times::default());
    for window in windows {
        server.merge(&window.server);
        queueing.merge(&window.queueing);
    }
    for (name, times) in [("server", &server), ("queueing", &queueing)] {
        for percentile in [50, 99] {
            let value = times.percentile_ns(f64::from(percentile)).map(|ns| ns as f64);
            row.put(&format!("{name}_p{percentile}_ns"), value);
        }
    }
}

//! The proxy beside haproxy and nginx, with one thread each, in turns: throughput at saturation, and the latency that
//! each adds at half of it.

mod client;
mod peers;

use std::time::Duration;

use anyhow::Result;

use super::fixture::TailFixture;
use crate::note::LabNote;
use client::{as_fast_as_possible, on_time};
use peers::{Peer, Running, start_server};
use sidelane_report::{Check, ResultFile, Row, Unit};
use sidelane_stats::interval::of_median;
use sidelane_stats::ranks::{median, percentile};
use sidelane_stats::rounds::{Limit, Turn, until_decided};

const ROUNDS: Limit = Limit { first: 6, rounds: 24, time: Duration::from_secs(150) };
/// Number of rounds with `--quick`, too few to decide anything.
const ROUNDS_QUICK: Limit = Limit { first: 2, rounds: 2, time: Duration::from_secs(9) };
/// Time of one proxy in one round, at saturation and at half of it. The client at saturation, wrk, runs for whole
/// seconds.
const TIME: (Duration, Duration) = (Duration::from_secs(3), Duration::from_secs(3));
const TIME_QUICK: (Duration, Duration) = (Duration::from_secs(1), Duration::from_millis(300));
/// Turns of each proxy in a round at half of the saturation rate. With one turn, a disturbance by the host of one
/// second would determine the p99.
const TURNS: u32 = 10;
/// Least throughput, as a fraction of the better peer's.
const SPEED_RATIO: f64 = 0.9;
/// Highest p99, as a multiple of the better peer's.
const P99_RATIO: f64 = 1.0;

/// Figures of one proxy in one round.
#[derive(Clone, Copy, Debug)]
struct ProxyFigures {
    per_s: f64,
    cpu_us: f64,
    p50_ns: Option<f64>,
    p99_ns: Option<f64>,
    /// Number of access-log lines divided by the number of requests.
    logged: Option<f64>,
}

/// Figures of all proxies in one round, in the order of [`Peer::ALL`], and of the server without a proxy.
struct Round {
    seen: [ProxyFigures; 3],
    direct_p50_ns: Option<f64>,
    direct_p99_ns: Option<f64>,
}

/// Compares the proxies until the checks are decided.
pub(super) fn measure(fixture: &TailFixture<'_>, result: &mut ResultFile) -> Result<()> {
    if let Some(program) = Peer::missing() {
        result.notes.push(LabNote::NotInstalled { program }.to_string());
        return Ok(());
    }
    let scratch = tempfile::tempdir()?;
    let server = start_server(fixture.place.client, scratch.path())?;
    let start = |peer: Peer| peer.start(fixture.place.request, server.address, scratch.path());
    let proxies = [start(Peer::ALL[0])?, start(Peer::ALL[1])?, start(Peer::ALL[2])?];
    let (time, time_at_half) = if fixture.options.round_options.quick { TIME_QUICK } else { TIME };
    let limit = fixture.options.round_options.limit(ROUNDS_QUICK, ROUNDS);
    let field = Field { client_cpu: fixture.place.client, proxies: &proxies, server: &server, time, time_at_half };
    let round = |rounds: &mut Vec<Round>, turn: Turn<'_>| {
        rounds.push(field.round(turn.round)?);
        Ok(())
    };
    let mut rounds = Vec::new();
    until_decided("proxy", limit, &mut rounds, round, |rounds| checks(rounds))?;
    result.rows.extend(rows(&rounds));
    result.checks.extend(checks(&rounds));
    Ok(())
}

struct Field<'a> {
    client_cpu: u32,
    proxies: &'a [Running; 3],
    server: &'a Running,
    time: Duration,
    time_at_half: Duration,
}

impl Field<'_> {
    /// Measures each proxy at saturation, then each and the server itself at half the rate of the slowest. The first
    /// turn changes from round to round.
    fn round(&self, round: u64) -> Result<Round> {
        let mut seen = [ProxyFigures { per_s: 0.0, cpu_us: 0.0, p50_ns: None, p99_ns: None, logged: None }; 3];
        for place in (0..3).map(|place| (place + round as usize) % 3) {
            (seen[place].per_s, seen[place].cpu_us) = self.saturate(&self.proxies[place])?;
        }
        let slowest = seen.iter().map(|seen| seen.per_s).fold(f64::INFINITY, f64::min);
        let latencies = self.at_half(slowest / 2.0, round as usize)?;
        let percentiles =
            |at: usize| [50.0, 99.0].map(|percent| percentile(&latencies[at], percent).map(|ns| ns as f64));
        for (place, seen) in seen.iter_mut().enumerate() {
            [seen.p50_ns, seen.p99_ns] = percentiles(place);
            let requests = seen.per_s * self.time.as_secs_f64() + latencies[place].len() as f64;
            seen.logged = Some(self.proxies[place].take_log_lines()? as f64 / requests);
        }
        let [direct_p50_ns, direct_p99_ns] = percentiles(seen.len());
        Ok(Round { seen, direct_p50_ns, direct_p99_ns })
    }

    /// Returns the sorted latencies of each proxy and of the server itself.
    fn at_half(&self, per_s: f64, round: usize) -> Result<[Vec<u64>; 4]> {
        let [first, second, third] = self.proxies.each_ref().map(|proxy| proxy.address);
        let places = [first, second, third, self.server.address];
        let mut latencies = [const { Vec::new() }; 4];
        for turn in 0..TURNS as usize {
            for place in (0..places.len()).map(|place| (place + turn + round) % places.len()) {
                latencies[place].extend(on_time(self.client_cpu, places[place], per_s, self.time_at_half / TURNS)?);
            }
        }
        latencies.iter_mut().for_each(|of_one| of_one.sort_unstable());
        Ok(latencies)
    }

    /// Returns the requests per second, and the proxy's CPU time per request in microseconds.
    fn saturate(&self, proxy: &Running) -> Result<(f64, f64)> {
        let before_ns = proxy.cpu_ns();
        let requests = as_fast_as_possible(self.client_cpu, proxy.address, self.time)?;
        let used_us = (proxy.cpu_ns() - before_ns) as f64 / 1e3;
        Ok((requests / self.time.as_secs_f64(), used_us / requests))
    }
}

/// Returns a number of the proxy at index `place` in each round; index 0 is Sidelane's.
fn of(rounds: &[Round], place: usize, number: impl Fn(&ProxyFigures) -> Option<f64>) -> Vec<Option<f64>> {
    rounds.iter().map(|round| number(&round.seen[place])).collect()
}

/// Returns the index of the peer with the better median: the higher number, or the lower.
fn best(rounds: &[Round], number: impl Fn(&ProxyFigures) -> Option<f64> + Copy, is_high_good: bool) -> usize {
    let median_of = |place: usize| median(of(rounds, place, number).into_iter().flatten()).unwrap_or(f64::NAN);
    let (haproxy, nginx) = (median_of(1), median_of(2));
    if (nginx > haproxy) == is_high_good { 2 } else { 1 }
}

/// Returns Sidelane's number divided by the better peer's, for each round.
fn ratios(rounds: &[Round], number: impl Fn(&ProxyFigures) -> Option<f64> + Copy, is_high_good: bool) -> Vec<f64> {
    let peer = best(rounds, number, is_high_good);
    let pairs = of(rounds, 0, number).into_iter().zip(of(rounds, peer, number));
    pairs.filter_map(|(own, peers)| Some(own? / peers?)).collect()
}

fn checks(rounds: &[Round]) -> Vec<Check> {
    let per_s = of_median(ratios(rounds, |seen| Some(seen.per_s), true));
    let p99 = of_median(ratios(rounds, |seen| seen.p99_ns, false));
    let speed = "proxy: requests at saturation over those of the better of haproxy and nginx";
    let late = "proxy: p99 at half of it over that of the better of haproxy and nginx";
    vec![
        Check::interval_at_least(speed, per_s, SPEED_RATIO, Unit::Ratio),
        Check::interval_at_most(late, p99, P99_RATIO, Unit::Ratio),
    ]
}

fn rows(rounds: &[Round]) -> Vec<Row> {
    let added = |place: usize, own: fn(&ProxyFigures) -> Option<f64>, direct: fn(&Round) -> Option<f64>| {
        median(rounds.iter().filter_map(|round| Some((own(&round.seen[place])? - direct(round)?) / 1e3)))
    };
    let row = |(place, peer): (usize, Peer)| {
        let mut row = Row::new(peer.name());
        row.put("requests_per_s", median(rounds.iter().map(|round| round.seen[place].per_s)));
        row.put("cpu_per_request_us", median(rounds.iter().map(|round| round.seen[place].cpu_us)));
        row.put("added_p50_us", added(place, |seen| seen.p50_ns, |round| round.direct_p50_ns));
        row.put(
            "logged_percent",
            median(of(rounds, place, |seen| seen.logged).into_iter().flatten()).map(|part| 100.0 * part),
        );
        row.put("added_p99_us", added(place, |seen| seen.p99_ns, |round| round.direct_p99_ns));
        row
    };
    Peer::ALL.into_iter().enumerate().map(row).collect()
}

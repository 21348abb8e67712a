//! The proxy beside haproxy and nginx, with one thread each, in turns: throughput at saturation, and the latency that
//! each proxy adds at half of that throughput. A part of its own (`tls`) compares their throughput with TLS and two
//! threads.

mod client;
mod peers;
mod tls;

use std::time::Duration;

use anyhow::Result;

use super::fixture::TailFixture;
use crate::experiment::comparison::{self, Experiment, Report};
use crate::note::LabNote;
use client::{run_closed_loop, run_open_loop};
use peers::{ListeningProcess, ProxyProgram, ProxySetup, start_server};
use sidelane_report::{Check, Row, Unit};
use sidelane_stats::interval::median_interval;
use sidelane_stats::ranks::{median, percentile};
use sidelane_stats::rounds::Limit;
pub(super) use tls::compare_proxies_with_tls;

const ROUNDS: Limit = Limit { first: 6, rounds: 24, time: Duration::from_secs(150) };
/// Number of rounds with `--quick`, too few to decide anything.
const ROUNDS_QUICK: Limit = Limit { first: 2, rounds: 2, time: Duration::from_secs(9) };
/// Time for which each proxy runs in a round: at saturation, and at half of the saturation rate. The first time has
/// whole seconds, since the client at saturation, wrk, needs them.
const TIME: (Duration, Duration) = (Duration::from_secs(3), Duration::from_secs(3));
const TIME_QUICK: (Duration, Duration) = (Duration::from_secs(1), Duration::from_millis(300));
/// Turns of each proxy in a round at half of the saturation rate. With only one turn, a single disturbance by the host
/// would determine a proxy's p99.
const TURNS: u32 = 10;
/// Least throughput of `sidelane proxy`, as a fraction of the throughput of the better other proxy.
const SPEED_RATIO: f64 = 0.9;
/// Highest p99 of `sidelane proxy`, as a multiple of the p99 of the better other proxy.
const P99_RATIO: f64 = 1.0;

/// Figures of one proxy in one round.
#[derive(Clone, Copy, Debug, Default)]
struct ProxyFigures {
    /// Requests per second at saturation. This field and `cpu_us` are `None` for the server without a proxy.
    per_s: Option<f64>,
    /// The proxy's CPU time per request in microseconds.
    cpu_us: Option<f64>,
    p50_ns: Option<f64>,
    p99_ns: Option<f64>,
    /// Number of access-log lines divided by the number of requests.
    logged: Option<f64>,
}

/// Figures of proxies; `None` is the server without a proxy.
type Samples = comparison::Samples<Option<ProxyProgram>, ProxyFigures>;

/// Compares the proxies until the checks are decided.
pub(super) fn compare_proxies(fixture: &TailFixture<'_>, report: &mut Report) -> Result<()> {
    if let Some(program) = ProxyProgram::missing_program() {
        report.notes.push(LabNote::NotInstalled { program }.to_string());
        return Ok(());
    }
    let scratch = tempfile::tempdir()?;
    let server = start_server(fixture.place.client, scratch.path())?;
    let setup = ProxySetup::plain(fixture.place.request);
    let start = |peer: ProxyProgram| peer.start(&setup, server.address, scratch.path());
    let proxies = [start(ProxyProgram::ALL[0])?, start(ProxyProgram::ALL[1])?, start(ProxyProgram::ALL[2])?];
    let (time, time_at_half) = if fixture.options.round_options.quick { TIME_QUICK } else { TIME };
    let limit = fixture.options.round_options.limit(ROUNDS_QUICK, ROUNDS);
    let field =
        ProxyComparison { client_cpu: fixture.place.client, proxies: &proxies, server: &server, time, time_at_half };
    let (turns, title) = (|_, _: &Samples| vec![()], |_: &()| "all proxies".to_owned());
    let proxy = Experiment { name: "proxy", limit, turns: &turns, title, checks: &checks };
    let (samples, _) = proxy.run(|(), round, samples| field.measure_round(round, samples))?;
    report.rows.extend(ProxyProgram::ALL.map(|peer| row(&samples, peer)));
    report.checks.extend(checks(&samples));
    Ok(())
}

struct ProxyComparison<'a> {
    client_cpu: u32,
    proxies: &'a [ListeningProcess; 3],
    server: &'a ListeningProcess,
    time: Duration,
    time_at_half: Duration,
}

impl ProxyComparison<'_> {
    /// Measures each proxy at saturation. Then measures each proxy, and the server without a proxy, at half the rate of
    /// the slowest proxy. Another proxy is first in each round.
    fn measure_round(&self, round: u64, samples: &mut Samples) -> Result<()> {
        let (mut seen, mut requests) = ([ProxyFigures::default(); 4], [0.0; 3]);
        for place in (0..3).map(|place| (place + round as usize) % 3) {
            let (count, used_us) = self.measure_saturation(&self.proxies[place])?;
            requests[place] = count;
            (seen[place].per_s, seen[place].cpu_us) = (Some(count / self.time.as_secs_f64()), Some(used_us / count));
        }
        let slowest = seen.iter().filter_map(|seen| seen.per_s).fold(f64::INFINITY, f64::min);
        let latencies = self.measure_latencies(slowest / 2.0, round as usize)?;
        for (seen, latencies) in seen.iter_mut().zip(&latencies) {
            [seen.p50_ns, seen.p99_ns] = [50.0, 99.0].map(|percent| percentile(latencies, percent).map(|ns| ns as f64));
        }
        for (place, proxy) in self.proxies.iter().enumerate() {
            let all = requests[place] + latencies[place].len() as f64;
            seen[place].logged = Some(proxy.take_log_lines()? as f64 / all);
        }
        let variants = ProxyProgram::ALL.into_iter().map(Some).chain([None]);
        variants.zip(seen).for_each(|(variant, seen)| samples.add(round, variant, seen));
        Ok(())
    }

    /// Returns the sorted latencies through each proxy and, last, of the server without a proxy.
    fn measure_latencies(&self, per_s: f64, round: usize) -> Result<[Vec<u64>; 4]> {
        let [first, second, third] = self.proxies.each_ref().map(|proxy| proxy.address);
        let places = [first, second, third, self.server.address];
        let mut latencies = [const { Vec::new() }; 4];
        for turn in 0..TURNS as usize {
            for place in (0..places.len()).map(|place| (place + turn + round) % places.len()) {
                latencies[place].extend(run_open_loop(
                    self.client_cpu,
                    places[place],
                    per_s,
                    self.time_at_half / TURNS,
                )?);
            }
        }
        latencies.iter_mut().for_each(|of_one| of_one.sort_unstable());
        Ok(latencies)
    }

    /// Returns the number of requests at saturation, and the CPU time that the proxy used for all of them, in
    /// microseconds.
    fn measure_saturation(&self, proxy: &ListeningProcess) -> Result<(f64, f64)> {
        let before_ns = proxy.cpu_ns();
        let requests = run_closed_loop(self.client_cpu, proxy.address, self.time)?;
        let used_us = (proxy.cpu_ns() - before_ns) as f64 / 1e3;
        Ok((requests, used_us))
    }
}

/// Returns Sidelane's number divided by the number of the better other proxy, for each round. `is_higher_better`
/// decides which of nginx and haproxy is better.
fn ratios_to_better_peer(
    samples: &Samples,
    number: impl Fn(&ProxyFigures) -> Option<f64> + Copy,
    is_higher_better: bool,
) -> Vec<f64> {
    let median_of = |peer| samples.median(Some(peer), number).unwrap_or(f64::NAN);
    let is_nginx_higher = median_of(ProxyProgram::Nginx) > median_of(ProxyProgram::Haproxy);
    let better = if is_nginx_higher == is_higher_better { ProxyProgram::Nginx } else { ProxyProgram::Haproxy };
    samples
        .compare_by_round(Some(ProxyProgram::Sidelane), Some(better), |own, peers| Some(number(own)? / number(peers)?))
}

fn checks(samples: &Samples) -> Vec<Check> {
    let per_s = median_interval(ratios_to_better_peer(samples, |seen| seen.per_s, true));
    let p99 = median_interval(ratios_to_better_peer(samples, |seen| seen.p99_ns, false));
    let speed = "proxy: requests at saturation over those of the better of haproxy and nginx";
    let late = "proxy: p99 at half of it over that of the better of haproxy and nginx";
    vec![
        Check::interval_at_least(speed, per_s, SPEED_RATIO, Unit::Ratio),
        Check::interval_at_most(late, p99, P99_RATIO, Unit::Ratio),
    ]
}

fn row(samples: &Samples, peer: ProxyProgram) -> Row {
    let of = |number: fn(&ProxyFigures) -> Option<f64>| samples.median(Some(peer), number);
    let added_us = |number: fn(&ProxyFigures) -> Option<f64>| {
        median(samples.compare_by_round(Some(peer), None, |own, direct| Some((number(own)? - number(direct)?) / 1e3)))
    };
    let mut row = Row::new(peer.name());
    row.put("requests_per_s", of(|seen| seen.per_s));
    row.put("cpu_per_request_us", of(|seen| seen.cpu_us));
    row.put("added_p50_us", added_us(|seen| seen.p50_ns));
    row.put("logged_percent", of(|seen| Some(100.0 * seen.logged?)));
    row.put("added_p99_us", added_us(|seen| seen.p99_ns));
    row
}

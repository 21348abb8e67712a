//! Throughput of the proxies with TLS and two threads. Proxies, server and client share all CPUs, because with two threads
//! a proxy can use both.

use std::time::Duration;

use anyhow::Result;

use super::super::fixture::TailFixture;
use super::client::run_closed_loop_with_tls;
use super::peers::{ListeningProcess, ProxyProgram, ProxySetup, start_server};
use super::{ProxyFigures, SPEED_RATIO, Samples, ratios_to_better_peer};
use crate::experiment::comparison::{Experiment, Report};
use crate::note::LabNote;
use sidelane_report::{Check, Row, Unit};
use sidelane_stats::interval::median_interval;
use sidelane_stats::rounds::Limit;

const ROUNDS: Limit = Limit { first: 6, rounds: 24, time: Duration::from_secs(150) };
const ROUNDS_QUICK: Limit = Limit { first: 2, rounds: 2, time: Duration::from_secs(9) };
/// Time for which each proxy runs in a round, in whole seconds because wrk needs them.
const TIME: Duration = Duration::from_secs(2);
const TIME_QUICK: Duration = Duration::from_secs(1);

/// Compares the proxies until the check is decided.
pub(in super::super) fn compare_proxies_with_tls(fixture: &TailFixture<'_>, report: &mut Report) -> Result<()> {
    if let Some(program) = ProxyProgram::missing_program() {
        report.notes.push(LabNote::NotInstalled { program }.to_string());
        return Ok(());
    }
    let scratch = tempfile::tempdir()?;
    let server = start_server(fixture.place.client, scratch.path())?;
    let setup = ProxySetup::with_tls([fixture.place.request, fixture.place.client], scratch.path())?;
    let start = |peer: ProxyProgram| peer.start(&setup, server.address, scratch.path());
    let proxies = [start(ProxyProgram::ALL[0])?, start(ProxyProgram::ALL[1])?, start(ProxyProgram::ALL[2])?];
    let time = if fixture.options.round_options.quick { TIME_QUICK } else { TIME };
    let limit = fixture.options.round_options.limit(ROUNDS_QUICK, ROUNDS);
    let (turns, title) = (|_, _: &Samples| vec![()], |_: &()| "all proxies".to_owned());
    let proxy = Experiment { name: "proxy-tls", limit, turns: &turns, title, checks: &checks };
    let (samples, _) = proxy.run(|(), round, samples| measure_round(&proxies, time, round, samples))?;
    report.rows.extend(ProxyProgram::ALL.map(|peer| row(&samples, peer)));
    report.checks.extend(checks(&samples));
    Ok(())
}

/// Measures each proxy at saturation. Another proxy is first in each round.
fn measure_round(proxies: &[ListeningProcess; 3], time: Duration, round: u64, samples: &mut Samples) -> Result<()> {
    for place in (0..3).map(|place| (place + round as usize) % 3) {
        let requests = run_closed_loop_with_tls(proxies[place].address, time)?;
        proxies[place].take_log_lines()?;
        let figures = ProxyFigures { per_s: Some(requests / time.as_secs_f64()), ..ProxyFigures::default() };
        samples.add(round, Some(ProxyProgram::ALL[place]), figures);
    }
    Ok(())
}

fn checks(samples: &Samples) -> Vec<Check> {
    let per_s = median_interval(ratios_to_better_peer(samples, |seen| seen.per_s, true));
    let speed = "proxy with TLS and two threads: requests at saturation over those of the better of haproxy and nginx";
    vec![Check::interval_at_least(speed, per_s, SPEED_RATIO, Unit::Ratio)]
}

fn row(samples: &Samples, peer: ProxyProgram) -> Row {
    let mut row = Row::new(format!("{}, TLS", peer.name()));
    row.put("requests_per_s", samples.median(Some(peer), |seen| seen.per_s));
    row
}

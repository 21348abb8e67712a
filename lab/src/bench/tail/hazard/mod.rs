//! A search server that collects garbage often, with a backup beside it. Requests are hedged at hazards, and by a timer
//! that makes the same extra load.
//!
//! In each round every rule has a run, the timer the last one. The wait of the timer follows from the other runs, so
//! that the timer hedges as many requests as hazards do.

mod timer;

use std::time::Duration;

use anyhow::Result;

use super::fixture::TailFixture;
use super::lucene::{
    CONNECTIONS, ClientReport, HeapSettings, Lucene, LuceneLoad, LuceneVariant, Server, prepare_lucene,
};
use super::proxied::{ProxyCounts, ProxySettings, RunningProxy};
use crate::experiment::comparison::{self, Experiment};
use sidelane_report::{Check, Row, Unit};
use sidelane_stats::interval::{bootstrap_interval, median_interval};
use sidelane_stats::rounds::Limit;
use timer::Timer;

/// Heap of the servers. Young collections take tens of milliseconds and come about twice a second; full collections
/// take 30 ms and come every few seconds. Concurrent marking is off: it would slow requests under all rules without a
/// hazard that the proxy can see.
const MEMORY: HeapSettings = HeapSettings { heap_mib: 256, live_mib: 64, renewed: 2_000, marks: false };

const ROUNDS: Limit = Limit { first: 6, rounds: 12, time: Duration::from_secs(600) };
/// Number of rounds with `--quick`, too few to decide anything.
const ROUNDS_QUICK: Limit = Limit { first: 1, rounds: 1, time: Duration::from_secs(8) };
const SECONDS: f64 = 15.0;
const SECONDS_QUICK: f64 = 2.2;
/// Real-time priority of the proxy: below the client's, above all other threads on their CPU.
const PRIORITY: i32 = 70;
/// Request rate per second, at which the server's CPU is idle half of the time.
const RATE_PER_S: f64 = 400.0;
/// Seconds of load before the measurement, in which a proxy makes its connections.
const WARM_UP_S: f64 = 0.3;
/// Largest p99.9 with hedges at hazards, as a fraction of the p99.9 with hedges by a timer.
const P999_RATIO: f64 = 0.5;
/// Fewest hedges by the timer, as a fraction of the hedges at hazards. A timer with fewer hedges would look worse than
/// it is.
const HEDGES_RATIO: f64 = 0.9;

type Samples = comparison::Samples<HedgeRule, Run>;

/// Rule that decides when a request is also sent to the backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HedgeRule {
    /// Requests are never sent to the backup.
    Never,
    /// Requests are hedged when a collection begins.
    Hazard,
    /// A request is hedged when its timer expires.
    Timer,
}

impl HedgeRule {
    const ALL: [Self; 3] = [Self::Never, Self::Hazard, Self::Timer];

    fn name(self) -> &'static str {
        match self {
            Self::Never => "none",
            Self::Hazard => "hazard",
            Self::Timer => "timer",
        }
    }
}

/// Figures of one run under a rule for hedges.
struct Run {
    timer: Option<Timer>,
    seen: ClientReport,
    done: ProxyCounts,
}

/// Two servers that are warmed up, and the load for them.
struct Servers<'a> {
    fixture: &'a TailFixture<'a>,
    lucene: &'a Lucene,
    ports: (u32, u32),
    seconds: f64,
}

/// Compares the rules until the checks are decided.
pub(super) fn compare_hedge_rules(fixture: &TailFixture<'_>, report: &mut comparison::Report) -> Result<()> {
    let Some(lucene) = prepare_lucene(fixture, report) else { return Ok(()) };
    let start = |cpu| Server::start(&lucene, LuceneVariant::Pretouch, cpu, MEMORY, 0);
    let started = [start(fixture.place.request)?, start(fixture.place.batch)?];
    for server in &started {
        LuceneLoad::WARM_UP.send(fixture, &lucene, server.port()?)?;
    }
    let seconds = if fixture.options.round_options.quick { SECONDS_QUICK } else { SECONDS };
    let ports = (started[0].port()?, started[1].port()?);
    let servers = Servers { fixture, lucene: &lucene, ports, seconds };
    let (limit, title) =
        (fixture.options.round_options.limit(ROUNDS_QUICK, ROUNDS), |hedging: &HedgeRule| hedging.name().to_owned());
    let hazard = Experiment { name: "hazard", limit, turns: &turns, title, checks: &checks };
    let (samples, _) = hazard.run(|hedging, round, samples| {
        let run = servers.run(hedging, round, samples)?;
        samples.add(round, hedging, run);
        Ok(())
    })?;
    report.rows.extend(HedgeRule::ALL.map(|hedging| row(&samples, hedging)));
    report.checks.extend(checks(&samples));
    Ok(())
}

/// Returns the order of the runs in a round. The first two runs swap places from round to round.
fn turns(round: u64, _: &Samples) -> Vec<HedgeRule> {
    match round % 2 {
        0 => vec![HedgeRule::Never, HedgeRule::Hazard, HedgeRule::Timer],
        _ => vec![HedgeRule::Hazard, HedgeRule::Never, HedgeRule::Timer],
    }
}

impl Servers<'_> {
    /// Runs the load under one rule. All runs of a round have the same load.
    fn run(&self, hedging: HedgeRule, round: u64, samples: &Samples) -> Result<Run> {
        let timer = (hedging == HedgeRule::Timer).then(|| Timer::from_earlier_runs(samples)).transpose()?;
        let hedge = timer.map_or_else(|| hedging.name().to_owned(), |timer| format!("timer:{}ms", timer.after_ms));
        let hazards = if hedging == HedgeRule::Hazard { "jvm-gc" } else { "none" };
        let wanted = ProxySettings { hazards, hedge: &hedge, clients: CONNECTIONS, priority: Some(PRIORITY) };
        let proxy = RunningProxy::start(self.fixture, self.ports, wanted)?;
        let (requests, seed) = (RATE_PER_S * self.seconds, round + 1);
        let load = LuceneLoad { per_s: RATE_PER_S, warm_up_s: WARM_UP_S, requests, seed };
        let seen = load.send(self.fixture, self.lucene, proxy.port())?;
        Ok(Run { timer, seen, done: proxy.end()? })
    }
}

/// Returns the checks that hedging at hazards is better than hedging by a timer.
fn checks(samples: &Samples) -> Vec<Check> {
    let late = samples.compare_by_round(HedgeRule::Hazard, HedgeRule::Timer, |hazard, timer| {
        Some(hazard.seen.p999_us / timer.seen.p999_us)
    });
    let hedges = bootstrap_interval(&samples.rounds_with_all([HedgeRule::Hazard, HedgeRule::Timer]), |drawn| {
        let of = |place: usize| hedges_per_request(drawn.iter().map(|round| round[place]));
        of(0).filter(|share| *share > 0.0).and_then(|hazard| Some(of(1)? / hazard))
    });
    let (late_at, hedges_at) =
        ("hazard: p99.9 at hazards over that under a timer", "hazard: the timer's hedges over those at hazards");
    vec![
        Check::interval_at_most(late_at, median_interval(late), P999_RATIO, Unit::Ratio),
        Check::interval_at_least(hedges_at, hedges, HEDGES_RATIO, Unit::Ratio),
    ]
}

/// Returns the number of hedges per request over all these runs together.
fn hedges_per_request<'a>(runs: impl Iterator<Item = &'a Run>) -> Option<f64> {
    let (hedges, requests) =
        runs.fold((0, 0), |(hedges, requests), run| (hedges + run.done.hedges, requests + run.done.requests));
    (requests > 0).then(|| hedges as f64 / requests as f64)
}

/// Returns the row of a rule: medians over the runs, and the hedges of all runs together.
fn row(samples: &Samples, hedging: HedgeRule) -> Row {
    let each = |figure: fn(&Run) -> f64| samples.median(hedging, |run| Some(figure(run)));
    let hedges = hedges_per_request(samples.of_variant(hedging).map(|sample| &sample.figures));
    let mut row = Row::new(format!("hazard/{}", hedging.name()));
    row.put("p50_us", each(|run| run.seen.p50_us));
    row.put("p99_us", each(|run| run.seen.p99_us));
    row.put("p999_us", each(|run| run.seen.p999_us));
    row.put("max_us", each(|run| run.seen.max_us));
    row.put("hedges_percent", hedges.map(|share| share * 100.0));
    row.put("wins_count", samples.sum(hedging, |run| run.done.wins as f64));
    row.put("timer_ms", samples.median(hedging, |run| Some(run.timer?.after_ms as f64)));
    row.put("requests_count", samples.sum(hedging, |run| run.done.requests as f64));
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use sidelane_report::Verdict;

    /// Returns a run of a thousand requests, `hedges` of which were sent twice.
    pub(super) fn run(hedges: u64, p999_us: f64) -> Run {
        let seen =
            ClientReport { p50_us: 0.0, p99_us: 0.0, p999_us, max_us: 0.0, curve: Vec::new(), iterations: Vec::new() };
        Run { timer: None, seen, done: ProxyCounts { requests: 1_000, hedges, wins: 0 } }
    }

    fn verdicts(hazard_p999_us: f64, timer_hedges: u64) -> Vec<Verdict> {
        let mut samples = Samples::default();
        for round in 0..6 {
            let slower = (round + 1) as f64;
            samples.add(round, HedgeRule::Hazard, run(4, hazard_p999_us * slower));
            samples.add(round, HedgeRule::Timer, run(timer_hedges, 10_000.0 * slower));
        }
        // Adds a run of an incomplete round, which the checks must ignore.
        samples.add(6, HedgeRule::Hazard, run(1_000, 1e9));
        checks(&samples).iter().map(|check| check.verdict).collect()
    }

    #[test]
    fn check_compares_within_a_round_and_needs_hedges_of_timer() {
        assert_eq!(verdicts(4_000.0, 4), [Verdict::Holds, Verdict::Holds]);
        assert_eq!(verdicts(6_000.0, 4), [Verdict::Missed, Verdict::Holds]);
        assert_eq!(verdicts(4_000.0, 3), [Verdict::Holds, Verdict::Missed]);
    }
}

//! Service of a scenario: the work and the arrivals of its requests.

use std::sync::Arc;

use super::inputs::{Files, Result};
use super::parts::{LONGER, SHARE, us_to_ns};
use crate::arrivals::Arrivals;
use crate::demand::{Demand, LUCENE_MEAN_NS, Lognormal};
use crate::model::{CORES_MAX, Queue, Service};
use crate::smt::Interference;
use crate::tasks::Tasks;
use crate::time::Nanos;
use sidelane_toml::Reader;

/// Reads the service of a scenario. Its class has the service's name.
pub(super) fn read_service(reader: Reader, cores: usize, smt: &Interference, files: Files) -> Result<Service> {
    let name = reader.text("name", "write a name").unwrap_or("service").to_owned();
    let workers = reader.whole_number("workers", 1..=cores.min(CORES_MAX)).unwrap_or(1);
    let queues = [("shared", Queue::Shared), ("per-worker", Queue::PerWorker)];
    let queue = reader.choice("queue", &queues).unwrap_or_default();
    let queue_limit = reader.whole_number("queue_limit", 0..=10_000_000).unwrap_or(1_000_000);
    let class = smt.class(&name).expect("every name was made a class");
    let recorded = reader.table("arrivals");
    if recorded.value("kind").and_then(|kind| kind.get_ref().as_str()) == Some(RECORDINGS) {
        // Each request has its own work and its own worker.
        let arrivals = read_recordings(recorded, workers, files)?;
        reader.record_unknown_keys();
        let (demand, queue) = (Demand::Constant(1.0), Queue::PerWorker);
        return Ok(Service { name, class, workers, queue, queue_limit, arrivals, demand });
    }
    let demand = read_demand(reader.table("demand"), files)?;
    let arrivals = read_arrivals(reader.table("arrivals"), demand.mean_ns() / workers as f64, files)?;
    reader.record_unknown_keys();
    Ok(Service { name, class, workers, queue, queue_limit, arrivals, demand })
}

/// Kind of arrivals that are recordings of machines.
const RECORDINGS: &str = "recordings";

/// Reads the folder of recordings, each of one machine with as many request lanes as there are workers.
fn read_recordings(reader: Reader, workers: usize, files: Files) -> Result<Arrivals> {
    let allowed = "name a folder with recordings of `sidelane estimate --keep` or of an agent that observes";
    let dir = reader.required_text("dir", allowed)?;
    let recordings =
        files.recordings(dir).map_err(|why| reader.record_problem("dir", format!("cannot be read: {why}"), allowed))?;
    if let Some(other) = recordings.iter().find(|recording| recording.head.request_lanes.len() != workers) {
        let lanes = other.head.request_lanes.len();
        let problem = format!("has a recording of {} with {lanes} request lane(s)", other.head.service);
        return Err(reader.record_problem("dir", problem, format!("write workers = {lanes}")));
    }
    if recordings.iter().any(|recording| recording.requests.is_empty()) {
        return Err(reader.record_problem("dir", "has a recording without requests", "remove that recording"));
    }
    reader.record_unknown_keys();
    Ok(Arrivals::Recordings(recordings.iter().map(|recording| Tasks::new(recording).list).collect()))
}

#[derive(Clone, Copy)]
enum DemandKind {
    Constant,
    Exponential,
    Lognormal,
    Bimodal,
    Lucene,
    Empirical,
}

pub(super) fn read_demand(reader: Reader, files: Files) -> Result<Demand> {
    use DemandKind::*;
    let kinds = [
        ("constant", Constant),
        ("exponential", Exponential),
        ("lognormal", Lognormal),
        ("bimodal", Bimodal),
        ("lucene", Lucene),
        ("empirical", Empirical),
    ];
    let mean_ns = || Ok(reader.required_number("mean_ms", LONGER)? * 1e6);
    let demand = match reader.required_choice("kind", &kinds)? {
        Constant => Demand::Constant(mean_ns()?),
        Exponential => Demand::Exponential(mean_ns()?),
        Lognormal => read_lognormal(&reader, mean_ns()?)?,
        Bimodal => Demand::Bimodal {
            short_ns: reader.required_number("short_ms", LONGER)? * 1e6,
            long_ns: reader.required_number("long_ms", LONGER)? * 1e6,
            long_share: reader.required_number("long_share", SHARE)?,
        },
        Lucene => Demand::lucene(reader.number("mean_ms", LONGER).map_or(LUCENE_MEAN_NS, |mean| mean * 1e6)),
        Empirical => Demand::Empirical(read_recorded_times(&reader, files, server_times)?),
    };
    reader.record_unknown_keys();
    Ok(demand)
}

fn read_lognormal(reader: &Reader, mean_ns: f64) -> Result<Demand> {
    let sigma = reader.required_number("sigma", 0.01..=4.0)?;
    let cut = reader.number("longest_ms", LONGER).map_or(f64::INFINITY, |cut| cut * 1e6);
    if cut < 2.0 * mean_ns {
        return Err(reader.record_problem("longest_ms", "is too short", "write twice mean_ms, or more"));
    }
    Ok(Demand::Lognormal(Lognormal::new(mean_ns, sigma, cut)))
}

#[derive(Clone, Copy)]
enum ArrivalKind {
    Poisson,
    Bursty,
    Daily,
    OnOff,
    Trace,
}

/// Reads the arrivals of requests. `work_ns` is the work that arrives at one worker with each request.
pub(super) fn read_arrivals(reader: Reader, work_ns: f64, files: Files) -> Result<Arrivals> {
    use ArrivalKind::*;
    let kinds = [("poisson", Poisson), ("bursty", Bursty), ("daily", Daily), ("on-off", OnOff), ("trace", Trace)];
    let kind = reader.required_choice("kind", &kinds)?;
    let rate = reader.number("rate_per_s", 1e-3..=1e8);
    let load = reader.number("load_percent", 0.01..=200.0);
    let gap_ns = match (rate, load) {
        (Some(rate), None) => Some(1e9 / rate),
        (None, Some(load)) => Some(work_ns / (load / 100.0)),
        (None, None) => None,
        (Some(_), Some(_)) => {
            return Err(reader.record_problem(
                "load_percent",
                "is given, but rate_per_s is given, too",
                "write one of them",
            ));
        }
    };
    let pattern = match kind {
        Poisson => Arrivals::Poisson { gap_ns: 1.0 },
        Bursty => read_bursty(&reader)?,
        Daily => read_daily(&reader)?,
        OnOff => read_on_off(&reader)?,
        Trace => Arrivals::Trace(read_recorded_times(&reader, files, arrival_gaps_ns)?),
    };
    let arrivals = match (gap_ns, kind) {
        (Some(gap_ns), _) => pattern.with_mean_gap(gap_ns),
        (None, Trace) => pattern,
        (None, _) => return Err(reader.record_missing("rate_per_s", "write rate_per_s or load_percent")),
    };
    reader.record_unknown_keys();
    Ok(arrivals)
}

fn read_bursty(reader: &Reader) -> Result<Arrivals> {
    Ok(Arrivals::Bursty {
        calm_gap_ns: 1e6,
        burst_gap_ns: 1e6 / reader.required_number("burst_factor", 1.0..=1e4)?,
        calm_ns: reader.required_number("calm_ms", LONGER)? * 1e6,
        burst_ns: reader.required_number("burst_ms", LONGER)? * 1e6,
    })
}

fn read_daily(reader: &Reader) -> Result<Arrivals> {
    Ok(Arrivals::Daily {
        gap_ns: 1e6,
        swing: reader.required_number("swing_percent", 0.0..=100.0)? / 100.0,
        day_ns: reader.number("day_s", 1.0..=1e7).unwrap_or(86_400.0) * 1e9,
        phases: reader.whole_number("phases", 1..=10_000).unwrap_or(1),
        phase: 0.0,
    })
}

fn read_on_off(reader: &Reader) -> Result<Arrivals> {
    Ok(Arrivals::OnOff {
        gap_ns: 1e6,
        on_ns: read_shortest_and_longest(reader, "on_ms")?,
        off_ns: read_shortest_and_longest(reader, "off_ms")?,
    })
}

fn read_shortest_and_longest(reader: &Reader, key: &str) -> Result<(f64, f64)> {
    let allowed = "write a list of the shortest and the longest time, such as [60_000, 90_000]";
    match reader.numbers(key, LONGER).as_deref() {
        None => Err(reader.record_missing(key, allowed)),
        Some([shortest, longest]) if shortest <= longest => Ok((shortest * 1e6, longest * 1e6)),
        Some(_) => Err(reader.record_problem(key, "is not such a list", allowed)),
    }
}

/// Reads numbers from the file that the key `file` names: microseconds, one on each line. For a log of requests,
/// `times_of_log` computes the numbers.
fn read_recorded_times(
    reader: &Reader,
    files: Files,
    times_of_log: fn(&[LoggedRequest]) -> Vec<Nanos>,
) -> Result<Arc<[Nanos]>> {
    let allowed = "name a file with one number of microseconds a line, or one that `sidelane requests --log` wrote";
    let name = reader.required_text("file", allowed)?;
    let text = files
        .text(name)
        .map_err(|why| reader.record_problem("file", format!("cannot be read: {name}: {why}"), allowed))?;
    let numbers = if text.starts_with('{') {
        parse_request_log(&text).map(|log| times_of_log(&log))
    } else {
        parse_microsecond_lines(&text)
    };
    match numbers.filter(|numbers| numbers.iter().any(|ns| *ns > 0)) {
        Some(numbers) => Ok(numbers.into()),
        None => Err(reader.record_problem("file", format!("names {name}, which has another form"), allowed)),
    }
}

fn parse_microsecond_lines(text: &str) -> Option<Vec<Nanos>> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let number = |line: &str| line.parse::<f64>().ok().filter(|number| (0.0..1e12).contains(number)).map(us_to_ns);
    lines.map(number).collect()
}

/// A request of a real run, from a log.
struct LoggedRequest {
    arrived_ns: Nanos,
    started_ns: Nanos,
    finished_ns: Nanos,
}

fn parse_request_log(text: &str) -> Option<Vec<LoggedRequest>> {
    let request = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).ok()?;
        let ns = |key: &str| line[key].as_u64();
        Some(LoggedRequest {
            arrived_ns: ns("arrived_ns")?,
            started_ns: ns("started_ns")?,
            finished_ns: ns("finished_ns")?,
        })
    };
    text.lines().map(request).collect()
}

fn server_times(log: &[LoggedRequest]) -> Vec<Nanos> {
    log.iter().map(|request| request.finished_ns.saturating_sub(request.started_ns)).collect()
}

fn arrival_gaps_ns(log: &[LoggedRequest]) -> Vec<Nanos> {
    let mut arrived: Vec<Nanos> = log.iter().map(|request| request.arrived_ns).collect();
    arrived.sort_unstable();
    arrived.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

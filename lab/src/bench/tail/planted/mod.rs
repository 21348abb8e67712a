//! Planted causes: whether a trace explains each slow request by its planted cause.
//!
//! A service of the lab is slow for some of its requests, each for one known cause (`sidelane-lab plant`). The client
//! records which requests are planted. The service is traced at the same time, and the causes that the trace names are
//! compared with the planted ones.

mod cause;
mod checks;
mod named;
mod rows;
mod truth;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::fixture::TailFixture;
use super::lucene::{HeapSettings, Lucene, LuceneVariant, Server};
use super::traced::{TracedService, trace_while_running};
use crate::experiment::comparison::{self, Experiment, Report};
use crate::note::LabNote;
use crate::programs::LabProcess;
pub use cause::Attribution;
use cause::{DELAY_MS, PlantedCause, PlantedProgram};
use named::PlantedRunResult;
use sidelane_host::service::Target;
use sidelane_stats::rounds::{Limit, RoundOptions};
use sidelane_timeline::cause::Cause;

/// Heap of a Java service: a collection of all its live objects takes tens of milliseconds.
const MEMORY: HeapSettings = HeapSettings { live_mib: 48, ..HeapSettings::SMALL };
const PLAIN_SEARCH: &str = "/search?q=and+w10+w20";

const ROUNDS: Limit = Limit { first: 6, rounds: 12, time: std::time::Duration::from_secs(600) };
/// Number of rounds with `--quick`: there is time for only one round of a few causes, whose requests count as single
/// samples.
const ROUNDS_QUICK: Limit = Limit { first: 1, rounds: 1, time: std::time::Duration::from_secs(12) };

type Samples = comparison::Samples<&'static PlantedCause, PlantedRunResult>;

/// Number of requests of a run, and the interval between planted ones.
#[derive(Clone, Copy)]
struct RunSize {
    requests: u64,
    every: u64,
}

const SIZE: RunSize = RunSize { requests: 1_000, every: 50 };
const SIZE_QUICK: RunSize = RunSize { requests: 75, every: 15 };

impl RunSize {
    fn for_cause(planted: &PlantedCause, round_options: RoundOptions) -> RunSize {
        let size = if round_options.quick { SIZE_QUICK } else { SIZE };
        match planted.place {
            PlantedProgram::Seldom => RunSize { every: size.every * 5, ..size },
            // Sends fewer requests from a distant client, for which each plain request takes as long as a planted
            // request of another cause.
            PlantedProgram::Far(_) => RunSize { requests: size.requests / 5, every: size.every / 5 },
            _ => size,
        }
    }
}

/// Plants the causes in turn, and compares them with the statements of traces.
pub(super) fn measure_planted_causes(fixture: &TailFixture<'_>, report: &mut Report) -> Result<()> {
    let mut notes = Vec::new();
    let chosen = PlantedCause::chosen(fixture.options.round_options);
    if chosen.len() < PlantedCause::ALL.len() {
        notes.push(LabNote::FewPlanted { chosen: chosen.len(), all: PlantedCause::ALL.len() }.to_string());
    }
    let (limit, turns) = (fixture.options.round_options.limit(ROUNDS_QUICK, ROUNDS), |_, _: &Samples| chosen.clone());
    let title = |planted: &&'static PlantedCause| planted.name.to_owned();
    let planting = Experiment { name: "planted causes", limit, turns: &turns, title, checks: &checks::planted_checks };
    let (samples, _) = planting.run(|planted, round, samples| {
        match plant_and_trace(fixture, planted) {
            Ok(named) => samples.add(round, planted, named),
            Err(why) => notes.push(LabNote::NotPlanted { cause: planted.name, why: format!("{why:#}") }.to_string()),
        }
        Ok(())
    })?;
    report.rows.extend(rows::planted_rows(&samples));
    report.checks.extend(checks::planted_checks(&samples));
    report.bars.extend(rows::confusion_chart(&samples));
    notes.dedup();
    report.notes.extend(notes);
    Ok(())
}

/// Plants one cause once. Returns the statement that a trace should make on the slow requests, and how often the trace
/// made each statement.
pub(super) fn attribute_planted_cause(
    fixture: &TailFixture<'_>,
    cause_name: &str,
) -> Result<(Attribution, BTreeMap<Option<Attribution>, u64>)> {
    let planted = PlantedCause::ALL.iter().find(|planted| planted.name == cause_name).context("no such cause")?;
    Ok((planted.claim, plant_and_trace(fixture, planted)?.of_planted))
}

/// Plants one cause, and compares it with the statements of a trace.
fn plant_and_trace(fixture: &TailFixture<'_>, planted: &'static PlantedCause) -> Result<PlantedRunResult> {
    let is_moved_to_the_client =
        planted.claim == Attribution::Cause(Cause::Migration) && fixture.place.is_client_on_batch_lane();
    ensure!(!is_moved_to_the_client, "there are two CPUs: a thread that moves waits for the client there");
    let service = PlantedService::start(fixture, planted)?;
    let scratch = tempfile::tempdir().context("cannot make a directory for scratch files")?;
    let file = scratch.path().join("truth");
    let size = RunSize::for_cause(planted, fixture.options.round_options);
    let warm_up = RunSize { every: size.requests + 1, ..size };
    fixture.lab.run(client_command_line(fixture, planted, &service, warm_up, &file)?)?;
    let words = client_command_line(fixture, planted, &service, size, &file)?;
    let batch = match planted.place {
        PlantedProgram::Beside(batch) => Some(batch),
        _ => None,
    };
    let of = TracedService { service: Target::Pid(service.pid()), place: fixture.place, batch };
    let (traced, ()) = trace_while_running(&of, || fixture.lab.run(words))?;
    ensure!(
        planted.claim.is_detectable(traced.recorded),
        "a trace on this machine cannot record the planted cause ({}); run `sidelane doctor` to see why",
        planted.claim.text()
    );
    Ok(PlantedRunResult::from_trace(planted.claim, &truth::read_client_requests(&file)?, &traced))
}

/// Returns the client's command line.
fn client_command_line(
    fixture: &TailFixture<'_>,
    planted: &PlantedCause,
    service: &PlantedService,
    size: RunSize,
    truth_file: &Path,
) -> Result<Vec<OsString>> {
    let host = match planted.place {
        PlantedProgram::Far(host) => host,
        _ => "127.0.0.1",
    };
    let address = format!("{host}:{}", service.port()?);
    let (requests, every, cpu) = (size.requests.to_string(), size.every.to_string(), fixture.place.client.to_string());
    let words = ["ask", "--target", &address, "--requests", &requests, "--every", &every, "--cpu", &cpu];
    let of_place: &[&str] = match planted.place {
        PlantedProgram::Service | PlantedProgram::Seldom | PlantedProgram::Beside(_) => &[],
        PlantedProgram::Client(options) => options,
        PlantedProgram::Far(_) => &["--afresh"],
        PlantedProgram::Lucene(path) => &["--planted", path, "--plain", PLAIN_SEARCH],
    };
    let words = words.into_iter().chain(of_place.iter().copied()).map(OsString::from);
    Ok(words.chain(["--truth".into(), truth_file.into()]).collect())
}

/// Service into which a cause of slowness is injected.
enum PlantedService {
    Lab(LabProcess),
    Lucene(Server),
}

impl PlantedService {
    fn start(fixture: &TailFixture<'_>, planted: &PlantedCause) -> Result<Self> {
        if let PlantedProgram::Lucene(_) = planted.place {
            let lucene = Lucene::prepare(&fixture.options.cache)?;
            return Ok(Self::Lucene(Server::start(
                &lucene,
                LuceneVariant::Pretouch,
                fixture.place.request,
                MEMORY,
                0,
            )?));
        }
        let (cpu, other) = (fixture.place.request.to_string(), fixture.place.batch.to_string());
        let words = ["plant", planted.name, "--delay-ms", DELAY_MS, "--cpu", &cpu, "--other-cpu", &other, "--dir"];
        let words = words.into_iter().map(OsString::from).chain([fixture.options.cache.clone().into()]);
        Ok(Self::Lab(fixture.lab.start(words)?))
    }

    fn pid(&self) -> u32 {
        match self {
            PlantedService::Lab(service) => service.pid(),
            PlantedService::Lucene(server) => server.pid(),
        }
    }

    fn port(&self) -> Result<u32> {
        match self {
            PlantedService::Lab(service) => service.ready_number("port"),
            PlantedService::Lucene(server) => server.port(),
        }
    }
}

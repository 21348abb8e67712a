//! A full-text search service over real English text. It has one thread and requests of very different length, or one
//! thread per core.

use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;
use tempfile::TempDir;

use super::fixture::Fixture;
use super::place::ExperimentCpus;
use super::sibling::{EmulatedSibling, SlowdownMechanism};
use super::slow_cpu::SlowCpu;
use super::socket::SocketObserver;
use crate::programs::LabBinary;

/// Kind of queries that are sent to the service.
struct Mix {
    name: &'static str,
    file: &'static str,
    count: &'static str,
}

/// Queries of very different length. 3000 queries hardly repeat in a run of some seconds, and are few enough to time
/// each once.
const TERMS: Mix = Mix { name: "terms", file: "queries.txt", count: "3000" };
/// Queries whose search time is proportional to their number of keywords.
const KEYWORDS: Mix = Mix { name: "keywords", file: "keywords.txt", count: "400" };

/// Starts the search service at `place`, beside the chosen emulated sibling. Index and queries are kept in `cache`
/// between runs.
pub fn start_search_service(
    place: ExperimentCpus,
    sibling: Option<SlowdownMechanism>,
    cache: &Path,
) -> Result<Fixture> {
    let lab = LabBinary::find()?;
    // Starts the sibling before the slow preparations, so that a wrong choice fails early.
    let sibling = EmulatedSibling::start_chosen(sibling, place, &lab)?;
    let library = SearchIndex::open(&lab, cache, &TERMS)?;
    let mut words: Vec<OsString> = ["--cpu".to_owned(), place.request.to_string()].map(OsString::from).to_vec();
    words.extend(sibling.iter().flat_map(EmulatedSibling::options).map(OsString::from));
    let mean_service_us = library.mean_service_us(&lab, place.request)?;
    let fixture = start_service(place, lab, &library, mean_service_us, &words)?;
    let sockets = SocketObserver::open(place, fixture.pid)?.map(RefCell::new);
    Ok(Fixture { sockets, sibling, ..fixture })
}

/// Placement of a search service on several cores.
pub struct MultiCorePlacement<'a> {
    /// CPUs of the service, with one thread per CPU. The threads are not pinned to them.
    pub place: ExperimentCpus,
    /// CPU of the service that is made slow; `None` if all are equally fast.
    pub slow: Option<&'a SlowCpu>,
    /// Wanted mean time of a search. Each search is repeated to reach it.
    pub mean: Duration,
}

/// Starts a search service on several cores. The time of a search is proportional to its number of keywords.
pub fn start_search_on_cores(placement: &MultiCorePlacement<'_>, lab: LabBinary, cache: &Path) -> Result<Fixture> {
    let library = SearchIndex::open(&lab, cache, &KEYWORDS)?;
    let once_us = library.mean_service_us(&lab, placement.place.request)?;
    let repeats = (placement.mean.as_secs_f64() * 1e6 / once_us).round().clamp(1.0, f64::from(u16::MAX));
    let mut words: Vec<OsString> = ["--workers", "2", "--repeats"].map(OsString::from).to_vec();
    words.push(repeats.to_string().into());
    words.extend(placement.slow.into_iter().flat_map(SlowCpu::options).map(OsString::from));
    start_service(placement.place, lab, &library, once_us * repeats, &words)
}

/// Search index and the file of queries for it.
struct SearchIndex {
    index: PathBuf,
    queries: PathBuf,
}

impl SearchIndex {
    /// Builds the index and draws the queries, unless both files exist.
    fn open(lab: &LabBinary, cache: &Path, mix: &Mix) -> Result<Self> {
        fs::create_dir_all(cache).with_context(|| format!("cannot make {}", cache.display()))?;
        let (index, queries) = (cache.join("index"), cache.join(mix.file));
        lab.run(["index".as_ref(), "--out".as_ref(), index.as_os_str()])?;
        let mut draw: Vec<&OsStr> = ["queries", "--mix", mix.name, "--count", mix.count].map(OsStr::new).to_vec();
        draw.extend(["--index".as_ref(), index.as_os_str(), "--out".as_ref(), queries.as_os_str()]);
        lab.run(draw)?;
        Ok(Self { index, queries })
    }

    /// Measures the mean time of a search on one CPU, in microseconds.
    fn mean_service_us(&self, lab: &LabBinary, cpu: u32) -> Result<f64> {
        let (scratch, cpu) = (create_scratch_dir()?, cpu.to_string());
        let json = scratch.path().join("service-times.json");
        let mut measure: Vec<&OsStr> = ["service-times", "--cpu", &cpu].map(OsStr::new).to_vec();
        measure.extend(["--index".as_ref(), self.index.as_os_str(), "--queries".as_ref(), self.queries.as_os_str()]);
        measure.extend(["--json".as_ref(), json.as_os_str()]);
        lab.run(measure)?;
        let times: Value = serde_json::from_slice(&fs::read(&json)?)?;
        times["mean_us"].as_f64().context("no mean_us among the service times")
    }
}

/// Starts the service without an emulated sibling and without an observer of its sockets. `words` are further options
/// of the service.
fn start_service(
    place: ExperimentCpus,
    lab: LabBinary,
    search_index: &SearchIndex,
    mean_service_us: f64,
    options: &[OsString],
) -> Result<Fixture> {
    let SearchIndex { index, queries } = search_index;
    let first = ["serve".as_ref(), "--index".as_ref(), index.as_os_str(), "--port".as_ref(), "0".as_ref()];
    let service = lab.start(first.into_iter().chain(options.iter().map(OsString::as_os_str)))?;
    Ok(Fixture {
        place,
        pid: service.pid(),
        port: service.ready_number("port")?,
        questions: ["--protocol".into(), "search".into(), "--queries".into(), OsString::from(queries)].to_vec(),
        mean_service_us,
        sibling: None,
        sockets: None,
        _service: Box::new(service),
        scratch: create_scratch_dir()?,
        lab,
    })
}

fn create_scratch_dir() -> Result<TempDir> {
    tempfile::tempdir().context("cannot make a directory for scratch files")
}

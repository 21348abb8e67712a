//! A full-text search service over real English text: one thread, requests of very different length.

use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::place::Place;
use super::sibling::{Carrier, Sibling};
use super::socket::SocketView;
use super::stage::Stage;
use crate::lab::{Lab, Service};

/// Enough that a run of some seconds hardly repeats itself, few enough to time each one.
const QUERIES: &str = "3000";

/// Puts it up at `place`, beside the emulated sibling that was chosen; index and queries are kept in `cache`
/// between runs.
pub fn stage(place: Place, sibling: Option<Carrier>, cache: &Path) -> Result<Stage> {
    let lab = Lab::find()?;
    // First, since it may be refused.
    let sibling = Sibling::choose(sibling, place, &lab)?;
    let (index, queries) = (cache.join("index"), cache.join("queries.txt"));
    fs::create_dir_all(cache).with_context(|| format!("cannot make {}", cache.display()))?;
    lab.run(["index".as_ref(), "--out".as_ref(), index.as_os_str()])?;
    let draw: [&OsStr; 7] = [
        "queries".as_ref(),
        "--count".as_ref(),
        QUERIES.as_ref(),
        "--index".as_ref(),
        index.as_os_str(),
        "--out".as_ref(),
        queries.as_os_str(),
    ];
    lab.run(draw)?;
    let scratch = tempfile::tempdir().context("cannot make a directory for scratch files")?;
    let mean_service_us = mean_service_us(&lab, &index, &queries, scratch.path(), place.request)?;
    let service = serve(&lab, &index, place.request, sibling.as_ref())?;
    let questions = ["--protocol".into(), "search".into(), "--queries".into(), OsString::from(queries)];
    Ok(Stage {
        place,
        pid: service.pid(),
        port: service.ready("port")?,
        questions: questions.to_vec(),
        mean_service_us,
        sibling,
        sockets: SocketView::open(place, service.pid())?.map(RefCell::new),
        _service: Box::new(service),
        scratch,
        lab,
    })
}

fn mean_service_us(lab: &Lab, index: &Path, queries: &Path, scratch: &Path, cpu: u32) -> Result<f64> {
    let json = scratch.join("service-times.json");
    let cpu = cpu.to_string();
    lab.run([
        "service-times".as_ref(),
        "--index".as_ref(),
        index.as_os_str(),
        "--queries".as_ref(),
        queries.as_os_str(),
        "--json".as_ref(),
        json.as_os_str(),
        "--cpu".as_ref(),
        cpu.as_ref(),
    ])?;
    let times: Value = serde_json::from_slice(&fs::read(&json)?)?;
    times["mean_us"].as_f64().context("no mean_us among the service times")
}

fn serve(lab: &Lab, index: &Path, cpu: u32, sibling: Option<&Sibling>) -> Result<Service> {
    let cpu = cpu.to_string();
    let words: [&OsStr; 7] = [
        "serve".as_ref(),
        "--index".as_ref(),
        index.as_os_str(),
        "--port".as_ref(),
        "0".as_ref(),
        "--cpu".as_ref(),
        cpu.as_ref(),
    ];
    let sibling = sibling.into_iter().flat_map(Sibling::options).map(OsString::from);
    lab.start(words.map(OsString::from).into_iter().chain(sibling))
}

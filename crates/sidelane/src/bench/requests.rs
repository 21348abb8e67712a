//! `sidelane bench requests`: how well requests are seen at a service's sockets, and what that
//! costs the service.
//!
//! The echo servers write down each request themselves; what was seen is compared with that one
//! by one. Of Redis and memcached the truth is the client's: how many requests it sent, and that
//! none of them can have taken longer in the server than it took for the client. Costs are
//! paired: the same load runs alternately with and without the kernel programs, and the
//! service's CPU time per request is compared.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

use super::request_cost;
use super::subject::{DESIGNS, Place, Real, RealServer, echo, seen_during};
use crate::lab::Lab;
use crate::lane::topology::{PairKind, Topology};
use crate::machine;
use crate::report::{Check, ResultFile, Row, Unit};
use crate::request::{Times, can_track};

const RATE_PER_S: f64 = 5_000.0;
const NEAR_NS: u64 = 20_000;
const NEAR_LIMIT_PERCENT: f64 = 99.0;
const COST_LIMIT_US: f64 = 2.0;

struct Bench {
    lab: Lab,
    place: Place,
    seconds: f64,
    pairs: usize,
}

/// Measures everything. `quick` takes less time.
pub fn run(lanes: &str, quick: bool) -> Result<ResultFile> {
    can_track()?;
    let place = place(lanes)?;
    let (seconds, pairs) = if quick { (1.5, 11) } else { (5.0, 41) };
    let bench = Bench { lab: Lab::find()?, place, seconds, pairs };
    let mut settings = Map::new();
    settings.insert("server_cpu".into(), json!(place.server_cpu));
    settings.insert("client_cpu".into(), json!(place.client_cpu));
    settings.insert("requests_per_s".into(), json!(RATE_PER_S));
    settings.insert("each_s".into(), json!(seconds));
    let mut result = ResultFile::new(machine::describe(PairKind::Declared), settings);
    for design in DESIGNS {
        bench.design(design, &mut result).with_context(|| format!("echo server, {design}"))?;
    }
    for real in [Real::Redis, Real::Memcached] {
        bench.real(real, &mut result).with_context(|| real.program().to_owned())?;
    }
    machine::note_stolen(&mut result.machine);
    Ok(result)
}

/// Service and client where the lane pair is.
fn place(lanes: &str) -> Result<Place> {
    let pair = Topology::read(Path::new("/sys"))?.declared_pairs(lanes)?;
    let server_cpu = pair.requests.iter().next().context("no request lane")?;
    let client_cpu = pair.batch.first().context("no batch lane")?.cpu;
    Ok(Place { server_cpu, client_cpu })
}

impl Bench {
    fn design(&self, design: &str, result: &mut ResultFile) -> Result<()> {
        let (agreement, window) = echo(&self.lab, design, "127.0.0.1", self.place, RATE_PER_S, self.seconds)?;
        let near = agreement.within_percent(NEAR_NS);
        let mut row = Row::new(design.replace('-', "_"));
        row.put("requests_count", agreement.told as f64);
        row.put("missed_count", agreement.missed as f64);
        row.put("invented_count", agreement.invented as f64);
        row.put("within_20_us_percent", near);
        row.put("apart_p50_ns", agreement.median_ns().map(|ns| ns as f64));
        put_times(&mut row, [("server", &window.server), ("queueing", &window.queueing)]);
        result.rows.push(row);
        let wrong = agreement.missed + agreement.invented;
        result.checks.extend([
            Check::at_least(format!("{design}: requests seen within 20 µs"), near, NEAR_LIMIT_PERCENT, Unit::Percent),
            Check::at_most(format!("{design}: requests invented"), agreement.invented as f64, 0.0, Unit::Count),
            Check::at_most(
                format!("{design}: requests missed or invented"),
                wrong as f64,
                agreement.told as f64 / 100.0,
                Unit::Count,
            ),
        ]);
        Ok(())
    }

    fn real(&self, kind: Real, result: &mut ResultFile) -> Result<()> {
        if !kind.is_installed() {
            result.notes.push(format!("{} is not installed: nothing of it was measured", kind.program()));
            return Ok(());
        }
        let server = RealServer::start(kind, self.place)?;
        let mut client = Value::Null;
        let (seen, window) = seen_during(server.pid(), self.place, || {
            client = server.load(&self.lab, self.place, RATE_PER_S, self.seconds)?;
            Ok(())
        })?;
        let sent = client["requests"].as_f64().context("the client counted no requests")?;
        let off = (server.of_load(&seen) as f64 - sent).abs();
        let client_p50_ns = client["p50_us"].as_f64().map(|us| us * 1e3);
        let cost = request_cost::measure(&server, self.place, self.pairs)?;
        let mut row = Row::new(kind.program().replace('-', "_"));
        row.put("requests_count", sent);
        row.put("off_count", off);
        put_times(&mut row, [("server", &window.server), ("queueing", &window.queueing)]);
        row.put("client_p50_ns", client_p50_ns);
        row.put("round_trip_us", cost.untracked_us);
        row.put("lanes_cost_us", cost.lanes_us);
        row.put("requests_cost_us", cost.requests_us);
        result.rows.push(row);
        let name = kind.program();
        let part = window.latency.percentile_ns(50.0).zip(client_p50_ns).map(|(ns, client_ns)| ns as f64 / client_ns);
        result.checks.extend([
            Check::at_most(format!("{name}: requests more or fewer than the client sent"), off, 0.0, Unit::Count),
            Check::at_most(format!("{name}: latency in the server over the client's"), part, 1.0, Unit::Ratio),
            Check::at_most(
                format!("{name}: CPU time that tracking adds to a request"),
                cost.requests_us,
                COST_LIMIT_US,
                Unit::Us,
            ),
        ]);
        Ok(())
    }
}

fn put_times(row: &mut Row, all: [(&str, &Times); 2]) {
    for (name, times) in all {
        for percentile in [50, 99] {
            let value = times.percentile_ns(f64::from(percentile)).map(|ns| ns as f64);
            row.put(&format!("{name}_p{percentile}_ns"), value);
        }
    }
}

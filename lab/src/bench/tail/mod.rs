//! `sidelane-lab bench tail`: Tailor's evaluation (thesis "SHIM and Its Applications", chapter 4), on this machine.
//!
//! Each part has a file; `--part` selects parts:
//!
//! - `planted`: slow requests of a known cause, and the causes that a trace names for them
//! - `redis`: whether all requests of a busy service are rebuilt
//! - `cost`: the cost of a trace, compared with empty programs at the same tracepoints and with other tools
//! - `lucene`: a search server over Lucene, whose causes of slowness are removed step by step: Figure 4.14
//! - `proxy`: the proxy beside haproxy and nginx
//! - `proxy-tls`: the same with TLS and two threads
//! - `hazard`: a server that collects garbage, hedged at hazards and by a timer
//! - `haproxy`: HAProxy in front of two servers, alone and with hazards

mod cost;
mod fixture;
mod haproxy;
mod hazard;
mod lucene;
mod options;
mod planted;
mod proxied;
mod proxy;
mod redis;
mod traced;

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::experiment::comparison::Report;
use crate::experiment::place::ExperimentCpus;
use crate::note::LabNote;
use crate::programs::LabBinary;
use fixture::TailFixture;
pub use options::{Part, TailOptions};
pub use planted::Attribution;
use sidelane_host::topology::PairKind;
use sidelane_report::ResultFile;

/// Measures the selected parts.
pub fn run(options: &TailOptions) -> Result<ResultFile> {
    let fixture =
        TailFixture { lab: LabBinary::find()?, place: ExperimentCpus::choose(options.lanes.as_deref())?, options };
    let mut report = Report::with_settings(settings(&fixture));
    for part in options.parts() {
        measure_part(part, &fixture, &mut report).with_context(|| part.name().to_owned())?;
    }
    if fixture.place.kind == PairKind::Declared {
        report.notes.push(LabNote::DeclaredPair.to_string());
    }
    Ok(report.into_result_file(
        fixture.place.kind,
        options.round_options,
        lucene::round_limit(options.round_options).rounds,
    ))
}

/// Plants the cause with this name once. Returns the statement that a trace should make on the slow requests, and how
/// often the trace made each statement. The key `None` stands for requests that no cause explains.
pub fn attribute_planted_cause(
    lab: LabBinary,
    options: &TailOptions,
    cause_name: &str,
) -> Result<(Attribution, BTreeMap<Option<Attribution>, u64>)> {
    let fixture = TailFixture { lab, place: ExperimentCpus::choose(options.lanes.as_deref())?, options };
    planted::attribute_planted_cause(&fixture, cause_name)
}

/// Measures one part, which adds its rows, checks, notes and pictures.
fn measure_part(part: Part, fixture: &TailFixture<'_>, report: &mut Report) -> Result<()> {
    match part {
        Part::Planted => planted::measure_planted_causes(fixture, report),
        Part::Redis => redis::measure_redis_trace(fixture, report),
        Part::Cost => cost::measure_trace_cost(fixture, report),
        Part::Lucene => lucene::measure_lucene_remedies(fixture, report),
        Part::Proxy => proxy::compare_proxies(fixture, report),
        Part::ProxyTls => proxy::compare_proxies_with_tls(fixture, report),
        Part::Hazard => hazard::compare_hedge_rules(fixture, report),
        Part::Haproxy => haproxy::compare_hazards_in_haproxy(fixture, report),
    }
}

fn settings(fixture: &TailFixture<'_>) -> Value {
    let parts: Vec<&str> = fixture.options.parts().into_iter().map(Part::name).collect();
    json!({
        "title": "Sidelane bench: tail",
        "explanation": EXPLANATION,
        "lanes": fixture.place.lanes(),
        "client_cpu": fixture.place.client,
        "parts": parts,
        "quick": fixture.options.round_options.quick,
    })
}

const EXPLANATION: &str = "Why requests are slow, and what helps (thesis \"SHIM and Its Applications\", chapter 4). \
                           Latencies are the client's, from the moment at which a request should have been sent.";

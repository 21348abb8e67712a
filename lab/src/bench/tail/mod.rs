//! `sidelane-lab bench tail`: Tailor's evaluation (thesis "SHIM and Its Applications", chapter 4), on this machine.
//!
//! One file a part; `--part` chooses some:
//!
//! - `planted`: slow requests of a known cause, and the causes that a trace names for them
//! - `redis`: whether all requests of a busy service are rebuilt
//! - `cost`: the cost of a trace, compared with empty programs at the same tracepoints and with other tools
//! - `lucene`: a search server over Lucene, whose causes of slowness are removed step by step: Figure 4.14
//! - `proxy`: the proxy beside haproxy and nginx
//! - `hazard`: a server that collects garbage, hedged at hazards and by a timer

mod cost;
mod hazard;
mod lucene;
mod options;
mod planted;
mod proxied;
mod proxy;
mod redis;
mod stage;
mod traced;

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

use crate::experiment::comparison::finish;
use crate::experiment::place::Place;
use crate::note::LabNote;
use crate::programs::Lab;
pub use options::{Part, TailOptions};
pub use planted::Claim;
use sidelane_diagnostics::machine;
use sidelane_host::topology::PairKind;
use sidelane_report::ResultFile;
use stage::Stage;

/// Measures the parts that were asked for.
pub fn run(options: &TailOptions) -> Result<ResultFile> {
    let stage = Stage { lab: Lab::find()?, place: Place::choose(options.lanes.as_deref())?, options };
    let mut result = ResultFile::new(machine::describe(stage.place.kind), settings(&stage));
    for part in options.parts() {
        measure(part, &stage, &mut result).with_context(|| part.name().to_owned())?;
    }
    if stage.place.kind == PairKind::Declared {
        result.notes.push(LabNote::DeclaredPair.to_string());
    }
    finish(&mut result, options.patience, lucene::rounds(options.patience).rounds);
    Ok(result)
}

/// Plants a cause once, by the lab's name of it. Returns the expected statement of a trace on its slow requests, and
/// the number of each statement; `None` if no cause explains most of a request.
pub fn claims(lab: Lab, options: &TailOptions, planted: &str) -> Result<(Claim, BTreeMap<Option<Claim>, u64>)> {
    let stage = Stage { lab, place: Place::choose(options.lanes.as_deref())?, options };
    planted::claims(&stage, planted)
}

/// Each adds its rows, checks, notes and pictures.
fn measure(part: Part, stage: &Stage<'_>, result: &mut ResultFile) -> Result<()> {
    match part {
        Part::Planted => planted::measure(stage, result),
        Part::Redis => redis::measure(stage, result),
        Part::Cost => cost::measure(stage, result),
        Part::Lucene => lucene::measure(stage, result),
        Part::Proxy => proxy::measure(stage, result),
        Part::Hazard => hazard::measure(stage, result),
    }
}

fn settings(stage: &Stage<'_>) -> Map<String, Value> {
    let parts: Vec<&str> = stage.options.parts().into_iter().map(Part::name).collect();
    let settings = json!({
        "title": "Sidelane bench: tail",
        "explanation": EXPLANATION,
        "lanes": stage.place.lanes(),
        "client_cpu": stage.place.client,
        "parts": parts,
        "quick": stage.options.patience.quick,
    });
    settings.as_object().cloned().unwrap_or_default()
}

const EXPLANATION: &str = "Why requests are slow, and what helps (thesis \"SHIM and Its Applications\", chapter 4). \
                           Latencies are the client's, from the moment at which a request should have been sent.";

//! Containers of a whole machine, as a scenario describes them.

use std::ops::RangeInclusive;

use sidelane_policy::cpus::MAX_CONTAINERS;

use super::cpus;
use super::names::{read_class, read_name};
use crate::machine::layout::Layout;
use crate::machine::model::{ContainerStarts, Kind};
use crate::scenario::inputs::{Files, Result};
use crate::scenario::parts::ms_to_ns;
use crate::scenario::service::{read_arrivals, read_demand};
use crate::smt::Interference;
use crate::time::Nanos;
use sidelane_toml::Reader;

/// Most containers at once: half of the slots, since a freed slot is reused only after an observation.
const AT_ONCE: usize = MAX_CONTAINERS / 2;
/// Highest mean work of a container, in seconds. An amount of work is 8796 s at most, and draws exceed their mean.
const MEAN_S: f64 = 1000.0;
const GAP_MS: RangeInclusive<f64> = 0.0..=1e9;

/// Reads all kinds of containers.
pub(super) fn read_kinds(top: &Reader, layout: Layout, smt: &Interference, files: Files) -> Result<Vec<Kind>> {
    let mut kinds: Vec<Kind> = Vec::new();
    for reader in top.numbered_tables("container") {
        let others: Vec<&str> = kinds.iter().map(|other| other.name.as_str()).collect();
        let name = read_name(&reader, &others)?;
        kinds.push(read_kind(&reader, name, layout, smt, files)?);
        reader.record_unknown_keys();
    }
    let count: usize = kinds.iter().map(|kind| kind.count).sum();
    if count > AT_ONCE {
        return Err(top.record_problem(
            "container",
            format!("has {count} at once"),
            format!("write {AT_ONCE} at most"),
        ));
    }
    Ok(kinds)
}

fn read_kind(reader: &Reader, name: &str, layout: Layout, smt: &Interference, files: Files) -> Result<Kind> {
    let count = reader.whole_number("count", 1..=AT_ONCE).unwrap_or(1);
    let wanted = reader.whole_number("cpus", 1..=layout.cpus() as u32).unwrap_or(1);
    let work = read_demand(reader.table("work"), files)?;
    if work.mean_ns() > MEAN_S * 1e9 {
        return Err(reader.record_problem("work", "is too long", format!("write a mean of {MEAN_S} s at most")));
    }
    let priority = reader.number("priority", -1000.0..=1000.0).unwrap_or(0.0) as i32;
    let coming = read_container_starts(reader, work.mean_ns() / count as f64 / f64::from(wanted), files)?;
    Ok(Kind {
        name: name.to_owned(),
        class: read_class(reader, name, smt)?,
        wanted,
        allowed: cpus::read_cpu_list(reader, "allowed", layout)?.unwrap_or(cpus::all_cpus(layout)),
        priority,
        count,
        work,
        coming,
    })
}

/// Reads how containers of a kind start. `work_ns` is the mean work of a container, divided by the CPUs that all
/// containers of the kind want.
fn read_container_starts(reader: &Reader, work_ns: f64, files: Files) -> Result<ContainerStarts> {
    let gap_ns: Option<Nanos> = reader.number("gap_ms", GAP_MS).map(ms_to_ns);
    let submitted = reader.table("arrivals");
    match (submitted.exists(), gap_ns) {
        (true, Some(_)) => {
            Err(reader.record_problem("gap_ms", "is given, but arrivals is given, too", "write one of them"))
        }
        (true, None) => Ok(ContainerStarts::Submitted(read_arrivals(submitted, work_ns, files)?)),
        (false, gap_ns) => Ok(ContainerStarts::Repeated { gap_ns: gap_ns.unwrap_or(0) }),
    }
}

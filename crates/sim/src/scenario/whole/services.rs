//! Services of a whole machine and their calls, as a scenario describes them.

use sidelane_policy::cpus::MAX_SERVICES;

use super::cpus;
use super::names::{class, name};
use crate::machine::layout::Layout;
use crate::machine::model::{Call, FAN_OUT, MachineService, WORKERS_MAX};
use crate::model::Queue;
use crate::scenario::inputs::{Files, Result};
use crate::scenario::parts::{LONGER, ms};
use crate::scenario::service::{arrivals, demand};
use crate::smt::Interference;
use sidelane_toml::Reader;

/// Reads all services of a whole machine.
pub(super) fn services(top: &Reader, layout: Layout, smt: &Interference, files: Files) -> Result<Vec<MachineService>> {
    let readers = top.numbered_tables("service");
    if readers.is_empty() || readers.len() > MAX_SERVICES {
        return Err(top.wrong(
            "service",
            format!("has {} services", readers.len()),
            format!("write 1 to {MAX_SERVICES}"),
        ));
    }
    let mut services: Vec<MachineService> = Vec::new();
    for reader in &readers {
        let others: Vec<&str> = services.iter().map(|other| other.name.as_str()).collect();
        let name = name(reader, &others)?;
        services.push(service(reader, name, layout, smt, files)?);
    }
    for (at, reader) in readers.into_iter().enumerate() {
        services[at].calls = calls(&reader, &services)?;
        reader.finish();
    }
    calls_end(top, &services)?;
    let has_clients = services.iter().any(|service| service.arrivals.is_some());
    if !has_clients {
        return Err(top.wrong("service", "has no clients", "write arrivals of at least one service"));
    }
    Ok(services)
}

fn service(reader: &Reader, name: &str, layout: Layout, smt: &Interference, files: Files) -> Result<MachineService> {
    let workers = reader.whole("workers", 1..=WORKERS_MAX).unwrap_or(1);
    let queues = [("shared", Queue::Shared), ("per-worker", Queue::PerWorker)];
    let demand = demand(reader.table("demand"), files)?;
    let clients = reader.table("arrivals");
    let arrivals = match clients.is_there() {
        true => Some(arrivals(clients, demand.mean_ns() / workers as f64, files)?),
        false => None,
    };
    Ok(MachineService {
        name: name.to_owned(),
        class: class(reader, name, smt)?,
        cpus: cpus::list(reader, "cpus", layout)?.unwrap_or(cpus::all(layout)),
        workers,
        queue: reader.choice("queue", &queues).unwrap_or_default(),
        queue_limit: reader.whole("queue_limit", 0..=10_000_000).unwrap_or(1_000_000) as usize,
        demand,
        arrivals,
        calls: Vec::new(),
        limit_ns: reader.number("limit_ms", LONGER).map(ms),
        may_be_placed: reader.flag("may_be_placed").unwrap_or(false),
    })
}

fn calls(reader: &Reader, services: &[MachineService]) -> Result<Vec<Call>> {
    let call = |call: Reader| {
        let names: Vec<(&str, usize)> =
            services.iter().enumerate().map(|(at, service)| (service.name.as_str(), at)).collect();
        let service = call.chosen("service", &names)?;
        let fan_out = call.whole("fan_out", FAN_OUT).unwrap_or(1) as u32;
        call.finish();
        Ok(Call { service, fan_out })
    };
    reader.numbered_tables("calls").into_iter().map(call).collect()
}

/// Checks that no request comes back to a service that it has passed.
fn calls_end(top: &Reader, services: &[MachineService]) -> Result<()> {
    // A service that is left after as many rounds as there are services is in a cycle of calls, or calls into one.
    let mut ends = vec![false; services.len()];
    for _ in 0..services.len() {
        ends = services.iter().map(|service| service.calls.iter().all(|call| ends[call.service])).collect();
    }
    match ends.iter().position(|ends| !ends) {
        None => Ok(()),
        Some(at) => Err(top.wrong(
            "service",
            format!("has calls in a circle, at or after {}", services[at].name),
            "write calls from one service to the next, and never back",
        )),
    }
}

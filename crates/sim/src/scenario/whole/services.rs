//! Services of a whole machine and their calls, as a scenario describes them.

use sidelane_policy::cpus::MAX_SERVICES;

use super::cpus;
use super::names::{read_class, read_name};
use crate::machine::layout::Layout;
use crate::machine::model::{Call, FAN_OUT, MachineService, WORKERS_MAX};
use crate::model::Queue;
use crate::scenario::inputs::{Files, Result};
use crate::scenario::parts::{LONGER, ms_to_ns};
use crate::scenario::service::{read_arrivals, read_demand};
use crate::smt::Interference;
use sidelane_toml::Reader;

/// Reads all services of a whole machine.
pub(super) fn read_services(
    top: &Reader,
    layout: Layout,
    smt: &Interference,
    files: Files,
) -> Result<Vec<MachineService>> {
    let readers = top.numbered_tables("service");
    if readers.is_empty() || readers.len() > MAX_SERVICES {
        return Err(top.record_problem(
            "service",
            format!("has {} services", readers.len()),
            format!("write 1 to {MAX_SERVICES}"),
        ));
    }
    let mut services: Vec<MachineService> = Vec::new();
    for reader in &readers {
        let others: Vec<&str> = services.iter().map(|other| other.name.as_str()).collect();
        let name = read_name(reader, &others)?;
        services.push(read_service(reader, name, layout, smt, files)?);
    }
    for (at, reader) in readers.into_iter().enumerate() {
        services[at].calls = read_calls(&reader, &services)?;
        reader.record_unknown_keys();
    }
    check_calls_have_no_cycle(top, &services)?;
    let has_clients = services.iter().any(|service| service.arrivals.is_some());
    if !has_clients {
        return Err(top.record_problem("service", "has no clients", "write arrivals of at least one service"));
    }
    Ok(services)
}

fn read_service(
    reader: &Reader,
    name: &str,
    layout: Layout,
    smt: &Interference,
    files: Files,
) -> Result<MachineService> {
    let workers = reader.whole_number("workers", 1..=WORKERS_MAX).unwrap_or(1);
    let queues = [("shared", Queue::Shared), ("per-worker", Queue::PerWorker)];
    let demand = read_demand(reader.table("demand"), files)?;
    let clients = reader.table("arrivals");
    let arrivals = match clients.exists() {
        true => Some(read_arrivals(clients, demand.mean_ns() / workers as f64, files)?),
        false => None,
    };
    Ok(MachineService {
        name: name.to_owned(),
        class: read_class(reader, name, smt)?,
        cpus: cpus::read_cpu_list(reader, "cpus", layout)?.unwrap_or(cpus::all_cpus(layout)),
        workers,
        queue: reader.choice("queue", &queues).unwrap_or_default(),
        queue_limit: reader.whole_number("queue_limit", 0..=10_000_000).unwrap_or(1_000_000) as usize,
        demand,
        arrivals,
        calls: Vec::new(),
        limit_ns: reader.number("limit_ms", LONGER).map(ms_to_ns),
        may_be_placed: reader.flag("may_be_placed").unwrap_or(false),
    })
}

fn read_calls(reader: &Reader, services: &[MachineService]) -> Result<Vec<Call>> {
    let call = |call: Reader| {
        let names: Vec<(&str, usize)> =
            services.iter().enumerate().map(|(at, service)| (service.name.as_str(), at)).collect();
        let service = call.required_choice("service", &names)?;
        let fan_out = call.whole_number("fan_out", FAN_OUT).unwrap_or(1) as u32;
        call.record_unknown_keys();
        Ok(Call { service, fan_out })
    };
    reader.numbered_tables("calls").into_iter().map(call).collect()
}

/// Checks that no request comes back to a service that it has passed.
fn check_calls_have_no_cycle(top: &Reader, services: &[MachineService]) -> Result<()> {
    // Each round marks the services all of whose calls end. After as many rounds as there are services, an unmarked one
    // is in a cycle of calls, or leads to one.
    let mut ends = vec![false; services.len()];
    for _ in 0..services.len() {
        ends = services.iter().map(|service| service.calls.iter().all(|call| ends[call.service])).collect();
    }
    match ends.iter().position(|ends| !ends) {
        None => Ok(()),
        Some(at) => Err(top.record_problem(
            "service",
            format!("has a cycle of calls, which {} is in or leads to", services[at].name),
            "write calls from one service to the next, and never back",
        )),
    }
}

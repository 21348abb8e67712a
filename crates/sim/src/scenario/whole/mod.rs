//! Whole machine of a scenario: its chips, services, containers and settings.

mod chip;
mod containers;
mod cpus;
mod mapping;
mod names;
mod services;
mod settings;

use super::inputs::{Choices, Files, Result, read_seed, read_warm_up_and_end};
use super::parts;
use crate::fleet::Fleet;
use crate::machine::layout::Layout;
use crate::machine::model::MachineModel;
use crate::machine::setting::MachineSetting;
use crate::smt::Interference;
use sidelane_toml::Reader;

/// Reads a scenario of whole machines: a run for each setting.
pub(super) fn read_machine_models(
    top: &Reader,
    choices: Choices,
    files: Files,
) -> Result<(Vec<MachineModel>, Option<Fleet>)> {
    let machine = parts::read_machine(top.table("machine"))?;
    let layout = Layout::new(&machine);
    cpus::check_cpu_count(top, layout)?;
    let smt = parts::read_interference(top, read_classes(top));
    let chip = chip::read_chip_memory(top.table("chip"), &smt)?;
    let services = services::read_services(top, layout, &smt, files)?;
    let kinds = containers::read_kinds(top, layout, &smt, files)?;
    let (seed, (warm_up_ns, until)) = (read_seed(top, choices), read_warm_up_and_end(top)?);
    let settings = settings::read_settings(
        top,
        &settings::Machine { hardware: &machine, layout, services: &services, smt: &smt, files },
    )?;
    let run = |setting: MachineSetting| MachineModel {
        machine: machine.clone(),
        chip: chip.clone(),
        services: services.clone(),
        kinds: kinds.clone(),
        smt: smt.clone(),
        setting,
        warm_up_ns,
        until,
        seed,
    };
    Ok((settings.into_iter().map(run).collect(), None))
}

/// Reads the names of all classes: those of services and containers.
fn read_classes(top: &Reader) -> Interference {
    let mut names = Vec::new();
    for reader in top.numbered_tables("service").into_iter().chain(top.numbered_tables("container")) {
        let name = reader.text("class", "write a name").or(reader.text("name", "write a name"));
        names.extend(name.map(str::to_owned));
    }
    let mut seen = std::collections::BTreeSet::from(["nap".to_owned()]);
    names.retain(|name| seen.insert(name.clone()));
    Interference::new(&names)
}

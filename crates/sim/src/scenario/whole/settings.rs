//! Settings of a whole machine: the ways of sharing its CPUs that are compared.

use std::ops::RangeInclusive;

use sidelane_policy::cpus::CpuMask;
use sidelane_policy::holmes::HolmesConfig;
use sidelane_policy::hurryup;
use sidelane_policy::perfiso::PerfIsoConfig;

use super::{cpus, mapping};
use crate::gate::Latency;
use crate::machine::layout::Layout;
use crate::machine::model::MachineService;
use crate::machine::setting::{ContainerMode, Control, CpuDecider, MachineSetting};
use crate::scenario::inputs::{Files, Result};
use crate::scenario::parts::{LONGER, ms_to_ns, us_to_ns};
use crate::scenario::settings::read_gate;
use crate::smt::Interference;
use crate::time::{Nanos, US};
use sidelane_toml::Reader;

const MICROSECONDS: RangeInclusive<f64> = 0.0..=1e9;

#[derive(Clone, Copy)]
enum Policy {
    Alone,
    Unmanaged,
    Holmes,
    PerfIso,
    Bound(hurryup::Mapping),
}

const WAYS: [(&str, Policy); 8] = [
    ("alone", Policy::Alone),
    ("unmanaged", Policy::Unmanaged),
    ("holmes", Policy::Holmes),
    ("perfiso", Policy::PerfIso),
    ("hurry-up", Policy::Bound(hurryup::Mapping::HurryUp)),
    ("static", Policy::Bound(hurryup::Mapping::Static)),
    ("all-big", Policy::Bound(hurryup::Mapping::AllBig)),
    ("all-little", Policy::Bound(hurryup::Mapping::AllLittle)),
];

/// Simulated machine and its services, which the scenario's settings refer to.
pub(super) struct Machine<'m> {
    pub(super) hardware: &'m crate::model::Machine,
    pub(super) layout: Layout,
    pub(super) services: &'m [MachineService],
    pub(super) smt: &'m Interference,
    pub(super) files: Files<'m>,
}

/// Reads all settings; their names must differ.
pub(super) fn read_settings(top: &Reader, machine: &Machine) -> Result<Vec<MachineSetting>> {
    let default = read_timing(top.table("control"))?;
    let mut settings: Vec<MachineSetting> = Vec::new();
    for reader in top.numbered_tables("setting") {
        let way = reader.required_choice("policy", &WAYS)?;
        let name = reader.text("policy", "").unwrap_or_default();
        let name = reader.text("name", "write a name").unwrap_or(name).to_owned();
        if settings.iter().any(|other| other.name == name) {
            return Err(reader.record_problem(
                "name",
                format!("is \"{name}\", which is used already"),
                "write another name",
            ));
        }
        let mapping = match way {
            Policy::Bound(mapping) => Some(mapping::read_mapping_config(&reader, mapping, machine.hardware)?),
            _ => None,
        };
        settings.push(MachineSetting { name, beside: read_container_mode(&reader, way, &default, machine)?, mapping });
        reader.record_unknown_keys();
    }
    match settings.is_empty() {
        true => Err(top.record_missing("setting", "write at least one [[setting]] with a policy")),
        false => Ok(settings),
    }
}

fn read_container_mode(reader: &Reader, policy: Policy, default: &Timing, machine: &Machine) -> Result<ContainerMode> {
    match policy {
        Policy::Alone | Policy::Bound(_) => Ok(ContainerMode::Nothing),
        Policy::Unmanaged => Ok(ContainerMode::Unmanaged),
        Policy::Holmes => {
            check_memory_accesses(reader, machine)?;
            let by = CpuDecider::Holmes(read_holmes_config(reader, machine)?);
            Ok(ContainerMode::Managed(read_control(reader, default, machine.files, by)?))
        }
        Policy::PerfIso => {
            let by = CpuDecider::PerfIso(read_perfiso_config(reader, machine)?);
            Ok(ContainerMode::Managed(read_control(reader, default, machine.files, by)?))
        }
    }
}

/// Checks that a service has memory accesses, for a policy that uses their stall cycles (VPI).
fn check_memory_accesses(reader: &Reader, machine: &Machine) -> Result<()> {
    let counted = |service: &MachineService| machine.smt.memory(service.class).accesses_per_us > 0.0;
    match machine.services.iter().any(counted) {
        true => Ok(()),
        false => Err(reader.record_problem(
            "policy",
            "needs memory stalls, but no service has any",
            "write [memory.SERVICE] with accesses_per_us and stall_share for at least one service",
        )),
    }
}

fn read_holmes_config(reader: &Reader, machine: &Machine) -> Result<HolmesConfig> {
    let default = HolmesConfig::default();
    let percent = |key| reader.number(key, 1.0..=100.0);
    Ok(HolmesConfig {
        threshold: reader.number("interference_threshold", 0.0..=1e6).unwrap_or(default.threshold),
        calm_ns: reader.number("calm_time_ms", LONGER).map_or(default.calm_ns, ms_to_ns),
        reserved: read_reserved_cpus(reader, machine)?,
        busy_most: percent("reserved_busy_percent").map_or(default.busy_most, |percent| percent / 100.0),
        window_ns: reader.number("window_ms", LONGER).map_or(default.window_ns, ms_to_ns),
        floor: reader.whole_number("floor", 0..=machine.layout.cpus()).unwrap_or(default.floor),
    })
}

fn read_perfiso_config(reader: &Reader, machine: &Machine) -> Result<PerfIsoConfig> {
    let default = PerfIsoConfig::default();
    let cpus = |key| reader.whole_number(key, 0..=machine.layout.cpus());
    Ok(PerfIsoConfig {
        buffer: cpus("buffer").unwrap_or(default.buffer),
        floor: cpus("floor").unwrap_or(default.floor),
        window_ns: reader.number("window_ms", LONGER).map_or(default.window_ns, ms_to_ns),
    })
}

/// Reads the CPUs that are reserved for services; by default those of all services.
fn read_reserved_cpus(reader: &Reader, machine: &Machine) -> Result<CpuMask> {
    let of_services = || machine.services.iter().fold(CpuMask::EMPTY, |all, service| all.or(&service.cpus));
    Ok(cpus::read_cpu_list(reader, "reserved", machine.layout)?.unwrap_or_else(of_services))
}

/// Reads the controller of a setting. `[setting.control]` has precedence over `[control]`, which has precedence over
/// the defaults.
fn read_control(reader: &Reader, default: &Timing, files: Files, decider: CpuDecider) -> Result<Control> {
    let own = read_timing(reader.table("control"))?;
    let look_ns = own.look_us.or(default.look_us).map_or(LOOK_NS, us_to_ns);
    let ring = own.ring.or(default.ring.clone());
    let act = own.act.or(default.act.clone()).unwrap_or(Latency::constant(ACT_NS));
    let gate = read_gate(reader.table("gate"), files)?;
    Ok(Control { by: decider, look_ns, ring, gate, act })
}

/// Default time between two observations: the loop of Holmes (§5).
const LOOK_NS: Nanos = 50 * US;
/// Default delay of an action: the assumed time of the system call that moves one container.
const ACT_NS: Nanos = 10 * US;

/// Times of a controller, as read from one table; a key that is missing is `None`.
struct Timing {
    look_us: Option<f64>,
    ring: Option<Latency>,
    act: Option<Latency>,
}

fn read_timing(reader: Reader) -> Result<Timing> {
    let timing = Timing {
        look_us: reader.number("look_us", LONGER),
        ring: read_latency(&reader, "ring_p50_us", "ring_p99_us")?,
        act: read_latency(&reader, "act_p50_us", "act_p99_us")?,
    };
    reader.record_unknown_keys();
    Ok(timing)
}

/// Reads a latency by its percentiles; with the median alone it is constant.
fn read_latency(reader: &Reader, p50_key: &str, p99_key: &str) -> Result<Option<Latency>> {
    let Some(p50) = reader.number(p50_key, MICROSECONDS) else { return Ok(None) };
    let p99 = reader.number(p99_key, p50..=*MICROSECONDS.end()).unwrap_or(p50);
    Ok(Some(Latency::from_percentiles(us_to_ns(p50), us_to_ns(p99))))
}

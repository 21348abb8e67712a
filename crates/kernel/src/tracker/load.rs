//! How the kernel program is opened, fitted to the machine and loaded.

use libbpf_rs::{Object, ObjectBuilder};

use crate::promises::Promises;
use crate::stolen::StolenFrom;

use super::error::{TrackerError, bpf};
use super::extras::Extras;
use super::parts::{choose_programs, prepare_counter_map, prepare_request_map};
use sidelane_host::cpulist::CpuSet;
use sidelane_host::service::ServiceCgroup;
use sidelane_host::topology::Lanes;

static PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/lanes.bpf.o"));

/// The same with a scheduler for batch in it.
static PROGRAM_WITH_SCHEDULER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/lanes_scx.bpf.o"));

const ONE_ENTRY_A_LANE: [&str; 9] = [
    "lane_words",
    "hold_words",
    "request_words",
    "lane_terms",
    "gate_words",
    "lane_stats",
    "lane_roles",
    "summons_rings",
    "ext_refused",
];

/// Who plays the hypervisor.
pub const THIEVES: &str = "thieves";
/// Turns of the lanes.
pub const TURNS: &str = "lane_turns";
/// `enum sidelane_requests_from` of `bpf/lanes.h`.
const REQUESTS_EMITTED: u32 = 2;

/// `struct sidelane_settings` of `bpf/lanes.h`.
fn settings(service: ServiceCgroup, extras: Extras, stolen_from: StolenFrom) -> [u8; 48] {
    let mut bytes = [0; 48];
    bytes[..8].copy_from_slice(&service.id.to_ne_bytes());
    bytes[8..12].copy_from_slice(&service.level.to_ne_bytes());
    bytes[12..16].copy_from_slice(&service.v1.to_ne_bytes());
    let requests = if extras.turns { REQUESTS_EMITTED } else { u32::from(extras.requests) };
    bytes[16..20].copy_from_slice(&requests.to_ne_bytes());
    bytes[20..24].copy_from_slice(&u32::from(extras.gated).to_ne_bytes());
    bytes[24..28].copy_from_slice(&u32::from(extras.counters.is_some()).to_ne_bytes());
    bytes[28..32].copy_from_slice(&stolen_from.number().to_ne_bytes());
    bytes[32..40].copy_from_slice(&stolen_from.offset().to_ne_bytes());
    bytes[40..44].copy_from_slice(&u32::from(extras.lends_to_waited).to_ne_bytes());
    bytes
}

/// One array entry for each CPU that the kernel may ever number.
pub fn lane_count(lanes: &Lanes) -> usize {
    let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let possible: CpuSet = possible.trim().parse().unwrap_or_default();
    let batch = lanes.batch.iter().map(|lane| lane.cpu);
    let highest = possible.iter().chain(lanes.requests.iter()).chain(batch).max();
    highest.map_or(1, |cpu| cpu as usize + 1)
}

pub fn open_and_load(
    cpu_count: usize,
    classes_len: usize,
    service: ServiceCgroup,
    extras: Extras,
    stolen_from: StolenFrom,
    lanes: &Lanes,
) -> Result<Object, TrackerError> {
    let program = if extras.scheduler { PROGRAM_WITH_SCHEDULER } else { PROGRAM };
    let mut open = ObjectBuilder::default().open_memory(program).map_err(bpf("read the embedded program"))?;
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if ONE_ENTRY_A_LANE.contains(&name.as_str()) {
            map.set_max_entries(cpu_count as u32).map_err(bpf("size the lane arrays"))?;
        }
        if name == "gated_threads" {
            map.set_max_entries(Promises::words(extras.gated) as u32).map_err(bpf("size the table of threads"))?;
        }
        if name == TURNS && extras.turns {
            map.set_max_entries(cpu_count as u32).map_err(bpf("size the lanes' turns"))?;
        }
        if name == THIEVES && stolen_from == StolenFrom::Told {
            map.set_max_entries(cpu_count as u32).map_err(bpf("size the thieves' array"))?;
        }
        if name == "process_classes" {
            map.set_max_entries(classes_len as u32).map_err(bpf("size the table of processes"))?;
        }
        if name.ends_with(".rodata") {
            map.set_initial_value(&settings(service, extras, stolen_from)).map_err(bpf("set the service's cgroup"))?;
        }
        prepare_request_map(&mut map, extras.requests, cpu_count).map_err(bpf("size the request arrays"))?;
        prepare_counter_map(&mut map, extras.counters.is_some()).map_err(bpf("choose the counters' maps"))?;
    }
    choose_programs(&mut open, extras.requests);
    // A service with one place to run is seen before it is placed, others after.
    let woken = if lanes.requests.len() == 1 { "lane_wakeup" } else { "lane_waking" };
    let exec = if extras.gated { "" } else { "lane_exec" };
    let timer = if stolen_from == StolenFrom::Unseen { "lane_timer" } else { "" };
    let needless = [woken, exec, timer];
    for mut program in open.progs_mut().filter(|program| needless.iter().any(|name| program.name() == *name)) {
        program.set_autoload(false);
    }
    open.load().map_err(|source| match source.kind() {
        libbpf_rs::ErrorKind::PermissionDenied => TrackerError::Refused(source),
        _ => TrackerError::Bpf { step: "load it into the kernel", source },
    })
}

pub fn silence_libbpf() {
    // libbpf prints its debugging notes to stderr; our errors say what matters.
    libbpf_rs::set_print(None);
}

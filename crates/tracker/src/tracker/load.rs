//! Loading of the kernel program: it is opened, fitted to the machine and loaded.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd};

use flate2::read::ZlibDecoder;
use libbpf_rs::btf::Btf;
use libbpf_rs::{MapCore, MapHandle, Object, ObjectBuilder, OpenObject};

use sidelane_host::shared_mapping::{Shared, SharedMapping};

use crate::identities::{Identities, NUMBERS};
use crate::kernel_types::{Plain, Settings};
use crate::ledger::InterruptTimeSource;
use crate::promises::Promises;
use crate::stolen::{StealTimeSource, field_offset, offset_from_run_queue};
use crate::trace::parts::{disable_unneeded_programs, set_trace_map_size};

use super::error::{TrackerError, bpf_error_in_step};
use super::parts::{
    THREAD_WORDS, WAKEUPS, WORDS, prepare_counter_map, prepare_guard_map, prepare_request_map, select_request_programs,
};
use super::purpose::{Extension, LaneLending, Purpose};
use sidelane_host::cpulist::CpuSet;

static PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/lanes.bpf.o.z"));

/// Kernel program with the programs of a trace, compressed.
static PROGRAM_WITH_TRACE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/lanes_trace.bpf.o.z"));

/// Kernel program with a scheduler for batch, compressed.
static PROGRAM_WITH_SCHEDULER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/lanes_scx.bpf.o.z"));

const ONE_ENTRY_A_LANE: [&str; 11] = [
    "lane_words",
    "hold_words",
    "request_words",
    "lane_limits",
    "gate_words",
    "lane_stats",
    "lane_ledgers",
    "lane_programs",
    "lane_roles",
    "summons_rings",
    "ext_refused",
];

/// Kernel programs that track lanes.
const OF_LANES: [&str; 2] = ["lane_switch", "lane_timer"];
/// Kernel programs that are needed if lanes are lent.
const OF_LENDING: [&str; 5] = ["lane_waking", "lane_wakeup", "lane_migrate", "lane_wakeup_new", "lane_offline"];

/// Program at context switches, if only requests are watched.
pub const REQUEST_TURN: &str = "request_turn";
/// Map with the CPU times of services and jobs.
pub const SHARES: &str = "cpu_shares";
/// Map with the recorded turns on the lanes.
pub const TURNS: &str = "lane_turns";
/// Map with the promises of self-checking threads.
pub const SELF_CHECKING: &str = "self_checking_threads";
/// Map with the identities of processes.
pub const PROCESSES: &str = "process_identities";

impl Settings {
    fn from_purpose(purpose: &Purpose, track_groups: bool, stolen_from: StealTimeSource, cpu_count: usize) -> Self {
        let (lent, trace) = (purpose.lane_lending(), purpose.trace().unwrap_or_default());
        let LaneLending { turns, counters, self_checking, .. } = lent.copied().unwrap_or_default();
        Self {
            stolen_offset: stolen_from.run_queue_offset(),
            preempt_count_offset: purpose.trace().map_or(0, |_| preempt_count_offset()),
            interrupts_offset: if purpose.has_lanes() { InterruptTimeSource::find().run_queue_offset() } else { 0 },
            requests: purpose.has_requests().into(),
            turns: turns.into(),
            self_checking: self_checking.into(),
            counters: counters.into(),
            groups: track_groups.into(),
            interference: purpose.has_interference().into(),
            shares: purpose.has_shares().into(),
            lanes: purpose.has_lanes().into(),
            trace_records: trace.records_per_cpu(cpu_count),
            trace_long_ns: trace.long.as_nanos() as u32,
            threads: purpose.has_threads().into(),
            request_words: (purpose.has_lanes() || purpose.trace().is_some()).into(),
            agent: lent.map_or(0, |_| std::process::id()),
            reserved: 0,
        }
    }
}

/// Returns the distance in bytes from a CPU's run queue to its preemption count; 0 if unknown. The count has the
/// information whether the CPU handles an interrupt.
fn preempt_count_offset() -> i64 {
    Btf::from_vmlinux().ok().and_then(|kernel| preempt_count_offset_in(&kernel)).unwrap_or(0)
}

/// Returns whether the kernel program can distinguish the work of an interrupt from the work of the interrupted thread.
pub(crate) fn interrupts_are_known() -> bool {
    preempt_count_offset() != 0
}

/// Finds the preemption count. It is a per-CPU variable up to Linux 6.1 and from 6.15 on, and a field of `pcpu_hot` in
/// between.
fn preempt_count_offset_in(kernel: &Btf<'_>) -> Option<i64> {
    let in_hot =
        || Some(offset_from_run_queue(kernel, "pcpu_hot")? + field_offset(kernel, "pcpu_hot", "preempt_count")?);
    offset_from_run_queue(kernel, "__preempt_count").or_else(in_hot)
}

/// Returns the highest CPU number that the kernel may use, plus one.
pub(super) fn possible_cpu_count() -> usize {
    let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let possible: CpuSet = possible.trim().parse().unwrap_or_default();
    possible.iter().max().map_or(1, |cpu| cpu as usize + 1)
}

pub(super) fn open_and_load(
    cpu_count: usize,
    purpose: &Purpose,
    track_groups: bool,
    stolen_from: StealTimeSource,
) -> Result<Object, TrackerError> {
    let (trace, counters) = (purpose.trace(), purpose.lends_with(|lent| lent.counters));
    let program = match purpose.extension() {
        Some(Extension::Scheduler) => PROGRAM_WITH_SCHEDULER,
        _ if trace.is_some() => PROGRAM_WITH_TRACE,
        _ => PROGRAM,
    };
    let mut object = Vec::new();
    ZlibDecoder::new(program).read_to_end(&mut object).expect("the build compressed it");
    let mut open =
        ObjectBuilder::default().open_memory(&object).map_err(bpf_error_in_step("read the embedded program"))?;
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if let Some(entries) = array_entry_count(&name, purpose, cpu_count) {
            map.set_max_entries(entries as u32).map_err(bpf_error_in_step("size the arrays"))?;
        }
        if name.ends_with(".rodata") {
            map.set_initial_value(Settings::from_purpose(purpose, track_groups, stolen_from, cpu_count).bytes())
                .map_err(bpf_error_in_step("set what is tracked"))?;
        }
        prepare_request_map(&mut map, purpose.has_requests(), cpu_count)
            .map_err(bpf_error_in_step("size the request arrays"))?;
        prepare_counter_map(&mut map, counters).map_err(bpf_error_in_step("choose the counters' maps"))?;
        if let Some(trace) = &trace {
            set_trace_map_size(&mut map, trace, cpu_count).map_err(bpf_error_in_step("size the trace's arrays"))?;
        }
        prepare_guard_map(&mut map, purpose.has_interference(), cpu_count)
            .map_err(bpf_error_in_step("size the guard's arrays"))?;
    }
    select_request_programs(&mut open, purpose.has_requests());
    leave_out_programs(&mut open, purpose, track_groups, stolen_from);
    if let Some(trace) = &trace {
        disable_unneeded_programs(&mut open, trace);
    }
    open.load().map_err(|source| match source.kind() {
        libbpf_rs::ErrorKind::PermissionDenied => TrackerError::Refused(source),
        _ => TrackerError::Bpf { step: "load the kernel program", source },
    })
}

/// Returns the number of entries that the array `name` needs; `None` keeps the number in the compiled program.
fn array_entry_count(name: &str, purpose: &Purpose, cpu_count: usize) -> Option<usize> {
    match name {
        _ if ONE_ENTRY_A_LANE.contains(&name) => Some(cpu_count),
        TURNS => purpose.lends_with(|lent| lent.turns).then_some(cpu_count),
        SHARES => purpose.has_shares().then_some(cpu_count),
        SELF_CHECKING => Some(Promises::word_count(purpose.lends_with(|lent| lent.self_checking))),
        PROCESSES => Some(Identities::word_count()),
        WORDS => purpose.has_threads().then_some(THREAD_WORDS),
        WAKEUPS => purpose.has_threads().then_some(NUMBERS),
        _ => None,
    }
}

/// Marks programs that are not needed, so that they are not loaded.
fn leave_out_programs(open: &mut OpenObject, purpose: &Purpose, track_groups: bool, stolen_from: StealTimeSource) {
    let lends = purpose.lane_lending().is_some();
    // The program `lane_waking` handles wakeups of threads that may run on one CPU only. If all threads of the services
    // are of this kind, `lane_wakeup`, which handles the others, is not needed.
    let woken = if purpose.lends_with(|lent| lent.single_places) { "lane_wakeup" } else { "" };
    let exec = if purpose.lends_with(|lent| lent.self_checking) { "" } else { "lane_exec" };
    let timer = if stolen_from == StealTimeSource::Unseen && !lends { "lane_timer" } else { "" };
    let groups = if track_groups { "" } else { "lane_regroup" };
    let guard = if purpose.has_interference() { "" } else { "guard_timer" };
    // Leave out the switch program that only requests by thread need: a trace and lanes have their own programs at
    // context switches.
    let turn = if purpose.has_threads() { "" } else { REQUEST_TURN };
    let of_lanes = if purpose.has_lanes() { &[] } else { &OF_LANES[..] };
    let of_lending = if lends { &[] } else { &OF_LENDING[..] };
    let needless = [woken, exec, timer, groups, guard, turn];
    let needless = |name: &OsStr| needless.iter().chain(of_lanes).chain(of_lending).any(|needless| name == *needless);
    for mut program in open.progs_mut().filter(|program| needless(program.name())) {
        program.set_autoload(false);
    }
}

/// Returns descriptors of all maps, by name. Names of the compiler's own sections come without the object's name in
/// front.
pub(super) fn map_handles(object: &Object) -> Result<BTreeMap<String, MapHandle>, TrackerError> {
    let handle = |map: libbpf_rs::Map<'_>| {
        let name = map.name().to_string_lossy().into_owned();
        let section = name.split_once('.').map(|(_, section)| format!(".{section}"));
        Ok((section.unwrap_or(name), MapHandle::try_from(&map)?))
    };
    let made = object.maps().filter(|map| map.as_fd().as_raw_fd() >= 0);
    made.map(handle).collect::<libbpf_rs::Result<_>>().map_err(bpf_error_in_step("open the maps of the kernel program"))
}

/// Maps the array `name` as memory.
pub(crate) fn map_array<T: Shared>(
    maps: &BTreeMap<String, MapHandle>,
    name: &'static str,
    len: usize,
) -> Result<SharedMapping<T>, TrackerError> {
    let map = maps.get(name).unwrap_or_else(|| panic!("the embedded program has no map {name}"));
    SharedMapping::new(map.as_fd(), len).map_err(|source| TrackerError::Map { name, source })
}

pub(super) fn silence_libbpf() {
    // libbpf prints its debug messages to stderr. The errors of this crate have the information that matters.
    libbpf_rs::set_print(None);
}

//! Parts of the object file that are left out if they are not needed.

use libbpf_rs::{OpenMapMut, OpenObject};
use sidelane_host::events::EVENTS_MAX;

/// Prefix of the programs of `bpf/requests/requests.h`, and of no other programs.
const PROGRAM_PREFIX: &str = "request_";
/// Maps that only the programs of requests use. The map of request words, which other programs read, is not among them.
const REQUEST_MAPS: [&str; 9] = [
    "service_ports",
    "request_account",
    "listeners",
    "record_rings",
    "connections",
    "request_threads",
    WORDS,
    WAKEUPS,
    LOADS,
];
/// Maps of counters, one for each of a pair of events: see [`crate::counters`].
pub const COUNTER_MAPS: [&str; 2] = ["lane_instructions", "lane_cycles"];
/// The only map of requests with an entry for each CPU.
const LOADS: &str = "lane_loads";

/// Map with the request of each thread.
pub const WORDS: &str = "thread_words";
/// The wakeups of readers that sleep until a request is taken up, or answered.
pub const WAKEUPS: &str = "request_wakeups";
/// Limit of the threads of all services whose present requests can be read at once: `SIDELANE_THREAD_WORDS` of
/// `bpf/requests/state.h`.
pub const THREAD_WORDS: usize = 512;

/// Leaves a map of requests out unless requests are tracked, and sets its size otherwise.
pub fn prepare_request_map(map: &mut OpenMapMut<'_>, tracked: bool, cpu_count: usize) -> libbpf_rs::Result<()> {
    let name = map.name().to_string_lossy().into_owned();
    if REQUEST_MAPS.contains(&name.as_str()) {
        map.set_autocreate(tracked)?;
    }
    if name == LOADS {
        map.set_max_entries(cpu_count as u32)?;
    }
    Ok(())
}

/// Leaves the programs of requests out unless requests are tracked.
pub fn select_request_programs(object: &mut OpenObject, tracked: bool) {
    for mut program in object.progs_mut() {
        if program.name().to_string_lossy().starts_with(PROGRAM_PREFIX) {
            program.set_autoload(tracked);
        }
    }
}

/// Leaves a map of counters out unless requests are counted.
pub fn prepare_counter_map(map: &mut OpenMapMut<'_>, counted: bool) -> libbpf_rs::Result<()> {
    match COUNTER_MAPS.iter().any(|name| map.name() == *name) {
        true => map.set_autocreate(counted),
        false => Ok(()),
    }
}

/// Map with the performance events that [`crate::interference`] counts. Further maps of it have the CPUs' words, the
/// ring of crossings and the timers.
pub const GUARD_EVENTS: &str = "guard_events";
pub const GUARD_WORDS: &str = "guard_words";
pub const GUARD_CROSSINGS: &str = "guard_crossings";
const GUARD_TIMERS: &str = "guard_timers";

/// Leaves a map of interference out unless interference is counted, and sets its size otherwise.
pub fn prepare_guard_map(map: &mut OpenMapMut<'_>, counted: bool, cpu_count: usize) -> libbpf_rs::Result<()> {
    let name = map.name().to_string_lossy().into_owned();
    if [GUARD_EVENTS, GUARD_WORDS, GUARD_CROSSINGS, GUARD_TIMERS].contains(&name.as_str()) {
        map.set_autocreate(counted)?;
    }
    match name.as_str() {
        GUARD_EVENTS => map.set_max_entries((cpu_count * EVENTS_MAX) as u32),
        GUARD_WORDS | GUARD_TIMERS => map.set_max_entries(cpu_count as u32),
        _ => Ok(()),
    }
}

//! Event counters of the kernel and the processor: perf_event_open(2).

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// An event that perf_event_open(2) can count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Type of the event: `PERF_TYPE_…`.
    pub kind: u32,
    /// Number of the event within its type: `PERF_COUNT_…`.
    pub config: u64,
}

/// Type of events that processors have in common: `PERF_TYPE_HARDWARE`.
const HARDWARE: u32 = 0;
const SOFTWARE: u32 = 1;
const RAW: u32 = 4;

/// Names of events as in perf, with type and number.
const NAMED: [(&str, Event); 15] = [
    ("cycles", Event { kind: HARDWARE, config: 0 }),
    ("instructions", Event { kind: HARDWARE, config: 1 }),
    ("cache-references", Event { kind: HARDWARE, config: 2 }),
    ("cache-misses", Event { kind: HARDWARE, config: 3 }),
    ("branches", Event { kind: HARDWARE, config: 4 }),
    ("branch-misses", Event { kind: HARDWARE, config: 5 }),
    ("bus-cycles", Event { kind: HARDWARE, config: 6 }),
    ("ref-cycles", Event { kind: HARDWARE, config: 9 }),
    ("cpu-clock", Event { kind: SOFTWARE, config: 0 }),
    ("task-clock", Event { kind: SOFTWARE, config: 1 }),
    ("page-faults", Event { kind: SOFTWARE, config: 2 }),
    ("context-switches", Event { kind: SOFTWARE, config: 3 }),
    ("cpu-migrations", Event { kind: SOFTWARE, config: 4 }),
    ("minor-faults", Event { kind: SOFTWARE, config: 5 }),
    ("major-faults", Event { kind: SOFTWARE, config: 6 }),
];

impl Event {
    /// Cycles of the processor, without those in which it is halted.
    pub const CYCLES: Self = NAMED[0].1;
    /// Instructions that the processor has retired.
    pub const INSTRUCTIONS: Self = NAMED[1].1;

    /// Returns the event with the number `config` in the processor's own numbering.
    pub const fn raw(config: u64) -> Self {
        Self { kind: RAW, config }
    }

    /// Returns the event with this name in perf; `rHEX` means the processor's own number.
    pub fn named(name: &str) -> Option<Self> {
        let known = NAMED.iter().find(|(known, _)| *known == name).map(|(_, event)| *event);
        let raw = || Some(Self::raw(u64::from_str_radix(name.strip_prefix('r')?, 16).ok()?));
        known.or_else(raw)
    }

    /// Returns the names of all events that perf names.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMED.iter().map(|(name, _)| *name)
    }

    /// Whether the processor, and not the kernel, counts the event.
    pub fn is_hardware(&self) -> bool {
        self.kind != SOFTWARE
    }
}

/// Argument of perf_event_open(2): `struct perf_event_attr` in its first version, which every kernel accepts.
#[derive(Default)]
#[repr(C)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint: u32,
    breakpoint_address: u64,
}

const _: () = assert!(size_of::<Attributes>() == 64);

/// Opens a counter of `event` on `cpu`, which counts from now on, whatever thread runs there. `group` is the first
/// counter of a group: all counters of the group count at the same times.
pub fn open_counter(event: Event, cpu: u32, group: Option<&OwnedFd>) -> io::Result<OwnedFd> {
    const EVERYBODY: libc::pid_t = -1;
    const NO_GROUP: c_int = -1;
    /// Flag `PERF_FLAG_FD_CLOEXEC`: exec closes the descriptor.
    const CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;
    let size = size_of::<Attributes>() as u32;
    let attributes = Attributes { kind: event.kind, size, config: event.config, ..Attributes::default() };
    let group = group.map_or(NO_GROUP, AsRawFd::as_raw_fd);
    // SAFETY: the kernel reads as many bytes as `size` says, and keeps no pointer.
    let fd = unsafe {
        libc::syscall(libc::SYS_perf_event_open, &raw const attributes, EVERYBODY, cpu as c_int, group, CLOSE_ON_EXEC)
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened this descriptor, which has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as c_int) })
}

/// Opens counters of a formula's events on `cpu`, in their order. Events of the processor form a group: all of them
/// count, or none does. Events of the kernel always count; some of them (clocks) would not count in a group. The error
/// has the index of the event whose counter cannot be opened.
pub fn open_counter_group(events: &[Event], cpu: u32) -> Result<Vec<OwnedFd>, (usize, io::Error)> {
    let mut opened: Vec<OwnedFd> = Vec::with_capacity(events.len());
    let leader = events.iter().position(Event::is_hardware);
    for (place, event) in events.iter().enumerate() {
        let group = leader.filter(|leader| event.is_hardware() && *leader < place).map(|leader| &opened[leader]);
        opened.push(open_counter(*event, cpu, group).map_err(|error| (place, error))?);
    }
    Ok(opened)
}

/// Returns the number of events since the counter was opened.
pub fn read_counter(counter: &OwnedFd) -> io::Result<u64> {
    let mut count = [0; size_of::<u64>()];
    rustix::io::read(counter, &mut count)?;
    Ok(u64::from_ne_bytes(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_found_by_their_perf_names() {
        assert_eq!(Event::named("instructions"), Some(Event::INSTRUCTIONS));
        assert_eq!(Event::named("r140014a3"), Some(Event { kind: RAW, config: 0x1400_14a3 }));
        assert_eq!(Event::named("reticulations"), None);
        assert!(!Event::named("page-faults").unwrap().is_hardware());
    }
}

//! Arrays that this process shares with the agent and the kernel program, mapped into memory.
//!
//! The file descriptors come through exec. A program in between may have closed them and opened
//! other files under the same numbers. So each descriptor is checked before it is mapped: it has to
//! be a BPF array, and its entries must have the expected size.

use std::sync::atomic::AtomicU64;

use sidelane_formats::nap::Nap;
use sidelane_formats::{GateWord, LaneLimits, LaneWord, RequestWord, ServiceWord, Shared, view};

use crate::clock::Moment;
use crate::decide::SharedPolicy;
use crate::environment::GateFds;
use crate::page::PAGE_BYTES;

/// Number of the map type `BPF_MAP_TYPE_ARRAY`.
const ARRAY: usize = 2;
/// Number of service words in a page; each service has a page of its own.
const SERVICES_A_PAGE: usize = PAGE_BYTES / size_of::<ServiceWord>();
const WRONG: &str = "a descriptor in SIDELANE_GATE is closed, or not an array of Sidelane";

/// Arrays that the slow path needs, mapped until the process ends.
pub(crate) struct Arrays {
    pub(crate) lanes: &'static [LaneWord],
    pub(crate) requests: &'static [RequestWord],
    pub(crate) service: &'static ServiceWord,
    pub(crate) limits: &'static [LaneLimits],
    pub(crate) gates: &'static [GateWord],
    pub(crate) threads: &'static [AtomicU64],
    /// States of the lending policy in this process, one for each lane.
    pub(crate) states: &'static [SharedPolicy],
    pub(crate) nap: Nap,
    pub(crate) opened: Moment,
}

impl Arrays {
    /// Maps the arrays of `fds`. The error says which descriptor cannot be used, and why.
    pub(crate) fn map(fds: &GateFds) -> Result<Self, &'static str> {
        let lanes: &[LaneWord] = map(fds.lanes, libc::PROT_READ)?;
        Ok(Self {
            lanes,
            requests: map(fds.requests, libc::PROT_READ)?,
            service: map(fds.services, libc::PROT_READ)?.get(fds.number * SERVICES_A_PAGE).ok_or(WRONG)?,
            limits: map(fds.limits, libc::PROT_READ)?,
            gates: map(fds.gates, libc::PROT_READ | libc::PROT_WRITE)?,
            threads: map(fds.threads, libc::PROT_READ | libc::PROT_WRITE)?,
            states: allocate_lane_states(lanes.len())?,
            nap: Nap::probe(),
            opened: Moment::now(),
        })
    }

    /// Returns whether `fd` is still the array of service words.
    pub(crate) fn is_service_array(fd: i32) -> bool {
        MapShape::read(fd).is_some_and(|shape| shape.is_array_of::<ServiceWord>())
    }
}

fn map<T: Shared>(fd: i32, protection: i32) -> Result<&'static [T], &'static str> {
    let shape = MapShape::read(fd).filter(MapShape::is_array_of::<T>).ok_or(WRONG)?;
    let bytes = shape.entries * shape.entry_bytes;
    let base = map_bytes(fd, bytes, protection, libc::MAP_SHARED)?;
    // SAFETY: mapped a moment ago and never unmapped; only stored to where `protection` allows.
    unsafe { view(base, bytes) }.ok_or("an array in SIDELANE_GATE is not aligned")
}

/// Allocates memory for this process's lane states. A forked child gets it zeroed, so the child's states begin unlocked
/// and new.
fn allocate_lane_states(lanes: usize) -> Result<&'static [SharedPolicy], &'static str> {
    let bytes = lanes * size_of::<SharedPolicy>();
    let base = map_bytes(-1, bytes, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS)?;
    // SAFETY: advice on whole pages that this process mapped a moment ago.
    unsafe { libc::madvise(base.cast(), bytes.next_multiple_of(PAGE_BYTES), libc::MADV_WIPEONFORK) };
    // SAFETY: page-aligned, never unmapped, and all zero, which is a valid `SharedPolicy`.
    Ok(unsafe { std::slice::from_raw_parts(base.cast(), lanes) })
}

fn map_bytes(fd: i32, bytes: usize, protection: i32, flags: i32) -> Result<*mut u8, &'static str> {
    let bytes = bytes.next_multiple_of(PAGE_BYTES);
    // SAFETY: a fresh mapping chosen by the kernel; nothing else refers to it.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, fd, 0) };
    if base == libc::MAP_FAILED { Err("an array in SIDELANE_GATE cannot be mapped") } else { Ok(base.cast()) }
}

/// Type and size of a BPF map, as the kernel reports them.
#[derive(Debug, PartialEq, Eq)]
struct MapShape {
    kind: usize,
    entry_bytes: usize,
    entries: usize,
}

impl MapShape {
    /// Reads the shape of the map `fd`; `None` if `fd` is not a BPF map.
    fn read(fd: i32) -> Option<Self> {
        /// Size of the buffer for the file: all fields that are read here are in its first few hundred bytes.
        const INFO_MAX: usize = 1024;
        let mut info = [0; INFO_MAX];
        let len = read_info(fd, &mut info)?;
        Self::parse(std::str::from_utf8(info.get(..len)?).ok()?)
    }

    fn is_array_of<T>(&self) -> bool {
        self.kind == ARRAY && self.entry_bytes == size_of::<T>() && self.entries > 0
    }

    fn parse(info: &str) -> Option<Self> {
        let field = |name: &str| {
            let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            value?.trim().parse::<usize>().ok()
        };
        Some(Self { kind: field("map_type")?, entry_bytes: field("value_size")?, entries: field("max_entries")? })
    }
}

fn read_info(fd: i32, info: &mut [u8]) -> Option<usize> {
    /// Size of the buffer for `/proc/self/fdinfo/`, a number and a final zero byte.
    const PATH_MAX: usize = 40;
    let mut path = [0_u8; PATH_MAX];
    std::io::Write::write_fmt(&mut path.as_mut_slice(), format_args!("/proc/self/fdinfo/{fd}\0")).ok()?;
    // SAFETY: the path ends with a zero byte, the length is that of the buffer, and the descriptor
    // is this function's own.
    unsafe {
        let file = libc::open(path.as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC);
        if file < 0 {
            return None;
        }
        let len = libc::read(file, info.as_mut_ptr().cast(), info.len());
        libc::close(file);
        usize::try_from(len).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shape_of_a_bpf_array_is_read_from_fdinfo() {
        let info = "pos:\t0\nflags:\t02000002\nmnt_id:\t15\nino:\t17\nmap_type:\t2\nkey_size:\t4\n\
                    value_size:\t64\nmax_entries:\t8\nmap_flags:\t0x400\n";
        assert_eq!(MapShape::parse(info), Some(MapShape { kind: 2, entry_bytes: 64, entries: 8 }));
    }

    #[test]
    fn files_and_closed_descriptors_are_no_arrays() {
        assert_eq!(MapShape::read(0), None);
        assert_eq!(MapShape::read(9_999), None);
        assert!(map::<LaneWord>(9_999, libc::PROT_READ).is_err());
    }
}

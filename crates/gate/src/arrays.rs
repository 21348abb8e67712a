//! The arrays shared with the agent and the kernel program, mapped.
//!
//! The descriptors came through exec, and a program in between may have closed them and opened
//! others with the same numbers. So each is checked before it is mapped: it has to be a BPF array
//! whose entries have the size that they should have.

use std::sync::atomic::AtomicU64;

use sidelane_nap::Nap;
use sidelane_signal::{GateWord, LaneTerms, LaneWord, RequestWord, ServiceWord, Shared, view};

use crate::clock::Moment;
use crate::decide::LaneState;
use crate::environment::GateFds;
use crate::page::PAGE_BYTES;

/// `BPF_MAP_TYPE_ARRAY`.
const ARRAY: usize = 2;
/// The words of services lie a page apart.
const SERVICES_A_PAGE: usize = PAGE_BYTES / size_of::<ServiceWord>();
const WRONG: &str = "a descriptor in SIDELANE_GATE is closed, or not an array of Sidelane";

/// Everything the slow path needs, mapped for the rest of the process's life.
pub(crate) struct Arrays {
    pub(crate) lanes: &'static [LaneWord],
    pub(crate) requests: &'static [RequestWord],
    pub(crate) service: &'static ServiceWord,
    pub(crate) terms: &'static [LaneTerms],
    pub(crate) gates: &'static [GateWord],
    pub(crate) threads: &'static [AtomicU64],
    /// This process's decisions, by lane.
    pub(crate) states: &'static [LaneState],
    pub(crate) nap: Nap,
    pub(crate) opened: Moment,
}

impl Arrays {
    /// Maps what `fds` name; the error says what is wrong with them.
    pub(crate) fn map(fds: &GateFds) -> Result<Self, &'static str> {
        let lanes: &[LaneWord] = map(fds.lanes, libc::PROT_READ)?;
        Ok(Self {
            lanes,
            requests: map(fds.requests, libc::PROT_READ)?,
            service: map(fds.services, libc::PROT_READ)?.get(fds.number * SERVICES_A_PAGE).ok_or(WRONG)?,
            terms: map(fds.terms, libc::PROT_READ)?,
            gates: map(fds.gates, libc::PROT_READ | libc::PROT_WRITE)?,
            threads: map(fds.threads, libc::PROT_READ | libc::PROT_WRITE)?,
            states: own(lanes.len())?,
            nap: Nap::probe(),
            opened: Moment::now(),
        })
    }

    /// Whether `fd` is still what it was at the start.
    pub(crate) fn is_service(fd: i32) -> bool {
        Shape::of(fd).is_some_and(|shape| shape.is_array_of::<ServiceWord>())
    }
}

fn map<T: Shared>(fd: i32, protection: i32) -> Result<&'static [T], &'static str> {
    let shape = Shape::of(fd).filter(Shape::is_array_of::<T>).ok_or(WRONG)?;
    let bytes = shape.entries * shape.entry_bytes;
    let base = map_bytes(fd, bytes, protection, libc::MAP_SHARED)?;
    // SAFETY: mapped a moment ago and never unmapped; only stored to where `protection` allows.
    unsafe { view(base, bytes) }.ok_or("an array in SIDELANE_GATE lies askew")
}

/// Memory of this process that its forks start without, so that theirs begins unlocked and anew.
fn own(lanes: usize) -> Result<&'static [LaneState], &'static str> {
    let bytes = lanes * size_of::<LaneState>();
    let base = map_bytes(-1, bytes, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS)?;
    // SAFETY: advice on whole pages of our own, mapped a moment ago.
    unsafe { libc::madvise(base.cast(), bytes.next_multiple_of(PAGE_BYTES), libc::MADV_WIPEONFORK) };
    // SAFETY: page-aligned, mapped for good, and all zero, which is a valid `LaneState`.
    Ok(unsafe { std::slice::from_raw_parts(base.cast(), lanes) })
}

fn map_bytes(fd: i32, bytes: usize, protection: i32, flags: i32) -> Result<*mut u8, &'static str> {
    let bytes = bytes.next_multiple_of(PAGE_BYTES);
    // SAFETY: a fresh mapping chosen by the kernel; nothing else refers to it.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, fd, 0) };
    if base == libc::MAP_FAILED { Err("an array in SIDELANE_GATE cannot be mapped") } else { Ok(base.cast()) }
}

/// What the kernel says a descriptor is.
#[derive(Debug, PartialEq, Eq)]
struct Shape {
    kind: usize,
    entry_bytes: usize,
    entries: usize,
}

impl Shape {
    /// None for what is not a BPF map.
    fn of(fd: i32) -> Option<Self> {
        /// All fields of interest are in the first few hundred bytes.
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
    /// `/proc/self/fdinfo/` and a number, terminated.
    const PATH_MAX: usize = 40;
    let mut path = [0_u8; PATH_MAX];
    std::io::Write::write_fmt(&mut path.as_mut_slice(), format_args!("/proc/self/fdinfo/{fd}\0")).ok()?;
    // SAFETY: the path is terminated, the buffer as long as said, the descriptor our own.
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
    fn what_the_kernel_says_of_an_array() {
        let info = "pos:\t0\nflags:\t02000002\nmnt_id:\t15\nino:\t17\nmap_type:\t2\nkey_size:\t4\n\
                    value_size:\t64\nmax_entries:\t8\nmap_flags:\t0x400\n";
        assert_eq!(Shape::parse(info), Some(Shape { kind: 2, entry_bytes: 64, entries: 8 }));
    }

    #[test]
    fn files_and_closed_descriptors_are_no_arrays() {
        assert_eq!(Shape::of(0), None);
        assert_eq!(Shape::of(9_999), None);
        assert!(map::<LaneWord>(9_999, libc::PROT_READ).is_err());
    }
}

//! Hardware and kernel counters of the observed lane.
//!
//! A processor counter can be read with RDPMC, in some 30 cycles, but only on its own lane. So an observer on the
//! sibling lane counts events of both lanes and subtracts its own (thesis section 3.3). This needs a processor that can
//! count for both lanes: Intel's "any thread", until Ice Lake. The kernel reads all other counters, which interrupts
//! the observed lane at each read.

use std::arch::asm;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence};
use std::time::Duration;

use anyhow::{Result, bail};

use crate::note::ChannelNote;
use crate::signal::Kind;
use crate::{Channel, ChannelEnd, PmcReader, Reader, SyscallReader};
use sidelane_host::perf::{Event, open_counter};
use sidelane_host::shared_mapping::{Shared, SharedMapping};

/// Shortest period at which the observed lane may be interrupted.
pub const PERIOD_MIN: Duration = Duration::from_micros(100);
/// Bit of an Intel event's number that makes it count for both lanes of the core.
const ANY_THREAD: u64 = 1 << 21;
/// File by which the kernel reports that the processor has the "any thread" bit.
const ANY_THREAD_FORMAT: &str = "/sys/bus/event_source/devices/cpu/format/any";
/// File that says whether programs may use RDPMC: 0 if not.
const RDPMC_ALLOWED: &str = "/sys/bus/event_source/devices/cpu/rdpmc";

/// Lanes of an observation, which decide how a counter can be read.
#[derive(Clone, Copy, Debug)]
pub struct LanePair {
    /// Lane that is observed.
    pub observed: u32,
    /// Lane of the observer.
    pub observer: u32,
    /// Whether the observed lane and the observer's lane share a core.
    pub same_core: bool,
}

/// Returns the channel of `perf:EVENT`.
pub fn event_channel(name: &str, lanes: LanePair) -> Result<Channel> {
    let Some(event) = Event::named(name) else {
        let names: Vec<_> = Event::names().collect();
        bail!("there is no event {name}; write rHEX, the processor's own number, or one of {}", names.join(", "));
    };
    counter_channel(&format!("perf:{name}"), event, lanes)
}

/// Returns the channels of `ipc`: instructions and cycles, whose rates are divided.
pub fn instructions_and_cycles(lanes: LanePair) -> Result<[Channel; 2]> {
    Ok([counter_channel("instructions", Event::INSTRUCTIONS, lanes)?, counter_channel("cycles", Event::CYCLES, lanes)?])
}

fn counter_channel(name: &str, event: Event, lanes: LanePair) -> Result<Channel> {
    let (reader, notes) = match open_core_counter(event, lanes) {
        Some(pmc) => (Reader::Pmc(Box::new(pmc)), vec![]),
        None => (
            Reader::Call(Box::new(open_lane_counter(event, lanes)?)),
            vec![ChannelNote::LaneInterrupted { lane: lanes.observed }],
        ),
    };
    Ok(Channel { name: name.to_owned(), kind: Kind::Counter, reader, meaning: None, notes })
}

/// Counter of the observed lane's events, read by a system call.
struct LaneCounter(OwnedFd);

fn open_lane_counter(event: Event, lanes: LanePair) -> Result<LaneCounter> {
    let opened = open_counter(event, lanes.observed, None);
    let counter = opened.map_err(|error| anyhow::Error::new(error).context(describe_open_failure(event)))?;
    Ok(LaneCounter(counter))
}

fn describe_open_failure(event: Event) -> &'static str {
    if event.is_hardware() && !sidelane_diagnostics::machine::has_pmu() {
        "this machine has no hardware counters (PMU); in a virtual machine, ask its host for a virtual PMU, or observe \
         another signal (`sidelane list`)"
    } else {
        "the kernel does not count this event here; run as root or with CAP_PERFMON, on a processor that has the event"
    }
}

impl SyscallReader for LaneCounter {
    fn read(&mut self) -> Result<u64, ChannelEnd> {
        let mut count = [0; 8];
        match rustix::io::read(&self.0, &mut count) {
            Ok(8) => Ok(u64::from_ne_bytes(count)),
            Ok(_) => {
                Err(ChannelEnd::Error(io::Error::other("the counter is in an error state; its lane may be offline")))
            }
            Err(error) => Err(ChannelEnd::Error(error.into())),
        }
    }

    fn interrupts_lane(&self) -> bool {
        true
    }
}

/// Counter of the core, less the events of the observer's own lane.
struct CoreMinusOwnCounter {
    core: UserCounter,
    own: UserCounter,
}

/// Opens a counter of the core. Returns `None` if the lanes are of different cores, or the processor or the kernel does
/// not allow it.
fn open_core_counter(event: Event, lanes: LanePair) -> Option<CoreMinusOwnCounter> {
    let allowed = std::fs::read_to_string(RDPMC_ALLOWED).is_ok_and(|text| text.trim() != "0");
    if !lanes.same_core || !allowed || !Path::new(ANY_THREAD_FORMAT).exists() {
        return None;
    }
    let own = to_raw_event(event)?;
    let core = Event { config: own.config | ANY_THREAD, ..own };
    Some(CoreMinusOwnCounter {
        core: UserCounter::open(core, lanes.observer)?,
        own: UserCounter::open(own, lanes.observer)?,
    })
}

/// Returns the event as Intel's raw event number, to which the "any thread" bit can be added; `None` for other kinds of
/// events.
fn to_raw_event(event: Event) -> Option<Event> {
    match event {
        Event::CYCLES => Event::named("r3c"),
        Event::INSTRUCTIONS => Event::named("rc0"),
        raw if Event::named(&format!("r{:x}", raw.config)) == Some(raw) => Some(raw),
        _ => None,
    }
}

impl PmcReader for CoreMinusOwnCounter {
    #[inline]
    fn read(&mut self) -> u64 {
        let core = self.core.read();
        core.wrapping_sub(self.own.read())
    }
}

/// Counter of events on the lane where the reading thread runs, read by RDPMC without a system call.
struct UserCounter {
    page: SharedMapping<Page>,
    _counter: OwnedFd,
}

/// Fields of `struct perf_event_mmap_page` that reading a counter needs.
#[repr(C)]
struct Page {
    versions: [AtomicU32; 2],
    lock: AtomicU32,
    index: AtomicU32,
    offset: AtomicU64,
    times: [AtomicU64; 2],
    capabilities: AtomicU64,
    pmc_width: AtomicU16,
    rest: [AtomicU16; 3],
}

const _: () = assert!(std::mem::offset_of!(Page, pmc_width) == 48 && size_of::<Page>() == 56);
// SAFETY: atomic integers that fill the struct.
unsafe impl Shared for Page {}
/// Bit `cap_user_rdpmc` of the page's capabilities.
const USER_RDPMC: u64 = 1 << 2;

impl UserCounter {
    fn open(event: Event, cpu: u32) -> Option<Self> {
        let counter = open_counter(event, cpu, None).ok()?;
        let page = SharedMapping::<Page>::read_only(&counter, 0, 1).ok()?;
        let allowed = page[0].capabilities.load(Ordering::Relaxed) & USER_RDPMC != 0;
        allowed.then_some(Self { page, _counter: counter })
    }

    /// Reads the counter by the protocol in the kernel's header. It reads again if the kernel has moved the counter
    /// during the read.
    #[inline]
    fn read(&self) -> u64 {
        let page = &self.page[0];
        loop {
            let lock = page.lock.load(Ordering::Acquire);
            let index = page.index.load(Ordering::Relaxed);
            let mut count = page.offset.load(Ordering::Relaxed);
            if index > 0 {
                let unused = 64 - u32::from(page.pmc_width.load(Ordering::Relaxed)).min(64);
                count = count.wrapping_add((((rdpmc(index - 1) << unused) as i64) >> unused) as u64);
            }
            fence(Ordering::Acquire);
            if page.lock.load(Ordering::Relaxed) == lock {
                return count;
            }
        }
    }
}

/// Returns the processor's counter with this number.
#[inline(always)]
fn rdpmc(counter: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: the page's capabilities allow this instruction for programs; it only reads a register.
    unsafe { asm!("rdpmc", in("ecx") counter, out("eax") low, out("edx") high, options(nomem, nostack)) };
    u64::from(high) << 32 | u64::from(low)
}

/// Returns an error if these channels cannot be sampled at this period.
pub fn check_period(channels: &[Channel], period_ns: Option<u64>) -> Result<()> {
    let interrupts = |channel: &&Channel| matches!(&channel.reader, Reader::Call(call) if call.interrupts_lane());
    let interrupting = channels.iter().find(interrupts);
    let too_often = period_ns.is_none_or(|period_ns| u128::from(period_ns) < PERIOD_MIN.as_nanos());
    match interrupting {
        Some(channel) if too_often => bail!(
            "cannot sample {} this fast, because each sample interrupts the observed lane; use --period {}us or longer",
            channel.name,
            PERIOD_MIN.as_micros()
        ),
        _ => Ok(()),
    }
}

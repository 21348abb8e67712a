//! The counters of request lanes: instructions and cycles, whose ratio Elfen's dynamic refresh
//! compares (ATC'16 Fig. 9(d)).
//!
//! They are opened here. The kernel program reads them when a request starts and when it finishes
//! (`bpf/requests/counters.h`). They count the whole lane, since any thread may work on a request.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use libbpf_rs::{MapCore, MapFlags};
use sidelane_policy::borrow::contention_cost::RequestCounters;
use thiserror::Error;

use crate::tracker::Tracker;
use crate::tracker::parts::COUNTER_MAPS;
use sidelane_host::cpulist::CpuSet;
use sidelane_host::perf;
use sidelane_host::perf::Event;

/// Pair of events that are counted for each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventPair {
    /// Event that measures the work done for the request.
    pub instructions: Event,
    /// Event that measures the time of that work.
    pub cycles: Event,
}

impl EventPair {
    /// Instructions and cycles, as the processor counts them.
    pub const HARDWARE: Self = Self { instructions: Event::INSTRUCTIONS, cycles: Event::CYCLES };
}

/// Reason why requests are not counted.
#[derive(Debug, Error)]
#[error(
    "request lane {cpu} has no counters of instructions and cycles ({source}); in a virtual machine, ask its host for \
     a virtual PMU"
)]
pub struct CounterError {
    /// CPU of the request lane.
    pub cpu: u32,
    /// Error of the system.
    pub source: io::Error,
}

/// Open counters of all request lanes. Dropping this value closes them.
pub struct LaneCounters {
    lanes: Vec<(u32, [OwnedFd; 2])>,
}

impl LaneCounters {
    /// Opens the counters on all lanes, or on none.
    ///
    /// # Errors
    /// When a lane has no counters.
    pub fn open(pair: EventPair, lanes: &CpuSet) -> Result<Self, CounterError> {
        let open = |cpu| match open_pair(pair, cpu) {
            Ok(counters) => Ok((cpu, counters)),
            Err(source) => Err(CounterError { cpu, source }),
        };
        Ok(Self { lanes: lanes.iter().map(open).collect::<Result<_, _>>()? })
    }

    /// Gives the counters to the kernel program of `tracker`, which was loaded for them.
    pub fn hand_to(&self, tracker: &Tracker) -> libbpf_rs::Result<()> {
        for (cpu, counters) in &self.lanes {
            for (map, counter) in COUNTER_MAPS.iter().zip(counters) {
                let fd = counter.as_fd().as_raw_fd();
                tracker.map_handle(map).update(&cpu.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY)?;
            }
        }
        Ok(())
    }
}

/// Returns the counts of a request's record; `None` without cycles, because the request was not counted then.
pub fn request_counters(instructions: u64, cycles: u64) -> Option<RequestCounters> {
    (cycles > 0).then_some(RequestCounters { instructions, cycles })
}

/// Opens the counters in the order of [`COUNTER_MAPS`]. They are in one group, so that both count or neither does.
fn open_pair(pair: EventPair, cpu: u32) -> io::Result<[OwnedFd; 2]> {
    let instructions = perf::open_counter(pair.instructions, cpu, None)?;
    let cycles = perf::open_counter(pair.cycles, cpu, Some(&instructions))?;
    Ok([instructions, cycles])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_cycles_count_as_not_counted() {
        assert_eq!(request_counters(5, 0), None);
        assert_eq!(request_counters(5, 2), Some(RequestCounters { instructions: 5, cycles: 2 }));
    }

    #[test]
    fn uncountable_event_names_its_lane_and_a_remedy() {
        let none = Event { kind: u32::MAX, config: 0 };
        let lane: CpuSet = "0".parse().unwrap();
        let error = LaneCounters::open(EventPair { instructions: none, cycles: none }, &lane).err().unwrap();
        let said = error.to_string();
        assert!(said.contains("request lane 0") && said.contains("virtual PMU"), "{said}");
    }
}

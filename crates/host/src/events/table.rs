//! Table of events by processor: their ratio tells how much a thread is disturbed by its SMT sibling.
//!
//! The Holmes paper (HPDC'22, Table 1 and Equation 1) uses events of Skylake-SP: execution stalls while the memory
//! subsystem has an outstanding load, over loads and stores retired. A row is *exact* if its events are documented as
//! counting that. Other rows have the nearest events, and are marked as not exact; `sidelane calibrate` measures how
//! well they work on a machine.
//!
//! Event numbers are perf's raw ones: on Intel and AMD the event select, the unit mask (`<< 8`) and the counter mask
//! (`<< 24`); on Arm the event's number. Sources are the vendors' event lists as the kernel has them, under
//! `tools/perf/pmu-events/arch`.

use std::fs;

use super::formula::Formula;
use super::processor::{Processor, Vendor};
use crate::perf::Event;

/// An event whose count may indicate interference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Name of the event in the vendor's list.
    pub name: &'static str,
    /// Raw number of the event, as perf takes it.
    pub config: u64,
}

const fn candidate_event(name: &'static str, config: u64) -> Candidate {
    Candidate { name, config }
}

/// Table row: the events of some processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessorEvents {
    /// Names of the processors, separated by commas.
    pub processors: &'static str,
    vendor: Vendor,
    family: u32,
    /// Model numbers of the processors: first and last of each range.
    models: &'static [(u32, u32)],
    /// Events that count stalls on memory; the first one is the default.
    pub candidates: &'static [Candidate],
    /// Events that together count a thread's memory accesses.
    pub activity: &'static [Candidate],
    /// Whether the events count the same as those of the Holmes paper.
    pub exact: bool,
    /// Document that describes the events.
    pub source: &'static str,
    /// Name of the PMU in sysfs, if a machine has CPUs of more than one kind.
    pmu: Option<&'static str>,
}

/// Stall events of Skylake to Ice Lake, from Table 1 of the Holmes paper. The best indicator of interference comes
/// first.
const STALLS_MEM_ANY: &[Candidate] = &[
    candidate_event("CYCLE_ACTIVITY.STALLS_MEM_ANY", 0x1400_14a3),
    candidate_event("CYCLE_ACTIVITY.CYCLES_MEM_ANY", 0x1000_10a3),
    candidate_event("CYCLE_ACTIVITY.STALLS_L3_MISS", 0x0600_06a3),
    candidate_event("CYCLE_ACTIVITY.CYCLES_L3_MISS", 0x0200_02a3),
];
/// Stall events from Golden Cove on. The first one has another name and number than on Skylake, and the same
/// description.
const BOUND_ON_LOADS: &[Candidate] = &[
    candidate_event("EXE_ACTIVITY.BOUND_ON_LOADS", 0x0500_21a6),
    candidate_event("CYCLE_ACTIVITY.CYCLES_MEM_ANY", 0x1000_10a3),
    candidate_event("MEMORY_ACTIVITY.STALLS_L3_MISS", 0x0900_0947),
];
const MEM_INST_RETIRED: &[Candidate] =
    &[candidate_event("MEM_INST_RETIRED.ALL_LOADS", 0x81d0), candidate_event("MEM_INST_RETIRED.ALL_STORES", 0x82d0)];

/// Stall events of Zen 2 and 3, which count no stalls on outstanding loads. The nearest are cycles without dispatch
/// because a queue is full.
const QUEUES_FULL: &[Candidate] = &[
    candidate_event("de_dis_dispatch_token_stalls1.load_queue_rsrc_stall", 0x02ae),
    candidate_event("de_dis_dispatch_token_stalls1.store_queue_rsrc_stall", 0x04ae),
];
/// Stall events of Zen 4 and 5: cycles without retirement because the oldest operation is a load that waits for its
/// data.
const LOAD_NOT_COMPLETE: &[Candidate] =
    &[candidate_event("ex_no_retire.load_not_complete", 0xa2d6), candidate_event("ex_no_retire.not_complete", 0x02d6)];
/// Dispatched loads, stores and operations that are both. AMD counts no retired loads and stores.
const LS_DISPATCH: &[Candidate] = &[candidate_event("ls_dispatch.all", 0x0729)];

/// Stalls in the back end of an Arm core because a load waits. Older cores count only all stalls in the back end.
const STALL_BACKEND_MEM: &[Candidate] =
    &[candidate_event("STALL_BACKEND_MEM", 0x4005), candidate_event("STALL_BACKEND", 0x24)];
const STALL_BACKEND: &[Candidate] = &[candidate_event("STALL_BACKEND", 0x24)];
/// Speculatively executed loads and stores: Neoverse does not count retired loads and stores.
const LD_ST_SPEC: &[Candidate] = &[candidate_event("LD_SPEC", 0x70), candidate_event("ST_SPEC", 0x71)];
const MEM_ACCESS: &[Candidate] = &[candidate_event("MEM_ACCESS", 0x13)];

const INTEL: ProcessorEvents = ProcessorEvents {
    processors: "",
    vendor: Vendor::Intel,
    family: 6,
    models: &[],
    candidates: STALLS_MEM_ANY,
    activity: MEM_INST_RETIRED,
    exact: true,
    source: "",
    pmu: None,
};
const AMD: ProcessorEvents = ProcessorEvents { vendor: Vendor::Amd, activity: LS_DISPATCH, exact: false, ..INTEL };
const ARM: ProcessorEvents =
    ProcessorEvents { vendor: Vendor::Arm, family: 0, activity: LD_ST_SPEC, exact: false, ..INTEL };

const ROWS: [ProcessorEvents; 10] = [
    ProcessorEvents {
        processors: "Skylake, Kaby Lake, Coffee Lake, Comet Lake, Cascade Lake",
        models: &[(0x4e, 0x4e), (0x55, 0x55), (0x5e, 0x5e), (0x8e, 0x8e), (0x9e, 0x9e), (0xa5, 0xa6)],
        source: "Holmes, Table 1; perf: x86/skylakex/pipeline.json, cache.json",
        ..INTEL
    },
    ProcessorEvents {
        processors: "Ice Lake, Tiger Lake, Rocket Lake",
        models: &[(0x6a, 0x6a), (0x6c, 0x6c), (0x7d, 0x7e), (0x8c, 0x8d), (0xa7, 0xa7)],
        source: "perf: x86/icelakex/pipeline.json, cache.json",
        ..INTEL
    },
    ProcessorEvents {
        processors: "Sapphire Rapids, Emerald Rapids, Granite Rapids",
        models: &[(0x8f, 0x8f), (0xcf, 0xcf), (0xad, 0xae)],
        candidates: BOUND_ON_LOADS,
        source: "perf: x86/sapphirerapids and x86/graniterapids, pipeline.json, cache.json",
        ..INTEL
    },
    ProcessorEvents {
        processors: "P-cores of Alder Lake, Raptor Lake, Meteor Lake",
        models: &[(0x97, 0x97), (0x9a, 0x9a), (0xb7, 0xb7), (0xba, 0xba), (0xbf, 0xbf), (0xaa, 0xaa), (0xac, 0xac)],
        candidates: BOUND_ON_LOADS,
        source: "perf: x86/alderlake and x86/meteorlake, pipeline.json, cache.json, unit cpu_core",
        pmu: Some("cpu_core"),
        ..INTEL
    },
    ProcessorEvents {
        processors: "Zen 2",
        family: 0x17,
        models: &[(0x30, 0xff)],
        candidates: QUEUES_FULL,
        source: "nearest: perf: x86/amdzen2, PMCx0AE and PMCx029 of AMD's processor programming reference",
        ..AMD
    },
    ProcessorEvents {
        processors: "Zen 3",
        family: 0x19,
        models: &[(0x00, 0x0f), (0x20, 0x5f)],
        candidates: QUEUES_FULL,
        source: "nearest: perf: x86/amdzen3, PMCx0AE and PMCx029 of AMD's processor programming reference",
        ..AMD
    },
    ProcessorEvents {
        processors: "Zen 4",
        family: 0x19,
        models: &[(0x10, 0x1f), (0x60, 0xaf)],
        candidates: LOAD_NOT_COMPLETE,
        source: "nearest: perf: x86/amdzen4, PMCx0D6 and PMCx029 of AMD's processor programming reference",
        ..AMD
    },
    ProcessorEvents {
        processors: "Zen 5",
        family: 0x1a,
        models: &[(0x00, 0xff)],
        candidates: LOAD_NOT_COMPLETE,
        source: "nearest: perf: x86/amdzen5, PMCx0D6 and PMCx029 of AMD's processor programming reference",
        ..AMD
    },
    ProcessorEvents {
        processors: "Neoverse N2, N3, V1, V2, V3",
        models: &[(0xd40, 0xd40), (0xd49, 0xd49), (0xd4f, 0xd4f), (0xd83, 0xd84), (0xd8e, 0xd8e)],
        candidates: STALL_BACKEND_MEM,
        source: "nearest: perf: arm64/common-and-microarch.json; these cores have no siblings",
        ..ARM
    },
    ProcessorEvents {
        processors: "Neoverse N1, E1",
        models: &[(0xd0c, 0xd0c), (0xd4a, 0xd4a)],
        candidates: STALL_BACKEND,
        activity: MEM_ACCESS,
        source: "nearest: perf: arm64/common-and-microarch.json; all stalls of the back end; of these two, E1 has siblings",
        ..ARM
    },
];

/// Returns the row of a processor; `None` if it is not in the table.
pub fn events_of_processor(processor: &Processor) -> Option<&'static ProcessorEvents> {
    ROWS.iter().find(|row| row.is_for_processor(processor))
}

impl ProcessorEvents {
    fn is_for_processor(&self, processor: &Processor) -> bool {
        let same = (self.vendor, self.family) == (processor.vendor, processor.family);
        same && self.models.iter().any(|(first, last)| (*first..=*last).contains(&processor.model))
    }

    /// Returns the event that has this name in the row, in upper or lower case.
    pub fn find_event(&self, name: &str) -> Option<Event> {
        let mut all = self.candidates.iter().chain(self.activity);
        all.find(|event| event.name.eq_ignore_ascii_case(name)).map(|event| self.event(event))
    }

    /// Returns the formula of a candidate event: its count per memory access.
    pub fn formula(&self, candidate: &Candidate) -> Formula {
        let activity: Vec<&str> = self.activity.iter().map(|event| event.name).collect();
        let text = format!("{} / ({})", candidate.name, activity.join(" + "));
        Formula::parse_with(&text, |name| self.find_event(name)).expect("rows are formulas: a test reads each")
    }

    /// Returns the formula of the first candidate event.
    pub fn default_formula(&self) -> Formula {
        self.formula(&self.candidates[0])
    }

    fn event(&self, candidate: &Candidate) -> Event {
        let kind = self.pmu.and_then(pmu_type_number);
        Event { config: candidate.config, ..kind.map_or(Event::raw(0), |kind| Event { kind, config: 0 }) }
    }
}

/// Returns the kernel's number of a PMU. On a machine with several PMUs, a raw event without this number would select
/// the event of another PMU.
fn pmu_type_number(pmu: &str) -> Option<u32> {
    fs::read_to_string(format!("/sys/bus/event_source/devices/{pmu}/type")).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events_of_model(vendor: Vendor, family: u32, model: u32) -> Option<&'static ProcessorEvents> {
        events_of_processor(&Processor { vendor, family, model })
    }

    #[test]
    fn skylake_sp_has_the_events_of_the_holmes_paper() {
        let skylake = events_of_model(Vendor::Intel, 6, 0x55).unwrap();
        let raw = |name| Event::named(name).unwrap();
        assert_eq!(skylake.default_formula().events(), [raw("r140014a3"), raw("r81d0"), raw("r82d0")]);
        assert!(skylake.exact);
        assert_eq!(skylake.find_event("cycle_activity.stalls_mem_any"), Event::named("r140014a3"));
    }

    #[test]
    fn each_processor_has_its_row_of_events() {
        let name = |vendor, family, model| {
            events_of_model(vendor, family, model).map(|row| row.processors.split(',').next().unwrap())
        };
        assert_eq!(name(Vendor::Intel, 6, 0x6a), Some("Ice Lake"));
        assert_eq!(name(Vendor::Intel, 6, 0xcf), Some("Sapphire Rapids"));
        assert_eq!(name(Vendor::Intel, 6, 0xad), Some("Sapphire Rapids"));
        assert_eq!(name(Vendor::Intel, 6, 0xb7), Some("P-cores of Alder Lake"));
        assert_eq!(name(Vendor::Amd, 0x17, 0x31), Some("Zen 2"));
        assert_eq!(name(Vendor::Amd, 0x17, 0x01), None, "Zen 1");
        assert_eq!(name(Vendor::Amd, 0x19, 0x01), Some("Zen 3"));
        assert_eq!(name(Vendor::Amd, 0x19, 0x11), Some("Zen 4"));
        assert_eq!(name(Vendor::Amd, 0x1a, 0x02), Some("Zen 5"));
        assert_eq!(name(Vendor::Arm, 0, 0xd4f), Some("Neoverse N2"));
        assert_eq!(name(Vendor::Arm, 0, 0xd0c), Some("Neoverse N1"));
        assert_eq!(name(Vendor::Intel, 6, 0x3f), None, "Haswell");
    }

    #[test]
    fn rows_are_unique_per_processor_and_have_a_source() {
        for row in &ROWS {
            assert!(!row.source.is_empty(), "{}", row.processors);
            row.candidates.iter().for_each(|candidate| drop(row.formula(candidate)));
            for model in row.models.iter().flat_map(|(first, last)| *first..=*last) {
                let processor = Processor { vendor: row.vendor, family: row.family, model };
                assert_eq!(ROWS.iter().filter(|row| row.is_for_processor(&processor)).count(), 1, "{processor}");
            }
        }
    }
}

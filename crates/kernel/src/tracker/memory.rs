//! The arrays that the kernel program and this process share, as plain memory.

use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use libbpf_rs::Object;
use sidelane_signal::{GateWord, HoldWord, LaneTerms, LaneWord, RequestWord, ServiceWord};

use crate::books::{Books, LaneStats, TraceEvent};
use crate::gate_books::GateBooks;
use crate::mapped::MappedArray;
use crate::maps::map_array;
use crate::promises::Promises;
use crate::stolen::{StolenFrom, Thief, note_gap};
use crate::tracker::error::TrackerError;
use crate::tracker::extras::Extras;
use crate::tracker::load::{THIEVES, TURNS};
use crate::turns::LaneTurns;
use sidelane_host::topology::Lanes;

/// `struct sidelane_trace_event` slots, as in `bpf/lanes.h`.
const TRACE_EVENTS: usize = 16_384;

/// Whoever writes the request words where the kernel program does not: the service emits its requests itself.
pub trait RequestWriter: Send + Sync {
    /// Brings the words up to date, unless somebody is at it.
    fn write(&self, memory: &LaneMemory);
}

/// The arrays shared with the kernel program, indexed by CPU.
pub struct LaneMemory {
    words: MappedArray<LaneWord>,
    holds: MappedArray<HoldWord>,
    requests: MappedArray<RequestWord>,
    service: MappedArray<ServiceWord>,
    terms: MappedArray<LaneTerms>,
    gates: MappedArray<GateWord>,
    promises: Promises,
    gated: bool,
    stats: MappedArray<LaneStats>,
    trace: MappedArray<TraceEvent>,
    turns: MappedArray<LaneTurns>,
    stolen_from: StolenFrom,
    thieves: MappedArray<Thief>,
    /// Who writes the request words, if the kernel program does not.
    emitted: OnceLock<Box<dyn RequestWriter>>,
    /// By CPU: the request lanes of a batch lane, none for any other.
    partners: Vec<Vec<u32>>,
}

impl LaneMemory {
    /// Maps the arrays of the program, which was loaded for `lanes`.
    pub fn map(
        object: &Object,
        lanes: &Lanes,
        cpu_count: usize,
        extras: Extras,
        stolen_from: StolenFrom,
    ) -> Result<Self, TrackerError> {
        let gated = extras.gated;
        Ok(Self {
            words: map_array(object, "lane_words", cpu_count)?,
            holds: map_array(object, "hold_words", cpu_count)?,
            requests: map_array(object, "request_words", cpu_count)?,
            service: map_array(object, "service_words", 1)?,
            terms: map_array(object, "lane_terms", cpu_count)?,
            gates: map_array(object, "gate_words", cpu_count)?,
            gated,
            promises: Promises::new(map_array(object, "gated_threads", Promises::words(gated))?),
            stats: map_array(object, "lane_stats", cpu_count)?,
            trace: map_array(object, "trace_events", TRACE_EVENTS)?,
            turns: map_array(object, TURNS, if extras.turns { cpu_count } else { 1 })?,
            stolen_from,
            thieves: map_array(object, THIEVES, if stolen_from == StolenFrom::Told { cpu_count } else { 1 })?,
            emitted: OnceLock::new(),
            partners: partners(lanes, cpu_count),
        })
    }

    /// How many CPUs the arrays have an entry for.
    pub fn cpu_count(&self) -> usize {
        self.partners.len()
    }

    /// What runs on `cpu`.
    pub fn word(&self, cpu: u32) -> &LaneWord {
        self.words.get(cpu as usize)
    }

    /// How the batch lane `cpu` is held.
    pub fn hold(&self, cpu: u32) -> &HoldWord {
        self.holds.get(cpu as usize)
    }

    /// Which request `cpu` works on.
    pub fn request(&self, cpu: u32) -> &RequestWord {
        self.requests.get(cpu as usize)
    }

    /// The service as a whole.
    pub fn service(&self) -> &ServiceWord {
        self.service.get(0)
    }

    /// The terms on which the batch lane `cpu` is lent.
    pub fn terms(&self, cpu: u32) -> &LaneTerms {
        self.terms.get(cpu as usize)
    }

    /// What batch that looks for itself did on the batch lane `cpu`.
    pub fn gate(&self, cpu: u32) -> &GateWord {
        self.gates.get(cpu as usize)
    }

    /// The last turns on `cpu`; only where requests are emitted.
    pub fn turns(&self, cpu: u32) -> &LaneTurns {
        self.turns.get(cpu as usize)
    }

    /// How the kernel program knows what the hypervisor takes.
    pub fn stolen_from(&self) -> StolenFrom {
        self.stolen_from
    }

    /// Who plays the hypervisor on `cpu`; only where that is [`StolenFrom::Told`].
    pub fn thief(&self, cpu: u32) -> &Thief {
        self.thieves.get(cpu as usize)
    }

    /// The request words are the service's own word from now on.
    pub fn hear_from(&self, words: Box<dyn RequestWriter>) {
        if self.emitted.set(words).is_ok() {
            self.service().tracked.store(1, Ordering::Release);
        }
    }

    /// Whether somebody has to [`LaneMemory::hear`] for the request words to be true.
    pub fn hears(&self) -> bool {
        self.emitted.get().is_some()
    }

    /// Brings the request words up to date, where that is not the kernel program's business.
    pub fn hear(&self) {
        if let Some(words) = self.emitted.get() {
            words.write(self);
        }
    }

    /// The threads that look for themselves.
    pub fn promises(&self) -> &Promises {
        &self.promises
    }

    /// The kernel's books of all lanes, up to now.
    pub fn books(&self) -> Books {
        let (gates, stats) = (self.gates.as_slice(), self.stats.as_slice());
        Books::read(self.words.iter(), self.holds.iter(), gates, stats, self.stolen_from, |cpu| &self.partners[cpu])
    }

    /// Whether batch may look for itself.
    pub fn gated(&self) -> bool {
        self.gated
    }

    /// Time batch ran beside the service on the batch lane `cpu`, and neither napped nor had leave,
    /// up to its last turn's end.
    pub fn leaked_ns(&self, cpu: u32) -> u64 {
        let gate = GateBooks::read(self.gate(cpu));
        self.stats.get(cpu as usize).overlap_ns().saturating_sub(gate.napped_lc_ns + gate.lent_lc_ns)
    }

    /// Times batch was switched in outside its lanes, without reading all the books.
    pub fn batch_strays(&self) -> u64 {
        self.stats.iter().map(LaneStats::batch_strays).sum()
    }

    /// The recorded class changes; see [`Tracker::trace`].
    pub fn trace(&self) -> impl Iterator<Item = &TraceEvent> {
        self.trace.iter()
    }
}

impl Drop for LaneMemory {
    fn drop(&mut self) {
        if !matches!(self.stolen_from, StolenFrom::Unseen | StolenFrom::Told) {
            self.stats.iter().for_each(|lane| note_gap(lane.stolen_gap_max_ns()));
        }
    }
}

fn partners(lanes: &Lanes, cpu_count: usize) -> Vec<Vec<u32>> {
    let mut partners = vec![Vec::new(); cpu_count];
    for lane in &lanes.batch {
        partners[lane.cpu as usize] = lane.requests.iter().collect();
    }
    partners
}

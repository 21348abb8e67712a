//! The arrays that the kernel program and this process share, as plain memory.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{OnceLock, RwLock};

use libbpf_rs::MapHandle;
use sidelane_formats::{GateWord, HoldWord, LaneLimits, LaneWord, RequestWord, ServiceWord};

use crate::accounting::Accounting;
use crate::gate_accounting::GateAccounting;
use crate::kernel_types::{CpuShares, LaneLedger, LanePrograms, LaneStats, LaneTurns};
use crate::promises::Promises;
use crate::stolen::{StealTimeSource, record_steal_gap};
use crate::tracker::error::TrackerError;
use crate::tracker::load::{SELF_CHECKING, SHARES, TURNS, map_array};
use crate::tracker::purpose::Purpose;
use sidelane_host::clock::now_ns;
use sidelane_host::cpulist::CpuSet;
use sidelane_host::shared_mapping::{Shared, SharedMapping};
use sidelane_host::topology::{BatchLane, Lanes};
use sidelane_policy::borrow::promise::Overlap;

use crate::identities::{NUMBERS, Number};

/// Number of entries between the words of two services: a page, as in `bpf/lanes.h`.
pub const SERVICE_STRIDE: usize = 64;

/// Variables of the kernel program, in the order of its source.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Variables {
    pub(crate) switches_tell: AtomicU32,
}

// SAFETY: one atomic integer.
unsafe impl Shared for Variables {}

/// Writer of request words in place of the kernel program, for a service that emits its requests itself.
pub trait RequestWriter: Send + Sync {
    /// Updates the request words, unless another thread does so already.
    fn write(&self, memory: &LaneMemory);
}

/// Arrays shared with the kernel program, indexed by CPU.
pub struct LaneMemory {
    words: SharedMapping<LaneWord>,
    holds: SharedMapping<HoldWord>,
    requests: SharedMapping<RequestWord>,
    services: SharedMapping<ServiceWord>,
    limits: SharedMapping<LaneLimits>,
    gates: SharedMapping<GateWord>,
    promises: Promises,
    self_checking: bool,
    stats: SharedMapping<LaneStats>,
    ledgers: SharedMapping<LaneLedger>,
    programs: SharedMapping<LanePrograms>,
    turns: SharedMapping<LaneTurns>,
    shares: SharedMapping<CpuShares>,
    stolen_from: StealTimeSource,
    variables: SharedMapping<Variables>,
    /// Writers of request words, by service; only for services whose request words the kernel program does not write.
    emitted: Vec<OnceLock<Box<dyn RequestWriter>>>,
    /// Number of the service whose lane the CPU is, or beside which it is lent; 0 for none.
    services_of_lanes: Vec<AtomicU32>,
    /// Request lanes of each batch lane, by CPU; empty for other CPUs.
    partners: RwLock<Vec<Vec<u32>>>,
}

impl LaneMemory {
    /// Maps the arrays of the kernel program.
    pub(super) fn map(
        maps: &BTreeMap<String, MapHandle>,
        cpu_count: usize,
        purpose: &Purpose,
        stolen_from: StealTimeSource,
    ) -> Result<Self, TrackerError> {
        let self_checking = purpose.lends_with(|lent| lent.self_checking);
        let has_turns = purpose.lends_with(|lent| lent.turns);
        Ok(Self {
            words: map_array(maps, "lane_words", cpu_count)?,
            holds: map_array(maps, "hold_words", cpu_count)?,
            requests: map_array(maps, "request_words", cpu_count)?,
            services: map_array(maps, "service_words", NUMBERS * SERVICE_STRIDE)?,
            limits: map_array(maps, "lane_limits", cpu_count)?,
            gates: map_array(maps, "gate_words", cpu_count)?,
            self_checking,
            promises: Promises::new(map_array(maps, SELF_CHECKING, Promises::word_count(self_checking))?),
            stats: map_array(maps, "lane_stats", cpu_count)?,
            ledgers: map_array(maps, "lane_ledgers", cpu_count)?,
            programs: map_array(maps, "lane_programs", cpu_count)?,
            turns: map_array(maps, TURNS, if has_turns { cpu_count } else { 1 })?,
            shares: map_array(maps, SHARES, if purpose.has_shares() { cpu_count } else { 1 })?,
            stolen_from,
            variables: map_array(maps, ".bss", 1)?,
            emitted: (0..NUMBERS).map(|_| OnceLock::new()).collect(),
            services_of_lanes: (0..cpu_count).map(|_| AtomicU32::new(0)).collect(),
            partners: RwLock::new(vec![Vec::new(); cpu_count]),
        })
    }

    /// Begins the ledgers of these batch lanes, just before they get their roles.
    pub(super) fn begin_ledgers(&self, lanes: &Lanes) {
        for lane in &lanes.batch {
            let now_ns = now_ns();
            let busy_clock_ns =
                lane.request_lanes.iter().map(|cpu| self.stats[cpu as usize].busy_clock_ns(self.word(cpu), now_ns));
            let (word, stats) = (self.word(lane.cpu), &self.stats[lane.cpu as usize]);
            self.programs[lane.cpu as usize].begin();
            self.ledgers[lane.cpu as usize].begin(now_ns, word, stats, busy_clock_ns.sum());
        }
    }

    /// Assigns these lanes to the service `number`.
    pub(super) fn assign_lanes(&self, lanes: &Lanes, number: Number) {
        self.set_partners(lanes, number.get(), |lane| lane.request_lanes.iter().collect());
    }

    /// Removes the partners of these lanes.
    pub(super) fn unassign_lanes(&self, lanes: &Lanes) {
        self.set_partners(lanes, 0, |_| Vec::new());
    }

    fn set_partners(&self, lanes: &Lanes, number: u32, request_lanes_of: impl Fn(&BatchLane) -> Vec<u32>) {
        let mut partners = self.partners.write().expect("no thread panics with the partners");
        for lane in &lanes.batch {
            partners[lane.cpu as usize] = request_lanes_of(lane);
        }
        for cpu in lanes.request_lanes.iter().chain(lanes.batch.iter().map(|lane| lane.cpu)) {
            self.services_of_lanes[cpu as usize].store(number, Ordering::Release);
        }
    }

    /// Returns the number of CPUs in the arrays.
    pub fn cpu_count(&self) -> usize {
        self.services_of_lanes.len()
    }

    /// Returns the word of the thread that runs on `cpu`.
    pub fn word(&self, cpu: u32) -> &LaneWord {
        &self.words[cpu as usize]
    }

    /// Returns the hold word of the batch lane `cpu`.
    pub fn hold(&self, cpu: u32) -> &HoldWord {
        &self.holds[cpu as usize]
    }

    /// Returns the word of the request on `cpu`.
    pub fn request(&self, cpu: u32) -> &RequestWord {
        &self.requests[cpu as usize]
    }

    /// Returns the word of the whole service `number`.
    pub fn service(&self, number: Number) -> &ServiceWord {
        &self.services[number.get() as usize * SERVICE_STRIDE]
    }

    /// Returns the word of the service whose lane `cpu` is, or beside which it is lent. Otherwise returns the word for
    /// untracked processes.
    pub fn service_of(&self, cpu: u32) -> &ServiceWord {
        &self.services[self.number_of(cpu) * SERVICE_STRIDE]
    }

    fn number_of(&self, cpu: u32) -> usize {
        self.services_of_lanes.get(cpu as usize).map_or(0, |number| number.load(Ordering::Acquire) as usize)
    }

    /// Returns the variables of the kernel program.
    pub(crate) fn variables(&self) -> &Variables {
        &self.variables[0]
    }

    /// Returns the lending limits of the batch lane `cpu`.
    pub fn limits(&self, cpu: u32) -> &LaneLimits {
        &self.limits[cpu as usize]
    }

    /// Returns the word in which self-checking batch counts on the batch lane `cpu`.
    pub fn gate(&self, cpu: u32) -> &GateWord {
        &self.gates[cpu as usize]
    }

    /// Returns the last turns on `cpu`. They are recorded only if requests are emitted.
    pub fn turns(&self, cpu: u32) -> &LaneTurns {
        &self.turns[cpu as usize]
    }

    /// Returns whether turns are recorded.
    pub fn has_turns(&self) -> bool {
        self.turns.len() >= self.cpu_count()
    }

    /// Returns the CPU times on `cpu`. They are recorded only if a machine is shared.
    pub fn shares(&self, cpu: u32) -> &CpuShares {
        &self.shares[cpu as usize]
    }

    /// Returns the kernel program's source of steal time.
    pub fn steal_time_source(&self) -> StealTimeSource {
        self.stolen_from
    }

    /// Sets the writer of the request words of the service `number`.
    pub fn set_request_writer(&self, number: Number, writer: Box<dyn RequestWriter>) {
        if self.emitted[number.get() as usize].set(writer).is_ok() {
            self.service(number).tracked.store(1, Ordering::Release);
        }
    }

    /// Returns whether the request words beside the lane `cpu` are out of date without [`LaneMemory::refresh_requests`].
    pub fn needs_request_refresh(&self, cpu: u32) -> bool {
        self.emitted[self.number_of(cpu)].get().is_some()
    }

    /// Returns whether the service ever had a writer of request words.
    pub(super) fn had_request_writer(&self, number: Number) -> bool {
        self.emitted[number.get() as usize].get().is_some()
    }

    /// Updates the request words beside the lane `cpu`, unless the kernel program writes them.
    pub fn refresh_requests(&self, cpu: u32) {
        if let Some(words) = self.emitted[self.number_of(cpu)].get() {
            words.write(self);
        }
    }

    /// Makes batch check its lane on none of the CPUs `batch_lanes` any more, so that their holders are summoned for it.
    pub fn stop_self_checking(&self, batch_lanes: &CpuSet) {
        for cpu in batch_lanes.iter() {
            self.limits(cpu).request_count.store(0, Ordering::Release);
        }
        self.promises.remove_all();
    }

    /// Returns the promises of self-checking threads.
    pub fn promises(&self) -> &Promises {
        &self.promises
    }

    /// Returns the accounting of all lanes, up to now.
    pub fn accounting(&self) -> Accounting {
        let (gates, counted) = (&self.gates, (&*self.stats, &*self.ledgers, &*self.programs));
        let partners = self.partners.read().expect("no thread panics with the partners");
        Accounting::read(&self.words, self.holds.iter(), gates, counted, self.stolen_from, |cpu| &partners[cpu])
    }

    /// Returns the figures by which the overlap promise of these lanes is judged, without reading the accounting of all
    /// lanes.
    pub fn overlap(&self, request_lanes: &CpuSet, batch_lanes: &CpuSet) -> Overlap {
        let at_ns = now_ns();
        let partners = self.partners.read().expect("no thread panics with the partners");
        let clock_ns = |cpu| self.word(cpu).snapshot().map_or(0, |seen| seen.service_time_ns(at_ns));
        let accounting = |cpu: u32| {
            let beside_ns = partners[cpu as usize].iter().map(|request| clock_ns(*request)).sum();
            self.stats[cpu as usize].read(self.gate(cpu), at_ns, clock_ns(cpu), beside_ns)
        };
        let service = request_lanes.iter().map(accounting).map(|lane| (lane.lc_ns, lane.lc_switches));
        let (service_ns, turns) = service.fold((0, 0), |(ns, turns), (more_ns, more)| (ns + more_ns, turns + more));
        Overlap { service_ns, turns, overlap_ns: batch_lanes.iter().map(|cpu| accounting(cpu).overlap_ns).sum() }
    }

    /// Returns whether batch may check its lane itself.
    pub fn self_checking(&self) -> bool {
        self.self_checking
    }

    /// Returns the time that batch ran beside the service on the batch lane `cpu` without a nap or permission, up to
    /// the end of its last turn.
    pub fn unpermitted_overlap_ns(&self, cpu: u32) -> u64 {
        let stats = &self.stats[cpu as usize];
        let gate = GateAccounting::read(self.gate(cpu), stats);
        stats.overlap_ns().saturating_sub(gate.excused_ns())
    }

    /// Returns the time that batch ran on the batch lane `cpu`, up to the end of its last turn.
    pub fn batch_ns(&self, cpu: u32) -> u64 {
        self.stats[cpu as usize].batch_ns()
    }

    /// Returns the start of batch's present turn on the batch lane `cpu`; 0 if batch does not run there.
    pub fn batch_running_since_ns(&self, cpu: u32) -> u64 {
        self.stats[cpu as usize].batch_running_since_ns()
    }

    /// Returns how often batch was switched in outside its lanes, without reading the accounting of all lanes.
    pub fn batch_switches_outside_lanes(&self) -> u64 {
        self.stats.iter().map(LaneStats::batch_switches_outside_lanes).sum()
    }
}

impl Drop for LaneMemory {
    fn drop(&mut self) {
        if self.stolen_from != StealTimeSource::Unseen {
            self.stats.iter().for_each(|lane| record_steal_gap(lane.stolen_gap_max_ns()));
        }
    }
}

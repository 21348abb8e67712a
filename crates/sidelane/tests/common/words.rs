//! Memory words of a running `sidelane run`, which its kernel program and its lane's holder write. A test that reads
//! them waits for events and asserts their order, instead of their time.
//!
//! The words are read from the request lane: a reader on the batch lane would see its own thread there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Instant;

use libbpf_rs::MapHandle;
use libbpf_rs::query::{MapInfo, MapInfoIter};
use sidelane_formats::{GateWord, HoldState, HoldWord, LaneClass, LaneLimits, LaneWord, Shared};
use sidelane_host::freezer::Freezer;
use sidelane_host::priority::pin_this_thread;
use sidelane_host::shared_mapping::SharedMapping;
use sidelane_policy::borrow::LaneState;

use super::{Running, ServiceOnCommand, TIMEOUT};

const REQUEST_LANE: usize = 0;
const BATCH_LANE: usize = 1;
/// Number of CPUs that the tests use; the arrays have an entry for each CPU.
const LANES: usize = 2;
/// Number of consecutive reads of a lane that has to stay empty: batch on the lane would be seen.
const LOOKS: usize = 2_000;

/// Memory words that the kernel program and the holders of one run share, by CPU.
#[derive(Clone, Copy)]
pub struct Words {
    lanes: &'static [LaneWord],
    holds: &'static [HoldWord],
    gates: &'static [GateWord],
    limits: &'static [LaneLimits],
    halt_events: &'static AtomicU64,
}

impl Words {
    /// Waits until the lane of `run` has its holder, and maps its words. The calling thread stays on the request lane
    /// after that.
    #[track_caller]
    pub fn wait_and_map(run: &mut Running) -> Self {
        pin_this_thread(&[REQUEST_LANE as u32]).expect("the request lane is there");
        let agent = run.pid();
        run.wait_until("the lane had its holder", |_| Self::find(agent).is_some());
        Self::find(agent).expect("it was there a moment ago")
    }

    /// Finds the memory words of the run whose holder is a thread of the process `agent`.
    fn find(agent: u32) -> Option<Self> {
        let maps = maps_of(agent);
        let array = |name: &str| maps.get(name).copied();
        let holds = map_array_once::<HoldWord>(array("hold_words")?)?;
        let holder = holds[BATCH_LANE].holder_pid.load(Ordering::Acquire);
        if holder == 0 || !Path::new(&format!("/proc/{agent}/task/{holder}")).exists() {
            return None;
        }
        let lanes = map_array_once(array("lane_words")?)?;
        let (gates, limits) = (map_array_once(array("gate_words")?)?, map_array_once(array("lane_limits")?)?);
        Some(Self { lanes, holds, gates, limits, halt_events: ring_write_position(array("halt_events")?)? })
    }

    /// Returns the state of the batch lane; `None` if its keeper is summoned.
    pub fn state(&self) -> Option<LaneState> {
        match self.holds[BATCH_LANE].state().expect("a state of this version") {
            HoldState::Stored(state) => Some(state),
            HoldState::Summoned => None,
        }
    }

    /// Returns the number of summonses up to now.
    pub fn summons(&self) -> u64 {
        self.holds[BATCH_LANE].summons.load(Ordering::Acquire)
    }

    /// Fails if the service works beside running batch, but no holder was summoned since the count was `before`. If
    /// batch does not run now, no summons is needed before the kernel switches it in.
    #[track_caller]
    pub fn check_summoned_since(&self, summons_before: u64) {
        let beside_batch = self.busy() && self.is_batch_on_lane();
        assert!(!beside_batch || self.summons() > summons_before, "no keeper was summoned: {:?}", self.state());
    }

    /// Returns whether the service needs its lane.
    pub fn busy(&self) -> bool {
        self.lanes[REQUEST_LANE].busy()
    }

    /// Returns the start of the current or last busy period of the service.
    pub fn busy_since_ns(&self) -> u64 {
        self.lanes[REQUEST_LANE].busy_since_ns.load(Ordering::Acquire)
    }

    /// Returns whether batch runs on the batch lane.
    pub fn is_batch_on_lane(&self) -> bool {
        self.lanes[BATCH_LANE].class.load(Ordering::Acquire) == LaneClass::Batch as u32
    }

    /// Returns whether batch has the lane, the lane is in this state, and the service is idle.
    pub fn has_batch_in_state(&self, state: LaneState) -> bool {
        !self.busy() && self.state() == Some(state) && self.is_batch_on_lane()
    }

    /// Returns whether batch neither runs on the lane nor waits for it.
    pub fn has_batch_left(&self) -> bool {
        !self.is_batch_on_lane() && self.holds[BATCH_LANE].batch_waits.load(Ordering::Acquire) == 0
    }

    /// Returns whether the lane is kept free: by its holder, or by the eviction of batch in a long hold.
    pub fn is_kept_free(&self) -> bool {
        self.state().is_some_and(|state| !state.lets_batch_run())
    }

    /// Fails if batch runs on the lane while the holder holds it. The service must stay busy during
    /// this call.
    #[track_caller]
    pub fn check_no_batch_while_held(&self) {
        for _ in 0..LOOKS {
            let held = self.state() == Some(LaneState::Held);
            let batch_is_on = self.is_batch_on_lane();
            assert!(
                !(held && batch_is_on && self.state() == Some(LaneState::Held)),
                "batch runs on a lane that is held"
            );
        }
    }

    /// Makes the service work until batch is evicted, and `freezer` has stopped all its tasks. Returns whether an
    /// earlier eviction left batch running, so that the holder held the lane again.
    #[track_caller]
    pub fn work_until_frozen_and_check_rehold(&self, service: &mut ServiceOnCommand, freezer: &Freezer) -> bool {
        service.work();
        let deadline = Instant::now() + TIMEOUT;
        let (mut goes_on, mut is_held_again) = (false, false);
        // The service works until the loop ends, so batch is not thawed in between. One check takes microseconds.
        while !(self.state() == Some(LaneState::Evicted) && freezer.are_all_tasks_stopped()) {
            assert!(Instant::now() < deadline, "batch was not evicted");
            match self.state() {
                Some(LaneState::Evicted) => goes_on = !freezer.are_all_tasks_stopped(),
                Some(LaneState::Held) => is_held_again |= goes_on,
                _ => {}
            }
        }
        service.rest();
        is_held_again
    }

    /// Returns whether batch that checks its own lane naps on the batch lane.
    pub fn is_batch_napping(&self) -> bool {
        self.gates[BATCH_LANE].nap_tid.load(Ordering::Acquire) != 0
    }

    /// Returns the number of bytes that the kernel program has written to report halts of the run.
    pub fn halt_event_bytes(&self) -> u64 {
        self.halt_events.load(Ordering::Acquire)
    }

    /// Returns the lending limits of the batch lane.
    pub fn limits(&self) -> &LaneLimits {
        &self.limits[BATCH_LANE]
    }
}

/// Returns the ids of the kernel's maps that a process has open, by name. Maps of an earlier run, which this process has
/// mapped, have the same names.
fn maps_of(agent: u32) -> BTreeMap<String, u32> {
    let about = fs::read_dir(format!("/proc/{agent}/fdinfo")).into_iter().flatten().flatten();
    let map_id = |text: String| text.lines().find_map(|line| line.strip_prefix("map_id:")?.trim().parse::<u32>().ok());
    let open: BTreeSet<u32> = about.filter_map(|file| map_id(fs::read_to_string(file.path()).ok()?)).collect();
    let is_open = |map: &MapInfo| open.contains(&map.id);
    MapInfoIter::default().filter(is_open).map(|map| (map.name.to_string_lossy().into_owned(), map.id)).collect()
}

/// Returns the write position of a ring buffer: the first word of its second page.
fn ring_write_position(id: u32) -> Option<&'static AtomicU64> {
    let (map, page_bytes) = (MapHandle::from_map_id(id).ok()?, rustix::param::page_size() as u64);
    let page = SharedMapping::read_only(&map, page_bytes, 1).ok()?;
    Some(&Box::leak(Box::new(page))[0])
}

/// Maps the first entries of an array until the test ends. Each array is mapped once: a test of many runs looks for its
/// words thousands of times, and a process has at most 65,530 mappings.
fn map_array_once<T: Shared>(id: u32) -> Option<&'static [T]> {
    static MAPPED: Mutex<BTreeMap<u32, &'static SharedMapping<AtomicU8>>> = Mutex::new(BTreeMap::new());
    let mut known = MAPPED.lock().expect("a look for words does not panic");
    let map_anew = || {
        let map = MapHandle::from_map_id(id).ok()?;
        Some(&*Box::leak(Box::new(SharedMapping::read_only(&map, 0, LANES * size_of::<T>()).ok()?)))
    };
    let memory = known.get(&id).copied().or_else(map_anew)?;
    known.insert(id, memory);
    Some(memory.items_at(0, LANES))
}

//! Who runs on the observed lane, and whether it works on a request: the kernel program's words.

use std::collections::BTreeSet;
use std::fs;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};
use sidelane_signal::LaneClass;

use crate::channel::signal::Kind;
use crate::channel::{Call, Channel, Gone, Meaning, Reader, Width, Word};
use crate::request::{Requests, can_track};
use sidelane_host::cpulist::CpuSet;
use sidelane_host::service::Service;
use sidelane_host::topology::{Lanes, PairKind};
use sidelane_kernel::tracker::{Features, LaneMemory};
use sidelane_kernel::tracking::{LaneUse, ServiceTracking};

/// The name of the tag that says who runs.
pub const LANE: &str = "lane";

/// The kernel program, loaded for the observed lane; it tracks as long as this lives.
pub struct LaneTracking {
    tracking: ServiceTracking,
    /// Keeps the service's ports known.
    _requests: Option<Requests>,
    lane: u32,
}

/// The thread of the target that runs on a lane.
pub struct LaneThread {
    memory: Arc<LaneMemory>,
    lane: u32,
}

impl LaneThread {
    /// Its id, 0 while somebody else runs there.
    #[inline(always)]
    pub fn read(&self) -> u64 {
        let word = self.memory.word(self.lane);
        let is_target = word.class.load(Ordering::Relaxed) == LaneClass::Lc as u32;
        if is_target { word.pid.load(Ordering::Relaxed).into() } else { 0 }
    }
}

impl LaneTracking {
    /// Starts to track `lane`, on which the target's processes `pids` run, and their requests if that is
    /// asked for.
    pub fn start(lane: u32, target: &str, pids: &BTreeSet<u32>, requests: bool) -> Result<Self> {
        if requests {
            can_track().context("cannot observe requests")?;
        }
        let observed = CpuSet::from_iter([lane]);
        let lanes = Lanes { batch: vec![], requests: observed, needs_pin: false, kind: PairKind::Declared };
        let service = Service { pids: pids.clone(), ..Service::default() };
        let tracking =
            ServiceTracking::alone(&service, &lanes, LaneUse::default(), Features { requests, ..Features::default() })?;
        let tracked = requests.then(|| Requests::track(&tracking, target, pids)).transpose()?;
        tracking.tracker().attach()?;
        Ok(Self { tracking, _requests: tracked, lane })
    }

    fn memory(&self) -> Arc<LaneMemory> {
        self.tracking.tracker().memory()
    }

    /// Which of the target's threads runs on the lane.
    pub fn thread(&self) -> LaneThread {
        LaneThread { memory: self.memory(), lane: self.lane }
    }

    /// `lane`: the thread that runs there, whoever's it is.
    pub fn lane(&self) -> Channel {
        let memory = self.memory();
        let word = word_u32(&memory, &memory.word(self.lane).pid);
        channel(LANE, Kind::Tag, word, Some(Arc::new(name_of_thread)))
    }

    /// `request`: what the lane does for requests, how many wait, how many have finished there.
    pub fn requests(&self) -> Vec<Channel> {
        let memory = self.memory();
        let (request, service) = (memory.request(self.lane), memory.service(self.tracking.number()));
        let (queued, finished) = (word_u32(&memory, &service.queue_len), word_u32(&memory, &request.finished));
        let state = RequestState { memory: Arc::clone(&memory), lane: self.lane };
        vec![
            Channel {
                name: "request.state".to_owned(),
                kind: Kind::Tag,
                reader: Reader::Call(Box::new(state)),
                meaning: Some(Arc::new(|state| Some(STATES.get(state as usize)?.to_string()))),
                notes: Vec::new(),
            },
            channel("request.queued", Kind::Tag, queued, None),
            channel("request.finished", Kind::Counter, finished, None),
        ]
    }
}

/// What a lane may do for requests, by the tag's value.
const STATES: [&str; 3] = ["none runs", "one runs", "one runs that had to wait"];

/// Works the state out of a request word: two loads, no system call.
struct RequestState {
    memory: Arc<LaneMemory>,
    lane: u32,
}

impl Call for RequestState {
    fn read(&mut self) -> Result<u64, Gone> {
        let word = self.memory.request(self.lane);
        let runs = word.running.load(Ordering::Relaxed) != 0;
        Ok(if runs { 1 + u64::from(word.waited.load(Ordering::Relaxed) != 0) } else { 0 })
    }
}

fn channel(name: &str, kind: Kind, word: Word, meaning: Option<Meaning>) -> Channel {
    Channel { name: name.to_owned(), kind, reader: Reader::Word(word), meaning, notes: Vec::new() }
}

fn word_u32(memory: &Arc<LaneMemory>, word: &AtomicU32) -> Word {
    // SAFETY: an aligned word of the arrays, which the memory keeps mapped; the kernel shrinks no array.
    unsafe { Word::new(NonNull::from(word).cast(), Width::U32, Arc::clone(memory) as _) }
}

fn name_of_thread(tid: u64) -> Option<String> {
    if tid == 0 {
        return Some("idle".to_owned());
    }
    let comm = fs::read_to_string(format!("/proc/{tid}/comm")).ok()?;
    Some(format!("{} ({tid})", comm.trim_end()))
}

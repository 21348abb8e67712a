//! Signals `lane` and `request`: the thread on the observed lane, and its requests. They are read from words of memory
//! that the kernel program (BPF) updates.

use std::collections::BTreeSet;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};
use sidelane_formats::LaneClass;

use crate::signal::Kind;
use crate::{Channel, ChannelEnd, Meaning, Reader, SyscallReader, Width, Word};
use sidelane_host::cpulist::CpuSet;
use sidelane_host::procfs::command_name;
use sidelane_host::service::Service;
use sidelane_host::topology::Lanes;
use sidelane_requests::{Requests, can_track};
use sidelane_tracker::tracker::{LaneMemory, Purpose};
use sidelane_tracker::tracking::{LaneUse, ServiceTracking};

/// Name of the signal `lane`: a tag whose value is the thread that runs on the observed lane.
pub const LANE: &str = "lane";
/// Prefix of the names of signals about requests, such as `request.queued`.
pub const REQUEST: &str = "request.";

/// Kernel program loaded for the observed lane; it tracks until this value is dropped.
pub struct LaneTracking {
    tracking: ServiceTracking,
    /// Tracking of requests; it keeps the list of the service's ports up to date.
    _requests: Option<Requests>,
    lane: u32,
}

/// Reader of the target's thread that runs on a lane.
pub struct LaneThread {
    memory: Arc<LaneMemory>,
    lane: u32,
}

impl LaneThread {
    /// Returns the id of the target's thread on the lane; 0 while another program runs there.
    #[inline(always)]
    pub fn read_tid(&self) -> u64 {
        let word = self.memory.word(self.lane);
        let is_target = word.class.load(Ordering::Relaxed) == LaneClass::Lc as u32;
        if is_target { word.pid.load(Ordering::Relaxed).into() } else { 0 }
    }
}

impl LaneTracking {
    /// Starts to track `lane`, on which the target's processes `pids` run. If `tracks_requests`, also tracks their
    /// requests.
    pub fn start(lane: u32, target: &str, pids: &BTreeSet<u32>, tracks_requests: bool) -> Result<Self> {
        if tracks_requests {
            can_track().context("cannot observe requests")?;
        }
        let lanes = Lanes::without_batch_lanes(CpuSet::from_iter([lane]));
        let service = Service { pids: pids.clone(), ..Service::default() };
        let tracking = ServiceTracking::with_own_tracker(
            &service,
            &lanes,
            LaneUse::default(),
            Purpose::Watch { requests: tracks_requests },
        )?;
        let tracked = tracks_requests.then(|| Requests::track(&tracking, target, pids)).transpose()?;
        tracking.tracker().attach()?;
        Ok(Self { tracking, _requests: tracked, lane })
    }

    fn memory(&self) -> Arc<LaneMemory> {
        self.tracking.tracker().memory()
    }

    /// Returns a reader of the target's thread that runs on the lane.
    pub fn thread(&self) -> LaneThread {
        LaneThread { memory: self.memory(), lane: self.lane }
    }

    /// Returns the channel of the signal `lane`: the thread, of any program, that runs on the observed lane.
    pub fn lane_channel(&self) -> Channel {
        let memory = self.memory();
        let word = word_u32(&memory, &memory.word(self.lane).pid);
        channel_from_word(LANE, Kind::Tag, word, Some(Arc::new(name_of_thread)))
    }

    /// Returns the channels of the signal `request`: the state of the lane, the number of waiting requests, and the
    /// number of requests that have finished on the lane.
    pub fn request_channels(&self) -> Vec<Channel> {
        let memory = self.memory();
        let (request, service) = (memory.request(self.lane), memory.service(self.tracking.number()));
        let (queued, finished) = (word_u32(&memory, &service.queue_len), word_u32(&memory, &request.finished));
        let state = RequestState { memory: Arc::clone(&memory), lane: self.lane };
        vec![
            Channel {
                name: format!("{REQUEST}state"),
                kind: Kind::Tag,
                reader: Reader::Call(Box::new(state)),
                meaning: Some(Arc::new(|state| Some(STATES.get(state as usize)?.to_string()))),
                notes: Vec::new(),
            },
            channel_from_word(&format!("{REQUEST}queued"), Kind::Tag, queued, None),
            channel_from_word(&format!("{REQUEST}finished"), Kind::Counter, finished, None),
        ]
    }
}

/// Names of the lane's states, by the value of the tag `request.state`.
const STATES: [&str; 3] = ["none runs", "one runs", "a request runs that had to wait"];

/// Reader of the tag `request.state`. A read takes two loads from the kernel program's memory, and no system call.
struct RequestState {
    memory: Arc<LaneMemory>,
    lane: u32,
}

impl SyscallReader for RequestState {
    fn read(&mut self) -> Result<u64, ChannelEnd> {
        let word = self.memory.request(self.lane);
        let runs = word.running.load(Ordering::Relaxed) != 0;
        Ok(if runs { 1 + u64::from(word.waited.load(Ordering::Relaxed) != 0) } else { 0 })
    }
}

fn channel_from_word(name: &str, kind: Kind, word: Word, meaning: Option<Meaning>) -> Channel {
    Channel { name: name.to_owned(), kind, reader: Reader::Word(word), meaning, notes: Vec::new() }
}

fn word_u32(memory: &Arc<LaneMemory>, word: &AtomicU32) -> Word {
    // SAFETY: the word is aligned and in the arrays, which the memory keeps mapped; BPF arrays never shrink.
    unsafe { Word::new(NonNull::from(word).cast(), Width::U32, Arc::clone(memory) as _) }
}

fn name_of_thread(tid: u64) -> Option<String> {
    if tid == 0 {
        return Some("idle".to_owned());
    }
    Some(format!("{} ({tid})", command_name(u32::try_from(tid).ok()?)?))
}

//! The kernel's side of Sidelane: loads `lanes.bpf.c`, tells it who is who, reads its books.
//!
//! The lane words, hold words and statistics are arrays that the kernel program and this
//! process share as plain memory ([`LaneMemory`]); reading them costs no system call. The
//! programs are attached through links that this process owns and pins nowhere, so the
//! kernel detaches them whenever and however the process ends.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use libbpf_rs::libbpf_sys;
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, MapType, Object, ObjectBuilder, ProgramType};
use sidelane_signal::{GateWord, HoldWord, LaneClass, LaneTerms, LaneWord, RequestWord, ServiceWord};
use thiserror::Error;

use super::books::{Books, LaneStats, TraceEvent};
use super::cage::Census;
use super::classes::ProcessClasses;
use super::cpulist::CpuSet;
use super::gate::GateBooks;
use super::gate::promises::Promises;
use super::mapped::MappedArray;
use super::summons::SummonsRing;
use super::topology::Lanes;
use super::turns::LaneTurns;
use crate::request::emitted_words::EmittedWords;
use crate::request::{self, EventPair, LaneCounters, NoCounters};

static PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/lanes.bpf.o"));
/// The same with a scheduler for batch in it.
static PROGRAM_WITH_SCHEDULER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/lanes_scx.bpf.o"));

const MAX_PARTNERS: usize = 7;
const ROLE_REQUEST: u32 = 1;
const ROLE_BATCH: u32 = 2;
/// `enum sidelane_requests_from` of `bpf/lanes.h`.
const REQUESTS_EMITTED: u32 = 2;
/// The smallest ring the kernel makes: one page. It only ever holds a few summons.
const RING_BYTES: u32 = 4096;
const ONE_ENTRY_A_LANE: [&str; 9] = [
    "lane_words",
    "hold_words",
    "request_words",
    "lane_terms",
    "gate_words",
    "lane_stats",
    "lane_roles",
    "summons_rings",
    "ext_refused",
];
/// Turns of the lanes.
const TURNS: &str = "lane_turns";
/// `struct sidelane_trace_event` slots, as in `bpf/lanes.h`.
const TRACE_EVENTS: usize = 16_384;

/// What can go wrong between this process and the kernel program.
#[derive(Debug, Error)]
pub enum TrackerError {
    /// The kernel has no type information, so the program cannot be fitted to it.
    #[error(
        "this kernel exposes no BTF (/sys/kernel/btf/vmlinux is missing): the lane tracker cannot be loaded; \
         boot a kernel built with CONFIG_DEBUG_INFO_BTF=y (stock Debian, Ubuntu, Fedora and RHEL kernels are)"
    )]
    NoBtf,
    /// The kernel refuses BPF to this process.
    #[error(
        "the kernel refuses to load the lane tracker: run as root, or give the process CAP_BPF, \
         CAP_PERFMON and CAP_SYS_NICE; in a container, allow the bpf system call"
    )]
    Refused(#[source] libbpf_rs::Error),
    /// Any other step failed.
    #[error("lane tracker: cannot {step}")]
    Bpf {
        /// What was being done.
        step: &'static str,
        /// What libbpf said.
        source: libbpf_rs::Error,
    },
    /// A shared array could not be mapped.
    #[error("lane tracker: cannot map the array {name}")]
    Map {
        /// The BPF map's name.
        name: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// A cgroup whose processes, present and future, are the service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceCgroup {
    /// The cgroup's id: the inode number of its directory.
    pub id: u64,
    /// Its depth below the hierarchy's root.
    pub level: u32,
    /// 0 for cgroup v2, else one more than the place in [`ServiceCgroup::V1_CONTROLLERS`].
    pub v1: u32,
}

impl ServiceCgroup {
    /// The v1 hierarchies in which the kernel program can look a task up, in its order.
    pub const V1_CONTROLLERS: [&str; 5] = ["cpuset", "cpu", "freezer", "memory", "pids"];
}

/// What a tracker does besides tracking lanes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extras {
    /// Track the service's requests too, for [`crate::request::Requests`].
    pub requests: bool,
    /// The service's requests are emitted: write down who ran on which lane when.
    pub turns: bool,
    /// Count these for each request, where they can be counted.
    pub counters: Option<EventPair>,
    /// Batch may look for itself.
    pub gated: bool,
    /// Have a scheduler for batch, which is off at first; see [`super::gate::sched_ext`]. Only where there
    /// is sched_ext.
    pub scheduler: bool,
}

/// `struct sidelane_settings` of `bpf/lanes.h`.
fn settings(service: ServiceCgroup, extras: Extras) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&service.id.to_ne_bytes());
    bytes[8..12].copy_from_slice(&service.level.to_ne_bytes());
    bytes[12..16].copy_from_slice(&service.v1.to_ne_bytes());
    let requests = if extras.turns { REQUESTS_EMITTED } else { u32::from(extras.requests) };
    bytes[16..20].copy_from_slice(&requests.to_ne_bytes());
    bytes[20..24].copy_from_slice(&u32::from(extras.gated).to_ne_bytes());
    bytes[24..28].copy_from_slice(&u32::from(extras.counters.is_some()).to_ne_bytes());
    bytes
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
    /// Who writes the request words, if the kernel program does not.
    emitted: OnceLock<EmittedWords>,
    /// By CPU: the request lanes of a batch lane, none for any other.
    partners: Vec<Vec<u32>>,
}

impl LaneMemory {
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
    pub(super) fn turns(&self, cpu: u32) -> &LaneTurns {
        self.turns.get(cpu as usize)
    }

    /// The request words are the service's own word from now on.
    pub(super) fn hear_from(&self, words: EmittedWords) {
        if self.emitted.set(words).is_ok() {
            self.service().tracked.store(1, Ordering::Release);
        }
    }

    /// Whether somebody has to [`LaneMemory::hear`] for the request words to be true.
    pub(super) fn hears(&self) -> bool {
        self.emitted.get().is_some()
    }

    /// Brings the request words up to date, where that is not the kernel program's business.
    pub(super) fn hear(&self) {
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
        Books::read(self.words.iter(), self.holds.iter(), gates, stats, |cpu| &self.partners[cpu])
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

/// The loaded kernel program.
pub struct Tracker {
    pub(super) object: Object,
    links: Vec<Link>,
    rings: Vec<(u32, MapHandle)>,
    memory: Arc<LaneMemory>,
    classes: Arc<ProcessClasses>,
    counters: Option<Result<LaneCounters, NoCounters>>,
}

impl Tracker {
    /// Loads the program for these lanes; nothing is tracked before [`Tracker::attach`].
    pub fn load(lanes: &Lanes, service: ServiceCgroup) -> Result<Self, TrackerError> {
        Self::load_for(lanes, service, Extras::default())
    }

    /// As [`Tracker::load`], with more than lanes.
    pub fn load_for(lanes: &Lanes, service: ServiceCgroup, extras: Extras) -> Result<Self, TrackerError> {
        if !std::path::Path::new("/sys/kernel/btf/vmlinux").exists() {
            return Err(TrackerError::NoBtf);
        }
        silence_libbpf();
        let cpu_count = lane_count(lanes);
        let classes_len = ProcessClasses::words();
        let counters = extras.counters.map(|pair| LaneCounters::open(pair, &lanes.requests));
        let extras = Extras { counters: extras.counters.filter(|_| matches!(counters, Some(Ok(_)))), ..extras };
        let object = open_and_load(cpu_count, classes_len, service, extras, lanes)?;
        let classes = Arc::new(ProcessClasses::new(map_array(&object, "process_classes", classes_len)?));
        let memory = Arc::new(LaneMemory {
            words: map_array(&object, "lane_words", cpu_count)?,
            holds: map_array(&object, "hold_words", cpu_count)?,
            requests: map_array(&object, "request_words", cpu_count)?,
            service: map_array(&object, "service_words", 1)?,
            terms: map_array(&object, "lane_terms", cpu_count)?,
            gates: map_array(&object, "gate_words", cpu_count)?,
            gated: extras.gated,
            promises: Promises::new(map_array(&object, "gated_threads", Promises::words(extras.gated))?),
            stats: map_array(&object, "lane_stats", cpu_count)?,
            trace: map_array(&object, "trace_events", TRACE_EVENTS)?,
            turns: map_array(&object, TURNS, if extras.turns { cpu_count } else { 1 })?,
            emitted: OnceLock::new(),
            partners: partners(lanes, cpu_count),
        });
        let mut tracker = Self { object, links: Vec::new(), rings: Vec::new(), memory, classes, counters };
        tracker.tell_roles(lanes)?;
        if let Some(Ok(counters)) = &tracker.counters {
            counters.hand_to(&tracker).map_err(bpf("hand the lanes' counters to the kernel"))?;
        }
        for lane in &lanes.batch {
            tracker.make_ring(lane.cpu)?;
        }
        Ok(tracker)
    }

    /// Starts tracking.
    pub fn attach(&mut self) -> Result<(), TrackerError> {
        let attached = |program: &libbpf_rs::ProgramMut<'_>| program.prog_type() == ProgramType::Tracing;
        for program in self.object.progs_mut().filter(|program| program.autoload() && attached(program)) {
            self.links.push(program.attach().map_err(bpf("attach to the scheduler's tracepoints"))?);
        }
        Ok(())
    }

    /// Stops tracking; the books stay readable.
    pub fn detach(&mut self) {
        self.links.clear();
    }

    /// The memory shared with the program.
    pub fn memory(&self) -> Arc<LaneMemory> {
        Arc::clone(&self.memory)
    }

    /// Whether requests are counted, or why not; `None` if they were not to be.
    pub fn counts(&self) -> Option<Result<(), &NoCounters>> {
        self.counters.as_ref().map(|counters| counters.as_ref().map(|_| ()))
    }

    /// How many CPUs the arrays have an entry for.
    pub(super) fn cpu_count(&self) -> usize {
        self.memory.partners.len()
    }

    /// Declares the process `tgid`, and all its future children, to be of `class`.
    pub fn set_class(&self, tgid: u32, class: LaneClass) {
        self.classes.set(tgid, class);
    }

    /// The processes of `class` that are alive.
    pub fn processes(&self, class: LaneClass) -> Vec<u32> {
        self.classes.all(class)
    }

    /// A look at the batch command's processes that any thread may take, at any time.
    pub fn census(&self) -> Census {
        let classes = Arc::clone(&self.classes);
        Box::new(move || classes.all(LaneClass::Batch))
    }

    /// The ring on which the holder of the batch lane `cpu` is summoned.
    pub fn ring(&self, cpu: u32) -> io::Result<SummonsRing> {
        let ring = self.rings.iter().find(|(lane, _)| *lane == cpu);
        let (_, map) = ring.ok_or_else(|| io::Error::other(format!("CPU {cpu} is not a batch lane")))?;
        SummonsRing::new(map.as_fd().try_clone_to_owned()?)
    }

    /// A descriptor of one of the arrays, for another process.
    pub fn share(&self, array: &str) -> io::Result<OwnedFd> {
        self.map(array).as_fd().try_clone_to_owned()
    }

    /// Starts (from empty) or stops recording the lanes' class changes for a timeline.
    pub fn trace(&self, on: bool) -> Result<(), TrackerError> {
        let key = 0_u32.to_ne_bytes();
        let bss = self.map(".bss");
        let step = "switch the timeline's recording";
        let mut value = bss.lookup(&key, MapFlags::ANY).map_err(bpf(step))?.unwrap_or_default();
        // The program's variables in the order of the source: trace_count, trace_on.
        if on {
            value[..8].fill(0);
        }
        value[8..12].copy_from_slice(&u32::from(on).to_ne_bytes());
        bss.update(&key, &value, MapFlags::ANY).map_err(bpf(step))
    }

    pub(crate) fn map(&self, name: &str) -> libbpf_rs::Map<'_> {
        find_map(&self.object, name)
    }

    fn tell_roles(&self, lanes: &Lanes) -> Result<(), TrackerError> {
        for cpu in lanes.requests.iter() {
            let partners = lanes.batch.iter().filter(|lane| lane.requests.contains(cpu));
            self.tell_role(cpu, ROLE_REQUEST, partners.map(|lane| lane.cpu).collect())?;
        }
        for lane in &lanes.batch {
            self.tell_role(lane.cpu, ROLE_BATCH, lane.requests.iter().collect())?;
        }
        Ok(())
    }

    fn tell_role(&self, cpu: u32, role: u32, mut partners: Vec<u32>) -> Result<(), TrackerError> {
        partners.truncate(MAX_PARTNERS);
        let mut fields = vec![role, partners.len() as u32];
        partners.resize(MAX_PARTNERS, 0);
        fields.extend(partners);
        fields.push(0);
        let bytes: Vec<u8> = fields.iter().flat_map(|field| field.to_ne_bytes()).collect();
        self.map("lane_roles")
            .update(&cpu.to_ne_bytes(), &bytes, MapFlags::ANY)
            .map_err(bpf("tell the kernel the lanes' roles"))
    }

    fn make_ring(&mut self, cpu: u32) -> Result<(), TrackerError> {
        let opts = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as _,
            ..Default::default()
        };
        let ring = MapHandle::create(MapType::RingBuf, Some("sidelane_ring"), 0, 0, RING_BYTES, &opts)
            .map_err(bpf("make a summons ring"))?;
        self.map("summons_rings")
            .update(&cpu.to_ne_bytes(), &ring.as_fd().as_raw_fd().to_ne_bytes(), MapFlags::ANY)
            .map_err(bpf("install a summons ring"))?;
        self.rings.push((cpu, ring));
        Ok(())
    }
}

fn partners(lanes: &Lanes, cpu_count: usize) -> Vec<Vec<u32>> {
    let mut partners = vec![Vec::new(); cpu_count];
    for lane in &lanes.batch {
        partners[lane.cpu as usize] = lane.requests.iter().collect();
    }
    partners
}

/// One array entry for each CPU that the kernel may ever number.
fn lane_count(lanes: &Lanes) -> usize {
    let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let possible: CpuSet = possible.trim().parse().unwrap_or_default();
    let batch = lanes.batch.iter().map(|lane| lane.cpu);
    let highest = possible.iter().chain(lanes.requests.iter()).chain(batch).max();
    highest.map_or(1, |cpu| cpu as usize + 1)
}

fn open_and_load(
    cpu_count: usize,
    classes_len: usize,
    service: ServiceCgroup,
    extras: Extras,
    lanes: &Lanes,
) -> Result<Object, TrackerError> {
    let program = if extras.scheduler { PROGRAM_WITH_SCHEDULER } else { PROGRAM };
    let mut open = ObjectBuilder::default().open_memory(program).map_err(bpf("read the embedded program"))?;
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if ONE_ENTRY_A_LANE.contains(&name.as_str()) {
            map.set_max_entries(cpu_count as u32).map_err(bpf("size the lane arrays"))?;
        }
        if name == "gated_threads" {
            map.set_max_entries(Promises::words(extras.gated) as u32).map_err(bpf("size the table of threads"))?;
        }
        if name == TURNS && extras.turns {
            map.set_max_entries(cpu_count as u32).map_err(bpf("size the lanes' turns"))?;
        }
        if name == "process_classes" {
            map.set_max_entries(classes_len as u32).map_err(bpf("size the table of processes"))?;
        }
        if name.ends_with(".rodata") {
            map.set_initial_value(&settings(service, extras)).map_err(bpf("set the service's cgroup"))?;
        }
        request::kernel::prepare_map(&mut map, extras.requests, cpu_count).map_err(bpf("size the request arrays"))?;
        request::counters::prepare_map(&mut map, extras.counters.is_some())
            .map_err(bpf("choose the counters' maps"))?;
    }
    request::kernel::choose_programs(&mut open, extras.requests);
    // A service with one place to run is seen before it is placed, others after.
    let woken = if lanes.requests.len() == 1 { "lane_wakeup" } else { "lane_waking" };
    let exec = if extras.gated { "" } else { "lane_exec" };
    for mut program in open.progs_mut().filter(|program| program.name() == woken || program.name() == exec) {
        program.set_autoload(false);
    }
    open.load().map_err(|source| match source.kind() {
        libbpf_rs::ErrorKind::PermissionDenied => TrackerError::Refused(source),
        _ => TrackerError::Bpf { step: "load it into the kernel", source },
    })
}

fn find_map<'object>(object: &'object Object, name: &str) -> libbpf_rs::Map<'object> {
    let matches = |map: &libbpf_rs::Map<'_>| {
        let found = map.name().to_string_lossy();
        // The compiler's own sections carry the object's name in front: "lanes_bp.bss".
        found == name || (name.starts_with('.') && found.ends_with(name))
    };
    object.maps().find(matches).expect("the embedded program has this map")
}

pub(super) fn map_array<T>(object: &Object, name: &'static str, len: usize) -> Result<MappedArray<T>, TrackerError> {
    let map = find_map(object, name);
    MappedArray::new(map.as_fd(), len).map_err(|source| TrackerError::Map { name, source })
}

pub(super) fn bpf(step: &'static str) -> impl Fn(libbpf_rs::Error) -> TrackerError {
    move |source| TrackerError::Bpf { step, source }
}

fn silence_libbpf() {
    // libbpf prints its debugging notes to stderr; our errors say what matters.
    libbpf_rs::set_print(None);
}

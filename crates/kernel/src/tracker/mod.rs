//! The kernel's side of Sidelane: loads `lanes.bpf.c`, tells it who is who, reads its books.
//!
//! The lane words, hold words and statistics are arrays that the kernel program and this
//! process share as plain memory ([`LaneMemory`]); reading them costs no system call. The
//! programs are attached through links that this process owns and pins nowhere, so the
//! kernel detaches them whenever and however the process ends.

mod load;
mod memory;

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use libbpf_rs::libbpf_sys;
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, MapType, Object, ProgramType};
use sidelane_host::service::ServiceCgroup;
use sidelane_signal::LaneClass;
use thiserror::Error;

use crate::classes::ProcessClasses;
use crate::counters::{EventPair, LaneCounters, NoCounters};
use crate::stolen::StolenFrom;
use crate::summons::SummonsRing;
pub use load::map_array;
use load::{find_map, lane_count, open_and_load, silence_libbpf};
pub use memory::{LaneMemory, RequestWriter};
use sidelane_host::topology::Lanes;

const MAX_PARTNERS: usize = 7;
const ROLE_REQUEST: u32 = 1;
const ROLE_BATCH: u32 = 2;
/// The smallest ring the kernel makes: one page. It only ever holds a few summons.
const RING_BYTES: u32 = 4096;

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

/// What a tracker does besides tracking lanes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extras {
    /// Track the service's requests too, for [`sidelane::request::Requests`].
    pub requests: bool,
    /// The service's requests are emitted: write down who ran on which lane when.
    pub turns: bool,
    /// Count these for each request, where they can be counted.
    pub counters: Option<EventPair>,
    /// Batch may look for itself.
    pub gated: bool,
    /// A lane that is lent stays lent when a request starts that had to wait.
    pub lends_to_waited: bool,
    /// Have a scheduler for batch, which is off at first; see [`super::gate::sched_ext`]. Only where there
    /// is sched_ext.
    pub scheduler: bool,
    /// A thread of this process plays the hypervisor, and says what it takes: to see how true the books are.
    pub thief: bool,
}

/// Says which processes batch has at the moment.
pub type Census = Box<dyn Fn() -> Vec<u32> + Send + Sync>;

/// The loaded kernel program.
pub struct Tracker {
    pub object: Object,
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
        let stolen_from = if extras.thief { StolenFrom::Told } else { StolenFrom::find() };
        let object = open_and_load(cpu_count, classes_len, service, extras, stolen_from, lanes)?;
        let classes = Arc::new(ProcessClasses::new(map_array(&object, "process_classes", classes_len)?));
        let memory = Arc::new(LaneMemory::map(&object, lanes, cpu_count, extras, stolen_from)?);
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
    pub fn cpu_count(&self) -> usize {
        self.memory.cpu_count()
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

    pub fn map(&self, name: &str) -> libbpf_rs::Map<'_> {
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

pub fn bpf(step: &'static str) -> impl Fn(libbpf_rs::Error) -> TrackerError {
    move |source| TrackerError::Bpf { step, source }
}

//! The kernel's side of Sidelane: loads `lanes.bpf.c`, tells it who is who, reads its books.
//!
//! The lane words, hold words and statistics are arrays that the kernel program and this
//! process share as plain memory ([`LaneMemory`]); reading them costs no system call. The
//! programs are attached through links that this process owns and pins nowhere, so the
//! kernel detaches them whenever and however the process ends.

pub mod error;
pub mod extras;
mod load;
mod memory;
mod parts;

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use libbpf_rs::libbpf_sys;
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, MapType, Object, ProgramType};
use sidelane_host::service::ServiceCgroup;
use sidelane_signal::LaneClass;

use crate::classes::ProcessClasses;
use crate::counters::{LaneCounters, NoCounters};
use crate::maps::{find_map, map_array};
use crate::stolen::StolenFrom;
use crate::summons::SummonsRing;
pub use error::TrackerError;
use error::bpf;
pub use extras::Extras;
use load::{lane_count, open_and_load, silence_libbpf};
pub use memory::{LaneMemory, RequestWriter};
use sidelane_host::topology::Lanes;

const MAX_PARTNERS: usize = 7;
const ROLE_REQUEST: u32 = 1;
const ROLE_BATCH: u32 = 2;
/// The smallest ring the kernel makes: one page. It only ever holds a few summons.
const RING_BYTES: u32 = 4096;

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
            counters.hand_to(&tracker.object).map_err(bpf("hand the lanes' counters to the kernel"))?;
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

    /// The class that the process `tgid` was given or inherited; [`LaneClass::Idle`] if it has none.
    pub fn class_of(&self, tgid: u32) -> LaneClass {
        self.classes.get(tgid)
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

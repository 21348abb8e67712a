//! The tracker: `lanes.bpf.c`, loaded once for the whole machine.
//!
//! The lane words, hold words and statistics are arrays that the kernel program and this process share as plain memory
//! ([`LaneMemory`]); reading them costs no system call. The programs are attached through links that this process owns
//! and pins nowhere. So the kernel detaches them at any end of the process.
//!
//! Services and batch jobs are added and removed while it runs: see [`crate::tracking`].

pub mod error;
mod load;
mod memory;
pub(crate) mod parts;
mod purpose;
mod roles;
mod self_check;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use libbpf_rs::libbpf_sys;
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, MapType, Object, ProgramType};
use sidelane_host::cgroup::Group;
use sidelane_host::topology::Lanes;

pub(crate) use load::interrupts_are_known;

use crate::identities::{Identities, Identity, Number};
use crate::kernel_types::{GroupKey, LaneRole, Plain};
use crate::stolen::StealTimeSource;
use crate::summons::SummonsRing;
pub use error::TrackerError;
use error::bpf_error_in_step;
pub(crate) use load::map_array;
use load::{PROCESSES, REQUEST_TURN, open_and_load, possible_cpu_count, silence_libbpf};
pub use memory::{LaneMemory, RequestWriter};
pub use purpose::{Extension, LaneLending, Purpose};
use roles::kernel_roles;

/// Size of the smallest ring that the kernel makes: one page. A ring of summonses never holds more than a few of them.
const RING_BYTES: u32 = 4096;

/// Loaded kernel program.
pub struct Tracker {
    pub(crate) object: RefCell<Object>,
    maps: BTreeMap<String, MapHandle>,
    links: RefCell<Vec<Link>>,
    /// Link of the program at context switches, if only requests are watched.
    turns: RefCell<Option<Link>>,
    rings: RefCell<Vec<(u32, MapHandle)>>,
    memory: Arc<LaneMemory>,
    identities: Arc<Identities>,
    purpose: Purpose,
    services: Numbers,
    jobs: Numbers,
}

impl Tracker {
    /// Loads the kernel program; nothing is tracked before [`Tracker::attach`]. `track_groups`: whether a cgroup can be
    /// a service or a batch job.
    pub fn load(purpose: Purpose, track_groups: bool) -> Result<Self, TrackerError> {
        if !std::path::Path::new("/sys/kernel/btf/vmlinux").exists() {
            return Err(TrackerError::NoBtf);
        }
        silence_libbpf();
        let cpu_count = possible_cpu_count();
        let stolen_from = StealTimeSource::find();
        let object = open_and_load(cpu_count, &purpose, track_groups, stolen_from)?;
        self_check::check_pid_and_cpu_numbers(&object)?;
        let maps = load::map_handles(&object)?;
        let identities = map_array(&maps, PROCESSES, Identities::word_count())?;
        let memory = LaneMemory::map(&maps, cpu_count, &purpose, stolen_from)?;
        Ok(Self {
            object: RefCell::new(object),
            maps,
            links: RefCell::default(),
            turns: RefCell::default(),
            rings: RefCell::default(),
            memory: Arc::new(memory),
            identities: Arc::new(Identities::new(identities)),
            purpose,
            services: Numbers::default(),
            jobs: Numbers::default(),
        })
    }

    /// Starts tracking, unless it runs already.
    pub fn attach(&self) -> Result<(), TrackerError> {
        let mut links = self.links.borrow_mut();
        if !links.is_empty() {
            return Ok(());
        }
        let attached = |program: &libbpf_rs::ProgramMut<'_>| program.prog_type() == ProgramType::Tracing;
        let object = self.object.borrow_mut();
        let later = |program: &libbpf_rs::ProgramMut<'_>| program.name() == REQUEST_TURN;
        for program in object.progs_mut().filter(|program| program.autoload() && attached(program) && !later(program)) {
            links.push(program.attach().map_err(bpf_error_in_step("attach to the scheduler's tracepoints"))?);
        }
        Ok(())
    }

    /// Attaches the program at context switches as soon as requests need it, if only requests and threads are watched
    /// ([`Purpose::Threads`]). This function checks the need itself. It has to be called at intervals, and mostly costs
    /// one load from memory.
    pub fn attach_switch_program(&self) -> Result<(), TrackerError> {
        let mut turns = self.turns.borrow_mut();
        if turns.is_some() || self.memory.variables().switches_tell.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        let object = self.object.borrow_mut();
        let mut loaded = object.progs_mut().filter(|program| program.name() == REQUEST_TURN && program.autoload());
        let attached = loaded.next().map(|program| program.attach()).transpose();
        *turns = attached.map_err(bpf_error_in_step("attach to the scheduler's tracepoints"))?;
        Ok(())
    }

    /// Stops tracking; the accounting stays readable.
    pub fn detach(&self) {
        self.turns.borrow_mut().take();
        self.links.borrow_mut().clear();
    }

    /// Returns the memory shared with the kernel program.
    pub fn memory(&self) -> Arc<LaneMemory> {
        Arc::clone(&self.memory)
    }

    /// Returns the table of the processes' identities.
    pub fn identities(&self) -> Arc<Identities> {
        Arc::clone(&self.identities)
    }

    /// Returns the purpose for which the kernel program was loaded.
    pub fn purpose(&self) -> &Purpose {
        &self.purpose
    }

    pub(crate) fn new_service(&self) -> Result<Number, TrackerError> {
        self.services.take().ok_or(TrackerError::TooMany)
    }

    /// Frees the number of a service that is no longer tracked. A service that emitted its requests keeps its number: a
    /// reader may still refresh its words.
    pub(crate) fn free_service(&self, number: Number) {
        if !self.memory.had_request_writer(number) {
            self.services.free(number);
        }
    }

    pub(crate) fn new_job(&self) -> Result<Number, TrackerError> {
        self.jobs.take().ok_or(TrackerError::TooMany)
    }

    pub(crate) fn free_job(&self, number: Number) {
        self.jobs.free(number);
    }

    /// Gives `identity` to each process that is in `group` now or joins `group`, or a cgroup below, later. The process
    /// has the identity until it leaves.
    pub(crate) fn assign_group(&self, group: &Group, identity: Identity) -> Result<(), TrackerError> {
        let hierarchy = hierarchy_key(identity).to_ne_bytes();
        let value = u32::from(identity.to_byte()).to_ne_bytes();
        self.put_map_entry(
            "group_hierarchies",
            &hierarchy,
            &group.hierarchy.to_ne_bytes(),
            "say where a cgroup is from",
        )?;
        self.put_map_entry("named_groups", group_key(group).bytes(), &value, "name a cgroup")?;
        self.scan_group(group, identity);
        Ok(())
    }

    /// Gives `identity` to the processes of a cgroup that had joined it before the kernel program noticed joins.
    pub(crate) fn scan_group(&self, group: &Group, identity: Identity) {
        let members = group.processes();
        members.iter().for_each(|pid| self.identities.assign_by_group(*pid, identity));
        // A process that left the cgroup before it got the identity would keep it, so the cgroup is read again.
        let still: Vec<u32> = group.processes();
        members.iter().filter(|pid| !still.contains(pid)).for_each(|pid| self.identities.remove(*pid, identity));
    }

    pub(crate) fn forget_group(&self, group: &Group) {
        // If the map had no room for the cgroup, there is no entry to delete; the error changes nothing.
        let _ = self.map_handle("named_groups").delete(group_key(group).bytes());
    }

    /// Lends these lanes beside the service `number`. A tracker that lends no lanes keeps their ledgers.
    ///
    /// # Panics
    /// When there is a lane to lend, and the tracker tracks no lanes.
    pub(crate) fn lend(
        &self,
        lanes: &Lanes,
        number: Number,
        lend_to_waited_requests: bool,
    ) -> Result<(), TrackerError> {
        assert!(lanes.batch.is_empty() || self.purpose.has_lanes(), "this tracker tracks no lanes");
        let roles = kernel_roles(lanes, number, lend_to_waited_requests)?;
        self.memory.begin_ledgers(lanes);
        for (cpu, role) in roles {
            self.put_map_entry("lane_roles", &cpu.to_ne_bytes(), role.bytes(), "tell the kernel the lanes' roles")?;
        }
        for lane in &lanes.batch {
            self.make_summons_ring(lane.cpu)?;
        }
        self.memory.assign_lanes(lanes, number);
        Ok(())
    }

    /// Removes the roles of these lanes.
    pub(crate) fn withdraw_lanes(&self, lanes: &Lanes) {
        for cpu in lanes.request_lanes.iter().chain(lanes.batch.iter().map(|lane| lane.cpu)) {
            let nothing = LaneRole::default();
            let _ = self.put_map_entry("lane_roles", &cpu.to_ne_bytes(), nothing.bytes(), "take a lane's role back");
        }
        self.rings.borrow_mut().retain(|(cpu, _)| !lanes.batch.iter().any(|lane| lane.cpu == *cpu));
        self.memory.unassign_lanes(lanes);
    }

    /// Returns the ring on which the holder of the batch lane `cpu` is summoned.
    pub fn summons_ring(&self, cpu: u32) -> io::Result<SummonsRing> {
        let rings = self.rings.borrow();
        let ring = rings.iter().find(|(lane, _)| *lane == cpu);
        let (_, map) = ring.ok_or_else(|| io::Error::other(format!("CPU {cpu} is not a batch lane")))?;
        SummonsRing::new(map.as_fd().try_clone_to_owned()?)
    }

    /// Returns the ring to which the kernel program writes when a thread of this process is stopped, traced or frozen.
    /// Another process sleeps on it, as a [`SummonsRing`]. The ring stays silent if no lanes are lent.
    pub fn halt_events(&self) -> io::Result<OwnedFd> {
        self.share_array("halt_events")
    }

    /// Returns the ring of alarms: the kernel program writes to it when batch does not leave a lane. It has one reader
    /// at a time.
    pub fn alarm_ring(&self) -> io::Result<SummonsRing> {
        SummonsRing::new(self.map_handle("lane_alarms").as_fd().try_clone_to_owned()?)
    }

    /// Returns a descriptor of the array `array`, for another process.
    pub fn share_array(&self, array: &str) -> io::Result<OwnedFd> {
        self.map_handle(array).as_fd().try_clone_to_owned()
    }

    /// Returns how often a kernel program was left out because it already ran on that CPU when an interrupt came.
    pub fn missed_program_runs(&self) -> Result<u64, TrackerError> {
        let object = self.object.borrow();
        let loaded = object.progs().filter(|program| program.as_fd().as_raw_fd() >= 0);
        loaded.map(|program| recursion_misses(program.as_fd().as_raw_fd())).sum()
    }

    /// Returns the map `name`.
    ///
    /// # Panics
    /// When the embedded program has no map of this name, or the map was left out.
    pub(crate) fn map_handle(&self, name: &str) -> &MapHandle {
        self.maps.get(name).unwrap_or_else(|| panic!("the embedded program has no map {name}"))
    }

    pub(crate) fn maps(&self) -> &BTreeMap<String, MapHandle> {
        &self.maps
    }

    fn put_map_entry(&self, map: &str, key: &[u8], value: &[u8], step: &'static str) -> Result<(), TrackerError> {
        self.map_handle(map).update(key, value, MapFlags::ANY).map_err(bpf_error_in_step(step))
    }

    fn make_summons_ring(&self, cpu: u32) -> Result<(), TrackerError> {
        let ring = new_ring(RING_BYTES).map_err(bpf_error_in_step("make a summons ring"))?;
        let fd = ring.as_fd().as_raw_fd().to_ne_bytes();
        self.put_map_entry("summons_rings", &cpu.to_ne_bytes(), &fd, "install a summons ring")?;
        self.rings.borrow_mut().push((cpu, ring));
        Ok(())
    }
}

/// Numbers of services or jobs that are taken. A free number is given again as late as possible, because connections of
/// its last owner may last for a while.
#[derive(Default)]
struct Numbers {
    taken: Cell<u64>,
    last: Cell<u32>,
}

impl Numbers {
    fn take(&self) -> Option<Number> {
        let (taken, last) = (self.taken.get(), self.last.get());
        let free = |number: &Number| taken >> number.get() & 1 == 0;
        let after = Number::all().filter(|number| number.get() > last);
        let number = after.chain(Number::all()).find(free)?;
        self.taken.set(taken | 1 << number.get());
        self.last.set(number.get());
        Some(number)
    }

    fn free(&self, number: Number) {
        self.taken.set(self.taken.get() & !(1 << number.get()));
    }
}

fn recursion_misses(program_fd: i32) -> Result<u64, TrackerError> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut len = size_of_val(&info) as u32;
    // SAFETY: `info` is as long as `len` says, and asks for no array to be filled.
    let error = unsafe { libbpf_sys::bpf_prog_get_info_by_fd(program_fd, &mut info, &mut len) };
    match error {
        0 => Ok(info.recursion_misses),
        _ => Err(bpf_error_in_step("read how often the kernel program was skipped")(
            libbpf_rs::Error::from_raw_os_error(-error),
        )),
    }
}

/// Makes a ring buffer of the kernel of `bytes` bytes, a power of two.
pub(crate) fn new_ring(bytes: u32) -> libbpf_rs::Result<MapHandle> {
    let opts =
        libbpf_sys::bpf_map_create_opts { sz: size_of::<libbpf_sys::bpf_map_create_opts>() as _, ..Default::default() };
    MapHandle::create(MapType::RingBuf, Some("sidelane_ring"), 0, 0, bytes, &opts)
}

fn group_key(group: &Group) -> GroupKey {
    GroupKey { id: group.id, hierarchy: group.hierarchy, reserved: 0 }
}

/// Returns the index of an identity in the map `group_hierarchies`.
fn hierarchy_key(identity: Identity) -> u32 {
    match identity {
        Identity::Service(number) => number.get() << 1,
        Identity::Batch(number) => number.get() << 1 | 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_numbers_are_unique_and_reused_as_late_as_possible() {
        let numbers = Numbers::default();
        let first = numbers.take().unwrap();
        numbers.free(first);
        let others: Vec<Number> = (1..63).map(|_| numbers.take().unwrap()).collect();
        assert!(!others.contains(&first));
        assert_eq!(numbers.take(), Some(first));
        assert_eq!(numbers.take(), None);
    }
}

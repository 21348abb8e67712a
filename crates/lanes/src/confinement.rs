//! The confinement of batch: keeps batch on its lanes, evicts it from a lane, and ends a batch command.
//!
//! The best mechanism of the machine is used. A cgroup v2 leaf freezes and kills, and confines if the cpuset controller
//! is
//! delegated to it. On other machines v1 cpuset and freezer leaves do the same. Without either, batch is confined by
//! affinity,
//! which is set again when batch changes it.
//!
//! Batch evicted from one of several lanes moves to the others. Batch evicted from the last lane is frozen. A thawed
//! program
//! sees what it would see after SIGSTOP and SIGCONT: a few waiting system calls (epoll_wait, sigtimedwait; see
//! signal(7))
//! return EINTR.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use sidelane_host::cgroup::{Hierarchy, Leaf, processes, threads_in};
use sidelane_host::cpulist::CpuSet;
use sidelane_host::eventfd::EventFd;
use sidelane_host::freezer::Freezer;
use sidelane_host::priority::{may_leave, move_from_ext_to_idle, move_to_ext, pin_thread};
use sidelane_host::procfs::{is_kept_in_place, thread_name, threads};
use sidelane_host::thread::{Thread, change_all};
use sidelane_rollback::groups::{kill_all, kill_until_none};
use sidelane_tracker::tracking::MemberList;

use super::batch::BatchClass;
use super::decider::Evictor;
use crate::note::LaneNote;

/// Time in which a freeze takes effect: batch in user mode freezes a few microseconds after it runs again.
const FREEZE_TIMEOUT: Duration = Duration::from_millis(1);
const FREEZE_LOOK_EVERY: Duration = Duration::from_micros(100);

/// Confinement of one batch command or of adopted batch, by its cgroups.
pub struct BatchConfinement {
    member_list: MemberList,
    lanes: CpuSet,
    freezer: Option<Freezer>,
    /// Whether an adopted cgroup was frozen when it was found.
    found_frozen: bool,
    cpuset: Option<Leaf>,
    /// All leaf cgroups made by Sidelane, into which batch is put and which are removed at the end.
    leaves: Vec<Leaf>,
    adopted: bool,
    state: Mutex<State>,
    /// Whether the watchdog has stopped batch. Atomic, because the watchdog takes no lock that a keeper may hold.
    stopped: AtomicBool,
    /// Eventfd that wakes the watchdog.
    came_back: OnceLock<Arc<EventFd>>,
}

/// Settings of batch that were restored, each with the name of the first thread.
#[derive(Debug, Default)]
pub struct RestoredSettings {
    /// Name of a thread that was in another class.
    pub class: Option<String>,
    /// Name of a thread, or of the cgroup, that had other CPUs.
    pub cpus: Option<String>,
    /// Name of a thread that still has other CPUs, because the kernel refuses to move it.
    pub kept: Option<String>,
}

/// State that the keepers of the lanes have asked for.
#[derive(Default)]
struct State {
    evicted: BTreeSet<u32>,
    /// Whether all batch is stopped, as after Ctrl-Z.
    paused: bool,
    /// Whether the confinement changes nothing any more.
    retired: bool,
}

impl BatchConfinement {
    /// Makes the confinement `name` for the batch lanes `lanes`, by the mechanisms that the machine has.
    /// [`BatchConfinement::missing`] returns the mechanisms that it lacks.
    pub fn make(name: &str, lanes: CpuSet, member_list: MemberList) -> Self {
        let unified = leaf_in(name, Hierarchy::is_v2);
        let freezes = unified.clone().filter(|leaf| leaf.has("cgroup.freeze"));
        let confines = unified.clone().filter(|leaf| leaf.has("cpuset.cpus"));
        let v1 = |controller: &'static str| leaf_in(name, move |found| found.controls(controller));
        let v1_freezer = if freezes.is_some() { None } else { v1("freezer") };
        let v1_cpuset = if confines.is_some() { None } else { v1("cpuset") };
        Self {
            member_list,
            lanes,
            freezer: freezes.or(v1_freezer.clone()).and_then(|leaf| Freezer::of(&leaf.dir)),
            found_frozen: false,
            adopted: false,
            cpuset: confines.or(v1_cpuset.clone()),
            leaves: [unified, v1_freezer, v1_cpuset].into_iter().flatten().collect(),
            state: Mutex::default(),
            stopped: AtomicBool::new(false),
            came_back: OnceLock::new(),
        }
    }

    /// Makes a confinement for adopted batch, in cgroups of another owner. Sidelane has made the cgroups `leaves` for
    /// it.
    pub fn around(
        lanes: CpuSet,
        member_list: MemberList,
        freezer: Option<Freezer>,
        found_frozen: bool,
        cpuset: Option<Leaf>,
        leaves: Vec<Leaf>,
    ) -> Self {
        let state = Mutex::default();
        let (stopped, came_back) = (AtomicBool::new(false), OnceLock::new());
        Self { member_list, lanes, freezer, found_frozen, cpuset, leaves, adopted: true, state, stopped, came_back }
    }

    /// Sets the event that is notified when batch is back on a lane from which it was evicted.
    pub fn notify_when_back(&self, event: Arc<EventFd>) {
        let _ = self.came_back.set(event);
    }

    /// Stops all batch, whatever its classes, without waiting for any keeper: by the freezer, or a command without a
    /// freezer by SIGSTOP. Safe to repeat.
    ///
    /// # Errors
    /// When there is no means: adopted batch without a freezer, which this process must not signal.
    pub fn stop(&self) -> io::Result<()> {
        self.stopped.store(true, Ordering::SeqCst);
        match self.freeze(true) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported && !self.adopted => {
                signal_all(&self.processes(), libc::SIGSTOP);
                Ok(())
            }
            result => result,
        }
    }

    /// Ends a stop: batch is again in the state that the keepers want.
    pub fn go_on(&self) -> io::Result<()> {
        self.stopped.store(false, Ordering::SeqCst);
        if self.freezer.is_none() && !self.adopted {
            signal_all(&self.processes(), libc::SIGCONT);
        }
        self.settle_again()
    }

    /// Puts batch back into its cgroups, and onto the lanes that it may use. Returns false if a keeper is changing them
    /// now.
    pub fn send_back(&self) -> bool {
        self.fetch_back();
        let Ok(state) = self.state.try_lock() else { return false };
        if !state.retired {
            // A thread that cannot be moved is noticed again at the next check.
            let _ = self.settle(&state);
        }
        true
    }

    /// Calls `work` with the lanes that batch may use, while no keeper changes them. If batch is frozen because it may
    /// use none, `work` gets all lanes.
    pub fn undisturbed<T>(&self, work: impl FnOnce(&CpuSet) -> T) -> T {
        let state = self.state.lock().expect("no holder panics");
        let usable = self.usable(&state.evicted);
        work(if usable.is_empty() { &self.lanes } else { &usable })
    }

    /// Applies the wanted state again, after batch has entered the confinement or another process has frozen it.
    pub fn settle_again(&self) -> io::Result<()> {
        let state = self.state.lock().expect("no holder panics");
        if state.retired {
            return Ok(());
        }
        if self.freezer.is_none() && self.usable(&state.evicted).is_empty() {
            return self.confine(&self.lanes);
        }
        self.settle(&state)
    }

    /// Stops everything in the confinement whatever the keepers ask for, or returns to the state that they ask for.
    pub fn pause(&self, paused: bool) -> io::Result<()> {
        self.state.lock().expect("no holder panics").paused = paused;
        self.settle_again()
    }

    /// Makes this confinement change nothing any more: batch is about to be given back.
    pub fn retire(&self) {
        self.state.lock().expect("no holder panics").retired = true;
    }

    /// Puts a process that does not run yet into the confinement, on all batch lanes.
    pub fn admit(&self, pid: u32) -> io::Result<()> {
        self.confine(&self.lanes)?;
        for leaf in &self.leaves {
            leaf.admit(pid)?;
        }
        pin_thread(pid, &self.lanes.iter().collect::<Vec<_>>())
    }

    /// Returns notes on mechanisms that this machine lacks for a full confinement.
    pub fn missing(&self) -> Vec<LaneNote> {
        let lacks = [
            (self.freezer.is_none(), LaneNote::NoFreezer),
            (!self.adopted && self.cpuset.is_none(), LaneNote::NoCpuset),
            (self.adopted && self.cpuset.is_none(), LaneNote::NoCpusetOfBatch),
            (self.adopted && self.freezer.is_none(), LaneNote::NoGroupsForAdopted),
            (!self.adopted && self.leaves.is_empty(), LaneNote::NoGroupsForCommand),
        ];
        lacks.into_iter().filter(|(lacks, _)| *lacks).map(|(_, note)| note).collect()
    }

    /// Returns the processes of batch: those in the confinement, and those that have left it.
    pub fn processes(&self) -> Vec<u32> {
        let inside = self.leaves.first().map_or_else(Vec::new, |leaf| processes(&leaf.dir));
        let all: BTreeSet<u32> = (self.member_list)().into_iter().chain(inside).collect();
        all.into_iter().collect()
    }

    /// Puts processes back that have left a cgroup. Otherwise they would not be frozen with it or ended by the
    /// guardian. Returns the number of these processes.
    pub fn fetch_back(&self) -> usize {
        let fetched = |leaf: &Leaf| self.outside(leaf).into_iter().filter(|pid| leaf.admit(*pid).is_ok()).count();
        self.leaves.iter().map(fetched).max().unwrap_or(0)
    }

    /// Returns the processes that have left a cgroup, even if only one of their threads did. In version 1 each thread
    /// has a cgroup, in version 2 each thread of a threaded cgroup. A thread created by a member between both reads is
    /// a member in the second read.
    fn outside(&self, leaf: &Leaf) -> Vec<u32> {
        let all: Vec<(u32, Vec<u32>)> = (self.member_list)().into_iter().map(|pid| (pid, threads(pid))).collect();
        let inside: BTreeSet<u32> = threads_in(&leaf.dir).into_iter().collect();
        let is_out = |tid: &u32| !inside.contains(tid) && Thread::of(*tid).is_some_and(|thread| thread.is_there());
        all.into_iter().filter(|(_, tids)| tids.iter().any(is_out)).map(|(pid, _)| pid).collect()
    }

    /// Returns whether the thread is in the frozen cgroup. Such a thread has not left the cgroup, even if it is not
    /// asleep yet.
    pub fn has_frozen(&self, tid: u32) -> bool {
        let frozen = self.freezer.clone().filter(Freezer::has_taken_effect).map(Freezer::into_dir);
        frozen.is_some_and(|dir| threads_in(&dir).contains(&tid))
    }

    /// Restores each thread that is in another class than batch, or may run on other CPUs than batch. Without `class`
    /// any class is allowed.
    pub fn put_right(&self, class: Option<BatchClass>) -> RestoredSettings {
        let mut right = RestoredSettings::default();
        if self.narrow_again() {
            right.cpus = Some("the control group of batch".to_owned());
        }
        let lanes = self.undisturbed(CpuSet::clone);
        for pid in self.processes() {
            for tid in threads(pid) {
                if class.is_some_and(|class| class.put_back(tid)) {
                    right.class.get_or_insert_with(|| thread_name(pid, tid));
                }
                if !may_leave(tid, &lanes) {
                    continue;
                }
                if self.undisturbed(|lanes| confine_again(tid, lanes)) {
                    right.cpus.get_or_insert_with(|| format!("the batch thread {}", thread_name(pid, tid)));
                } else if is_kept_in_place(tid) {
                    right.kept.get_or_insert_with(|| thread_name(pid, tid));
                }
            }
        }
        right
    }

    /// Writes the cgroup's CPUs again if batch has changed them. Returns whether batch had.
    fn narrow_again(&self) -> bool {
        let state = self.state.lock().expect("no holder panics");
        let lanes = self.usable(&state.evicted);
        let Some(leaf) = self.cpuset.as_ref().filter(|_| !state.retired && !lanes.is_empty()) else { return false };
        let cpus = leaf.read("cpuset.cpus").ok().and_then(|cpus| cpus.parse::<CpuSet>().ok());
        cpus.is_some_and(|cpus| !cpus.is_subset(&lanes)) && leaf.set_cpus(&lanes).is_ok()
    }

    /// Ends everything in the confinement, with or without cgroups. Safe to repeat. Adopted batch is not ended.
    pub fn kill(&self) {
        if self.adopted {
            return;
        }
        self.leaves.iter().for_each(|leaf| kill_all(&leaf.dir));
        match self.leaves.first() {
            Some(leaf) => kill_until_none(|| self.outside(leaf)),
            None => kill_until_none(&self.member_list),
        }
    }

    /// Puts threads that left the batch lanes back on them.
    pub fn put_back(&self) {
        let lanes = self.usable(&self.state.lock().expect("no holder panics").evicted);
        if !lanes.is_empty() {
            // A thread that cannot be put back now is found again at the next check.
            let _ = self.pin_all(&lanes);
        }
    }

    /// Moves everything in the confinement from SCHED_EXT to SCHED_IDLE, after its scheduler has ended.
    pub fn make_idle(&self) {
        self.move_all(move_from_ext_to_idle);
    }

    /// Moves everything in the confinement that has left SCHED_EXT back to it. Returns whether any thread had left.
    pub fn make_ext(&self) -> bool {
        self.move_all(move_to_ext)
    }

    fn move_all(&self, moved: impl Fn(u32) -> bool) -> bool {
        /// Limit of the rounds over all threads. A new thread inherits the class of its parent; one or two rounds find
        /// all threads.
        const ROUNDS_MAX: usize = 10;
        let one_round = || self.processes().into_iter().flat_map(threads).filter(|tid| moved(*tid)).count();
        (0..ROUNDS_MAX).take_while(|_| one_round() > 0).count() > 0
    }

    fn freeze(&self, frozen: bool) -> io::Result<()> {
        match &self.freezer {
            Some(freezer) => freezer.set(frozen || self.found_frozen || self.stopped.load(Ordering::SeqCst)),
            None => Err(io::Error::from(io::ErrorKind::Unsupported)),
        }
    }

    fn usable(&self, evicted: &BTreeSet<u32>) -> CpuSet {
        self.lanes.iter().filter(|cpu| !evicted.contains(cpu)).collect()
    }

    fn confine(&self, lanes: &CpuSet) -> io::Result<()> {
        match &self.cpuset {
            Some(leaf) => leaf.set_cpus(lanes),
            None => self.pin_all(lanes),
        }
    }

    /// Sets the affinity of all threads of batch. A thread that is created during this call may have the old affinity
    /// of its parent.
    fn pin_all(&self, lanes: &CpuSet) -> io::Result<()> {
        let cpus: Vec<u32> = lanes.iter().collect();
        let threads = || self.processes().into_iter().flat_map(Thread::all_of).collect();
        change_all(threads, |thread| pin_thread(thread.tid, &cpus))
    }

    /// Applies the state that the keepers want. No other function thaws batch.
    fn settle(&self, state: &State) -> io::Result<()> {
        let lanes = self.usable(&state.evicted);
        if lanes.is_empty() {
            return self.freeze(true);
        }
        self.confine(&lanes)?;
        // Without a freezer batch was never frozen.
        if self.freezer.is_some() { self.freeze(state.paused) } else { Ok(()) }
    }
}

impl Evictor for BatchConfinement {
    fn evict(&self, cpu: u32) -> io::Result<()> {
        let mut state = self.state.lock().expect("no holder panics");
        if state.retired {
            return Err(io::Error::other("batch was given back already"));
        }
        state.evicted.insert(cpu);
        self.settle(&state).inspect_err(|_| {
            state.evicted.remove(&cpu);
            // Some of the threads may have been moved before the error, so the old state is applied again.
            let _ = self.settle(&state);
        })
    }

    fn restore(&self, cpu: u32) -> io::Result<()> {
        let mut state = self.state.lock().expect("no holder panics");
        if state.evicted.remove(&cpu) && !state.retired { self.settle(&state) } else { Ok(()) }
    }

    fn has_left(&self, cpu: u32) -> bool {
        let began = Instant::now();
        while self.is_leaving(cpu) {
            if began.elapsed() >= FREEZE_TIMEOUT {
                return false;
            }
            std::thread::sleep(FREEZE_LOOK_EVERY);
        }
        true
    }

    /// Returns whether the eviction takes effect only later. A freeze takes time; a move to other lanes does not.
    fn is_leaving(&self, _cpu: u32) -> bool {
        let freezes = || {
            let state = self.state.lock().expect("no holder panics");
            !state.retired && self.usable(&state.evicted).is_empty()
        };
        self.freezer.as_ref().is_some_and(|freezer| freezes() && !freezer.has_taken_effect())
    }

    fn came_back(&self, _cpu: u32) {
        if let Some(event) = self.came_back.get() {
            event.notify();
        }
    }
}

fn signal_all(processes: &[u32], signal: i32) {
    for pid in processes {
        // SAFETY: plain system call; the process belonged to batch a moment ago.
        unsafe { libc::kill(*pid as libc::pid_t, signal) };
    }
}

/// Confines a thread again if it was allowed other CPUs than `lanes`. Returns whether it was.
fn confine_again(tid: u32, lanes: &CpuSet) -> bool {
    may_leave(tid, lanes) && pin_thread(tid, &lanes.iter().collect::<Vec<_>>()).is_ok()
}

fn leaf_in(name: &str, wanted: impl Fn(&Hierarchy) -> bool) -> Option<Leaf> {
    let hierarchies = Hierarchy::all();
    Leaf::make(hierarchies.iter().find(|found| wanted(found))?, name).ok()
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};
    use std::sync::atomic::AtomicUsize;

    use sidelane_host::procfs::{command_name, thread_cpus};

    use super::*;

    fn sleeper() -> Child {
        Command::new("sleep").arg("1000").spawn().unwrap()
    }

    /// The kernel refuses to move a kernel thread of one CPU. The same holds for workers of io_uring before Linux 6.3.
    #[test]
    fn thread_that_the_kernel_keeps_elsewhere_is_reported() {
        let numbers = std::fs::read_dir("/proc").unwrap().flatten();
        let mut pids = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let Some(pid) = pids.find(|pid| command_name(*pid).as_deref() == Some("ksoftirqd/0")) else {
            return sidelane_testing::skip("needs to see the kernel's threads");
        };
        let lanes = [1].into_iter().collect();
        let right =
            BatchConfinement::around(lanes, Box::new(move || vec![pid]), None, false, None, vec![]).put_right(None);
        assert_eq!((right.kept, right.cpus), (Some(format!("\"ksoftirqd/0\" ({pid})")), None));
    }

    /// The second process is created, on all lanes, just after the first check.
    #[test]
    fn process_created_during_an_eviction_is_evicted_too() {
        let lanes: CpuSet = [0, 1].into_iter().collect();
        let mut children = [sleeper(), sleeper()];
        let pids = [0, 1].map(|child: usize| children[child].id());
        let looks = AtomicUsize::new(0);
        let member_list: MemberList =
            Box::new(move || pids[..1 + looks.fetch_add(1, Ordering::Relaxed).min(1)].to_vec());
        let sent = BatchConfinement::around(lanes, member_list, None, false, None, vec![]).evict(1);
        let cpus = pids.map(|pid| thread_cpus(pid, pid).map(|cpus| cpus.to_string()));
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        match sent {
            Ok(()) => assert_eq!(cpus, [Some("0".into()), Some("0".into())]),
            Err(error) => sidelane_testing::skip(format!("needs CPUs 0 and 1: {error}")),
        }
    }
}

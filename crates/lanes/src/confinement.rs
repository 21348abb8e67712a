//! The confinement of batch: keeps batch on its lanes, evicts it from a lane, and ends a batch command.
//!
//! The best mechanism of the machine is used. A cgroup v2 leaf freezes and kills, and confines if the cpuset controller
//! is delegated to it. On other machines v1 cpuset and freezer leaves do the same. Without either, batch is confined by
//! affinity, which is set again when batch changes it.
//!
//! Batch evicted from one of several lanes moves to the others. Batch evicted from the last lane is frozen. A thawed
//! program sees what it would see after SIGSTOP and SIGCONT: a few waiting system calls (epoll_wait, sigtimedwait; see
//! signal(7)) return EINTR.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use sidelane_host::cgroup::{BatchGroup, Hierarchy, processes_in_tree, threads_in_tree};
use sidelane_host::cpulist::CpuSet;
use sidelane_host::eventfd::EventFd;
use sidelane_host::freezer::Freezer;
use sidelane_host::priority::{may_run_outside, move_from_ext_to_idle, move_to_ext, pin_thread};
use sidelane_host::procfs::{has_fixed_affinity, thread_name, threads};
use sidelane_host::thread::{Thread, change_all_threads};
use sidelane_rollback::groups::{kill_group, kill_until_none_alive};
use sidelane_tracker::tracking::MemberList;

use super::batch::BatchClass;
use super::decider::Evictor;
use crate::note::LaneNote;

/// Longest wait for a freeze to take effect: batch in user mode freezes a few microseconds after it runs again.
const FREEZE_TIMEOUT: Duration = Duration::from_millis(1);
const FREEZE_LOOK_EVERY: Duration = Duration::from_micros(100);

/// Confinement of one batch command or of adopted batch, by its cgroups.
pub struct BatchConfinement {
    member_list: MemberList,
    lanes: CpuSet,
    freezer: Option<Freezer>,
    /// Whether an adopted cgroup was frozen when it was found, and its owner has not thawed it since.
    frozen_by_owner: AtomicBool,
    cpuset: Option<BatchGroup>,
    /// All leaf cgroups made by Sidelane, into which batch is put and which are removed at the end.
    leaves: Vec<BatchGroup>,
    adopted: bool,
    state: Mutex<State>,
    /// Whether the watchdog has stopped batch. Atomic, because the watchdog takes no lock that a keeper may hold.
    stopped: AtomicBool,
    /// Eventfd that wakes the watchdog when evicted batch is back on a lane.
    came_back: OnceLock<Arc<EventFd>>,
}

/// Settings of batch that were restored. Each field has the name of the first thread that was found with another
/// setting.
#[derive(Debug, Default)]
pub struct RestoredSettings {
    /// Name of a thread that was not in batch's scheduling class.
    pub class: Option<String>,
    /// Name of a thread, or of the cgroup, that was allowed other CPUs than batch's lanes.
    pub cpus: Option<String>,
    /// Name of a thread that is still allowed other CPUs than batch's lanes, because the kernel refuses to move it.
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
    /// [`BatchConfinement::missing_mechanisms`] returns the mechanisms that it lacks.
    pub fn make(name: &str, lanes: CpuSet, member_list: MemberList) -> Self {
        let unified = make_leaf_cgroup(name, Hierarchy::is_v2);
        let freezes = unified.clone().filter(|leaf| leaf.has_control_file("cgroup.freeze"));
        let confines = unified.clone().filter(|leaf| leaf.has_control_file("cpuset.cpus"));
        let v1 = |controller: &'static str| make_leaf_cgroup(name, move |found| found.has_controller(controller));
        let v1_freezer = if freezes.is_some() { None } else { v1("freezer") };
        let v1_cpuset = if confines.is_some() { None } else { v1("cpuset") };
        Self {
            member_list,
            lanes,
            freezer: freezes.or(v1_freezer.clone()).and_then(|leaf| Freezer::find_in_group(&leaf.dir)),
            frozen_by_owner: AtomicBool::new(false),
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
    pub fn for_adopted_batch(
        lanes: CpuSet,
        member_list: MemberList,
        freezer: Option<Freezer>,
        found_frozen: bool,
        cpuset: Option<BatchGroup>,
        leaves: Vec<BatchGroup>,
    ) -> Self {
        Self {
            member_list,
            lanes,
            freezer,
            frozen_by_owner: AtomicBool::new(found_frozen),
            cpuset,
            leaves,
            adopted: true,
            state: Mutex::default(),
            stopped: AtomicBool::new(false),
            came_back: OnceLock::new(),
        }
    }

    /// Sets the event that is notified when batch is back on a lane from which it was evicted.
    pub fn notify_when_batch_returns(&self, event: Arc<EventFd>) {
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
    pub fn resume(&self) -> io::Result<()> {
        self.stopped.store(false, Ordering::SeqCst);
        if self.freezer.is_none() && !self.adopted {
            signal_all(&self.processes(), libc::SIGCONT);
        }
        self.reapply_state()
    }

    /// Puts batch back into its cgroups, and onto the lanes that it may use. Returns false if a keeper is changing them
    /// now.
    pub fn try_reconfine(&self) -> bool {
        self.return_escaped_processes();
        let Ok(state) = self.state.try_lock() else { return false };
        if !state.retired {
            // A thread that cannot be moved is noticed again at the next check.
            let _ = self.apply_state(&state);
        }
        true
    }

    /// Calls `work` with the lanes that batch may use, while no keeper changes them. If batch is frozen because it may
    /// use none, `work` gets all lanes.
    pub fn with_locked_lanes<T>(&self, work: impl FnOnce(&CpuSet) -> T) -> T {
        let state = self.state.lock().expect("no holder panics");
        let usable = self.usable_lanes(&state.evicted);
        work(if usable.is_empty() { &self.lanes } else { &usable })
    }

    /// Applies the wanted state again, after batch has entered the confinement or another process has frozen it.
    pub fn reapply_state(&self) -> io::Result<()> {
        let state = self.state.lock().expect("no holder panics");
        if state.retired {
            return Ok(());
        }
        if self.freezer.is_none() && self.usable_lanes(&state.evicted).is_empty() {
            return self.confine(&self.lanes);
        }
        self.apply_state(&state)
    }

    /// Stops everything in the confinement whatever the keepers ask for, or returns to the state that they ask for.
    pub fn pause(&self, paused: bool) -> io::Result<()> {
        self.state.lock().expect("no holder panics").paused = paused;
        self.reapply_state()
    }

    /// Makes this confinement change nothing any more: batch is about to be given back.
    pub fn stop_changing_batch(&self) {
        self.state.lock().expect("no holder panics").retired = true;
    }

    /// Puts a process that does not run yet into the confinement, on all batch lanes.
    pub fn add_process(&self, pid: u32) -> io::Result<()> {
        self.confine(&self.lanes)?;
        for leaf in &self.leaves {
            leaf.move_process_in(pid)?;
        }
        pin_thread(pid, &self.lanes.iter().collect::<Vec<_>>())
    }

    /// Returns notes on mechanisms that this machine lacks for a full confinement.
    pub fn missing_mechanisms(&self) -> Vec<LaneNote> {
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
        let inside = self.leaves.first().map_or_else(Vec::new, |leaf| processes_in_tree(&leaf.dir));
        let all: BTreeSet<u32> = (self.member_list)().into_iter().chain(inside).collect();
        all.into_iter().collect()
    }

    /// Puts processes back that have left a cgroup. A process outside the cgroup is neither frozen with it nor ended by
    /// the guardian. Returns the number of these processes.
    pub fn return_escaped_processes(&self) -> usize {
        let fetched = |leaf: &BatchGroup| {
            self.escaped_processes(leaf).into_iter().filter(|pid| leaf.move_process_in(*pid).is_ok()).count()
        };
        self.leaves.iter().map(fetched).max().unwrap_or(0)
    }

    /// Returns the processes that have left a cgroup, even if only one of their threads did. (In cgroup v1, and in
    /// threaded cgroups of v2, threads have cgroups of their own.) All threads of batch are read first, the cgroup
    /// second. So a thread that a member creates between the two reads does not count as one that left.
    fn escaped_processes(&self, leaf: &BatchGroup) -> Vec<u32> {
        let all: Vec<(u32, Vec<u32>)> = (self.member_list)().into_iter().map(|pid| (pid, threads(pid))).collect();
        let inside: BTreeSet<u32> = threads_in_tree(&leaf.dir).into_iter().collect();
        let is_out =
            |tid: &u32| !inside.contains(tid) && Thread::with_tid(*tid).is_some_and(|thread| thread.is_alive());
        all.into_iter().filter(|(_, tids)| tids.iter().any(is_out)).map(|(pid, _)| pid).collect()
    }

    /// Returns whether the thread is in the frozen cgroup. Such a thread has not left the cgroup, even if it is not
    /// asleep yet.
    pub fn is_in_frozen_cgroup(&self, tid: u32) -> bool {
        let frozen = self.freezer.clone().filter(Freezer::are_all_tasks_stopped).map(Freezer::into_dir);
        frozen.is_some_and(|dir| threads_in_tree(&dir).contains(&tid))
    }

    /// Restores each thread that is in another class than batch, or may run on other CPUs than batch. Without `class`
    /// any class is allowed.
    pub fn restore_settings(&self, class: Option<BatchClass>) -> RestoredSettings {
        let mut right = RestoredSettings::default();
        if self.restore_cgroup_cpus() {
            right.cpus = Some("the control group of batch".to_owned());
        }
        let lanes = self.with_locked_lanes(CpuSet::clone);
        for pid in self.processes() {
            for tid in threads(pid) {
                if class.is_some_and(|class| class.restore_thread_class(tid)) {
                    right.class.get_or_insert_with(|| thread_name(pid, tid));
                }
                if !may_run_outside(tid, &lanes) {
                    continue;
                }
                if self.with_locked_lanes(|lanes| repin_escaped_thread(tid, lanes)) {
                    right.cpus.get_or_insert_with(|| format!("the batch thread {}", thread_name(pid, tid)));
                } else if has_fixed_affinity(tid) {
                    right.kept.get_or_insert_with(|| thread_name(pid, tid));
                }
            }
        }
        right
    }

    /// Writes the cgroup's CPUs again if batch has changed them. Returns whether batch had changed them.
    fn restore_cgroup_cpus(&self) -> bool {
        let state = self.state.lock().expect("no holder panics");
        let lanes = self.usable_lanes(&state.evicted);
        let Some(leaf) = self.cpuset.as_ref().filter(|_| !state.retired && !lanes.is_empty()) else { return false };
        let cpus = leaf.read("cpuset.cpus").ok().and_then(|cpus| cpus.parse::<CpuSet>().ok());
        cpus.is_some_and(|cpus| !cpus.is_subset(&lanes)) && leaf.set_cpus(&lanes).is_ok()
    }

    /// Ends everything in the confinement, with or without cgroups. Safe to repeat. Adopted batch is not ended.
    pub fn kill(&self) {
        if self.adopted {
            return;
        }
        self.leaves.iter().for_each(|leaf| kill_group(&leaf.dir));
        match self.leaves.first() {
            Some(leaf) => kill_until_none_alive(|| self.escaped_processes(leaf)),
            None => kill_until_none_alive(&self.member_list),
        }
    }

    /// Puts threads that left the batch lanes back on them.
    pub fn pin_to_usable_lanes(&self) {
        let lanes = self.usable_lanes(&self.state.lock().expect("no holder panics").evicted);
        if !lanes.is_empty() {
            // A thread that cannot be put back now is found again at the next check.
            let _ = self.pin_all_threads(&lanes);
        }
    }

    /// Moves everything in the confinement from SCHED_EXT to SCHED_IDLE, after its scheduler has ended.
    pub fn move_to_sched_idle(&self) {
        self.move_all_threads(move_from_ext_to_idle);
    }

    /// Moves everything in the confinement that has left SCHED_EXT back to it. Returns whether any thread had left.
    pub fn move_to_sched_ext(&self) -> bool {
        self.move_all_threads(move_to_ext)
    }

    fn move_all_threads(&self, move_thread: impl Fn(u32) -> bool) -> bool {
        /// Limit of the rounds over all threads. A new thread inherits the class of its parent; one or two rounds find
        /// all threads.
        const ROUNDS_MAX: usize = 10;
        let one_round = || self.processes().into_iter().flat_map(threads).filter(|tid| move_thread(*tid)).count();
        (0..ROUNDS_MAX).take_while(|_| one_round() > 0).count() > 0
    }

    fn freeze(&self, frozen: bool) -> io::Result<()> {
        let Some(freezer) = &self.freezer else { return Err(io::Error::from(io::ErrorKind::Unsupported)) };
        let stopped = self.stopped.load(Ordering::SeqCst);
        if self.frozen_by_owner.load(Ordering::SeqCst) {
            if freezer.is_frozen()? {
                return Ok(());
            }
            // Its owner has thawed it. The session tells the guardian within a tenth of a second.
            self.accept_thaw_by_owner();
        }
        freezer.set_frozen(frozen || stopped)
    }

    /// Returns whether an adopted cgroup was frozen when it was found, and its owner has not thawed it since. Sidelane
    /// does not change such a cgroup.
    pub fn is_frozen_by_owner(&self) -> bool {
        let is_thawed = || self.freezer.as_ref().is_some_and(|freezer| matches!(freezer.is_frozen(), Ok(false)));
        self.frozen_by_owner.load(Ordering::SeqCst) && !is_thawed()
    }

    /// Takes the cgroup for one that Sidelane may freeze and thaw, after its owner has thawed it.
    pub fn accept_thaw_by_owner(&self) {
        self.frozen_by_owner.store(false, Ordering::SeqCst);
    }

    fn usable_lanes(&self, evicted: &BTreeSet<u32>) -> CpuSet {
        self.lanes.iter().filter(|cpu| !evicted.contains(cpu)).collect()
    }

    fn confine(&self, lanes: &CpuSet) -> io::Result<()> {
        match &self.cpuset {
            Some(leaf) => leaf.set_cpus(lanes),
            None => self.pin_all_threads(lanes),
        }
    }

    /// Sets the affinity of all threads of batch. A thread that is created during this call may have the old affinity
    /// of its parent.
    fn pin_all_threads(&self, lanes: &CpuSet) -> io::Result<()> {
        let cpus: Vec<u32> = lanes.iter().collect();
        let threads = || self.processes().into_iter().flat_map(Thread::all_of).collect();
        change_all_threads(threads, |thread| pin_thread(thread.tid, &cpus))
    }

    /// Applies the state that the keepers want. No other function thaws batch.
    fn apply_state(&self, state: &State) -> io::Result<()> {
        let lanes = self.usable_lanes(&state.evicted);
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
        self.apply_state(&state).inspect_err(|_| {
            state.evicted.remove(&cpu);
            // Some of the threads may have been moved before the error, so the old state is applied again.
            let _ = self.apply_state(&state);
        })
    }

    fn restore(&self, cpu: u32) -> io::Result<()> {
        let mut state = self.state.lock().expect("no holder panics");
        if state.evicted.remove(&cpu) && !state.retired { self.apply_state(&state) } else { Ok(()) }
    }

    fn has_batch_left(&self, cpu: u32) -> bool {
        let began = Instant::now();
        while self.is_batch_leaving(cpu) {
            if began.elapsed() >= FREEZE_TIMEOUT {
                return false;
            }
            std::thread::sleep(FREEZE_LOOK_EVERY);
        }
        true
    }

    /// Returns whether the eviction takes effect only later. A freeze takes time; a move to other lanes does not.
    fn is_batch_leaving(&self, _cpu: u32) -> bool {
        let freezes = || {
            let state = self.state.lock().expect("no holder panics");
            !state.retired && self.usable_lanes(&state.evicted).is_empty()
        };
        self.freezer.as_ref().is_some_and(|freezer| freezes() && !freezer.are_all_tasks_stopped())
    }

    fn notify_batch_back(&self, _cpu: u32) {
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

/// Confines a thread again if it was allowed other CPUs than `lanes`. Returns whether the thread was confined again.
fn repin_escaped_thread(tid: u32, lanes: &CpuSet) -> bool {
    may_run_outside(tid, lanes) && pin_thread(tid, &lanes.iter().collect::<Vec<_>>()).is_ok()
}

fn make_leaf_cgroup(name: &str, is_wanted: impl Fn(&Hierarchy) -> bool) -> Option<BatchGroup> {
    let hierarchies = Hierarchy::all();
    BatchGroup::create(hierarchies.iter().find(|found| is_wanted(found))?, name).ok()
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};
    use std::sync::atomic::AtomicUsize;

    use sidelane_host::procfs::{command_name, thread_cpus};

    use super::*;

    fn spawn_sleep_process() -> Child {
        Command::new("sleep").arg("1000").spawn().unwrap()
    }

    /// The kernel refuses to move a kernel thread that belongs to one CPU. Before Linux 6.3 it also refuses to move
    /// workers of io_uring.
    #[test]
    fn thread_that_the_kernel_refuses_to_move_is_reported() {
        let numbers = std::fs::read_dir("/proc").unwrap().flatten();
        let mut pids = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let Some(pid) = pids.find(|pid| command_name(*pid).as_deref() == Some("ksoftirqd/0")) else {
            return sidelane_testing::skip("needs to see the kernel's threads");
        };
        let lanes = [1].into_iter().collect();
        let right = BatchConfinement::for_adopted_batch(lanes, Box::new(move || vec![pid]), None, false, None, vec![])
            .restore_settings(None);
        assert_eq!((right.kept, right.cpus), (Some(format!("\"ksoftirqd/0\" ({pid})")), None));
    }

    /// The list of processes contains a second process, allowed on all lanes, from its second read on.
    #[test]
    fn process_created_during_an_eviction_is_evicted_too() {
        let lanes: CpuSet = [0, 1].into_iter().collect();
        let mut children = [spawn_sleep_process(), spawn_sleep_process()];
        let pids = [0, 1].map(|child: usize| children[child].id());
        let looks = AtomicUsize::new(0);
        let member_list: MemberList =
            Box::new(move || pids[..1 + looks.fetch_add(1, Ordering::Relaxed).min(1)].to_vec());
        let sent = BatchConfinement::for_adopted_batch(lanes, member_list, None, false, None, vec![]).evict(1);
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

//! This process's own threads: they run on no CPU of the services that the process observes, if there are other CPUs.
//!
//! The process has one registry, used by all verbs. [`keep_off_service_cpus`] names a service. After that, a thread of
//! the registry checks a few times a second where the service may run and where it ran. It asks
//! [`sidelane_policy::own_cpus`], and moves all threads of this process. The affinity with which a verb is started is
//! respected: no thread gets a CPU that the user did not give. Threads that place themselves are [`SelfPlacedThread`]:
//! holders, observers, the thread that forwards a proxy's requests. Bulk work ([`PatientThread`]) is done in
//! SCHED_IDLE. If all CPUs belong to services, all work of a verb that only observes is done in SCHED_IDLE, too. Late
//! work is dropped and counted, and no service waits for it.
//!
//! *Invariant:* no other part of the tool moves its own threads, except a self-placed thread itself, and the agent's
//! alarm thread, which moves other threads of the agent off a lane for a moment (`tests/own_threads.rs`).

mod note;
mod self_usage;
mod state;

use std::collections::BTreeSet;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use sidelane_host::cpulist::CpuSet;
use sidelane_host::priority::pin_this_thread;
use sidelane_host::run_times::{RunTimes, union_of_affinities};
use sidelane_host::topology::online_cpus;
use sidelane_policy::cpus::CpuMask;

use sidelane_diagnostics::note::Note;
use state::{State, Work};

/// Shortest time between two checks of where services run.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Factor by which the time between two checks exceeds the duration of one: checks take at most 1/200 of a CPU.
const LOOK_PART: u32 = 200;
/// Time after which bulk work that the user waits for continues in the ordinary class.
pub const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Time between the first two checks of a service that may run on all CPUs.
const FIRST_LOOK: Duration = Duration::from_millis(10);

static STATE: Mutex<Option<State>> = Mutex::new(None);

/// Relation of a verb to the services that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceRelation {
    /// The verb observes the services. Work that is late is lost and counted.
    Observes,
    /// The verb acts for the services. Work that is late harms them.
    ActsFor,
}

/// Begins to place this process's threads. Called once, before any thread is started. A process that never calls this
/// function moves none of its threads: tests, and measurements that place their threads themselves.
pub fn start_placing(relation: ServiceRelation) {
    *lock_state() = Some(State::new(relation));
}

fn lock_state() -> MutexGuard<'static, Option<State>> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps this process's threads off the CPUs of a service, now and later. Called again with the service's present
/// processes when they may have changed.
pub fn keep_off_service_cpus(service: &str, pids: &BTreeSet<u32>) {
    let is_new = {
        let mut state = lock_state();
        let Some(state) = state.as_mut().filter(|state| !state.is_placed_by_caller()) else { return };
        if pids.contains(&std::process::id()) {
            // The service is this process, so its threads stay where they are.
            return;
        }
        state.set_service_pids(service, pids)
    };
    if !is_new {
        return;
    }
    let mut times = RunTimes::default();
    if check_services(&mut times, FIRST_LOOK) == CheckSource::RunTimes {
        thread::sleep(FIRST_LOOK);
        check_services(&mut times, FIRST_LOOK);
    }
    start_watcher();
}

/// Keeps this process's threads off these CPUs, which services have. In a process that does not place its threads, this
/// function moves only the calling thread.
pub fn keep_off_cpus(cpus: &CpuSet) -> io::Result<()> {
    let mut state = lock_state();
    let Some(state) = state.as_mut().filter(|state| !state.is_placed_by_caller()) else {
        drop(state);
        let elsewhere: Vec<u32> = online_cpus()?.difference(cpus).iter().collect();
        return if elsewhere.is_empty() { Ok(()) } else { pin_this_thread(&elsewhere) };
    };
    state.add_cpus(cpus);
    state.place_threads(&CpuSet::default(), Duration::ZERO);
    Ok(())
}

/// Keeps this process's threads on CPUs of `usable`, and off CPUs where services may run (`service_allowed`) or ran
/// lately (`service_ran_on`). A caller that knows these CPUs for all its services uses this function instead of the
/// registry's own checks.
pub fn place_threads_on(usable: &CpuSet, service_allowed: &CpuMask, service_ran_on: &CpuMask) {
    if let Some(state) = lock_state().as_mut() {
        state.place_threads_on(usable, service_allowed, service_ran_on);
    }
}

/// Registers another process that works for this one: it is kept on the CPUs of this process's threads.
pub fn add_child_process(pid: u32) {
    if let Some(state) = lock_state().as_mut() {
        state.add_child(pid);
    }
}

/// Does `work` while the user waits for its end. After `patience`, bulk work is done in the ordinary class, unless it
/// is on a service's CPUs.
pub fn run_while_user_waits<T>(patience: Duration, work: impl FnOnce() -> T) -> T {
    let wait_until = |at| lock_state().iter_mut().for_each(|state| state.set_patience_end(at));
    wait_until(Some(Instant::now() + patience));
    let done = work();
    wait_until(None);
    done
}

/// Returns whether this process has CPUs besides those of the services. Otherwise its work may be late.
pub fn is_off_service_cpus() -> bool {
    lock_state().as_ref().is_none_or(State::is_off_service_cpus)
}

/// Returns a note on what this process's threads cost on CPUs of the services; `None` if that is too little to
/// report.
pub fn overhead_note() -> Option<Note> {
    lock_state().as_mut().and_then(State::overhead_note).map(Note::from)
}

/// Mark of a thread that places itself, as long as the mark lives.
pub struct SelfPlacedThread(u32);

impl SelfPlacedThread {
    /// Marks the calling thread as one that places itself. Must be called before the thread moves itself.
    pub fn for_this_thread() -> Self {
        let tid = this_tid();
        if let Some(state) = lock_state().as_mut() {
            state.mark_self_placed(tid);
        }
        Self(tid)
    }
}

impl Drop for SelfPlacedThread {
    fn drop(&mut self) {
        if let Some(state) = lock_state().as_mut() {
            state.unmark_self_placed(self.0);
        }
    }
}

/// Mark of a thread whose work may be late, as long as the mark lives.
pub struct PatientThread(u32);

impl PatientThread {
    /// Marks the calling thread as one that does bulk work, in SCHED_IDLE.
    pub fn for_bulk_work() -> Self {
        Self::for_work(Work::Bulk)
    }

    /// Marks the calling thread as a reader of records that are lost, and counted, if they are not read in time. It
    /// is in SCHED_IDLE while it is on CPUs of the services.
    pub fn for_reader() -> Self {
        Self::for_work(Work::Reads)
    }

    fn for_work(work: Work) -> Self {
        let tid = this_tid();
        if let Some(state) = lock_state().as_mut() {
            state.begin_work(tid, work);
        }
        Self(tid)
    }
}

impl Drop for PatientThread {
    fn drop(&mut self) {
        if let Some(state) = lock_state().as_mut() {
            state.end_work(self.0);
        }
    }
}

/// Does bulk work while the user waits for its end.
pub fn run_bulk_work<T>(work: impl FnOnce() -> T) -> T {
    let _bulk = PatientThread::for_bulk_work();
    run_while_user_waits(LOOK_INTERVAL, work)
}

/// Returns the number of the calling thread.
pub fn this_tid() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get() as u32
}

/// Data from which a check has determined the CPUs of the services.
#[derive(PartialEq)]
enum CheckSource {
    Affinity,
    RunTimes,
}

/// Checks where the services may run, and where they ran if they may run anywhere, and places this process's threads.
fn check_services(run_times: &mut RunTimes, period: Duration) -> CheckSource {
    let Some((pids, given)) = lock_state().as_ref().map(|state| (state.service_pids(), state.given_cpus().clone()))
    else {
        return CheckSource::Affinity;
    };
    let allowed = union_of_affinities(&pids);
    if pids.is_empty() {
        return CheckSource::Affinity;
    }
    let is_anywhere = given.is_subset(&allowed);
    let ran = is_anywhere.then(|| run_times.run_times_since_last_call_ns(&pids));
    if let Some(state) = lock_state().as_mut().filter(|state| !state.is_placed_by_caller()) {
        ran.into_iter().for_each(|ran| state.add_run_times(ran));
        state.place_threads(&allowed, period);
    }
    if is_anywhere { CheckSource::RunTimes } else { CheckSource::Affinity }
}

/// Starts the thread that checks where services run, unless there is one.
fn start_watcher() {
    if !lock_state().as_mut().is_some_and(State::mark_watched) {
        return;
    }
    let watch = || {
        let (mut times, mut period) = (RunTimes::default(), LOOK_EVERY);
        loop {
            thread::sleep(period);
            let began = Instant::now();
            check_services(&mut times, period);
            period = LOOK_EVERY.max(began.elapsed() * LOOK_PART);
        }
    };
    // Without the thread, all threads stay where they are now.
    let _ = thread::Builder::new().name("sidelane-place".into()).spawn(watch);
}

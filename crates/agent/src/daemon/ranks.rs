//! Threads of containers that would preempt the holder of a lent lane. The agent puts them into the ordinary class
//! while lanes are lent.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::discriminant;

use anyhow::{Context, Result};
use sidelane_host::cgroup::Group;
use sidelane_host::priority::ThreadClass;
use sidelane_host::procfs::{self, threads};
use sidelane_host::thread::Thread;
use sidelane_policy::Nanos;

use super::Agent;
use crate::tracked::TrackedContainer;
use sidelane_lanes::note::LaneNote;
use sidelane_lanes::watchdog::{Outranking, threads_outranking_holder};
use sidelane_rollback::cpu_mask::to_cpu_mask;
use sidelane_rollback::guardian::Guardian;
use sidelane_rollback::{ChangeId, Undo};

/// Interval of checks, each of which reads the threads of all containers on lent lanes.
const LOOK_EVERY_NS: Nanos = 500_000_000;
/// Limit of the notes with a thread's name, because batch chooses these names.
const NAMES_MAX: usize = 8;

/// Threads of batch that would preempt the holder of a lane.
#[derive(Default)]
pub(super) struct OutrankingBatch {
    /// Threads on lent lanes that can be put into the ordinary class.
    pub(super) demotable: Vec<Outranking>,
    /// Process and thread of the first thread in SCHED_DEADLINE, in any container.
    pub(super) deadline: Option<(u32, u32)>,
}

/// Threads that the agent has put into another class than their original one.
#[derive(Debug, Default)]
pub(super) struct Demoted {
    threads: BTreeMap<Thread, ChangeId>,
    due_ns: Nanos,
}

impl Demoted {
    /// Puts these threads into the ordinary class. Returns their names.
    fn demote_threads(&mut self, outranking: &[Outranking], guardian: &mut Guardian) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for &Outranking { pid, tid, class } in outranking {
            let Some(thread) = Thread::with_tid(tid) else { continue };
            if !self.threads.contains_key(&thread) {
                let change_id = guardian.add([Undo::Class { thread, class }])?.pop();
                self.threads.extend(change_id.map(|change_id| (thread, change_id)));
            }
            match ThreadClass::ORDINARY.apply_to_thread(tid) {
                Err(error) if thread.is_alive() => {
                    return Err(error).with_context(|| {
                        format!(
                            "cannot demote the real-time thread {tid} of batch to \
                                                               SCHED_OTHER"
                        )
                    });
                }
                Err(_) => {}
                Ok(()) => names.push(procfs::thread_name(pid, tid)),
            }
        }
        Ok(names)
    }

    /// Restores the class of threads that belong to no container on a lent lane any more.
    fn restore_classes(&mut self, batch_pids: &BTreeSet<u32>, guardian: &mut Guardian) -> Result<()> {
        let batch: BTreeSet<u32> = batch_pids.iter().flat_map(|pid| threads(*pid)).collect();
        let gone: Vec<Thread> = self.threads.keys().filter(|thread| !batch.contains(&thread.tid)).copied().collect();
        let change_ids: Vec<ChangeId> = gone.iter().filter_map(|thread| self.threads.remove(thread)).collect();
        guardian.undo_and_withdraw(&change_ids).context("cannot restore the scheduling class of batch threads")
    }
}

impl Agent {
    /// Demotes threads of batch that outrank the holders of lanes. A periodic check is needed, because a thread that is
    /// alone on its lane raises no alarm.
    pub(super) fn check_outranking_batch(&mut self, now_ns: Nanos) {
        if now_ns >= self.demoted.due_ns {
            self.demoted.due_ns = now_ns + LOOK_EVERY_NS;
            self.check_for_batch_on_lanes(now_ns);
            self.restore_thread_classes();
        }
    }

    /// Restores the original scheduling class of demoted threads that are in no container on a lent lane any more.
    fn restore_thread_classes(&mut self) {
        if self.demoted.threads.is_empty() {
            return;
        }
        let (_, batch) = self.pids_on_lent_lanes_and_all_pids();
        let Some(actuator) = &mut self.actuator else { return };
        if let Err(error) = self.demoted.restore_classes(&batch, actuator.guardian()) {
            self.note_error(error);
        }
    }

    /// Demotes threads of batch on lent lanes that outrank a holder.
    pub(super) fn demote_outranking_threads(&mut self, outranking: &[Outranking]) {
        let Some(actuator) = &mut self.actuator else { return };
        let put_down = self.demoted.demote_threads(outranking, actuator.guardian());
        for thread in put_down.map_err(|error| self.note_error(error)).unwrap_or_default() {
            self.note_outranking_thread(LaneNote::BatchRaised { thread });
        }
    }

    /// Notes a thread that outranks a holder, unless there are `NAMES_MAX` notes of this kind already.
    pub(super) fn note_outranking_thread(&mut self, note: LaneNote) {
        let is_alike = |known: &LaneNote| discriminant(known) == discriminant(&note);
        if self.stats.notes.keys().filter(|known| known.matches(is_alike)).count() < NAMES_MAX {
            self.note(note);
        }
    }

    /// Returns the processes of containers on lent lanes, and the processes of all containers. Both sets are empty
    /// while no lane is lent.
    fn pids_on_lent_lanes_and_all_pids(&self) -> (BTreeSet<u32>, BTreeSet<u32>) {
        let lent = to_cpu_mask(&self.lane_cpus());
        let processes = |contained: &TrackedContainer| contained.group().map(Group::processes).unwrap_or_default();
        let (mut on_lanes, mut batch) = (BTreeSet::new(), BTreeSet::new());
        for (_, contained) in self.tracked.containers.iter().filter(|_| !lent.is_empty()) {
            let members = processes(contained);
            on_lanes.extend(members.iter().filter(|_| !contained.cpus().and(&lent).is_empty()));
            batch.extend(members);
        }
        (on_lanes, batch)
    }

    /// Returns threads of batch that outrank a holder: all on lent lanes, and all in SCHED_DEADLINE. The kernel does
    /// not restore SCHED_DEADLINE for a thread whose container has a list of CPUs. So such threads keep it, and no lane
    /// is lent beside them.
    pub(super) fn outranking_batch(&self) -> OutrankingBatch {
        let (on_lanes, batch) = self.pids_on_lent_lanes_and_all_pids();
        let mut found = OutrankingBatch::default();
        for thread in threads_outranking_holder(batch) {
            if thread.class.is_deadline() {
                found.deadline = found.deadline.or(Some((thread.pid, thread.tid)));
            } else if on_lanes.contains(&thread.pid) {
                found.demotable.push(thread);
            }
        }
        found
    }
}

//! The watchdog of lent lanes: what the agent does when batch does not leave a lane beside its service.
//!
//! The decisions are those of a run's watchdog ([`sidelane_policy::borrow::watchdog`]). The agent's means differ. It puts
//! threads that outrank a holder into the ordinary class, and remembers their original class. It writes the CPUs of
//! containers again. In the end it lends no lane for a while: for the policy these CPUs do not exist, so containers move
//! or pause.

use sidelane_host::cpulist::CpuSet;
use sidelane_host::procfs::{command_name, thread_name};
use sidelane_policy::Nanos;
use sidelane_policy::borrow::watchdog::Step;

use super::Agent;
use super::ranks::OutrankingBatch;
use sidelane_lanes::note::LaneNote;
use sidelane_lanes::watchdog::{Outranking, Stay, longest_stay, situation};

impl Agent {
    /// Checks whether batch stays on a lane beside its service, after an alarm or an earlier step. If so, takes the
    /// next stronger step to remove it.
    pub(super) fn check_for_batch_on_lanes(&mut self, now_ns: Nanos) {
        let Some(lent) = &self.lent else { return };
        lent.alarm_event().clear();
        let memory = self.tracked.tracker().memory();
        let lanes = self.tracked.kept_lanes().flat_map(|kept| &kept.lanes);
        let longest = longest_stay(&memory, lanes);
        let OutrankingBatch { demotable, deadline } = self.outranking_batch();
        let situation = situation(&demotable, longest);
        let Some(lent) = &mut self.lent else { return };
        let step = lent.watchdog.observe(now_ns, situation);
        lent.due_ns = lent.watchdog.next_check_at(now_ns, situation).unwrap_or(Nanos::MAX);
        self.stop_lending_beside_deadline(deadline, now_ns);
        self.take_step(step, longest, &demotable, now_ns);
    }

    /// Lends no lane while a thread of batch is in SCHED_DEADLINE.
    fn stop_lending_beside_deadline(&mut self, deadline: Option<(u32, u32)>, now_ns: Nanos) {
        let Some(lent) = self.lent.as_mut().filter(|lent| lent.beside_deadline != deadline.is_some()) else { return };
        lent.beside_deadline = deadline.is_some();
        self.times.look_ns = now_ns;
        match deadline {
            None => self.log_note("lend", "no batch thread is in SCHED_DEADLINE any more"),
            Some((pid, tid)) => {
                let thread = thread_name(pid, tid);
                self.log_note("withhold", &format!("batch lanes are not lent: {thread} is in SCHED_DEADLINE"));
                self.note_outranking_thread(LaneNote::BatchInDeadline { thread });
            }
        }
    }

    /// Returns the lanes that are not lent now.
    pub(super) fn withheld_lanes(&self) -> CpuSet {
        match &self.lent {
            Some(lent) if lent.beside_deadline => self.lane_cpus(),
            Some(lent) => lent.withheld.clone(),
            None => CpuSet::default(),
        }
    }

    fn take_step(&mut self, step: Step, longest_stay: Option<Stay>, outranking: &[Outranking], now_ns: Nanos) {
        let named = |stay: Stay| (command_name(stay.tid).unwrap_or_default(), stay.lane);
        let stays = longest_stay.map(named);
        match step {
            Step::Wait => {}
            Step::Demote => self.demote_outranking_threads(outranking),
            Step::PutBack => {
                if let Some((thread, lane)) = stays {
                    self.note(LaneNote::BatchStayed { thread, lane });
                }
                self.restore_changed_settings();
                self.times.look_ns = now_ns;
            }
            Step::Stop => {
                let raised = || outranking.iter().find_map(|thread| command_name(thread.tid));
                let thread = stays.map(|(thread, _)| thread).or_else(raised).unwrap_or_default();
                self.demote_outranking_threads(outranking);
                self.withhold(self.lane_cpus(), now_ns);
                self.note(LaneNote::LanesWithheld { thread });
            }
            Step::GoOn => self.withhold(CpuSet::default(), now_ns),
        }
    }

    /// Stops lending these lanes, and lends all other lanes again. The policy decides at once.
    fn withhold(&mut self, lanes: CpuSet, now_ns: Nanos) {
        let Some(lent) = &mut self.lent else { return };
        lent.withheld = lanes;
        self.times.look_ns = now_ns;
        match lent.withheld.to_string() {
            none if none.is_empty() => self.log_note("lend", "batch lanes are lent again"),
            lanes => self.log_note(
                "withhold",
                &format!(
                    "batch lanes {lanes} are not lent for now: batch did not leave \
                                                         its lane"
                ),
            ),
        }
    }
}

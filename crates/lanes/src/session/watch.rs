//! Supervision of a session while batch runs, apart from the decisions for each lane.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use sidelane_policy::borrow::Budget;
use sidelane_policy::borrow::headroom::ObjectiveStatus;

use super::super::gate::{Gate, GateReason, LaneKeeper};
use super::super::placement::Placement;
use super::service::SessionService;
use super::start::{RunningBatch, duplicate_claim_locks};
use super::{Blocked, Session};
use crate::kept_lanes::KeptLanes;
use crate::note::LaneNote;
use crate::promise::share_text;
use crate::service::TrackedService;
use crate::slowdown::{IdleThresholdChange, SlowdownKeeper};
use crate::watchdog::LaneWatch;
use sidelane_diagnostics::log_note::LogNote;
use sidelane_host::clock::now_ns;
use sidelane_host::topology::online_cpus;
use sidelane_requests::objective;
use sidelane_rollback::guardian::CANNOT_RESTART;

/// Interval of supervision.
const SUPERVISE_EVERY: Duration = Duration::from_millis(100);
/// Interval of the checks for services that are gone or have moved, and for processes that joined adopted batch.
const SERVICE_LOOK_EVERY: Duration = Duration::from_millis(500);
/// Interval of the checks for services while a service is on a batch lane, because batch waits until it leaves.
const VISITED_LOOK_EVERY: Duration = Duration::from_millis(200);

impl Session {
    /// Supervises everything that is not decided for each lane; called a few times a second.
    pub fn supervise(&mut self) -> Result<()> {
        self.drain_audit_log();
        self.answer_status_clients();
        self.update_limits()?;
        self.update_slowdown();
        self.update_blocked();
        self.check_gate_trial();
        self.check_scheduler()?;
        self.fail_if_lane_lost(self.keepers().find(|keeper| keeper.is_displaced()).map(LaneKeeper::cpu))?;
        self.repin_batch_outside_lanes();
        self.log_watchdog_findings();
        self.check_guardian()?;
        if let RunningBatch::Adopted(adopted) = &mut self.work {
            adopted.accept_thaw_by_owner(&self.confinement, &mut self.guardian)?;
        }
        let is_visited = self.keepers().any(LaneKeeper::has_service_visitors);
        if self.service_looked_at.elapsed() >= if is_visited { VISITED_LOOK_EVERY } else { SERVICE_LOOK_EVERY } {
            self.service_looked_at = Instant::now();
            let online = online_cpus().context("cannot read which CPUs are online")?;
            self.fail_if_lane_lost(self.lanes.batch_cpus().difference(&online).iter().next())?;
            self.check_services()?;
            if let RunningBatch::Adopted(adopted) = &mut self.work {
                let left = adopted.update_members(&self.confinement, &self.job, &mut self.guardian)?;
                left.into_iter().for_each(|process| self.add_limited_note(LaneNote::LeftAdopted { process }));
            }
            if matches!(self.gate_reason, GateReason::TookOver { .. }) {
                // A thread that was in a check when the holders took over may have promised since.
                self.memory().promises().remove_all();
            }
            // Threads are restored after processes that have left adopted batch were given back.
            self.restore_escaped_threads();
        }
        Ok(())
    }

    /// Writes the audit log. An error of the log never ends a run.
    fn drain_audit_log(&mut self) {
        let Some(log) = &self.log else { return };
        log.request_write();
        if let Some(note) = LogNote::about_failing_audit_log(log.path(), &log.state()) {
            self.add_note(note);
        }
    }

    /// Learns from the requests that have finished, and computes new limits.
    fn update_limits(&mut self) -> Result<()> {
        for index in 0..self.services.len() {
            let (tracked, slowdown) = (&mut self.services[index].tracked, &mut self.slowdown);
            if tracked.kept.is_none() {
                continue;
            }
            tracked.fetch_requests(|request| {
                slowdown.iter_mut().for_each(|slowdown| slowdown.record_request(index as u64, request));
            })?;
            let Some(limits) = tracked.kept.as_mut().map(|kept| &mut kept.limits) else { continue };
            let (budget, standing) = (limits.budget(), limits.update_limits());
            let Budget::Slo(slo) = budget else { continue };
            let slo = objective::format_objective(slo);
            match standing {
                Some(ObjectiveStatus::MissedAlone) => self.add_note(LaneNote::MissedAlone { slo }),
                Some(ObjectiveStatus::Late) => self.add_note(LaneNote::Late { slo }),
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns when the next call of [`Session::supervise`] is due, at the latest.
    pub fn time_to_next_supervise(&self) -> Duration {
        let due_ns = self.slowdown.as_ref().map(|slowdown| slowdown.next_window_at().saturating_sub(now_ns()));
        due_ns.map_or(SUPERVISE_EVERY, |due_ns| SUPERVISE_EVERY.min(Duration::from_nanos(due_ns)))
    }

    /// Continues with the windows of the slowdown measurement: starts or stops observing requests, and keeps batch off
    /// or not.
    fn update_slowdown(&mut self) {
        let Some(slowdown) = &mut self.slowdown else { return };
        let Some(changes) = slowdown.advance_windows(now_ns()) else { return };
        self.set_idle_thresholds();
        for change in changes {
            self.note_idle_threshold(&change);
        }
    }

    /// Starts or stops the observation of requests, and sets the idle thresholds of the keepers, for the present window
    /// of the slowdown measurement.
    fn set_idle_thresholds(&self) {
        let Some(slowdown) = &self.slowdown else { return };
        let seen = self.services.iter().map(|service| &service.tracked).enumerate();
        for (index, tracked) in seen.filter(|(_, tracked)| tracked.requests.source.is_some()) {
            tracked.requests.set_observing(slowdown.needs_requests());
            tracked.kept.iter().for_each(|kept| kept.set_idle_threshold(slowdown.idle_threshold(index as u64)));
        }
    }

    /// Returns the measurement of the slowdown; `None` if it is not measured.
    pub fn slowdown(&self) -> Option<&SlowdownKeeper> {
        self.slowdown.as_ref()
    }

    /// Continues from the measurements of another session of the same service and batch command.
    pub fn resume_measurements_from(&mut self, earlier: &SlowdownKeeper) {
        if let Some(slowdown) = &mut self.slowdown {
            slowdown.resume_from(earlier);
            self.set_idle_thresholds();
        }
    }

    /// Updates whether batch is blocked: every keeper keeps it off, and it does not run on its lanes.
    fn update_blocked(&mut self) {
        let keepers = self.keepers().map(LaneKeeper::block_reason);
        let why = keepers.reduce(|one, other| one.and(other)).flatten();
        // The accounting is large, so it is not read while batch may run.
        let batch_ns = if why.is_some() { self.accounting().batch_ns(&self.lanes) } else { 0 };
        let goes_on = why.is_some() && batch_ns == self.blocked.batch_ns;
        let since = if goes_on { self.blocked.since } else { Instant::now() };
        self.blocked = Blocked { since, batch_ns, why };
    }

    /// Lets holders take over from a gate on trial under which batch overlaps too much.
    fn check_gate_trial(&mut self) {
        let Some(mut trial) = self.trial else { return };
        let batch = self.lanes.batch_cpus();
        let failed = trial.observe(now_ns(), self.memory().overlap(&self.lanes.request_lanes, &batch));
        self.trial = Some(trial).filter(|_| failed.is_none());
        let Some(overlap) = failed else { return };
        self.memory().stop_self_checking(&batch);
        // Batch may run or nap beside the busy service now, without a summons.
        self.keepers().for_each(LaneKeeper::check_now);
        let (from, after_s) = (self.gate.name(), now_ns().saturating_sub(self.status.began_ns) / 1_000_000_000);
        (self.gate, self.gate_reason) = (Gate::Holder, GateReason::TookOver { from, after_s });
        self.add_note(LaneNote::HoldersTookOver {
            gate: from.to_owned(),
            after_s,
            overlap: share_text(&overlap, trial.bound_ppm()),
        });
    }

    /// Replaces earlier notes on the idle threshold of the service.
    fn note_idle_threshold(&mut self, change: &IdleThresholdChange) {
        let service = self.services[change.service as usize].tracked.name.clone();
        self.notes.retain(|note| !note.matches(|note: &LaneNote| note.is_about_idle_threshold(&service)));
        if let Some(note) = LaneNote::from_idle_threshold(service, change.threshold, change.verdict) {
            self.add_note(note);
        }
    }

    /// Notes once that the kernel has ended batch's scheduler, and restores the class of threads that have left it.
    fn check_scheduler(&mut self) -> Result<()> {
        if let Some(error) = self.keepers().find_map(LaneKeeper::takeover_error) {
            bail!(
                "the run has ended: the kernel ended batch's scheduler, and its lanes cannot be held ({error}); use \
                   --gate holder"
            );
        }
        let Some(scheduler) = &self.scheduler else { return Ok(()) };
        if let Some(why) = scheduler.ejection() {
            self.add_note(LaneNote::SchedulerPutOut { why: why.to_string() });
            self.scheduler = None;
        } else if scheduler.has_batch_in_other_classes() && self.confinement.move_to_sched_ext() {
            self.add_note(LaneNote::LeftSchedulerClass);
        }
        Ok(())
    }

    /// Returns an error if the lane `lost_cpu` has no keeper, because batch must not run there.
    fn fail_if_lane_lost(&self, lost_cpu: Option<u32>) -> Result<()> {
        let Some(cpu) = lost_cpu else { return Ok(()) };
        bail!(
            "the run has ended: batch lane {cpu} went offline, or its holder was moved to another CPU; choose other \
             lanes with --lanes"
        )
    }

    /// Logs the steps of the watchdog, and makes notes of them.
    pub(super) fn log_watchdog_findings(&mut self) {
        let findings = self.watch.as_ref().map(LaneWatch::take_findings).unwrap_or_default();
        for finding in findings {
            if let Some(log) = &mut self.log {
                log.record_action(finding.at_ns, finding.name(), &finding.to_string());
            }
            if let Some(note) = finding.note() {
                self.add_limited_note(note);
            }
        }
    }

    fn repin_batch_outside_lanes(&mut self) {
        let strays = self.memory().batch_switches_outside_lanes();
        if strays > self.strays_seen {
            self.strays_seen = strays;
            self.confinement.pin_to_usable_lanes();
        }
    }

    fn check_guardian(&mut self) -> Result<()> {
        let alive = self.guardian.is_alive();
        if !alive {
            self.guardian.restart(&duplicate_claim_locks(&self.claims)?).context(CANNOT_RESTART)?;
            // The new guardian has started with the whole list of changes, so the loss of the old one is only noted.
            self.add_note(LaneNote::GuardianEnded);
        }
        if !self.guardian.take_frozen_changes().is_empty() {
            self.was_stopped = true;
            self.confinement.reapply_state().context("cannot resume batch after sidelane was stopped")?;
            self.guardian.confirm_frozen_changes().context("cannot tell the guardian that batch was resumed")?;
        }
        Ok(())
    }

    /// Finds services that were restarted, and lets lanes be held again that a service had visited.
    fn check_services(&mut self) -> Result<()> {
        for index in 0..self.services.len() {
            let pids = self.check_service(index)?;
            self.services[index].update_pinned(&pids, &mut self.guardian)?;
            if self.services[index].tracked.kept.as_ref().is_some_and(KeptLanes::has_service_visitors) {
                self.handle_service_visit(index, pids)?;
            }
        }
        Ok(())
    }

    fn check_service(&mut self, index: usize) -> Result<BTreeSet<u32>> {
        let SessionService { placement, tracked: TrackedService { tracking, requests, .. }, .. } =
            &mut self.services[index];
        let mut pids: BTreeSet<u32> = tracking.processes().into_iter().collect();
        let had_gone = pids.is_empty();
        let mut has_new = false;
        if had_gone || placement.target.can_gain_processes() {
            let found = placement.target.find().map(|service| service.pids).unwrap_or_default();
            let new: BTreeSet<u32> = found.into_iter().filter(|pid| tracking.is_untracked(*pid)).collect();
            tracking.add_processes(&new);
            pids.extend(&new);
            has_new = !new.is_empty();
        }
        let note = had_gone.then(|| match pids.is_empty() {
            true => LaneNote::ServiceEnded { target: placement.target.clone() },
            false => LaneNote::ServiceCameBack { target: placement.target.clone() },
        });
        // New processes may have sockets or emit requests, and any process may emit its first request at any time.
        let looks_again = has_new || requests.are_emitted();
        if let Some(source) = requests.source.as_mut().filter(|_| looks_again) {
            source.update_processes(&pids)?;
        }
        note.into_iter().for_each(|note| self.add_note(note));
        Ok(pids)
    }

    fn handle_service_visit(&mut self, index: usize, pids: BTreeSet<u32>) -> Result<()> {
        let Placement { target, lanes, .. } = &self.services[index].placement;
        let (target, requests) = (target.clone(), lanes.request_lanes.to_string());
        self.add_note(LaneNote::ServiceVisited { target, requests });
        let service = &mut self.services[index];
        service.placement.service.pids = pids.clone();
        service.repin_moved_threads(&mut self.guardian)?;
        service.tracked.kept.iter().for_each(|kept| kept.rehold_visited_lanes(|| pids.clone()));
        Ok(())
    }
}

//! Connection between the policy and the threads: feeds it events, and carries out its actions.

use std::collections::BTreeSet;

use anyhow::Result;
use sidelane_host::cpulist::CpuSet;
use sidelane_policy::Policy;
use sidelane_policy::cpus::{self, CpuMask};
use sidelane_policy::hurryup::{
    BigLittleCores, Config, HurryAction, HurryActions, HurryEvent, HurryReason, HurryUp, MAX_THREADS, Request,
    classify_lanes,
};

use super::figures::Figures;
use super::log::{ThreadAudit, ThreadDecision, ThreadState};
use super::pace::{NextPoll, PollPacer, WakeConditions};
use super::pool::{NotMoved, Pool};
use super::settings::CoreSizes;
use super::work::{ThreadEvent, WakeupCpus};
use sidelane_rollback::cpu_mask::to_cpu_mask;

/// Rule for which cores are big.
enum Sizing {
    Fixed(BigLittleCores),
    /// All lanes, and the sibling lanes of each core. A lane is big while its siblings are idle.
    Lanes(CpuMask, Box<cpus::CoreTopology>),
}

impl Sizing {
    fn from_sizes(sizes: &CoreSizes) -> Self {
        match sizes {
            CoreSizes::Cores(cores) => {
                Self::Fixed(BigLittleCores { big: to_cpu_mask(&cores.big), little: to_cpu_mask(&cores.little) })
            }
            CoreSizes::Lanes(cores) => {
                let cores = || cores.iter().map(to_cpu_mask);
                Self::Lanes(
                    cores().fold(CpuMask::EMPTY, |all, core| all.or(&core)),
                    Box::new(cpus::CoreTopology::from_cores(cores())),
                )
            }
        }
    }
}

/// Mapper of threads to cores.
pub struct Mapper {
    policy: Box<HurryUp>,
    pace: PollPacer,
    sizes: Sizing,
    online: CpuMask,
    /// Core sizes that were last passed to the policy.
    told: Option<BigLittleCores>,
    pool: Pool,
    actions: Box<HurryActions>,
    /// Buffer for the actions that are being carried out, kept to reuse its memory.
    todo: Vec<HurryAction>,
    /// Next number for a request that has none. These numbers count down from the maximum; numbers from sources count
    /// up.
    next_request: Request,
    figures: Figures,
    audit: ThreadAudit,
}

impl Mapper {
    /// Creates a mapper. No thread is bound before an event names it.
    pub fn new(mut config: Config, sizes: &CoreSizes, pool: Pool, audit: ThreadAudit) -> Self {
        config.options.one_by_one = matches!(sizes, CoreSizes::Lanes(_));
        let (policy, sizes) = (Box::new(HurryUp::new(config)), Sizing::from_sizes(sizes));
        let (actions, todo, figures) = Default::default();
        Self {
            policy,
            pace: PollPacer::new(config.scan_times),
            sizes,
            online: CpuMask::EMPTY,
            told: None,
            pool,
            actions,
            todo,
            next_request: Request::MAX,
            figures,
            audit,
        }
    }

    /// Sets the CPUs that are online.
    pub fn set_online_cpus(&mut self, now_ns: u64, online_cpus: &CpuSet) {
        self.online = to_cpu_mask(online_cpus);
        self.update_policy_sizes(now_ns);
    }

    /// Tells the policy which cores are big, if that has changed.
    fn update_policy_sizes(&mut self, now_ns: u64) {
        let sizes = match &self.sizes {
            Sizing::Fixed(cores) => {
                BigLittleCores { big: cores.big.and(&self.online), little: cores.little.and(&self.online) }
            }
            Sizing::Lanes(lanes, siblings) => {
                classify_lanes(&lanes.and(&self.online), siblings, &self.policy.working_cores())
            }
        };
        if self.told != Some(sizes) {
            self.told = Some(sizes);
            self.notify_policy(now_ns, HurryEvent::Cores(sizes));
        }
    }

    /// Passes an event of a thread to the policy. The first event of a thread adds it to the pool.
    pub fn record_event(&mut self, event: ThreadEvent) -> Result<()> {
        let (ThreadEvent::Working { tid, .. }
        | ThreadEvent::Served { tid, .. }
        | ThreadEvent::Aborted { tid, .. }
        | ThreadEvent::StatsLine { tid, .. }) = event;
        let at_ns = match event {
            ThreadEvent::Working { since_ns, .. } => since_ns,
            ThreadEvent::Served { at_ns, .. }
            | ThreadEvent::Aborted { at_ns, .. }
            | ThreadEvent::StatsLine { at_ns, .. } => at_ns,
        };
        if let Some(allowed) = self.pool.add_thread(tid)? {
            let allowed = to_cpu_mask(allowed);
            self.notify_policy(at_ns, HurryEvent::Joined { thread: tid, allowed });
        }
        if !self.pool.has(tid) {
            self.figures.strangers += 1;
            return Ok(());
        }
        match event {
            ThreadEvent::Working { tid, request, since_ns } => self.record_begin(tid, request, since_ns),
            ThreadEvent::Served { request: Some(request), since_ns, at_ns, .. } => {
                self.record_answer(request, since_ns, at_ns)
            }
            ThreadEvent::Served { tid, request: None, since_ns, at_ns } => {
                self.record_answer_by_thread(tid, since_ns, at_ns)
            }
            ThreadEvent::Aborted { tid, since_ns, at_ns } => self.record_abort(tid, since_ns, at_ns),
            ThreadEvent::StatsLine { tid, request, at_ns } => self.record_stats_line(tid, request, at_ns),
        }
        Ok(())
    }

    /// Records that a thread works on a request. A second event for the same unfinished request changes nothing.
    fn record_begin(&mut self, tid: u32, request: Request, since_ns: u64) {
        if self.policy.request_of(tid).is_none_or(|(known, _)| known != request) {
            self.notify_policy(since_ns, HurryEvent::Began { thread: tid, request, since: since_ns });
        }
    }

    fn record_answer(&mut self, request: Request, since_ns: u64, at_ns: u64) {
        // Count requests whose thread has begun another request before they ended.
        self.figures.interleaved += u64::from(self.policy.request_start(request).is_none());
        self.notify_policy(at_ns, HurryEvent::Ended { request });
        self.figures.record_service_time(at_ns.saturating_sub(since_ns));
    }

    /// Records an answered request, which may also have begun since the last poll. If its record came late, its thread
    /// already works on a later request.
    fn record_answer_by_thread(&mut self, tid: u32, since_ns: u64, at_ns: u64) {
        let known = self.policy.request_of(tid);
        let request = known.map_or(self.next_request, |(request, _)| request);
        if known.is_none() {
            self.next_request -= 1;
            self.record_begin(tid, request, since_ns);
        }
        if known.is_none_or(|(_, since)| since < at_ns) {
            self.notify_policy(at_ns, HurryEvent::Ended { request });
        }
        self.figures.record_service_time(at_ns.saturating_sub(since_ns));
    }

    /// Ends a request whose client closed the connection: it can no longer become long. A request that the thread
    /// started since then continues.
    fn record_abort(&mut self, tid: u32, since_ns: u64, at_ns: u64) {
        if let Some((request, _)) = self.policy.request_of(tid).filter(|(_, since)| *since <= since_ns) {
            self.notify_policy(at_ns, HurryEvent::Ended { request });
        }
    }

    fn record_stats_line(&mut self, tid: u32, request: Request, at_ns: u64) {
        let begun = self.policy.request_start(request);
        self.notify_policy(at_ns, HurryEvent::Noted { thread: tid, request, at: at_ns });
        if let Some(since_ns) = begun {
            self.figures.record_service_time(at_ns.saturating_sub(since_ns));
        }
    }

    /// Lets the policy try refused moves again: the CPUs of a cgroup may have come back.
    pub fn retry_refused_moves(&mut self, now_ns: u64) {
        self.notify_policy(now_ns, HurryEvent::Reconsider);
    }

    /// Adds threads of the pool to the policy's table as far as it has free entries.
    pub fn admit_waiting_threads(&mut self, now_ns: u64) {
        let places = MAX_THREADS - self.policy.thread_count();
        let waiting = self.pool.workers().filter(|(tid, _)| !self.policy.has_thread(*tid)).take(places);
        let waiting: Vec<(u32, CpuMask)> = waiting.map(|(tid, cpus)| (tid, to_cpu_mask(cpus))).collect();
        waiting
            .into_iter()
            .for_each(|(thread, allowed)| self.notify_policy(now_ns, HurryEvent::Joined { thread, allowed }));
    }

    /// Removes threads that have ended from the policy.
    pub fn remove_ended_threads(&mut self, now_ns: u64, tids: &[u32]) {
        tids.iter().for_each(|tid| self.notify_policy(now_ns, HurryEvent::Left { thread: *tid }));
    }

    /// Begins a poll. Returns on which CPUs the kernel program wakes this thread at begins and ends of requests; `None`
    /// for no wakeups.
    pub fn begin_poll(&mut self, now_ns: u64, can_wake: bool) -> Option<WakeupCpus> {
        // With sibling lanes, an end on any lane may make another lane big, so wakeups at ends are not used.
        let can_ring = WakeConditions { begins: can_wake, ends: can_wake && matches!(self.sizes, Sizing::Fixed(_)) };
        let wake_on =
            self.pace.begin_poll(now_ns, self.policy.threshold_ns(), can_ring, self.is_waiting_for_big_core());
        self.wakeup_cpus(wake_on).filter(|_| wake_on.is_armed())
    }

    /// Ends a poll. If a long request has begun to wait for a big core, returns the events to set before an immediate
    /// second poll: a core may have become free in between.
    pub fn wakeup_for_new_wait(&mut self) -> Option<WakeupCpus> {
        let wake_on = if self.is_waiting_for_big_core() { self.pace.record_new_wait() } else { None };
        self.wakeup_cpus(wake_on?)
    }

    fn wakeup_cpus(&self, wake_on: WakeConditions) -> Option<WakeupCpus> {
        let (sizes, among) = (self.told?, |wanted, cpus| if wanted { cpus } else { CpuMask::EMPTY });
        Some(WakeupCpus { begins: among(wake_on.begins, sizes.little), ends: among(wake_on.ends, sizes.big) })
    }

    /// Returns whether a thread waits for a free big core. It either has a long request on a little core, or it is the
    /// next thread to be placed ahead of its request.
    fn is_waiting_for_big_core(&self) -> bool {
        match &self.sizes {
            Sizing::Fixed(_) => self.policy.why() == HurryReason::NoBigCore || self.policy.is_preplacing(),
            Sizing::Lanes(..) => {
                let little = self.told.map_or(CpuMask::EMPTY, |sizes| sizes.little);
                !self.policy.working_cores().and(&little).is_empty()
            }
        }
    }

    /// Records the CPU time that a number of polls has used.
    pub fn record_poll_cost(&mut self, cpu_ns: u64, polls: u64) {
        self.pace.record_poll_cost(cpu_ns, polls);
    }

    /// Moves the threads that are due, and returns when to poll again.
    pub fn move_due_threads(&mut self, now_ns: u64) -> NextPoll {
        // On sibling lanes requests move one by one, so allow one round for each lane.
        let rounds = match &self.sizes {
            Sizing::Fixed(_) => 1,
            Sizing::Lanes(lanes, _) => lanes.len(),
        };
        for _ in 0..rounds {
            if !self.run_policy_round(now_ns) {
                break;
            }
        }
        self.pace.next_poll(
            now_ns,
            self.policy.threshold_ns(),
            self.policy.next_wakeup(),
            self.is_waiting_for_big_core(),
        )
    }

    /// Carries out one round of the policy's actions. Returns whether there were any.
    fn run_policy_round(&mut self, now_ns: u64) -> bool {
        self.update_policy_sizes(now_ns);
        self.actions.clear();
        self.policy.observe(now_ns, &HurryEvent::Nothing, &mut self.actions);
        let moves = self.actions.iter().next().is_some();
        self.apply_actions(now_ns);
        moves
    }

    fn notify_policy(&mut self, at_ns: u64, event: HurryEvent) {
        self.actions.clear();
        self.policy.record_event(at_ns, &event, &mut self.actions);
        self.apply_actions(at_ns);
    }

    fn apply_actions(&mut self, now_ns: u64) {
        let mut todo = std::mem::take(&mut self.todo);
        todo.extend(self.actions.iter());
        todo.drain(..).for_each(|action| self.apply_action(now_ns, action));
        self.todo = todo;
    }

    fn apply_action(&mut self, now_ns: u64, action: HurryAction) {
        let (HurryAction::Map { thread, .. } | HurryAction::Hurry { thread } | HurryAction::Restore { thread }) =
            action;
        if self.is_cancelled(action) {
            return;
        }
        let since_ns = self.policy.request_of(thread).map(|(_, since)| since);
        let (threshold_ns, why) = (self.policy.threshold_ns(), self.policy.why());
        let outcome = match action {
            HurryAction::Map { cpu, .. } => self.pool.bind(thread, &CpuSet::from_iter([cpu as u32])),
            HurryAction::Hurry { .. } => self.pool.bind(thread, &self.big_cores()),
            HurryAction::Restore { .. } => {
                self.pool.restore_thread(thread);
                Ok(())
            }
        };
        let failed = outcome.as_ref().err().copied();
        let seen = ThreadState { since_ns, threshold_ns, failed };
        self.audit.record(now_ns, ThreadDecision { thread, action, why, seen });
        let Some(failed) = failed else { return };
        match action {
            HurryAction::Map { cpu, .. } => self.record_failed_move(now_ns, thread, &[cpu], failed),
            HurryAction::Hurry { .. } => {
                let big: Vec<usize> = self.big_cores().iter().map(|cpu| cpu as usize).collect();
                self.record_failed_move(now_ns, thread, &big, failed);
            }
            HurryAction::Restore { .. } => {}
        }
    }

    /// Returns the big cores, as last passed to the policy.
    fn big_cores(&self) -> CpuSet {
        self.told.iter().flat_map(|sizes| sizes.big.iter()).map(|cpu| cpu as u32).collect()
    }

    /// Binds threads again that have other CPUs than those they were bound to. With `by_guardian`, the guardian gave
    /// them their CPUs back while this process was halted. Otherwise another process changed them, which is counted.
    pub fn rebind_displaced_threads(&mut self, now_ns: u64, by_guardian: bool) {
        let strays = self.pool.displaced_threads();
        for thread in &strays {
            let cpus =
                self.policy.core_of(*thread).map_or_else(|| self.big_cores(), |cpu| CpuSet::from_iter([cpu as u32]));
            if let Err(why) = self.pool.bind(*thread, &cpus) {
                self.record_failed_move(now_ns, *thread, &cpus.iter().map(|cpu| cpu as usize).collect::<Vec<_>>(), why);
            }
        }
        self.figures.rebound += if by_guardian { 0 } else { strays.len() as u64 };
    }

    /// Returns whether an action is obsolete: the policy has cancelled it after another move failed.
    fn is_cancelled(&self, action: HurryAction) -> bool {
        match action {
            HurryAction::Map { thread, cpu } => self.policy.core_of(thread) != Some(cpu),
            HurryAction::Hurry { .. } | HurryAction::Restore { .. } => false,
        }
    }

    fn record_failed_move(&mut self, now_ns: u64, thread: u32, cpus: &[usize], reason: NotMoved) {
        cpus.iter().for_each(|cpu| self.notify_policy_of_failure(now_ns, HurryEvent::Refused { thread, cpu: *cpu }));
        match reason {
            NotMoved::Refused => self.figures.refused += 1,
            NotMoved::Ended => {
                self.pool.forget_thread(thread);
                self.notify_policy_of_failure(now_ns, HurryEvent::Left { thread });
            }
        }
    }

    /// Tells the policy that an action failed. The policy's answer is ignored until the next poll.
    fn notify_policy_of_failure(&mut self, now_ns: u64, event: HurryEvent) {
        self.policy.record_event(now_ns, &event, &mut HurryActions::default());
    }

    /// Returns the figures up to now.
    pub fn figures(&self) -> Figures {
        let mut figures = self.figures.clone();
        figures.threads = self.policy.thread_count();
        figures.unseated = (self.pool.workers().count() - figures.threads) as u64;
        figures.others = self.pool.foreign_process_count() as u64;
        figures.threshold_ns = self.policy.threshold_ns();
        figures.lost = self.policy.lost_requests();
        // A thread's next request ends the interleaved one, so interleaved requests are not also counted as unended.
        figures.lost.unended = figures.lost.unended.saturating_sub(figures.interleaved);
        figures.moved = self.policy.moved_count();
        figures.preplaced = self.policy.preplaced_count();
        figures.is_oversubscribed = self.policy.is_oversubscribed();
        figures
    }

    /// Returns the pool of threads.
    pub fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }

    /// Gives all threads of the service's processes `pids` their original CPUs back.
    pub fn restore_all_threads(self, pids: &BTreeSet<u32>) -> Result<()> {
        self.pool.restore_all_threads(pids)
    }
}

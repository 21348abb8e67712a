//! Connection between the policy and the threads: feeds it events, and carries out its actions.

use std::collections::BTreeSet;

use anyhow::Result;
use sidelane_host::cpulist::CpuSet;
use sidelane_policy::Policy;
use sidelane_policy::cpus::{self, CpuMask};
use sidelane_policy::hurryup::{
    BigLittleCores, Config, HurryAction, HurryActions, HurryEvent, HurryReason, HurryUp, MAX_THREADS, Request,
    sizes_of_lanes,
};

use super::figures::Figures;
use super::log::{ThreadAudit, ThreadDecision, ThreadState};
use super::pace::{Next, Pace, WakeConditions};
use super::pool::{NotMoved, Pool};
use super::settings::Sizes;
use super::work::{WakeupCpus, Work};
use sidelane_rollback::cpu_mask::mask;

/// Rule for which cores are big.
enum Sizing {
    Fixed(BigLittleCores),
    /// All lanes, and the sibling lanes of each core. A lane is big while its siblings are idle.
    Lanes(CpuMask, Box<cpus::CoreTopology>),
}

impl Sizing {
    fn of(sizes: &Sizes) -> Self {
        match sizes {
            Sizes::Cores(cores) => Self::Fixed(BigLittleCores { big: mask(&cores.big), little: mask(&cores.little) }),
            Sizes::Lanes(cores) => {
                let cores = || cores.iter().map(mask);
                Self::Lanes(
                    cores().fold(CpuMask::EMPTY, |all, core| all.or(&core)),
                    Box::new(cpus::CoreTopology::of(cores())),
                )
            }
        }
    }
}

/// Mapper of threads to cores.
pub struct Mapper {
    policy: Box<HurryUp>,
    pace: Pace,
    sizes: Sizing,
    online: CpuMask,
    /// Core sizes that were last passed to the policy.
    told: Option<BigLittleCores>,
    pool: Pool,
    actions: Box<HurryActions>,
    /// Buffer for the actions that are being carried out, kept to reuse its memory.
    todo: Vec<HurryAction>,
    /// Next request number for requests without one. These count down from the maximum; sources count up.
    next_request: Request,
    figures: Figures,
    audit: ThreadAudit,
}

impl Mapper {
    /// Creates a mapper. No thread is bound before an event names it.
    pub fn new(mut config: Config, sizes: &Sizes, pool: Pool, audit: ThreadAudit) -> Self {
        config.options.one_by_one = matches!(sizes, Sizes::Lanes(_));
        let (policy, sizes) = (Box::new(HurryUp::new(config)), Sizing::of(sizes));
        let (actions, todo, figures) = Default::default();
        Self {
            policy,
            pace: Pace::new(config.scan_times),
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
    pub fn use_online(&mut self, now_ns: u64, online: &CpuSet) {
        self.online = mask(online);
        self.tell_sizes(now_ns);
    }

    /// Tells the policy which cores are big, if that has changed.
    fn tell_sizes(&mut self, now_ns: u64) {
        let sizes = match &self.sizes {
            Sizing::Fixed(cores) => {
                BigLittleCores { big: cores.big.and(&self.online), little: cores.little.and(&self.online) }
            }
            Sizing::Lanes(lanes, siblings) => {
                sizes_of_lanes(&lanes.and(&self.online), siblings, &self.policy.working())
            }
        };
        if self.told != Some(sizes) {
            self.told = Some(sizes);
            self.book(now_ns, HurryEvent::Cores(sizes));
        }
    }

    /// Passes an event of a thread to the policy. The first event of a thread adds it to the pool.
    pub fn record(&mut self, work: Work) -> Result<()> {
        let (Work::Working { tid, .. } | Work::Served { tid, .. } | Work::Cut { tid, .. } | Work::Line { tid, .. }) =
            work;
        let at_ns = match work {
            Work::Working { since_ns, .. } => since_ns,
            Work::Served { at_ns, .. } | Work::Cut { at_ns, .. } | Work::Line { at_ns, .. } => at_ns,
        };
        if let Some(allowed) = self.pool.join(tid)? {
            let allowed = mask(allowed);
            self.book(at_ns, HurryEvent::Joined { thread: tid, allowed });
        }
        if !self.pool.has(tid) {
            self.figures.strangers += 1;
            return Ok(());
        }
        match work {
            Work::Working { tid, request, since_ns } => self.works(tid, request, since_ns),
            Work::Served { request: Some(request), since_ns, at_ns, .. } => self.served(request, since_ns, at_ns),
            Work::Served { tid, request: None, since_ns, at_ns } => self.thread_served(tid, since_ns, at_ns),
            Work::Cut { tid, since_ns, at_ns } => self.cut(tid, since_ns, at_ns),
            Work::Line { tid, request, at_ns } => self.line(tid, request, at_ns),
        }
        Ok(())
    }

    /// Records that a thread works on a request. A second event for the same unfinished request changes nothing.
    fn works(&mut self, tid: u32, request: Request, since_ns: u64) {
        if self.policy.request_of(tid).is_none_or(|(known, _)| known != request) {
            self.book(since_ns, HurryEvent::Began { thread: tid, request, since: since_ns });
        }
    }

    fn served(&mut self, request: Request, since_ns: u64, at_ns: u64) {
        // Count requests whose thread has begun another request before their end.
        self.figures.interleaved += u64::from(self.policy.since(request).is_none());
        self.book(at_ns, HurryEvent::Ended { request });
        self.figures.served(at_ns.saturating_sub(since_ns));
    }

    /// Records an answered request, which may also have begun since the last poll. If its record came late, its thread
    /// already works on a later request.
    fn thread_served(&mut self, tid: u32, since_ns: u64, at_ns: u64) {
        let known = self.policy.request_of(tid);
        let request = known.map_or(self.next_request, |(request, _)| request);
        if known.is_none() {
            self.next_request -= 1;
            self.works(tid, request, since_ns);
        }
        if known.is_none_or(|(_, since)| since < at_ns) {
            self.book(at_ns, HurryEvent::Ended { request });
        }
        self.figures.served(at_ns.saturating_sub(since_ns));
    }

    /// Ends a request whose client closed the connection: it can no longer become long. A request that the thread
    /// started since then continues.
    fn cut(&mut self, tid: u32, since_ns: u64, at_ns: u64) {
        if let Some((request, _)) = self.policy.request_of(tid).filter(|(_, since)| *since <= since_ns) {
            self.book(at_ns, HurryEvent::Ended { request });
        }
    }

    fn line(&mut self, tid: u32, request: Request, at_ns: u64) {
        let begun = self.policy.since(request);
        self.book(at_ns, HurryEvent::Noted { thread: tid, request, at: at_ns });
        if let Some(since_ns) = begun {
            self.figures.served(at_ns.saturating_sub(since_ns));
        }
    }

    /// Lets the policy try refused moves again: the CPUs of a cgroup may have come back.
    pub fn reconsider(&mut self, now_ns: u64) {
        self.book(now_ns, HurryEvent::Reconsider);
    }

    /// Adds threads of the pool to the policy's table as far as it has free entries.
    pub fn placed(&mut self, now_ns: u64) {
        let places = MAX_THREADS - self.policy.threads();
        let waiting = self.pool.workers().filter(|(tid, _)| !self.policy.has(*tid)).take(places);
        let waiting: Vec<(u32, CpuMask)> = waiting.map(|(tid, cpus)| (tid, mask(cpus))).collect();
        waiting.into_iter().for_each(|(thread, allowed)| self.book(now_ns, HurryEvent::Joined { thread, allowed }));
    }

    /// Removes threads that have ended from the policy.
    pub fn ended(&mut self, now_ns: u64, tids: &[u32]) {
        tids.iter().for_each(|tid| self.book(now_ns, HurryEvent::Left { thread: *tid }));
    }

    /// Begins a poll. Returns on which CPUs the kernel program wakes this thread at begins and ends of requests; `None`
    /// for no wakeups.
    pub fn begins(&mut self, now_ns: u64, can_ring: bool) -> Option<WakeupCpus> {
        // With sibling lanes, an end on any lane may make another lane big, so wakeups at ends are not used.
        let can_ring = WakeConditions { begins: can_ring, ends: can_ring && matches!(self.sizes, Sizing::Fixed(_)) };
        let wake_on = self.pace.begins(now_ns, self.policy.threshold_ns(), can_ring, self.waits());
        self.wakeup_cpus(wake_on).filter(|_| wake_on.is_armed())
    }

    /// Ends a poll. If a long request has begun to wait for a big core, returns the events to set before an immediate
    /// second poll: a core may have become free in between.
    pub fn begins_to_wait(&mut self) -> Option<WakeupCpus> {
        let wake_on = if self.waits() { self.pace.begins_to_wait() } else { None };
        self.wakeup_cpus(wake_on?)
    }

    fn wakeup_cpus(&self, wake_on: WakeConditions) -> Option<WakeupCpus> {
        let (sizes, among) = (self.told?, |wanted, cpus| if wanted { cpus } else { CpuMask::EMPTY });
        Some(WakeupCpus { begins: among(wake_on.begins, sizes.little), ends: among(wake_on.ends, sizes.big) })
    }

    /// Returns whether a thread waits for a free big core. It either has a long request on a little core, or it is the
    /// next thread to be placed ahead of its request.
    fn waits(&self) -> bool {
        match &self.sizes {
            Sizing::Fixed(_) => self.policy.why() == HurryReason::NoBigCore || self.policy.preplaces(),
            Sizing::Lanes(..) => {
                let little = self.told.map_or(CpuMask::EMPTY, |sizes| sizes.little);
                !self.policy.working().and(&little).is_empty()
            }
        }
    }

    /// Takes the CPU time that a number of polls has used.
    pub fn spent(&mut self, cpu_ns: u64, looks: u64) {
        self.pace.spent(cpu_ns, looks);
    }

    /// Moves the threads that are due, and returns when to poll again.
    pub fn decide(&mut self, now_ns: u64) -> Next {
        // On sibling lanes requests move one by one, so allow one round for each lane.
        let rounds = match &self.sizes {
            Sizing::Fixed(_) => 1,
            Sizing::Lanes(lanes, _) => lanes.len(),
        };
        for _ in 0..rounds {
            if !self.round(now_ns) {
                break;
            }
        }
        self.pace.next(now_ns, self.policy.threshold_ns(), self.policy.next_wakeup(), self.waits())
    }

    /// Carries out one round of the policy's actions. Returns whether there were any.
    fn round(&mut self, now_ns: u64) -> bool {
        self.tell_sizes(now_ns);
        self.actions.clear();
        self.policy.observe(now_ns, &HurryEvent::Nothing, &mut self.actions);
        let moves = self.actions.iter().next().is_some();
        self.carry_out(now_ns);
        moves
    }

    fn book(&mut self, at_ns: u64, seen: HurryEvent) {
        self.actions.clear();
        self.policy.book(at_ns, &seen, &mut self.actions);
        self.carry_out(at_ns);
    }

    fn carry_out(&mut self, now_ns: u64) {
        let mut todo = std::mem::take(&mut self.todo);
        todo.extend(self.actions.iter());
        todo.drain(..).for_each(|action| self.apply(now_ns, action));
        self.todo = todo;
    }

    fn apply(&mut self, now_ns: u64, action: HurryAction) {
        let (HurryAction::Map { thread, .. } | HurryAction::Hurry { thread } | HurryAction::Restore { thread }) =
            action;
        if self.is_taken_back(action) {
            return;
        }
        let since_ns = self.policy.request_of(thread).map(|(_, since)| since);
        let (threshold_ns, why) = (self.policy.threshold_ns(), self.policy.why());
        let outcome = match action {
            HurryAction::Map { cpu, .. } => self.pool.bind(thread, &CpuSet::from_iter([cpu as u32])),
            HurryAction::Hurry { .. } => self.pool.bind(thread, &self.big()),
            HurryAction::Restore { .. } => {
                self.pool.free(thread);
                Ok(())
            }
        };
        let failed = outcome.as_ref().err().copied();
        let seen = ThreadState { since_ns, threshold_ns, failed };
        self.audit.record(now_ns, ThreadDecision { thread, action, why, seen });
        let Some(failed) = failed else { return };
        match action {
            HurryAction::Map { cpu, .. } => self.not_moved(now_ns, thread, &[cpu], failed),
            HurryAction::Hurry { .. } => {
                let big: Vec<usize> = self.big().iter().map(|cpu| cpu as usize).collect();
                self.not_moved(now_ns, thread, &big, failed);
            }
            HurryAction::Restore { .. } => {}
        }
    }

    /// Returns the big cores, as last passed to the policy.
    fn big(&self) -> CpuSet {
        self.told.iter().flat_map(|sizes| sizes.big.iter()).map(|cpu| cpu as u32).collect()
    }

    /// Binds threads again that have other CPUs than those they were bound to. With `by_guardian`, the guardian gave
    /// them their CPUs back while this process was halted. Otherwise another process changed them, which is counted.
    pub fn bind_strays(&mut self, now_ns: u64, by_guardian: bool) {
        let strays = self.pool.strays();
        for thread in &strays {
            let cpus = self.policy.core_of(*thread).map_or_else(|| self.big(), |cpu| CpuSet::from_iter([cpu as u32]));
            if let Err(why) = self.pool.bind(*thread, &cpus) {
                self.not_moved(now_ns, *thread, &cpus.iter().map(|cpu| cpu as usize).collect::<Vec<_>>(), why);
            }
        }
        self.figures.rebound += if by_guardian { 0 } else { strays.len() as u64 };
    }

    /// Returns whether an action is obsolete: the policy has cancelled it after another move failed.
    fn is_taken_back(&self, action: HurryAction) -> bool {
        match action {
            HurryAction::Map { thread, cpu } => self.policy.core_of(thread) != Some(cpu),
            HurryAction::Hurry { .. } | HurryAction::Restore { .. } => false,
        }
    }

    fn not_moved(&mut self, now_ns: u64, thread: u32, cpus: &[usize], why: NotMoved) {
        cpus.iter().for_each(|cpu| self.undone(now_ns, HurryEvent::Refused { thread, cpu: *cpu }));
        match why {
            NotMoved::Refused => self.figures.refused += 1,
            NotMoved::Ended => {
                self.pool.forget(thread);
                self.undone(now_ns, HurryEvent::Left { thread });
            }
        }
    }

    /// Tells the policy that an action failed. Its answer is ignored until the next poll.
    fn undone(&mut self, now_ns: u64, seen: HurryEvent) {
        self.policy.book(now_ns, &seen, &mut HurryActions::default());
    }

    /// Returns the figures up to now.
    pub fn figures(&self) -> Figures {
        let mut figures = self.figures.clone();
        figures.threads = self.policy.threads();
        figures.unseated = (self.pool.workers().count() - figures.threads) as u64;
        figures.others = self.pool.others() as u64;
        figures.threshold_ns = self.policy.threshold_ns();
        figures.lost = self.policy.lost();
        // Interleaved requests had an end, so they do not count as unended.
        figures.lost.unended = figures.lost.unended.saturating_sub(figures.interleaved);
        figures.moved = self.policy.moved();
        figures.preplaced = self.policy.preplaced();
        figures.is_oversubscribed = self.policy.is_oversubscribed();
        figures
    }

    /// Returns the pool of threads.
    pub fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }

    /// Gives all threads of the service's processes `pids` their original CPUs back.
    pub fn end(self, pids: &BTreeSet<u32>) -> Result<()> {
        self.pool.end(pids)
    }
}

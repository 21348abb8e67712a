//! Hurry-up mapper: the loop of Algorithm 1.

use super::action::{HurryActions, HurryReason};
use super::config::{Config, Learning, Mapping, ScanTimes, Threshold};
use super::event::{BigLittleCores, HurryEvent, Request, Thread};
use super::learning::{Learner, ServedRequest};
use super::long::ThreadsOnLittle;
use super::oversubscription;
use super::preplace::{self, TurnCounts, TurnRule};
use super::swap::{Outcome, Round};
use super::table::{LostRequests, ThreadRequestTable};
use super::thread_placement::ThreadPlacement;
use super::threshold_replay::CoreLayout;
use crate::cpus::CpuMask;
use crate::{Nanos, Policy};

/// Hurry-up policy for one service.
#[derive(Clone, Debug)]
pub struct HurryUp {
    config: Config,
    cores: BigLittleCores,
    table: ThreadRequestTable,
    placement: ThreadPlacement,
    learner: Learner,
    turns: TurnCounts,
    /// Whether there are more threads than cores.
    is_oversubscribed: bool,
    /// Start of the present sampling interval, `StartSamplingTime` of Algorithm 1; `None` before the first scan.
    started: Option<Nanos>,
    wakeup: Option<Nanos>,
    why: HurryReason,
    moved: u64,
    preplaced: u64,
}

impl HurryUp {
    /// Creates the policy without cores and threads (lines 1 and 2 of Algorithm 1).
    pub fn new(config: Config) -> Self {
        let learning = match config.threshold {
            Threshold::Given(first_ns) => Learning { first_ns, ..Learning::default() },
            Threshold::Learnt(learning) => learning,
        };
        Self {
            config,
            cores: BigLittleCores::default(),
            table: ThreadRequestTable::new(),
            placement: ThreadPlacement::new(),
            learner: Learner::new(learning),
            turns: TurnCounts::default(),
            is_oversubscribed: false,
            started: None,
            wakeup: None,
            why: HurryReason::default(),
            moved: 0,
            preplaced: 0,
        }
    }

    /// Returns the present time on a little core after which a request is long.
    pub fn threshold_ns(&self) -> Nanos {
        self.learner.threshold_ns()
    }

    /// Returns the core of a thread; `None` if it is not bound.
    pub fn core_of(&self, thread: Thread) -> Option<usize> {
        self.placement.placed_thread(thread)?.cpu
    }

    /// Returns whether a thread may run on a CPU according to this policy.
    pub fn may_use(&self, thread: Thread, cpu: usize) -> bool {
        self.placement.placed_thread(thread).is_none_or(|placed| match placed.cpu {
            Some(core) => core == cpu,
            None => !placed.on_big || self.cores.big.contains(cpu),
        })
    }

    /// Returns whether there are more threads than cores. Then no thread is bound to a single core.
    pub fn is_oversubscribed(&self) -> bool {
        self.is_oversubscribed
    }

    /// Returns the request that a thread works on, and its start.
    pub fn request_of(&self, thread: Thread) -> Option<(Request, Nanos)> {
        let entry = self.table.iter().find(|entry| entry.thread == thread)?;
        Some((entry.request, entry.since))
    }

    /// Returns the start of a request that is under way.
    pub fn request_start(&self, request: Request) -> Option<Nanos> {
        self.table.iter().find(|entry| entry.request == request).map(|entry| entry.since)
    }

    /// Returns the cores with threads that work on requests.
    pub fn working_cores(&self) -> CpuMask {
        self.table.iter().filter_map(|entry| self.core_of(entry.thread)).collect()
    }

    /// Returns the number of threads that the policy moves: [`MAX_THREADS`](super::MAX_THREADS) at most.
    pub fn thread_count(&self) -> usize {
        self.placement.len()
    }

    /// Returns whether the policy moves this thread.
    pub fn has_thread(&self, thread: Thread) -> bool {
        self.placement.placed_thread(thread).is_some()
    }

    /// Returns the number of requests under way.
    pub fn requests_under_way(&self) -> usize {
        self.table.iter().count()
    }

    /// Returns the number of requests that moved to big cores, without refused moves.
    pub fn moved_count(&self) -> u64 {
        self.moved
    }

    /// Returns the number of times that a thread was sent to a big core before it took a request.
    pub fn preplaced_count(&self) -> u64 {
        self.preplaced
    }

    /// Returns the counts of requests that left the table without an end.
    pub fn lost_requests(&self) -> LostRequests {
        self.table.lost()
    }

    fn is_learning(&self) -> bool {
        matches!(self.config.threshold, Threshold::Learnt(_)) && self.config.mapping == Mapping::HurryUp
    }

    /// Records an event at `now`, which may be in the past, without a decision (line 4 of Algorithm 1). A caller that
    /// reads several events at once uses it; the next observation decides which requests are long.
    pub fn record_event(&mut self, now: Nanos, seen: &HurryEvent, out: &mut HurryActions) {
        match *seen {
            HurryEvent::Cores(cores) => self.set_cores(now, cores, out),
            HurryEvent::Joined { thread, allowed } => self.add_thread(now, thread, allowed, out),
            HurryEvent::Left { thread } => {
                self.table.drop_request_of(thread);
                self.placement.remove_thread(thread);
            }
            HurryEvent::Began { thread, request, since } => self.begin_request(now, thread, request, since),
            HurryEvent::Ended { request } => self.end_request(now, request),
            // Lines 5 to 8 of Algorithm 1: the second line of a request in the pipe is its end, the first is its start.
            HurryEvent::Noted { request, .. } if self.table.contains(request) => self.end_request(now, request),
            HurryEvent::Noted { thread, request, at } => self.begin_request(now, thread, request, at),
            HurryEvent::Refused { thread, cpu } => self.undo_refused_move(thread, cpu),
            HurryEvent::Reconsider => {
                self.why = HurryReason::Spread;
                self.account_work(now);
                self.update_oversubscription(now, out);
                self.placement.retry_refused_cores(|action| out.push(action));
            }
            HurryEvent::Nothing => {}
        }
    }

    /// Adds a thread. Work of a former thread with this number is over; the new one may be at work already.
    fn add_thread(&mut self, now: Nanos, thread: Thread, allowed: CpuMask, out: &mut HurryActions) {
        self.why = HurryReason::Spread;
        if self.placement.placed_thread(thread).is_some() {
            self.table.drop_request_of(thread);
        }
        out.extend(self.placement.add_thread(thread, allowed));
        if !self.is_oversubscribed {
            self.update_oversubscription(now, out);
        }
    }

    /// Binds threads, or lets the kernel place them, if the number of threads has crossed the number of cores.
    fn update_oversubscription(&mut self, now: Nanos, out: &mut HurryActions) {
        if self.is_oversubscribed != self.has_more_threads_than_cores() {
            self.set_cores(now, self.cores, out);
        }
    }

    fn has_more_threads_than_cores(&self) -> bool {
        let floats = self.config.options.float_oversubscribed && self.config.mapping == Mapping::HurryUp;
        let cores = self.cores.big.len() + self.cores.little.len();
        floats && cores > 0 && self.placement.len() > cores
    }

    fn undo_refused_move(&mut self, thread: Thread, cpu: usize) {
        let placed = self.placement.placed_thread_mut(thread);
        let was_on_big = placed.is_some_and(|placed| core::mem::take(&mut placed.on_big));
        self.moved -= u64::from(self.placement.undo_refused_move(thread, cpu) || was_on_big);
    }

    fn set_cores(&mut self, now: Nanos, cores: BigLittleCores, out: &mut HurryActions) {
        self.account_work(now);
        self.why = HurryReason::Spread;
        self.cores = cores;
        self.is_oversubscribed = self.has_more_threads_than_cores();
        let usable: CpuMask = match self.config.mapping {
            _ if self.is_oversubscribed => CpuMask::EMPTY,
            Mapping::HurryUp | Mapping::Static => cores.big.or(&cores.little),
            Mapping::AllBig => cores.big,
            Mapping::AllLittle => cores.little,
            Mapping::Kernel => CpuMask::EMPTY,
        };
        self.placement.set_usable_cores(usable, |action| out.push(action));
    }

    fn begin_request(&mut self, now: Nanos, thread: Thread, request: Request, since: Nanos) {
        self.turns.record_begin(thread, since.min(now), &self.placement);
        self.table.begin_request(now, thread, request, since);
        if let Some(placed) = self.placement.placed_thread_mut(thread) {
            (placed.moved, placed.idle_since) = (None, None);
        }
    }

    fn end_request(&mut self, now: Nanos, request: Request) {
        if self.is_learning() {
            self.account_work(now);
        }
        let Some(entry) = self.table.remove_request(request) else { return };
        if let Some(placed) = self.placement.placed_thread_mut(entry.thread) {
            placed.idle_since = Some(now);
        }
        if self.is_learning() {
            let served = ServedRequest { since: entry.since, work_ns: entry.work_ns };
            let preplace = self.config.options.preplace && self.turns.predicted_rule().is_some();
            self.learner.add_served_request(
                served,
                CoreLayout { big: self.cores.big.len(), little: self.cores.little.len(), preplace },
            );
        }
    }

    /// Returns the rule for which idle thread takes the next request, if threads are sent to big cores before they take
    /// requests.
    fn predicted_turn_rule(&self) -> Option<TurnRule> {
        self.turns.predicted_rule().filter(|_| {
            self.config.options.preplace && !self.is_oversubscribed && preplace::should_preplace(self.threshold_ns())
        })
    }

    fn preplace_threads(&mut self, out: &mut HurryActions) {
        let Some(turn) = self.predicted_turn_rule() else { return };
        let free = self.cores.big.without(&self.working_cores());
        let sent = turn.preplace_threads(free, &mut self.placement, |action| out.push(action));
        self.preplaced += sent;
        if sent > 0 && self.why == HurryReason::NoneLong {
            self.why = HurryReason::Preplaced;
        }
    }

    /// Returns whether threads are sent to big cores before they take requests. The end of a request on a big core is
    /// then a reason to scan.
    pub fn is_preplacing(&self) -> bool {
        self.predicted_turn_rule().is_some()
    }

    /// Adds the work of all requests up to now, since one of them is about to change its core or to end.
    fn account_work(&mut self, now: Nanos) {
        let (little, all) = (self.cores.little.len(), self.cores.big.len() + self.cores.little.len());
        for placed in self.placement.iter() {
            // A thread that may run anywhere counts as on little cores for their share of the time.
            let on_little_milli = match placed.cpu {
                Some(cpu) => 1000 * u64::from(self.cores.little.contains(cpu)),
                None if placed.on_big || all == 0 => 0,
                None => 1000 * little as u64 / all as u64,
            };
            if let Some(entry) = self.table.request_of(placed.thread) {
                entry.work_ns += self.learner.work_ns(now.saturating_sub(entry.settled), on_little_milli);
                entry.settled = entry.settled.max(now);
            }
        }
    }

    /// Returns whether it is time to scan (lines 9 and 10 of Algorithm 1).
    fn is_scan_due(&mut self, now: Nanos) -> bool {
        let started = *self.started.get_or_insert(now);
        match self.config.scan_times {
            ScanTimes::Events => true,
            ScanTimes::Sampling(every_ns) => now - started >= every_ns,
        }
    }

    /// Runs lines 11 to 27 of Algorithm 1: finds the long requests, and moves them to big cores.
    fn run_round(&mut self, now: Nanos, out: &mut HurryActions) -> Outcome {
        let outcome =
            if self.is_oversubscribed { self.oversubscribed_round(now, out) } else { self.exchange_round(now, out) };
        self.started = Some(now);
        self.moved += outcome.moved as u64;
        self.why = match outcome {
            Outcome { left: 1.., .. } => HurryReason::NoBigCore,
            Outcome { moved: 1.., .. } => HurryReason::Moved,
            Outcome { .. } => HurryReason::NoneLong,
        };
        self.preplace_threads(out);
        outcome
    }

    fn exchange_round(&mut self, now: Nanos, out: &mut HurryActions) -> Outcome {
        let long = ThreadsOnLittle::find(now, self.threshold_ns(), &self.table, &self.placement, &self.cores);
        if long.iter().next().is_some() && self.is_learning() {
            self.account_work(now);
        }
        let round = Round { now, table: &self.table, cores: &self.cores, options: self.config.options };
        round.run(&long, &mut self.placement, |action| out.push(action))
    }

    fn oversubscribed_round(&mut self, now: Nanos, out: &mut HurryActions) -> Outcome {
        if self.config.options.one_by_one {
            return Outcome::default();
        }
        if self.is_learning() {
            self.account_work(now);
        }
        let threshold_ns = self.threshold_ns();
        oversubscription::restrict_long_to_big(
            now,
            threshold_ns,
            &self.table,
            &mut self.placement,
            &self.cores,
            |action| out.push(action),
        )
    }

    /// Returns the time at which the next request is due to move, after a scan with this outcome.
    fn next_move_at(&self, now: Nanos, outcome: Outcome) -> Option<Nanos> {
        let may_move = |thread: Thread| match self.placement.placed_thread(thread) {
            Some(placed) if self.is_oversubscribed => !placed.on_big && !self.config.options.one_by_one,
            Some(placed) => placed.cpu.is_some_and(|cpu| self.cores.little.contains(cpu)),
            None => false,
        };
        let entries = self.table.iter().filter(|entry| may_move(entry.thread));
        let due = entries.map(|entry| entry.since.saturating_add(self.threshold_ns()).saturating_add(1));
        due.chain(outcome.rested).filter(|at| *at > now).min()
    }

    fn next_wakeup_at(&self, now: Nanos, outcome: Outcome) -> Option<Nanos> {
        match self.config.scan_times {
            _ if self.config.mapping != Mapping::HurryUp => None,
            ScanTimes::Events => self.next_move_at(now, outcome),
            // Without requests the policy waits for the first one, as the paper's read of its pipe does.
            ScanTimes::Sampling(_) if self.requests_under_way() == 0 => None,
            ScanTimes::Sampling(every_ns) => Some(self.started?.saturating_add(every_ns).max(now + 1)),
        }
    }
}

impl Policy for HurryUp {
    type Observation = HurryEvent;
    type Actions = HurryActions;
    type Reason = HurryReason;

    fn observe(&mut self, now: Nanos, seen: &HurryEvent, out: &mut HurryActions) {
        self.record_event(now, seen, out);
        let moves = self.config.mapping == Mapping::HurryUp;
        let outcome = if moves && self.is_scan_due(now) { self.run_round(now, out) } else { Outcome::default() };
        self.wakeup = self.next_wakeup_at(now, outcome);
        if !moves {
            self.why = HurryReason::Fixed;
        }
    }

    fn next_wakeup(&self) -> Option<Nanos> {
        self.wakeup
    }

    fn why(&self) -> HurryReason {
        self.why
    }
}

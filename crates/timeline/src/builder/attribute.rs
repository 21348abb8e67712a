//! Attribution of a request's time to causes, for the time in which a thread had the request.
//!
//! The thread's states lie end to end and give the cause if nothing else is known. Facts of the thread, its process and
//! its CPU, such as interrupts, lie over these states. If several facts are true at once, the time goes to the cause
//! with the highest precedence ([`Cause::precedence`]).

use crate::builder::fact::{Fact, State, Track};
use crate::builder::follow::longest_activity_in_wait;
use crate::builder::futexes::is_lock_by_value;
use crate::builder::request::RequestId;
use crate::builder::thread::{LOST, Thread};
use crate::builder::tiling::{SpanBuilder, unexplained_span};
use crate::builder::world::World;
use crate::cause::{BY_OWN, Cause};
use crate::record::Task;
use crate::timeline::Span;
use crate::wait::{Activity, Object, Purpose, Wait, WaitEnd, call};

/// Longest idle time of a CPU, while a thread waits for it, that counts as the CPU's exit from the idle state.
const IDLE_EXIT_AT_MOST_NS: u64 = 2_000_000;

/// Longest sleep until a set time that counts as a sleep of the language runtime. For a longer sleep, the program
/// itself had set the time.
const RUNTIME_SLEEPS_AT_MOST_NS: u64 = 1_000_000;

/// The states of a thread during the time in which one request was with it.
pub struct ThreadView<'a> {
    pub world: &'a World,
    pub thread: &'a Thread,
    pub tid: u32,
    pub request: RequestId,
    /// Whether the request is in a queue and waits until the thread receives it.
    pub is_queued: bool,
    /// The wait for another service's answer, if the request waits until the thread reads that answer.
    pub answer: Option<Wait>,
    /// Whether the thread has to create the thread that receives the request.
    pub creates: bool,
}

/// Facts that may lie over a thread's state, and the position of the next fact to check.
struct Overlay<'a> {
    track: &'a Track,
    next: usize,
    lasting: Option<Fact>,
}

impl<'a> Overlay<'a> {
    fn starting_at(track: &'a Track, from_ns: u64) -> Overlay<'a> {
        Overlay { track, next: track.first_index_ending_after(from_ns), lasting: None }
    }

    /// Returns the fact that is true at `at_ns` or, if there is none, the next fact after it.
    fn current_or_next_fact(&mut self, at_ns: u64) -> Option<Fact> {
        while self.track.get(self.next).is_some_and(|fact| fact.to_ns <= at_ns) {
            self.next += 1;
        }
        self.track.get(self.next).copied().or(self.lasting)
    }
}

impl ThreadView<'_> {
    /// Adds spans to `tiling` that explain this thread's time until `to_ns`.
    pub fn explain_until(&self, to_ns: u64, tiling: &mut SpanBuilder) {
        let states = &self.thread.states;
        let mut index = states.first_index_ending_after(tiling.next_begin_ns());
        let before = index.checked_sub(1).and_then(|before| states.get(before));
        let mut has_slept = before.is_some_and(|state| self.was_woken_for_request(state, false));
        while let Some(state) = states.get(index).filter(|state| state.from_ns < to_ns) {
            self.explain_state(state, to_ns.min(state.to_ns), has_slept, tiling);
            has_slept = self.was_woken_for_request(state, has_slept);
            index += 1;
        }
        let now = Fact { to_ns: u64::MAX, ..self.thread.state };
        if now.from_ns < to_ns {
            let (epoch, lost_ns) = self.world.epoch;
            tiling.is_missing |= self.thread.epoch != epoch && lost_ns < to_ns;
            self.explain_state(&now, to_ns, has_slept, tiling);
        }
        tiling.add_span_until(to_ns, self.with_own_tid(unexplained_span()));
    }

    /// Returns whether the thread was woken for this request: it sleeps in `state` or has slept before, and works on no
    /// other request.
    fn was_woken_for_request(&self, state: &Fact, has_slept: bool) -> bool {
        match state.state {
            State::Asleep => !self.has_other_request(state),
            State::Running => has_slept && !self.has_other_request(state),
            _ => has_slept,
        }
    }

    fn has_other_request(&self, state: &Fact) -> bool {
        state.request != 0 && state.request != self.request
    }

    fn explain_state(&self, state: &Fact, to_ns: u64, has_slept: bool, tiling: &mut SpanBuilder) {
        // The time before the thread's first record is unknown.
        tiling.is_missing |= state.from_ns > tiling.next_begin_ns() && self.world.epoch.0 > 0;
        tiling.add_span_until(state.from_ns.min(to_ns), self.with_own_tid(unexplained_span()));
        tiling.is_missing |= state.state == State::Unknown && state.detail == LOST && to_ns > tiling.next_begin_ns();
        let base = self.state_span(state, has_slept);
        let mut overlays = self.overlays_between(state, tiling.next_begin_ns(), to_ns);
        if overlays.iter().all(Option::is_none) {
            tiling.add_span_until(to_ns, base);
            return;
        }
        while tiling.next_begin_ns() < to_ns {
            let (until_ns, span) = self.next_span(state, &base, &mut overlays, tiling.next_begin_ns());
            tiling.add_span_until(until_ns.min(to_ns), span);
        }
    }

    /// Returns the span at `at_ns`, and the time until which its cause does not change.
    fn next_span(&self, state: &Fact, base: &Span, overlays: &mut Overlays, at_ns: u64) -> (u64, Span) {
        let mut until_ns = u64::MAX;
        let mut best = *base;
        for overlay in overlays.iter_mut().flatten() {
            let Some(fact) = overlay.current_or_next_fact(at_ns) else { continue };
            if fact.from_ns > at_ns {
                until_ns = until_ns.min(fact.from_ns);
                continue;
            }
            if fact.to_ns <= at_ns {
                continue;
            }
            until_ns = until_ns.min(fact.to_ns);
            if fact.cause.precedence() > best.cause.precedence() {
                best = self.overlaid_span(state, &fact, base);
            }
        }
        (until_ns, best)
    }

    fn overlaid_span(&self, state: &Fact, fact: &Fact, base: &Span) -> Span {
        let is_long = fact.cause == Cause::IdleExit && state.to_ns.saturating_sub(state.from_ns) > IDLE_EXIT_AT_MOST_NS;
        let cause = if is_long { Cause::NotExplained } else { fact.cause };
        let by = if fact.by.tid != 0 { (fact.by.tid, fact.by.pid) } else { (0, 0) };
        Span { cause, by_tid: by.0, by_pid: by.1, detail: fact.detail, ..*base }
    }

    fn with_own_tid(&self, span: Span) -> Span {
        Span { tid: self.tid, ..span }
    }

    /// Returns the span of a thread's state without the facts that lie over it.
    fn state_span(&self, state: &Fact, has_slept: bool) -> Span {
        let cpu = (state.state != State::Unknown && state.state != State::Asleep).then_some(state.cpu);
        // If `by` is a thread of the tracer, it had the CPU for a part of the wait only, which
        // `Cpu::tracer` records. So the wait as a whole does not name it.
        let was_tracer = state.by.pid != 0 && state.by.pid == self.world.tracer_pid && state.cause == Cause::RunQueue;
        let by = if was_tracer { Task::default() } else { state.by };
        let span = self.with_own_tid(Span {
            cause: state.cause,
            cpu,
            by_tid: by.tid,
            by_pid: by.pid,
            detail: state.detail,
            behind: if self.has_other_request(state) { self.world.requests.number(state.request) } else { 0 },
            ..unexplained_span()
        });
        match state.state {
            State::Running if self.has_other_request(state) || (self.is_queued && !has_slept && state.request == 0) => {
                self.queued_span(span)
            }
            State::Asleep => self.sleep_span(state, span),
            State::Ready if state.cause == Cause::Lock => self.cpu_wait_before_lock(state, span),
            State::Ready if state.cause == Cause::RunQueue => {
                self.mark_wait_behind_own_threads(self.with_cpu_occupant(state, span))
            }
            _ => span,
        }
    }

    /// Returns whether the process's language runtime moves its tasks between threads. The reason for a thread's sleep
    /// then does not belong to the request that the thread received. Such a runtime itself sleeps until a set time for
    /// some microseconds at most.
    fn has_own_scheduler(&self, state: &Fact, wait: &Wait) -> bool {
        let is_idle = match wait.purpose() {
            Purpose::Futex | Purpose::Poll | Purpose::Completion => true,
            Purpose::Sleep => state.to_ns.saturating_sub(state.from_ns) < RUNTIME_SLEEPS_AT_MOST_NS,
            _ => false,
        };
        is_idle && self.world.has_own_scheduler(self.thread.pid)
    }

    /// Returns the span of a thread's sleep. A thread that waits for the next event of any kind works on no request.
    fn sleep_span(&self, state: &Fact, span: Span) -> Span {
        let wait = self.thread.wait_of(state);
        let is_idle = wait.is_some_and(|wait| wait.purpose().is_event_loop_wait());
        let is_others = self.has_other_request(state) && is_sleep_for_request(state.cause);
        match wait {
            Some(wait) if self.has_own_scheduler(state, &wait) => event_loop_wait_span(span, wait),
            Some(wait) if self.creates && !is_idle && !is_others => self.with_wait_details(state, span, wait),
            Some(wait) if self.answer.is_some() && is_idle => event_loop_wait_span(span, wait),
            _ if self.is_queued && (is_idle || !is_others) => Span { cause: cause_while_idle(state), ..span },
            Some(wait) if is_idle && (is_others || (state.request == 0 && is_sleep_for_request(state.cause))) => {
                event_loop_wait_span(span, wait)
            }
            _ if is_others => self.queued_span(span),
            Some(wait) if is_idle && (state.cause == Cause::NotExplained || self.is_event_loop_timer(state, &wait)) => {
                event_loop_wait_span(span, wait)
            }
            Some(wait) => self.with_wait_details(state, span, wait),
            None => span,
        }
    }

    /// Returns `span` with the object of the thread's wait, and the activity of the thread that ended the wait.
    fn with_wait_details(&self, state: &Fact, span: Span, mut wait: Wait) -> Span {
        let by_address = state.cause != Cause::Lock || state.detail == 0 || self.is_lock_wait(state, &wait);
        wait.of_peer &= !by_address;
        let cause = if by_address || wait.of_peer { state.cause } else { Cause::HandOver };
        if matches!(cause, Cause::Lock | Cause::HandOver | Cause::Full)
            && state.by.tid != 0
            && let Some((doing, task)) = longest_activity_in_wait(self.world, state.by, state.from_ns, state.to_ns)
        {
            wait.doing = doing;
            wait.root = if task.tid == state.by.tid { Task::default() } else { task };
        }
        let detail = if by_address { span.detail } else { 0 };
        Span { cause, detail, wait: Some(wait), ..span }
    }

    /// Returns the span of a wait for a CPU that precedes a wait for a lock. The lock's holder had the CPU.
    fn cpu_wait_before_lock(&self, state: &Fact, span: Span) -> Span {
        let turn = Fact { from_ns: state.to_ns, to_ns: u64::MAX, ..*state };
        match self.thread.wait_of(&turn).filter(|wait| self.is_lock_wait(state, wait)) {
            Some(wait) => Span { wait: Some(Wait { doing: Activity::Ran, ended: WaitEnd::Unknown, ..wait }), ..span },
            None => self.mark_wait_behind_own_threads(
                self.with_cpu_occupant(state, Span { cause: Cause::RunQueue, detail: 0, ..span }),
            ),
        }
    }

    /// Returns `span` with the thread that had the CPU for most of the wait. The last thread on it may have had it for
    /// a moment only.
    fn with_cpu_occupant(&self, state: &Fact, span: Span) -> Span {
        let cpu = self.world.machine.cpu(state.cpu);
        match cpu.and_then(|cpu| cpu.occupant(state.from_ns, state.to_ns)) {
            Some(by) if by.pid != self.world.tracer_pid => Span { by_tid: by.tid, by_pid: by.pid, ..span },
            _ => span,
        }
    }

    /// Returns the span of a wait for a CPU, marked if the service's own threads had that CPU.
    fn mark_wait_behind_own_threads(&self, span: Span) -> Span {
        let is_own = span.by_pid != 0 && (span.by_pid == self.thread.pid || self.world.services.contains(&span.by_pid));
        if is_own && span.cause == Cause::RunQueue { Span { detail: BY_OWN, ..span } } else { span }
    }

    fn is_lock_wait(&self, state: &Fact, wait: &Wait) -> bool {
        let Object::Futex(operation, _) = wait.object else { return true };
        let by_use = || self.world.futexes.is_lock_by_use(self.thread.pid, operation, state.detail);
        is_lock_by_value(wait).unwrap_or_else(by_use)
    }

    /// Returns whether an event loop waited for a timer. Only the loop's program knows which request the timer is for,
    /// if any. A thread with one client, in a process without such a loop, waits for that client's request.
    fn is_event_loop_timer(&self, state: &Fact, wait: &Wait) -> bool {
        let may_be_loop = wait.purpose() == Purpose::Completion || wait.call.is_some_and(call::is_epoll);
        let is_loop = self.thread.has_clients || self.world.runtimes.contains_key(&self.thread.pid);
        state.cause == Cause::Timer && may_be_loop && is_loop
    }

    fn queued_span(&self, span: Span) -> Span {
        Span {
            cause: Cause::ServiceQueue,
            by_tid: self.tid,
            by_pid: self.thread.pid,
            detail: 0,
            wait: self.answer,
            ..span
        }
    }

    /// Returns the facts between `from_ns` and `to_ns` that may lie over the thread's `state`.
    fn overlays_between(&self, state: &Fact, from_ns: u64, to_ns: u64) -> Overlays<'_> {
        let mut overlays = Overlays::default();
        let mut count = 0;
        let mut add = |track| {
            let overlay = Overlay::starting_at(track, from_ns);
            if overlay.track.get(overlay.next).is_some_and(|fact| fact.from_ns < to_ns) {
                overlays[count] = Some(overlay);
                count += 1;
            }
        };
        let thread = self.thread;
        let is_on_cpu = matches!(state.state, State::Running | State::Ready);
        if let Some(cpu) = self.world.machine.cpu(state.cpu).filter(|_| is_on_cpu) {
            add(&cpu.stolen);
            add(&cpu.interrupts);
            if state.state == State::Ready {
                add(&cpu.idle);
                add(&cpu.tracer);
            }
        }
        match state.state {
            State::Ready => add(&thread.moves),
            State::Running if !self.has_other_request(state) => add(&thread.overlaps),
            _ => (),
        }
        if state.state != State::Ready {
            [&thread.faults.track, &thread.locks.track, &thread.reclaims.track].into_iter().for_each(&mut add);
        }
        self.add_halts_and_pauses(state.state == State::Running, (from_ns, to_ns), &mut overlays, count);
        overlays
    }

    /// Adds facts that keep the thread, its process or all threads from running. A thread that runs while its runtime
    /// pauses the other threads works for the pause, for example on garbage collection.
    fn add_halts_and_pauses<'a>(
        &'a self,
        is_running: bool,
        (from_ns, to_ns): (u64, u64),
        overlays: &mut Overlays<'a>,
        mut overlay_count: usize,
    ) {
        let processes = || [self.thread.pid, 0].map(|pid| self.world.machine.process(pid)).into_iter().flatten();
        let of_thread = [&self.thread.frozen, &self.thread.throttled];
        let held = of_thread.into_iter().chain(processes().flat_map(|process| [&process.frozen, &process.throttled]));
        let pauses = processes().map(|process| &process.pauses);
        for spell in held.filter(|_| !is_running).chain(pauses) {
            let mut overlay = Overlay::starting_at(&spell.track, from_ns);
            overlay.lasting = spell.ongoing_fact(to_ns);
            if overlay.current_or_next_fact(from_ns).is_some_and(|fact| fact.from_ns < to_ns) {
                overlays[overlay_count] = Some(overlay);
                overlay_count += 1;
            }
        }
    }
}

/// Facts that apply during one state of a thread. A ready thread has the most, 13: four of the CPU, a move between CPUs,
/// two halts of the thread, and two halts and a pause each of its process and of all processes.
type Overlays<'a> = [Option<Overlay<'a>>; 15];

/// Returns whether `cause` is a sleep on behalf of the thread's request, such as a wait for a disk, and not a delay
/// from outside.
fn is_sleep_for_request(cause: Cause) -> bool {
    use Cause::{Connect, Downstream, Full, HandOver, NoAnswer, NotExplained, SendBuffer, Timer};
    matches!(cause, NotExplained | HandOver | Timer | SendBuffer | Downstream | Connect | NoAnswer | Full)
}

/// Returns the span of a request in an event loop that waits. Only the loop's program knows the request's state.
fn event_loop_wait_span(span: Span, wait: Wait) -> Span {
    Span { cause: Cause::Inside, detail: 0, wait: Some(wait), ..span }
}

/// Returns the cause of a thread's sleep while the thread works on no request.
fn cause_while_idle(state: &Fact) -> Cause {
    match state.cause {
        // An interrupt woke the thread when data arrived.
        Cause::NotExplained if state.by.tid == 0 => Cause::NetworkReceive,
        // The thread waited for work in a queue that a futex guards.
        Cause::Lock if state.request == 0 => Cause::HandOver,
        cause => cause,
    }
}

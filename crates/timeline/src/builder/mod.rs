//! Builder of requests' timelines from the records of a trace.
//!
//! ```text
//! push ──► Order ──► World ──► closed requests ──► path ──► spans ──► Timeline
//!         (time)    (history)  (held until it is known of all CPUs that nothing is missing)
//! ```
//!
//! When a request has ended, its path is found in the history of threads, CPUs and processes. So records that come late
//! (an interrupt ended, time was stolen, a worker thread started a request) need no special code. The history is
//! bounded, and reaches back to the oldest request that has no timeline yet. Facts without room are forgotten, and
//! requests that need them are incomplete.

mod attribute;
mod fact;
mod follow;
mod futexes;
mod holds;
mod losses;
mod machine;
mod network;
mod order;
mod path;
mod request;
mod scheduling;
mod sleep;
mod socket;
mod thread;
mod tiling;
mod waits;
mod world;

pub use losses::CPUS_MAX;
pub use machine::SOFTIRQ;
pub use world::{Counts, Settings};

use attribute::ThreadView;
use losses::LossTracker;
use order::ReorderBuffer;
use path::{PathInterval, RequestLocation};
use request::Request;
use sleep::UnansweredCall;
use tiling::{SpanBuilder, unexplained_span};
use world::World;

use crate::cause::{BY_TCP, Cause};
use crate::ending::UnansweredRequest;
use crate::record::{Kind, Record};
use crate::timeline::{Incomplete, Span, Timeline};
use crate::wait::{Object, Peer, Wait, WaitEnd};

/// Number of records, and time, between two sweeps that remove facts and requests that are no longer needed.
const SWEEP_RECORDS: u32 = 8_192;
const SWEEP_NS: u64 = 50_000_000;
/// The most facts that are kept between two sweeps.
const FACTS_MAX: usize = 400_000;
/// Longest time by which a record may come later than the event that it reports.
const HINDSIGHT_NS: u64 = 5_000_000;

/// A builder of requests' timelines from the records of a trace.
#[derive(Debug)]
pub struct Builder {
    order: ReorderBuffer,
    losses: LossTracker,
    world: World,
    since_sweep: u32,
    swept_ns: u64,
    /// Time up to which it is known for each CPU which records are missing.
    seen_ns: u64,
    stretches: Vec<PathInterval>,
}

impl Builder {
    /// Creates a builder that has received no records.
    pub fn new(settings: Settings) -> Builder {
        Builder {
            order: ReorderBuffer::new(settings.horizon_ns),
            losses: LossTracker::default(),
            world: World::new(settings),
            since_sweep: 0,
            swept_ns: 0,
            seen_ns: 0,
            stretches: Vec::new(),
        }
    }

    /// Processes one record, and calls `out` with the timeline of each request that has ended.
    pub fn push(&mut self, record: Record, out: &mut dyn FnMut(Timeline)) {
        self.world.counts.records += 1;
        if record.cpu >= CPUS_MAX {
            self.world.count_excess_record(&record);
        } else if !self.order.push(record) {
            self.handle_late_record(&record);
        }
        self.process_ready_records(out);
    }

    /// Handles a record that arrived too late to be sorted by time. A late start of a request, or a record of a
    /// language runtime, is handled in any case. Another late record counts as lost.
    fn handle_late_record(&mut self, record: &Record) {
        if matches!(record.kind, Kind::RequestStarted | Kind::PauseBegan | Kind::PauseEnded | Kind::Tasks) {
            self.count_sequence_number(record, self.world.now_ns);
            self.world.handle(record);
        } else {
            self.world.counts.late += 1;
        }
    }

    /// Records the sequence number of a record of one CPU. The record of a request's start may come before records with
    /// lower numbers, which do not count as missing.
    fn count_sequence_number(&mut self, record: &Record, at_ns: u64) {
        let is_early = record.kind == Kind::RequestStarted && self.losses.note_early_record(record.cpu, record.seq);
        if !is_early && self.losses.record_sequence_number(record.cpu, record.seq, at_ns) {
            self.world.record_loss(at_ns);
        }
    }

    /// Sets the process id of the tracer, so that waits for the tracer's threads have a cause of their own
    /// ([`Cause::Tracer`]).
    pub fn set_tracer_pid(&mut self, pid: u32) {
        self.world.tracer_pid = pid;
    }

    /// Sets the sequence number `seq` of the last record that `cpu` wrote before the trace began. Records up to it do
    /// not count as missing.
    pub fn set_seq_before_trace(&mut self, cpu: u32, seq: u32) {
        if cpu < CPUS_MAX && seq != 0 {
            self.losses.set_seq_before_trace(cpu, seq);
        }
    }

    /// Advances the time: no later call passes a record from before `now_ns`.
    pub fn advance(&mut self, now_ns: u64, out: &mut dyn FnMut(Timeline)) {
        self.order.advance(now_ns);
        self.process_ready_records(out);
        self.world.now_ns = self.world.now_ns.max(self.order.released_until_ns());
        self.sweep();
        self.emit_settled_timelines(out);
    }

    /// Ends the trace: no record follows. Calls `out` with the timelines of the requests that have ended and had no
    /// timeline yet.
    pub fn finish(&mut self, out: &mut dyn FnMut(Timeline)) {
        self.order.advance(u64::MAX);
        self.process_ready_records(out);
        if self.losses.count_all_gaps_as_lost(self.world.now_ns) {
            self.world.record_loss(self.world.now_ns);
        }
        while let Some((_, id)) = self.world.answered.pop_front() {
            self.world.close(id);
        }
        let cookies: Vec<u64> = self.world.sockets.keys().copied().collect();
        cookies.into_iter().for_each(|cookie| self.world.close_leaving_requests(cookie));
        while let Some(closed) = self.world.closed.pop_front() {
            self.build_and_emit(&closed, out);
        }
    }

    /// Returns the numbers of records and requests that were processed, lost or given up so far.
    pub fn counts(&self) -> Counts {
        Counts {
            lost: self.losses.lost,
            given_up: self.world.counts.given_up + self.world.requests.given_up,
            ..self.world.counts
        }
    }

    /// Returns the arrival times of requests that a thread has received and whose clients wait for a response. Left out
    /// are requests whose response may have been lost, one-way messages, and requests whose connection one side has
    /// ended.
    pub fn waiting_arrivals_ns(&self) -> impl Iterator<Item = u64> {
        let arrived = self.world.requests.waiting_arrivals_ns();
        arrived.filter(|arrived_ns| !self.losses.has_loss_between(*arrived_ns, u64::MAX))
    }

    /// Returns the number of open connections on which the client sends messages that ask for no response.
    pub fn one_way_connections(&self) -> u64 {
        self.world.requests.one_way_connections()
    }

    /// Returns the requests that ended without a response, because their connection ended, since the last call.
    pub fn take_unanswered(&mut self) -> impl Iterator<Item = UnansweredRequest> {
        self.world.unanswered.drain(..)
    }

    /// Returns the memory of the builder, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.order.heap_bytes() + self.world.memory_bytes() + self.stretches.capacity() * size_of::<PathInterval>()
    }

    fn process_ready_records(&mut self, out: &mut dyn FnMut(Timeline)) {
        while let Some(record) = self.order.pop() {
            self.count_sequence_number(&record, record.at_ns);
            self.world.handle(&record);
            self.since_sweep += 1;
            if self.since_sweep >= SWEEP_RECORDS || record.at_ns.saturating_sub(self.swept_ns) >= SWEEP_NS {
                self.sweep();
            }
            if !self.world.closed.is_empty() {
                self.emit_settled_timelines(out);
            }
        }
    }

    /// Returns whether the missing records of all CPUs up to `until_ns` are known.
    fn has_known_losses_until(&mut self, until_ns: u64) -> bool {
        if self.seen_ns < until_ns {
            self.seen_ns = self.losses.complete_until_ns();
        }
        self.seen_ns >= until_ns
    }

    fn emit_settled_timelines(&mut self, out: &mut dyn FnMut(Timeline)) {
        while let Some((closed_ns, request)) = self.world.closed.front() {
            // After a retransmission, the builder waits longer than a round trip: then it is known whether the segment
            // was really lost.
            let settle_ns = if request.sent_again.is_empty() { 0 } else { self.world.settings.settle_ns };
            let until_ns = closed_ns.saturating_add(settle_ns.max(HINDSIGHT_NS));
            let has_waited = self.world.now_ns >= request.ended_ns().saturating_add(self.world.settings.hold_ns);
            if self.world.now_ns < until_ns || !(has_waited || self.has_known_losses_until(until_ns)) {
                return;
            }
            let closed = self.world.closed.pop_front().expect("it was there");
            self.build_and_emit(&closed, out);
        }
    }

    fn build_and_emit(&mut self, (closed_ns, request): &(u64, Request), out: &mut dyn FnMut(Timeline)) {
        if request.number == 0 || request.is_open() {
            return;
        }
        let timeline = self.build(request, *closed_ns);
        match timeline.incomplete {
            None => self.world.counts.whole += 1,
            Some(_) => self.world.counts.incomplete += 1,
        }
        self.world.counts.streamed += u64::from(request.is_stream());
        out(timeline);
    }

    fn build(&mut self, request: &Request, closed_ns: u64) -> Timeline {
        let mut incomplete = self.why_incomplete(request, closed_ns);
        let ended_ns = request.ended_ns();
        let mut tiling = SpanBuilder::new(request.arrived_ns);
        if incomplete.is_none() {
            path::collect_path(request, &mut self.stretches);
            for stretch in &self.stretches {
                explain_interval(&self.world, request, stretch, &mut tiling);
            }
        }
        if tiling.is_missing {
            incomplete = Some(Incomplete::Lost);
            tiling = SpanBuilder::new(request.arrived_ns);
        }
        Timeline {
            request: request.number,
            socket: request.socket,
            peer_port: request.peer_port,
            arrived_ns: request.arrived_ns,
            started_ns: request.started_ns,
            finished_ns: request.finished_ns,
            ended_ns,
            spans: self.refine_causes(request, tiling.finish(ended_ns)),
            incomplete,
        }
    }

    /// Explains the span of a request that waits inside the service while another service has not answered its
    /// question. The wait is for that answer. Some peers never answer. So only three kinds of questions count: to a
    /// peer that has answered before, for a new connection, and to a name server.
    fn explain_unanswered_wait(&self, request: &Request, span: &mut Span) {
        const NAMES: u16 = 53;
        let answers = |peer: &Peer| peer.port() == NAMES || self.world.answering.contains(peer);
        let is_waited_for = |(question, sent_ns): &&(UnansweredCall, u64)| {
            *sent_ns <= span.from_ns && (question.connects || question.peer.as_ref().is_some_and(answers))
        };
        let Some(wait) = span.wait else { return };
        // If a timer ended the wait, it may be the timeout of the question.
        let is_timeout = span.cause == Cause::Timer && wait.purpose().is_event_loop_wait();
        if span.cause != Cause::Inside && !is_timeout {
            return;
        }
        if let Some((question, _)) = request.questions.iter().find(is_waited_for) {
            let object = question.peer.map_or(wait.object, Object::Service);
            let (timeout_ms, ended) = if is_timeout { (wait.timeout_ms, wait.ended) } else { (0, WaitEnd::Unknown) };
            let wait = Wait { object, connects: question.connects, timeout_ms, ended, ..wait };
            *span = Span { cause: Cause::NoAnswer, wait: Some(wait), ..*span };
        }
    }

    /// Adds the causes that held a response back to `spans`. Causes that depend on a thread's waker are left out if
    /// wakers are not recorded.
    fn refine_causes(&self, request: &Request, mut spans: Vec<Span>) -> Vec<Span> {
        let (sends_ns, held_ns) = (request.finished_ns.saturating_sub(request.answered_ns), request.holds.sum_ns());
        let (cause, bytes) = (request.holds.main_cause(), u64::from(request.holds.bytes.max(request.held)));
        let detail = if cause == Cause::Pacing && request.holds.is_paced { bytes | BY_TCP } else { bytes };
        spans.iter_mut().for_each(|span| self.explain_unanswered_wait(request, span));
        for span in &mut spans {
            // A thread that cannot write more of a response handles other requests, or waits for events, until it can.
            let is_between_sends = span.from_ns >= request.answered_ns && span.to_ns <= request.finished_ns;
            let is_idle = matches!(span.cause, Cause::NotExplained | Cause::ServiceQueue | Cause::Inside);
            let is_elsewhere = is_idle && is_between_sends;
            // If TCP sends a segment again and has lost none, it probes whether the peer is still there.
            let is_probed = span.cause == Cause::Retransmission && span.wait.is_none() && cause != Cause::SendBuffer;
            if span.cause == Cause::SendBuffer || is_probed || (is_elsewhere && held_ns * 2 > sends_ns) {
                *span = Span { cause, detail, by_tid: 0, by_pid: 0, behind: 0, wait: None, ..*span };
            }
        }
        if self.world.settings.kinds.has(Kind::Woken) {
            return spans;
        }
        for span in &mut spans {
            let slept_in_send = span.cause == Cause::SendBuffer && span.tid != 0;
            if slept_in_send || span.cause.required_kinds().contains(&Kind::Woken) {
                *span = Span { cause: Cause::NotExplained, by_tid: 0, by_pid: 0, detail: 0, wait: None, ..*span };
            }
        }
        spans
    }

    /// Returns why the timeline of a request is incomplete; `None` if it is complete. A record that is lost within
    /// `HINDSIGHT_NS` after `closed_ns` counts, since it may have reported an earlier event.
    fn why_incomplete(&self, request: &Request, closed_ns: u64) -> Option<Incomplete> {
        let until_ns = closed_ns.saturating_add(HINDSIGHT_NS);
        if request.is_missing || self.losses.has_loss_between(request.arrived_ns, until_ns) {
            Some(Incomplete::Lost)
        } else if request.arrived_ns < self.world.known_from_ns {
            Some(Incomplete::Earlier)
        } else if request.unsent > 0 {
            Some(Incomplete::Cut)
        } else {
            request.has_too_many_links.then_some(Incomplete::TooMuch)
        }
    }
}

fn explain_interval(world: &World, request: &Request, interval: &PathInterval, tiling: &mut SpanBuilder) {
    let like = |cause, detail| Span { cause, detail, ..unexplained_span() };
    let (tid, is_queued, answer) = match interval.place {
        RequestLocation::Network => return tiling.add_span_until(interval.to_ns, like(Cause::NetworkReceive, 0)),
        RequestLocation::Call { peer, is_shared, connects, again_ns } => {
            let cause = if connects { Cause::Connect } else { Cause::Downstream };
            let detail = peer.map_or(0, |peer| u64::from(peer.port()));
            let wait = Some(Wait::for_answer(peer, is_shared));
            tiling.add_span_until(again_ns.min(interval.to_ns), Span { wait, ..like(Cause::Retransmission, 0) });
            return tiling.add_span_until(interval.to_ns, Span { wait, ..like(cause, detail) });
        }
        RequestLocation::Response { again_ns } => {
            tiling.add_span_until(again_ns.min(interval.to_ns), like(Cause::Retransmission, 0));
            return tiling.add_span_until(interval.to_ns, like(Cause::SendBuffer, u64::from(request.held)));
        }
        RequestLocation::Queue(tid) => (tid, true, None),
        RequestLocation::Answered { tid, peer } => (tid, true, Some(Wait::for_answer(peer, false))),
        RequestLocation::Thread(tid) => (tid, false, None),
    };
    if is_queued && answer.is_none() {
        explain_before_thread_creation(world, request, (tid, interval.to_ns), tiling);
    }
    if let Some(thread) = world.threads.get(&tid) {
        ThreadView { world, thread, tid, request: request.id, is_queued, answer, creates: false }
            .explain_until(interval.to_ns, tiling);
    }
    tiling.is_missing |= tiling.next_begin_ns() < interval.to_ns && world.epoch.0 > 0;
    tiling.add_span_until(interval.to_ns, Span { tid, ..unexplained_span() });
}

/// Explains the time before the creation of the thread that receives the request: the request waits for the thread's
/// creator, for example the thread that accepts connections.
fn explain_before_thread_creation(
    world: &World,
    request: &Request,
    (tid, to_ns): (u32, u64),
    tiling: &mut SpanBuilder,
) {
    let created = world.threads.get(&tid).and_then(|thread| thread.created);
    let Some((at_ns, by)) = created.filter(|(at_ns, _)| (tiling.next_begin_ns()..to_ns).contains(at_ns)) else {
        return;
    };
    if let Some(thread) = world.threads.get(&by) {
        ThreadView { world, thread, tid: by, request: request.id, is_queued: true, answer: None, creates: true }
            .explain_until(at_ns, tiling);
    }
}

impl Builder {
    /// Closes the requests whose response is complete, and removes facts that are no longer needed.
    fn sweep(&mut self) {
        self.since_sweep = 0;
        self.swept_ns = self.world.now_ns;
        self.close_settled_requests();
        let world = &mut self.world;
        let oldest_ns = world.now_ns.saturating_sub(world.settings.give_up_ns);
        world.requests.give_up_before(oldest_ns);
        let closed_ns = world.closed.iter().map(|(_, request)| request.arrived_ns).min();
        let needed_ns = [world.requests.oldest_arrival_ns(), closed_ns].into_iter().flatten().min();
        // A request becomes known only when a thread receives it. So the facts of the last `hold_ns` are needed for
        // requests that have arrived and are not known yet.
        let recent_ns = world.now_ns.saturating_sub(world.settings.hold_ns);
        let mut floor_ns = needed_ns.unwrap_or(u64::MAX).min(recent_ns);
        self.remove_ended_before(floor_ns);
        while self.world.fact_count() > FACTS_MAX {
            floor_ns = floor_ns.max(self.world.known_from_ns);
            floor_ns += self.world.now_ns.saturating_sub(floor_ns) / 2 + 1;
            self.world.known_from_ns = floor_ns;
            self.remove_ended_before(floor_ns);
        }
    }

    fn remove_ended_before(&mut self, floor_ns: u64) {
        self.losses.remove_ended_before(floor_ns);
        self.world.machine.remove_ended_before(floor_ns);
        let world = &mut self.world;
        for thread in world.threads.values_mut() {
            thread.remove_ended_before(floor_ns);
        }
    }

    fn close_settled_requests(&mut self) {
        let world = &mut self.world;
        while let Some(&(due_ns, id)) = world.answered.front().filter(|(due_ns, _)| *due_ns <= world.now_ns) {
            world.answered.pop_front();
            let Some(request) = world.requests.get(id) else { continue };
            let mut next_ns = request.touched_ns.saturating_add(world.settings.settle_ns);
            if request.unsent > 0 {
                // Part of the response has not left for the device, so it is checked again after another `settle_ns`.
                next_ns = next_ns.max(due_ns.saturating_add(world.settings.settle_ns));
            }
            if next_ns > world.now_ns { world.answered.push_back((next_ns, id)) } else { world.close(id) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::machine::Cpu;
    use crate::builder::thread::Thread;
    use crate::record::{Kind, Task};

    fn record(at_ns: u64, kind: Kind) -> Record {
        let (task, other) = (Task { tid: 5, pid: 4 }, Task { tid: 6, pid: 4 });
        Record { at_ns, kind, seq: 0, task, cpu: 1, detail: 0, other, socket: 0, request: 0, value: 10 }
    }

    #[test]
    fn threads_and_cpus_take_memory() {
        let mut builder = Builder::new(Settings::default());
        let empty = builder.memory_bytes();
        builder.world.handle(&record(100, Kind::Interrupt));
        let with_cpus = builder.memory_bytes();
        assert!(with_cpus >= empty + 2 * size_of::<Cpu>());
        builder.world.handle(&record(200, Kind::Migrated));
        assert!(builder.memory_bytes() >= with_cpus + size_of::<(u32, Thread)>());
        let with_threads = builder.memory_bytes();
        builder.stretches.reserve(100);
        assert!(builder.memory_bytes() >= with_threads + 100 * size_of::<PathInterval>());
        let with_path = builder.memory_bytes();
        builder.order.push(record(300, Kind::Woken));
        assert!(builder.memory_bytes() >= with_path + size_of::<Record>());
    }

    #[test]
    fn counts_include_lost_records_and_given_up_requests() {
        let mut builder = Builder::new(Settings::default());
        (builder.losses.lost, builder.world.counts.given_up, builder.world.requests.given_up) = (3, 2, 5);
        assert_eq!((builder.counts().lost, builder.counts().given_up), (3, 7));
    }
}

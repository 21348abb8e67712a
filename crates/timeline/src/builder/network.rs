//! Handling of trace records about sockets and requests.

use crate::builder::holds::{KNOWN, TWICE, cause_of_hold_bits, is_paced};
use crate::builder::request::{DownstreamCall, PathStep, Request, RequestId};
use crate::builder::sleep::UnansweredCall;
use crate::builder::socket::PendingCall;
use crate::builder::world::World;
use crate::cause::Cause;
use crate::ending::Side;
use crate::record::{Kind, Record};
use crate::wait::Peer;

/// The TCP state "closed", as the kernel numbers it.
const CLOSED: u32 = 7;
/// Flag in the value of [`Kind::SocketState`]: the client did not wait for the response (`SIDELANE_TRACE_IN_VAIN`).
const IN_VAIN: u64 = 0x100;

/// The most other services that are remembered because they have answered.
const ANSWERING_MAX: usize = 4_096;
/// The most unfinished requests that are reported by programs themselves.
const EMITTED_MAX: usize = 16_384;

impl World {
    pub(super) fn handle_network_record(&mut self, record: &Record) {
        if record.socket == 0 {
            return;
        }
        match record.kind {
            Kind::DataReady => self.handle_data_ready(record),
            Kind::Received => self.handle_received(record),
            Kind::Sent => self.handle_sent(record),
            Kind::Connects => self.handle_downstream_call(record, true),
            Kind::Transmitted => self.handle_transmitted(record),
            Kind::Acknowledged => self.handle_acknowledged(record),
            Kind::Retransmitted => self.handle_retransmitted(record),
            _ => self.handle_socket_state(record),
        }
    }

    fn handle_data_ready(&mut self, record: &Record) {
        let came_ns = self.machine.cpu_mut(record.cpu).take_segment_arrival_ns(record.detail, record.at_ns);
        self.socket(record.socket).arrivals.add(came_ns.unwrap_or(record.at_ns), record.detail);
    }

    fn note_socket_use(&mut self, record: &Record) {
        self.thread(record.task).record_socket_use(record.at_ns, record.cpu);
    }

    fn handle_received(&mut self, record: &Record) {
        self.note_socket_use(record);
        let socket = self.socket(record.socket);
        socket.arrivals.mark_received(record.detail);
        // A record of data from another service has the sequence number 0 (`detail`), so it does not mark the socket as
        // a client's.
        socket.is_asked |= record.request != 0 && record.detail != 0;
        let (before, is_asked) = (socket.request, socket.is_asked);
        socket.has_unknown = false;
        if !socket.calls.is_empty() && !is_asked {
            self.handle_answer_read(record);
        } else if is_asked {
            self.begin_or_continue_request(record, before);
        }
    }

    /// Handles data that a thread received from a client: a request begins or continues. The record of the request's
    /// start, with its arrival time, comes next or later.
    fn begin_or_continue_request(&mut self, record: &Record, previous: RequestId) {
        match self.requests.open_mut(previous) {
            Some(open) if open.number == record.request => open.record_more_data(record.at_ns),
            _ => {
                self.detach_request(previous);
                self.begin_request(record, record.at_ns);
            }
        }
    }

    /// Handles data that a thread read from another service's answer. If the thread slept since its question, it waited
    /// for the answer.
    fn handle_answer_read(&mut self, record: &Record) {
        let tid = record.task.tid;
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        thread.question = thread.question.filter(|question| question.socket != record.socket);
        let woken_ns = thread.woken_ns;
        let by_loop = thread.has_clients || self.runtimes.contains_key(&record.task.pid);
        let came_ns = (u64::from(record.other.pid) << 32 | u64::from(record.other.tid)).min(record.at_ns);
        let Some(socket) = self.sockets.get_mut(&record.socket) else { return };
        socket.calls.retain(|call| self.requests.is_open(call.request));
        let peer = socket.peer;
        if let Some(peer) = peer.filter(|_| self.answering.len() < ANSWERING_MAX) {
            self.answering.insert(peer);
        }
        for call in &socket.calls {
            self.requests
                .open_mut(call.request)
                .into_iter()
                .for_each(|request| request.remove_answered_calls(record.socket));
        }
        for call in &mut socket.calls {
            let PendingCall { request, from, sent_ns, again_ns: [again_ns, _], is_shared, .. } = *call;
            if let Some(ready_ns) = call.answer_ready_ns(came_ns, woken_ns, by_loop) {
                let (taken_ns, to, is_seen) = (record.at_ns, tid, came_ns != 0);
                let times = DownstreamCall { sent_ns, again_ns, ready_ns, taken_ns, ..DownstreamCall::default() };
                let called = DownstreamCall { from, to, peer, is_shared, by_loop, is_seen, ..times };
                self.requests.add_step(request, PathStep::Called(called));
            }
            (call.is_answered, call.again_ns) = (true, [0; 2]);
            if !is_shared {
                (call.from, call.sent_ns) = (tid, record.at_ns);
            }
        }
        let next = match socket.calls.as_slice() {
            [] => return,
            [PendingCall { request, from, is_shared: false, .. }] => (*request, *from),
            // Several requests have a question under way on this socket. It is unknown which question was answered.
            _ => (0, 0),
        };
        self.thread(record.task).set_request(record.at_ns, next.0, next.1);
    }

    /// Handles a question to another service. If `connects` is true, the question is a request for a connection.
    fn handle_downstream_call(&mut self, record: &Record, connects: bool) {
        if connects {
            self.note_socket_use(record);
        } else {
            self.handle_connection_established(record);
        }
        let (at_ns, from) = (record.at_ns, record.task.tid);
        let thread = self.threads.get(&from);
        let (request, woken_ns) = thread.map_or((0, 0), |thread| (thread.request, thread.woken_ns));
        let named = Peer::from_record(record);
        let socket = self.socket(record.socket);
        socket.peer = named.or(socket.peer);
        let peer = socket.peer;
        if request == 0 {
            return socket.add_unknown_call();
        }
        let is_it = |call: &&PendingCall| call.connects && call.request == request && woken_ns > call.sent_ns;
        let connected = socket.calls.iter().find(is_it).copied();
        let (again_ns, is_shared, is_answered) = ([0; 2], false, false);
        socket.add_call(PendingCall { request, from, sent_ns: at_ns, again_ns, connects, is_answered, is_shared });
        if let Some(PendingCall { sent_ns, from: asked_by, .. }) = connected {
            // The thread was woken when the connection was ready. It took the connection just before the send that is
            // recorded here.
            let (ready_ns, taken_ns) = (woken_ns, at_ns - 1);
            let times = DownstreamCall { sent_ns, ready_ns, taken_ns, ..DownstreamCall::default() };
            let called = DownstreamCall { from: asked_by, to: from, peer, connects: true, ..times };
            self.requests.add_step(request, PathStep::Called(called));
        }
        let question = UnansweredCall { socket: record.socket, peer, connects };
        self.requests.open_mut(request).into_iter().for_each(|request| request.add_unanswered_call(question, at_ns));
        self.thread(record.task).question = Some(question);
    }

    /// Records that a connection is established, because a thread sends on it. An event loop that has worked on other
    /// requests since then continues with the request that needed the connection.
    fn handle_connection_established(&mut self, record: &Record) {
        let Some(socket) = self.sockets.get(&record.socket) else { return };
        let Some(call) = socket.calls.iter().find(|call| call.connects).copied() else { return };
        let Some(request) = self.requests.open_mut(call.request) else { return };
        request.remove_answered_calls(record.socket);
        if call.from == record.task.tid {
            self.thread(record.task).set_request(record.at_ns, call.request, 0);
        }
    }

    fn handle_sent(&mut self, record: &Record) {
        self.note_socket_use(record);
        let length = u32::try_from(record.value).unwrap_or(u32::MAX);
        let sees_leaving = self.settings.kinds.has(Kind::Transmitted);
        let socket = self.socket(record.socket);
        if !socket.is_asked {
            return self.handle_downstream_call(record, false);
        }
        socket.has_answered = true;
        // Data that TCP has sent, but that has not reached the device, waits in a queue between them.
        let is_in_queue = record.other.tid & KNOWN != 0 && record.other.pid == 0;
        let cause = if is_in_queue { Cause::Pacing } else { cause_of_hold_bits(record.other.tid) };
        let unsent = if sees_leaving { socket.unsent_bytes(record.detail, length) } else { 0 };
        socket.held = (unsent > 0).then_some((cause, record.at_ns));
        let (last, leaving) = (socket.request, socket.oldest_leaving_response());
        let is_it = |id: &RequestId| self.requests.number(*id) == record.request;
        let is_of_the_one_before = leaving.filter(is_it);
        let Some(request) = self.requests.get_mut(is_of_the_one_before.unwrap_or(last)) else { return };
        request.end_seq = Some(record.detail);
        (request.unsent, request.held) = (unsent, unsent);
        request.holds.is_paced |= is_paced(record.other.tid);
        request.touched_ns = record.at_ns;
        if is_of_the_one_before.is_some() && unsent == 0 {
            self.close_oldest_leaving_request(record.socket);
        }
    }

    /// Handles a TCP segment from the peer that arrived while response data waited to be sent.
    fn handle_acknowledged(&mut self, record: &Record) {
        let cause = cause_of_hold_bits(record.other.tid);
        let Some(socket) = self.sockets.get_mut(&record.socket) else { return };
        if !socket.is_asked {
            return socket.calls.iter_mut().for_each(PendingCall::remove_last_retransmission);
        }
        let held_ns = socket.held_ns(record.at_ns);
        socket.held = Some((cause, record.at_ns));
        let request = socket.oldest_leaving_response().unwrap_or(socket.request);
        if record.other.tid & TWICE != 0 {
            return self.handle_needless_retransmission(record.socket, request);
        }
        if let Some(request) = self.requests.get_mut(request) {
            request.holds.add(cause, held_ns, record.other.pid);
            request.holds.is_paced |= is_paced(record.other.tid);
        }
    }

    /// Handles a sign that the last retransmission was needless: TCP probed for a loss, or the acknowledgement was
    /// late. The client's next request may have arrived before this sign.
    fn handle_needless_retransmission(&mut self, cookie: u64, last_request: RequestId) {
        let is_of_last = self.requests.get_mut(last_request).is_some_and(Request::remove_last_retransmission);
        let mut before = self.closed.iter_mut().rev().filter(|(_, request)| request.socket == cookie);
        if !is_of_last && let Some((_, request)) = before.next() {
            request.remove_last_retransmission();
        }
    }

    /// Handles response data that leaves without a segment from the peer: a queue or pacing released it.
    fn record_pacing_hold(&mut self, record: &Record) {
        let Some(socket) = self.sockets.get(&record.socket) else { return };
        let Some((cause @ Cause::Pacing, _)) = socket.held else { return };
        let held_ns = socket.held_ns(record.at_ns);
        if let Some(request) = self.requests.get_mut(socket.oldest_leaving_response().unwrap_or(socket.request)) {
            request.holds.add(cause, held_ns, request.unsent);
        }
    }

    fn close_oldest_leaving_request(&mut self, cookie: u64) {
        let socket = self.socket(cookie);
        let Some(id) = socket.oldest_leaving_response() else { return };
        socket.remove_oldest_leaving_response();
        self.close(id);
    }

    fn handle_transmitted(&mut self, record: &Record) {
        if record.value == 0 {
            return;
        }
        self.record_pacing_hold(record);
        if !self.socket(record.socket).record_transmitted(record.detail, record.at_ns) {
            return;
        }
        while let Some(id) = self.socket(record.socket).oldest_leaving_response() {
            if !self.record_departure(id, record) {
                return;
            }
            self.close_oldest_leaving_request(record.socket);
        }
        let last = self.socket(record.socket).request;
        self.record_departure(last, record);
    }

    /// Handles a part of a response that left for the device. Returns whether it was the last part.
    fn record_departure(&mut self, id: RequestId, record: &Record) -> bool {
        let Some(request) = self.requests.get_mut(id) else { return true };
        let Some(end_seq) = request.end_seq else { return false };
        request.touched_ns = record.at_ns;
        if request.unsent > 0 {
            request.unsent = (end_seq.wrapping_sub(record.detail) as i32).max(0) as u32;
            request.left_ns = record.at_ns;
        }
        request.unsent == 0
    }

    fn handle_retransmitted(&mut self, record: &Record) {
        let socket = self.socket(record.socket);
        socket.calls.iter_mut().filter(|call| !call.connects).for_each(|call| call.record_retransmission(record.at_ns));
        let (leaving, last) = (socket.oldest_leaving_response(), socket.request);
        if let Some(request) = self.requests.get_mut(leaving.unwrap_or(last)).filter(|request| !request.is_open()) {
            request.record_retransmission(record.at_ns);
            request.touched_ns = record.at_ns;
        }
    }

    fn handle_socket_state(&mut self, record: &Record) {
        let (new, in_vain) = (record.detail & 0xffff, record.value & IN_VAIN != 0);
        // Logs of older versions have ports in place of the side.
        let Some(side) = Side::from_number(record.value as u32 & 0xff) else { return };
        if !self.sockets.contains_key(&record.socket) {
            return;
        }
        let socket = self.socket(record.socket);
        socket.ended.get_or_insert((side, record.at_ns));
        let last = socket.request;
        if let Some(open) = self.requests.open_mut(last) {
            open.is_cut = true;
        }
        if new == CLOSED {
            self.close_socket(record.socket, in_vain);
        }
    }

    /// Begins a request whose data reached the socket at `data_ns` or earlier.
    fn begin_request(&mut self, record: &Record, data_ns: u64) -> RequestId {
        let (at_ns, tid) = (record.at_ns, record.task.tid);
        let mut request = Request { arrived_ns: data_ns, ..Request::default() };
        if record.socket != 0 {
            let socket = self.socket(record.socket);
            request.arrived_ns = socket.arrivals.take_first_arrival_ns(data_ns);
            request.is_missing = socket.may_have_missed_data(request.arrived_ns, at_ns);
            request.is_cut = socket.ended.is_some();
            request.follows_response = socket.has_answered;
        }
        let id = self.requests.add(Request {
            number: record.request,
            socket: record.socket,
            data_ns,
            started_ns: at_ns,
            receiver: tid,
            is_told: record.kind == Kind::RequestStarted,
            touched_ns: self.now_ns,
            ..request
        });
        if record.socket != 0 {
            self.socket(record.socket).request = id;
        }
        // A start that is reported late lies in the past, so it does not change the thread's present request.
        if at_ns >= self.now_ns {
            let before = self.thread(record.task).request;
            let has_another = self.requests.get(before).is_some_and(|other| other.is_open() && other.receiver == tid);
            let thread = self.thread(record.task);
            thread.takes_several |= has_another;
            thread.set_request(at_ns, id, 0);
            self.note_service(record.task.pid);
            self.note_client(record);
        }
        id
    }

    /// Records the client whose request a thread receives, and whether the thread's previous client is still connected.
    fn note_client(&mut self, record: &Record) {
        let before = self.thread(record.task).client;
        let is_another = before != record.socket && self.sockets.get(&before).is_some_and(|last| last.ended.is_none());
        let thread = self.thread(record.task);
        thread.has_clients |= is_another;
        thread.client = record.socket;
    }

    pub(super) fn handle_request_started(&mut self, record: &Record) {
        let is_now = record.at_ns >= self.now_ns;
        if is_now {
            self.note_socket_use(record);
        }
        let data_ns = if record.value == 0 { record.at_ns } else { record.value.min(record.at_ns) };
        if record.socket == 0 {
            return self.begin_emitted_request(record, data_ns);
        }
        let socket = self.socket(record.socket);
        socket.is_asked = true;
        socket.calls.clear();
        let last = socket.request;
        let known = self.requests.open_mut(last).filter(|open| open.number == record.request);
        let Some(known) = known else {
            self.detach_request(last);
            let id = self.begin_request(record, data_ns);
            self.requests.open_mut(id).into_iter().for_each(|begun| begun.peer_port = record.detail);
            return;
        };
        known.peer_port = record.detail;
        let is_more = known.is_told && known.receiver == record.task.tid && is_now;
        if is_more {
            known.started_ns = known.started_ns.max(record.at_ns);
        }
        let (started_ns, was_told) = (known.started_ns, known.is_told);
        let data_ns = data_ns.min(started_ns);
        let first_ns = self.socket(record.socket).arrivals.take_first_arrival_ns(data_ns).min(data_ns);
        if let Some(known) = self.requests.open_mut(last) {
            known.is_told = true;
            // The first record of the request shows that it includes all data that had arrived by then.
            known.arrived_ns = known.arrived_ns.min(first_ns);
            known.data_ns = if was_told { known.data_ns.max(data_ns) } else { data_ns };
        }
    }

    fn begin_emitted_request(&mut self, record: &Record, data_ns: u64) {
        if self.emitted.len() >= EMITTED_MAX {
            self.emitted.retain(|_, id| self.requests.is_open(*id));
        }
        if self.emitted.len() >= EMITTED_MAX {
            return self.count_excess_record(record);
        }
        let id = self.begin_request(record, data_ns);
        self.emitted.insert(record.request, id);
    }

    pub(super) fn handle_request_finished(&mut self, record: &Record) {
        self.note_socket_use(record);
        let is_emitted = record.socket == 0;
        let id = if is_emitted {
            self.emitted.remove(&record.request).unwrap_or(0)
        } else {
            self.socket(record.socket).request
        };
        let Some(request) = self.requests.get_mut(id).filter(|request| request.number == record.request) else {
            self.counts.unknown += 1;
            return;
        };
        let (is_first, receiver) = (request.is_open(), request.receiver);
        request.finished_ns = record.at_ns.max(request.started_ns);
        if is_first {
            request.answered_ns = request.finished_ns;
        }
        request.finisher = record.task.tid;
        request.taken_up_ns = record.value;
        request.touched_ns = record.at_ns;
        self.thread(record.task).set_request(record.at_ns, 0, 0);
        if let Some(thread) = self.threads.get_mut(&receiver).filter(|thread| thread.request == id) {
            thread.set_request(record.at_ns, 0, 0);
        }
        if is_emitted {
            self.close(id);
        } else if is_first {
            self.answered.push_back((record.at_ns.saturating_add(self.settings.settle_ns), id));
        }
    }
}

//! Excerpt of a trace: the records of one request, of its socket, its threads, and the lanes on which they ran.

use std::collections::BTreeSet;

use sidelane_timeline::record::{Kind, Record};
use sidelane_timeline::timeline::Timeline;

use super::recent::Recent;

/// The most records in the excerpt of one request.
pub const RECORDS_MAX: usize = 1_500;
/// Divisor of the request's latency. The quotient is the margin before and after the request within which records are
/// part of the excerpt, too.
const MARGIN_DIVISOR: u64 = 20;
const MARGIN_MIN_NS: u64 = 20_000;

/// A request with the records that belong to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Excerpt {
    /// Timeline of the request.
    pub timeline: Timeline,
    /// Records of the request's threads, lanes and socket, in the order of time.
    pub records: Vec<Record>,
    /// Number of records that were left out, since the limit was reached.
    pub left_out: u64,
}

impl Excerpt {
    /// Returns the excerpt of the request with this timeline, from the recent records.
    pub fn from_timeline(timeline: &Timeline, recent: &Recent) -> Self {
        let margin_ns = (timeline.latency_ns() / MARGIN_DIVISOR).max(MARGIN_MIN_NS);
        let (from_ns, to_ns) = (timeline.arrived_ns.saturating_sub(margin_ns), timeline.ended_ns + margin_ns);
        let way = RequestPath::from_timeline(timeline);
        let mut excerpt = Self { timeline: timeline.clone(), records: Vec::new(), left_out: 0 };
        for record in recent.between(from_ns, to_ns).filter(|record| way.includes(record)) {
            if excerpt.records.len() < RECORDS_MAX {
                excerpt.records.push(*record);
            } else {
                excerpt.left_out += 1;
            }
        }
        excerpt
    }
}

/// Threads, lanes and socket of a request.
pub(super) struct RequestPath {
    request: u64,
    arrived_ns: u64,
    socket: u64,
    pub(super) threads: BTreeSet<u32>,
    lanes: BTreeSet<u32>,
}

impl RequestPath {
    pub(super) fn from_timeline(timeline: &Timeline) -> Self {
        let spans = || timeline.spans.iter();
        Self {
            request: timeline.request,
            arrived_ns: timeline.arrived_ns,
            socket: timeline.socket,
            threads: spans().map(|span| span.tid).filter(|tid| *tid != 0).collect(),
            lanes: spans().filter_map(|span| span.cpu).collect(),
        }
    }

    /// Returns whether the record belongs to the request. Context switches on the request's lanes belong to it, too:
    /// its threads waited for the threads that had these lanes.
    fn includes(&self, record: &Record) -> bool {
        let of_thread = [record.task.tid, record.other.tid].iter().any(|tid| self.threads.contains(tid));
        let of_socket = record.socket != 0 && record.socket == self.socket;
        match record.kind {
            // The record of an arriving segment does not name its socket yet, so the first segment is found by its
            // time.
            Kind::Segment => record.at_ns == self.arrived_ns || of_socket,
            Kind::DataReady
            | Kind::Received
            | Kind::Sent
            | Kind::Transmitted
            | Kind::Retransmitted
            | Kind::Acknowledged
            | Kind::SocketState => of_socket || self.has_request_number(record),
            Kind::RequestStarted | Kind::RequestFinished => self.has_request_number(record),
            Kind::Switched | Kind::Interrupt | Kind::Softirq | Kind::IdleLeft | Kind::Stolen | Kind::Overlap => {
                of_thread || self.lanes.contains(&record.cpu)
            }
            Kind::PauseBegan | Kind::PauseEnded | Kind::Throttled | Kind::Frozen => true,
            Kind::Tasks => false,
            _ => of_thread,
        }
    }

    fn has_request_number(&self, record: &Record) -> bool {
        record.request != 0 && record.request == self.request
    }
}

#[cfg(test)]
mod tests {
    use sidelane_timeline::cause::Cause;
    use sidelane_timeline::record::Task;

    use super::super::sample::{record, timeline};
    use super::*;

    #[test]
    fn a_request_has_the_records_of_its_socket_threads_and_lanes() {
        let timeline = timeline(5, 1_000_000, &[(Cause::OnCpu, 1_000_000)]);
        let (tid, lane) = (timeline.spans[0].tid, timeline.spans[0].cpu.unwrap());
        let on = |at_ns, kind| Record { cpu: lane + 9, socket: timeline.socket + 1, ..record(at_ns, kind) };
        let of_thread = Record { task: Task { tid, pid: tid }, ..on(1_100_000, Kind::SleepsIn) };
        let of_lane = Record { cpu: lane, ..on(1_200_000, Kind::Switched) };
        let of_socket = Record { socket: timeline.socket, ..on(1_300_000, Kind::Transmitted) };
        let strangers = [on(1_400_000, Kind::Switched), on(1_500_000, Kind::Transmitted), on(1_600_000, Kind::Woken)];
        let too_late = Record { at_ns: 3_000_000, ..of_lane };
        let mut recent = Recent::new(1_000_000_000, 100);
        [of_thread, of_lane, of_socket].iter().chain(&strangers).chain([&too_late]).for_each(|one| recent.push(one));
        let excerpt = Excerpt::from_timeline(&timeline, &recent);
        assert_eq!((excerpt.records, excerpt.left_out), (vec![of_thread, of_lane, of_socket], 0));
    }

    #[test]
    fn too_many_records_are_counted() {
        let timeline = timeline(5, 1_000_000, &[(Cause::OnCpu, 1_000_000)]);
        let lane = timeline.spans[0].cpu.unwrap();
        let mut recent = Recent::new(1_000_000_000, 10_000);
        for step in 0..RECORDS_MAX as u64 + 7 {
            recent.push(&Record { cpu: lane, ..record(1_000_000 + step, Kind::Switched) });
        }
        let excerpt = Excerpt::from_timeline(&timeline, &recent);
        assert_eq!((excerpt.records.len(), excerpt.left_out), (RECORDS_MAX, 7));
    }
}

//! Path of a request: the threads that worked on it or held it, from its last moment back to its first.

use crate::builder::request::{DownstreamCall, PathStep, Request};
use crate::wait::Peer;

/// The place of a request during a part of its time, such as a queue or a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestLocation {
    /// The request's data is on its way to the socket.
    Network,
    /// The request waits until the thread with this number receives it.
    Queue(u32),
    /// The thread with this number has the request.
    Thread(u32),
    /// The request waits for another service, or for a connection to it. `again_ns` is the time of the last
    /// retransmission, or 0: until that time, the network delayed the request.
    Call { peer: Option<Peer>, is_shared: bool, connects: bool, again_ns: u64 },
    /// The answer of another service has arrived and waits until the thread `tid` reads it.
    Answered { tid: u32, peer: Option<Peer> },
    /// The response of the request is being sent. `again_ns` is the time of the last retransmission, or 0: until that
    /// time, the network delayed the response.
    Response { again_ns: u64 },
}

/// An interval of time in which a request was in one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathInterval {
    pub from_ns: u64,
    pub to_ns: u64,
    pub place: RequestLocation,
}

/// A collector of the intervals of a request's path, from the last to the first.
struct PathCollector<'a> {
    stretches: &'a mut Vec<PathInterval>,
    at_ns: u64,
}

impl PathCollector<'_> {
    fn add_interval(&mut self, from_ns: u64, location: RequestLocation) {
        let from_ns = from_ns.min(self.at_ns);
        if from_ns < self.at_ns {
            self.stretches.push(PathInterval { from_ns, to_ns: self.at_ns, place: location });
        }
        self.at_ns = from_ns;
    }
}

/// Stores the path of `request` in `stretches`, end to end, in the order of time.
///
/// The search goes back along the request's steps, from the thread that answered to the thread that handed the request
/// to it. Time in which a thread waited for another service, or for a thread to which it had handed the request, is not
/// that thread's.
pub fn collect_path(request: &Request, intervals: &mut Vec<PathInterval>) {
    intervals.clear();
    let mut back = PathCollector { stretches: intervals, at_ns: request.ended_ns() };
    back.add_interval(request.finished_ns, RequestLocation::Response { again_ns: request.last_retransmission_ns() });
    let mut thread = request.finisher;
    // Steps are in the order of time, so the loop visits each step once.
    for step in request.steps.iter().rev() {
        let (to, since_ns) = step.receiving_thread();
        if to != thread || since_ns >= back.at_ns || since_ns < request.started_ns {
            continue;
        }
        back.add_interval(since_ns, RequestLocation::Thread(thread));
        thread = follow_step_back(step, request.started_ns, &mut back);
    }
    if thread != request.receiver && request.taken_up_ns > request.started_ns && thread == request.finisher {
        // The request was in a queue of the service, from which the thread took it.
        back.add_interval(request.taken_up_ns, RequestLocation::Thread(thread));
        back.add_interval(request.started_ns, RequestLocation::Queue(thread));
    }
    back.add_interval(request.started_ns, RequestLocation::Thread(thread));
    back.add_interval(request.data_ns, RequestLocation::Queue(request.receiver));
    back.add_interval(request.arrived_ns, RequestLocation::Network);
    intervals.reverse();
}

/// Goes back over one step of the path, but not beyond the request's start. Returns the thread that had the request
/// before the step.
fn follow_step_back(step: &PathStep, started_ns: u64, path: &mut PathCollector) -> u32 {
    match *step {
        PathStep::Handed { from, .. } => from,
        PathStep::Called(called) => {
            let DownstreamCall { from, to, peer, is_shared, connects, again_ns, .. } = called;
            let taken = match called.by_loop || from != to {
                true if called.is_seen => RequestLocation::Answered { tid: to, peer },
                true => RequestLocation::Queue(to),
                false => RequestLocation::Thread(to),
            };
            path.add_interval(called.ready_ns.max(started_ns), taken);
            path.add_interval(
                called.sent_ns.max(started_ns),
                RequestLocation::Call { peer, is_shared, connects, again_ns },
            );
            from
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request_with_steps(steps: Vec<PathStep>, finisher: u32) -> Request {
        Request {
            arrived_ns: 100,
            data_ns: 110,
            started_ns: 120,
            receiver: 1,
            finished_ns: 900,
            finisher,
            steps,
            ..Request::default()
        }
    }

    fn path_of(request: &Request) -> Vec<(u64, u64, RequestLocation)> {
        let mut stretches = Vec::new();
        collect_path(request, &mut stretches);
        stretches.into_iter().map(|stretch| (stretch.from_ns, stretch.to_ns, stretch.place)).collect()
    }

    #[test]
    fn request_of_one_thread_has_that_thread_as_its_path() {
        let way = path_of(&request_with_steps(vec![], 1));
        assert_eq!(
            way,
            [
                (100, 110, RequestLocation::Network),
                (110, 120, RequestLocation::Queue(1)),
                (120, 900, RequestLocation::Thread(1))
            ]
        );
    }

    #[test]
    fn path_goes_from_thread_to_thread_and_back() {
        let there = PathStep::Handed { at_ns: 200, from: 1, to: 2 };
        let aside = PathStep::Handed { at_ns: 300, from: 2, to: 7 };
        let back = PathStep::Handed { at_ns: 700, from: 2, to: 1 };
        let way = path_of(&request_with_steps(vec![there, aside, back], 1));
        let threads = [
            (120, 200, RequestLocation::Thread(1)),
            (200, 700, RequestLocation::Thread(2)),
            (700, 900, RequestLocation::Thread(1)),
        ];
        assert_eq!(way[2..], threads);
    }

    #[test]
    fn answering_thread_is_on_the_path_without_a_known_step() {
        let way = path_of(&Request { taken_up_ns: 500, ..request_with_steps(vec![], 2) });
        assert_eq!(way[2..], [(120, 500, RequestLocation::Queue(2)), (500, 900, RequestLocation::Thread(2))]);
    }

    #[test]
    fn path_has_the_wait_for_an_answer_of_another_service() {
        let peer = Some(Peer::Address([127, 0, 0, 1].into(), 6379, 6));
        let way_by = |by_loop, to| {
            let times = DownstreamCall { sent_ns: 200, ready_ns: 600, taken_ns: 650, ..DownstreamCall::default() };
            let called = DownstreamCall { from: 1, to, peer, by_loop, is_seen: true, ..times };
            path_of(&request_with_steps(vec![PathStep::Called(called)], to))
        };
        let asked = RequestLocation::Call { peer, is_shared: false, connects: false, again_ns: 0 };
        for (by_loop, to) in [(false, 1), (true, 1), (false, 2)] {
            let is_its_own = !by_loop && to == 1;
            let taken =
                if is_its_own { RequestLocation::Thread(1) } else { RequestLocation::Answered { tid: to, peer } };
            let way = way_by(by_loop, to);
            assert_eq!(way[2..4], [(120, 200, RequestLocation::Thread(1)), (200, 600, asked)]);
            assert_eq!(way[4..], [(600, 650, taken), (650, 900, RequestLocation::Thread(to))]);
        }
    }

    #[test]
    fn path_ends_with_the_sending_of_the_response() {
        let way = path_of(&Request { left_ns: 950, ..request_with_steps(vec![], 1) });
        assert_eq!(way[3], (900, 950, RequestLocation::Response { again_ns: 0 }));
    }
}

//! The work of each request lane, made from a recording.
//!
//! Requests are seen at sockets, and a lane's turns only as sums. A lane is busy for longer than its requests are
//! served: a wakeup comes before, system calls and housekeeping after them, and some turns serve none. So the rest of a
//! second's busy time is spread over its turns. A turn with requests gives its part to them; the other turns become
//! tasks of their own, at equal distances.
//!
//! An event loop reads many requests and then answers them all, so each of them is served for as long as all. Requests
//! that a lane serves at the same time share that time equally.
//!
//! Then each lane is replayed without batch, first come, first served. What a request took longer than that, it did not
//! need the lane: it waited for the scheduler, a disk or another service. That part stays as it is beside batch.

use std::sync::Arc;

use hdrhistogram::Histogram;

use crate::arrivals::RecordedTask;
use crate::engine::accounting::empty_latency_histogram;
use crate::recording::{LaneSecond, RecordedRequest, Recording, UNIT_NS};

/// Longest time between two tasks: a longer pause has tasks without work in it.
const GAP_MAX: u64 = 40_000_000;

/// Most turns without requests that a second of a lane has here; more and shorter ones are joined. It bounds what a
/// file can claim: a count takes few bytes, each turn takes memory.
const OTHER_TURNS_MAX: u64 = 20_000;

/// Tasks of all lanes of a recording.
#[derive(Clone, Debug)]
pub struct Tasks {
    /// Tasks by their arrival; the last one ends the recording.
    pub list: Arc<[RecordedTask]>,
    /// Latencies of the requests as they were, in nanoseconds.
    pub latencies: Histogram<u64>,
}

/// Task with its arrival, in units of [`UNIT_NS`].
#[derive(Clone, Copy)]
struct Timed {
    arrived: u64,
    work: u64,
    /// Latency that the request had; `None` for other tasks.
    latency: Option<u64>,
    lane: u8,
}

impl Tasks {
    /// Returns the tasks of a recording.
    pub fn new(recording: &Recording) -> Self {
        let timed = place_tasks(recording);
        let mut latencies = empty_latency_histogram();
        recording.requests.iter().for_each(|request| {
            latencies.saturating_record((u64::from(request.queueing) + u64::from(request.server)) * UNIT_NS);
        });
        Self { list: to_recorded(&timed, recording).into(), latencies }
    }
}

/// Returns all tasks, by their arrival.
fn place_tasks(recording: &Recording) -> Vec<Timed> {
    let mut tasks = Vec::with_capacity(recording.requests.len());
    let lane_times = share_lane_time(&recording.requests);
    let (mut begin, mut rest) = (0_u64, &recording.requests[..]);
    for second in &recording.seconds {
        let end = begin.saturating_add(second.length);
        let times = &lane_times[lane_times.len() - rest.len()..];
        let (of_second, later) = rest.split_at(rest.partition_point(|request| request.arrived < end));
        rest = later;
        for (lane, used) in second.lanes.iter().enumerate() {
            let with_times = of_second.iter().zip(times.iter().copied());
            let own = || with_times.clone().filter(move |(request, _)| usize::from(request.lane) == lane);
            let spread = Spread::new(*used, own().map(|(_, time)| time));
            tasks.extend(own().map(|(request, time)| spread.request(request, time)));
            let step = second.length / (spread.other_turns + 1);
            tasks.extend((1..=spread.other_turns).map(|number| Timed {
                arrived: begin + number * step,
                work: spread.per_turn,
                latency: None,
                lane: lane as u8,
            }));
        }
        begin = end;
    }
    tasks.sort_by_key(|task| task.arrived);
    tasks
}

/// Returns the part of its lane's time that each request had while it was served. Requests that are served at the same
/// time have equal parts.
fn share_lane_time(requests: &[RecordedRequest]) -> Vec<f64> {
    let start = |request: &RecordedRequest| (request.lane, request.arrived.saturating_add(request.queueing.into()));
    let finish = |request: &RecordedRequest| (request.lane, start(request).1.saturating_add(request.server.into()));
    let (starts, finishes) = (order_by(requests, start), order_by(requests, finish));
    let mut times = vec![0.0; requests.len()];
    // Time that a request would have had which was served since the begin, and the number that are served.
    let (mut time, mut served, mut at) = (0.0, 0_u64, (0, 0));
    let mut starts = starts.into_iter().map(|number| number as usize).peekable();
    for finished in finishes.into_iter().map(|number| number as usize) {
        let end = finish(&requests[finished]);
        let mut pass_to = |now: (u8, u64), served: u64| {
            if now.0 == at.0 && served > 0 {
                time += (now.1 - at.1) as f64 / served as f64;
            }
            at = now;
            time
        };
        while let Some(started) = starts.next_if(|number| start(&requests[*number]) <= end) {
            times[started] = pass_to(start(&requests[started]), served);
            served += 1;
        }
        times[finished] = pass_to(end, served) - times[finished];
        served -= 1;
    }
    times
}

/// Returns the numbers of requests in the order of a key.
fn order_by<K: Ord>(requests: &[RecordedRequest], key: impl Fn(&RecordedRequest) -> K) -> Vec<u32> {
    let count = u32::try_from(requests.len()).expect("a recording has fewer than 2³² requests");
    let mut order: Vec<u32> = (0..count).collect();
    order.sort_unstable_by_key(|number| key(&requests[*number as usize]));
    order
}

/// How a lane's busy time of a second is spread over its turns.
struct Spread {
    /// Share of their part of the lane's time for which requests needed the lane.
    share: f64,
    /// Time of a turn that serves no request.
    per_turn: u64,
    /// Additional work of a request.
    per_request: u64,
    /// Number of turns that serve no request.
    other_turns: u64,
}

impl Spread {
    /// Spreads the busy time of a second in which requests had these parts of the lane's time.
    fn new(used: LaneSecond, times: impl Iterator<Item = f64>) -> Self {
        let (count, served) = times.fold((0_u64, 0.0), |(count, sum), time| (count + 1, sum + time));
        let busy = used.busy as f64;
        let share = if served > busy { busy / served } else { 1.0 };
        let rest = used.busy.saturating_sub(served.round() as u64);
        let turns = used.turns.max(count).max(1);
        let others = used.turns.saturating_sub(count);
        let of_others = u128::from(rest) * u128::from(others) / u128::from(turns);
        let other_turns = others.min(OTHER_TURNS_MAX).min(rest);
        let per_turn = (of_others as u64).checked_div(other_turns).unwrap_or(0);
        let of_requests = rest - other_turns * per_turn;
        let per_request = of_requests.checked_div(count).unwrap_or(0);
        Self { share, per_turn, per_request, other_turns }
    }

    fn request(&self, request: &RecordedRequest, time: f64) -> Timed {
        Timed {
            arrived: request.arrived,
            work: (time * self.share).round() as u64 + self.per_request,
            latency: Some(u64::from(request.queueing) + u64::from(request.server)),
            lane: request.lane,
        }
    }
}

/// Converts tasks, with the part of each latency for which the request did not need its lane.
fn to_recorded(tasks: &[Timed], recording: &Recording) -> Vec<RecordedTask> {
    let mut free_at = vec![0_u64; recording.head.request_lanes.len()];
    let mut recorded = Vec::with_capacity(tasks.len() + 1);
    let mut last_arrival = 0;
    let in_ns = |units: u64| u32::try_from(units.saturating_mul(UNIT_NS)).unwrap_or(u32::MAX);
    let idle = |gap: u64| RecordedTask { gap_ns: in_ns(gap), work_ns: 0, away_ns: 0, worker: 0, is_request: false };
    let mut pass_to = |recorded: &mut Vec<RecordedTask>, at: u64| {
        while at - last_arrival > GAP_MAX {
            recorded.push(idle(GAP_MAX));
            last_arrival += GAP_MAX;
        }
        let gap = at - last_arrival;
        last_arrival = at;
        gap
    };
    for task in tasks {
        let free_at = &mut free_at[usize::from(task.lane)];
        *free_at = task.arrived.max(*free_at).saturating_add(task.work);
        let away = task.latency.map_or(0, |latency| latency.saturating_sub(*free_at - task.arrived));
        let gap = pass_to(&mut recorded, task.arrived);
        recorded.push(RecordedTask {
            gap_ns: in_ns(gap),
            work_ns: in_ns(task.work),
            away_ns: in_ns(away),
            worker: task.lane,
            is_request: task.latency.is_some(),
        });
    }
    let end = (recording.length_ns() / UNIT_NS).max(tasks.last().map_or(0, |task| task.arrived) + 1);
    let gap = pass_to(&mut recorded, end);
    recorded.push(idle(gap));
    recorded
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::Second;
    use crate::recording::tests::head;

    /// Returns a recording of ten seconds: 1,000 requests a second on the first lane, each served for 200 µs of the
    /// 300 µs that its turn takes, and 100 µs away; and 100 turns a second without requests.
    fn recording() -> Recording {
        let at = |number: u64| number * 10_000 + number * 7_919 % 5_000;
        let mut requests: Vec<RecordedRequest> = (0..10_000)
            .map(|number| RecordedRequest { arrived: at(number), queueing: 1_000, server: 3_000, lane: 0 })
            .collect();
        requests.sort_by_key(|request| request.arrived);
        let lanes = vec![LaneSecond { busy: 1_000 * 4_000 + 100 * 1_000, turns: 1_100 }, LaneSecond::default()];
        let second = Second { length: 10_000_000, lanes, beside_idle: 1, empty: 1, ..Second::default() };
        Recording { head: head(), seconds: vec![second; 10], requests, is_cut: false }
    }

    #[test]
    fn busy_time_is_that_of_the_recording() {
        let recording = recording();
        let tasks = Tasks::new(&recording);
        let work_ns: u64 = tasks.list.iter().map(|task| u64::from(task.work_ns)).sum();
        let busy_ns: u64 =
            recording.seconds.iter().flat_map(|second| &second.lanes).map(|lane| lane.busy * UNIT_NS).sum();
        assert!(work_ns.abs_diff(busy_ns) < busy_ns / 100, "{work_ns} {busy_ns}");
        let length_ns: u64 = tasks.list.iter().map(|task| u64::from(task.gap_ns)).sum();
        assert_eq!(length_ns, recording.length_ns());
        assert_eq!(tasks.list.iter().filter(|task| task.is_request).count(), 10_000);
    }

    #[test]
    fn requests_that_are_served_together_share_the_lane() {
        let served = |(lane, arrived, queueing, server)| RecordedRequest { arrived, queueing, server, lane };
        // On lane 0: alone for 10, two for 20, three for 30, then the last one alone for 5; later one of no length. On
        // lane 1 two that do not meet.
        let requests = [(0, 0, 0, 60), (0, 5, 5, 50), (1, 6, 4, 40), (0, 20, 10, 35), (1, 45, 5, 7), (0, 90, 0, 0)];
        let times = share_lane_time(&requests.map(served));
        assert_eq!(times, [30.0, 20.0, 40.0, 15.0, 7.0, 0.0]);
        assert_eq!(share_lane_time(&[]), [0.0; 0]);
    }

    #[test]
    fn countless_turns_are_joined() {
        let mut recording = recording();
        recording.requests.clear();
        let lane = LaneSecond { busy: 5_000_000, turns: 10 * OTHER_TURNS_MAX };
        recording.seconds.iter_mut().for_each(|second| second.lanes[0] = lane);
        let tasks = Tasks::new(&recording);
        let work_ns: u64 = tasks.list.iter().map(|task| u64::from(task.work_ns)).sum();
        assert_eq!(work_ns, 10 * lane.busy * UNIT_NS);
        assert_eq!(tasks.list.iter().filter(|task| task.work_ns > 0).count() as u64, 10 * OTHER_TURNS_MAX);
    }

    #[test]
    fn long_pauses_are_kept() {
        let mut recording = recording();
        recording.requests.truncate(1);
        recording.seconds.iter_mut().for_each(|second| second.lanes[0] = LaneSecond::default());
        let tasks = Tasks::new(&recording);
        let length_ns: u64 = tasks.list.iter().map(|task| u64::from(task.gap_ns)).sum();
        assert_eq!(length_ns, 10_000_000_000);
    }
}

//! Scheduler of a cluster: a queue of jobs, and a view of the lanes' offers that may be old.
//!
//! Jobs are placed first come, first served, each on the lane with the largest share of those that the view shows as
//! lent and that have no job. The node refuses a job if its lane was withdrawn since; the job then waits for the next
//! step. A job stays on a lane that is withdrawn, as a pod does, until it is moved.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use hdrhistogram::Histogram;
use sidelane_policy::borrow::Objective;
use sidelane_policy::offer::LaneOffer;

use super::super::model::{Placement, PlacementFigures};
use super::nodes::Nodes;
use crate::arrivals::Client;
use crate::model::Model;
use crate::rng::{Rng, Stream};
use crate::time::{MS, NEVER, Nanos, Work};

/// Longest time from submission to start or end of a job that is told apart, in milliseconds.
const WAIT_MAX_MS: u64 = 1 << 40;

/// A job that waits or runs.
#[derive(Clone, Copy, Debug)]
struct Job {
    submitted: Nanos,
    /// Work that the job still had when it began to wait or was placed.
    work_ns: Nanos,
    has_started: bool,
}

/// A lane, with its offer as it is and as the scheduler has seen it.
struct Lane {
    offer: LaneOffer,
    /// Time at which the lane was withdrawn; `None` while it is lent.
    withdrawn_at: Option<Nanos>,
    /// Share of the lane in millionths, in the scheduler's view; `None` if the lane is withdrawn there.
    viewed_ppm: Option<u32>,
    job: Option<Job>,
}

/// Scheduler of a cluster.
pub(super) struct Scheduler<'p> {
    placement: &'p Placement,
    objective: Option<Objective>,
    warm_up_ns: Nanos,
    submissions: Submissions<'p>,
    queue: VecDeque<Job>,
    lanes: Vec<Lane>,
    /// Lanes without a job that are lent in the view, by their share.
    candidates: BinaryHeap<(u32, Reverse<usize>)>,
    view_due: Nanos,
    counts: PlacementFigures,
    waits_ms: Histogram<u64>,
    turnarounds_ms: Histogram<u64>,
    /// Time of all lanes, in nanoseconds, and the parts in which they were lent and had a job.
    lane_ns: [u128; 3],
}

impl<'p> Scheduler<'p> {
    /// Returns a scheduler of this number of lanes, each of which is judged by the objective.
    pub fn new(placement: &'p Placement, model: &Model, lanes: usize, objective: Option<Objective>) -> Self {
        let lane = || Lane { offer: LaneOffer::default(), withdrawn_at: Some(0), viewed_ppm: None, job: None };
        let times = || Histogram::new_with_max(WAIT_MAX_MS, 3).expect("the bounds are right");
        let mut scheduler = Self {
            placement,
            objective,
            warm_up_ns: model.warm_up_ns,
            submissions: Submissions::new(placement, model),
            queue: VecDeque::new(),
            lanes: (0..lanes).map(|_| lane()).collect(),
            candidates: BinaryHeap::new(),
            view_due: model.warm_up_ns,
            counts: PlacementFigures::default(),
            waits_ms: times(),
            turnarounds_ms: times(),
            lane_ns: [0; 3],
        };
        if lanes > 0 {
            (0..placement.backlog).for_each(|_| scheduler.submit(model.warm_up_ns));
        }
        scheduler
    }

    fn submit(&mut self, submitted: Nanos) {
        self.counts.submitted += 1;
        self.queue.push_back(Job { submitted, work_ns: self.submissions.draw_work_ns(), has_started: false });
    }

    /// Places the jobs that wait at `now`.
    pub fn schedule(&mut self, now: Nanos, nodes: &mut impl Nodes) {
        if self.lanes.is_empty() {
            return;
        }
        while let Some(submitted) = self.submissions.next_until(now) {
            self.submit(submitted);
        }
        if now >= self.view_due {
            self.view_due = now + self.placement.offers_every_ns;
            self.refresh_view();
        }
        let mut rejected = Vec::new();
        while !self.queue.is_empty()
            && let Some((_, Reverse(index))) = self.candidates.pop()
            && let Some(job) = self.queue.pop_front()
        {
            let lane = &mut self.lanes[index];
            if !lane.offer.is_lent() {
                lane.viewed_ppm = None;
                rejected.push(job);
                continue;
            }
            if !job.has_started {
                self.waits_ms.saturating_record((now - job.submitted) / MS);
            }
            lane.job = Some(Job { has_started: true, ..job });
            nodes.place(index, Work::of_ns(job.work_ns));
        }
        self.counts.rejected += rejected.len() as u64;
        rejected.into_iter().rev().for_each(|job| self.queue.push_front(job));
    }

    fn refresh_view(&mut self) {
        self.candidates.clear();
        for (index, lane) in self.lanes.iter_mut().enumerate() {
            lane.viewed_ppm = lane.offer.is_lent().then(|| lane.offer.share_ppm());
            let candidate = lane.viewed_ppm.filter(|_| lane.job.is_none());
            self.candidates.extend(candidate.map(|ppm| (ppm, Reverse(index))));
        }
    }

    /// Judges all lanes by what the nodes report at `now`, and ends or moves jobs.
    pub fn observe(&mut self, now: Nanos, nodes: &mut impl Nodes) {
        for index in 0..self.lanes.len() {
            let (report, lane) = (nodes.reports()[index], &mut self.lanes[index]);
            let all_ns = report.span.all_ns;
            lane.offer.observe(report.span, self.objective);
            lane.withdrawn_at = (!lane.offer.is_lent()).then(|| lane.withdrawn_at.unwrap_or(now));
            if now > self.warm_up_ns {
                let parts = [true, lane.offer.is_lent(), lane.job.is_some()];
                let times = self.lane_ns.iter_mut().zip(parts).filter(|(_, is_part)| *is_part);
                times.for_each(|(sum, _)| *sum += u128::from(all_ns));
            }
            if lane.job.is_none() {
                continue;
            }
            if report.left == Work::default() {
                self.end_job(now, index);
            } else if lane.withdrawn_at.is_some_and(|at| now - at >= self.placement.evict_after_ns) {
                let left_ns = (nodes.remove(index).ns() as Nanos).max(1);
                self.move_job(index, left_ns);
            }
        }
    }

    fn end_job(&mut self, now: Nanos, index: usize) {
        let lane = &mut self.lanes[index];
        let Some(job) = lane.job.take() else { return };
        self.counts.done += 1;
        self.turnarounds_ms.saturating_record((now - job.submitted) / MS);
        self.candidates.extend(lane.viewed_ppm.map(|ppm| (ppm, Reverse(index))));
    }

    /// Puts the job of a withdrawn lane to the head of the queue. It goes on from its last checkpoint.
    fn move_job(&mut self, index: usize, left_ns: Nanos) {
        let lane = &mut self.lanes[index];
        lane.viewed_ppm = None;
        let Some(job) = lane.job.take() else { return };
        let done_ns = job.work_ns.saturating_sub(left_ns);
        let kept_ns = self.placement.checkpoint_ns.map_or(0, |every_ns| done_ns - done_ns % every_ns);
        self.counts.moved += 1;
        self.counts.lost_work_ns += (done_ns - kept_ns) as f64;
        self.queue.push_front(Job { work_ns: job.work_ns - kept_ns, ..job });
    }

    /// Returns the results at the end of a run in which all lanes have done `batch_work_ns`.
    pub fn figures(&self, batch_work_ns: f64) -> PlacementFigures {
        let [all_ns, lent_ns, used_ns] = self.lane_ns.map(|ns| ns as f64);
        let at = |times: &Histogram<u64>, percentile| times.value_at_percentile(percentile);
        PlacementFigures {
            waiting: self.queue.len() as u64,
            running: self.lanes.iter().filter(|lane| lane.job.is_some()).count() as u64,
            wait_p50_ms: at(&self.waits_ms, 50.0),
            wait_p99_ms: at(&self.waits_ms, 99.0),
            turnaround_p50_ms: at(&self.turnarounds_ms, 50.0),
            turnaround_p99_ms: at(&self.turnarounds_ms, 99.0),
            useful_work_ns: (batch_work_ns - self.counts.lost_work_ns).max(0.0),
            lent_share: lent_ns / all_ns.max(1.0),
            used_share: used_ns / all_ns.max(1.0),
            ..self.counts
        }
    }
}

/// Source of jobs.
struct Submissions<'p> {
    placement: &'p Placement,
    client: Option<Client>,
    next: Nanos,
    times: Rng,
    work: Rng,
}

impl<'p> Submissions<'p> {
    fn new(placement: &'p Placement, model: &Model) -> Self {
        let client = placement.arrivals.clone().map(Client::new);
        let [times, work] = [Stream::Submissions, Stream::ContainerWork].map(|stream| Rng::new(model.seed, stream));
        let mut submissions = Self { placement, client, next: model.warm_up_ns, times, work };
        submissions.advance();
        submissions
    }

    fn advance(&mut self) {
        let gap_ns = self.client.as_mut().map(|client| client.draw_gap_ns(&mut self.times));
        self.next = gap_ns.map_or(NEVER, |gap_ns| self.next + gap_ns);
    }

    /// Returns the time of the next job; `None` if it comes after `now`.
    fn next_until(&mut self, now: Nanos) -> Option<Nanos> {
        let next = self.next;
        (next <= now).then(|| self.advance()).map(|()| next)
    }

    fn draw_work_ns(&mut self) -> Nanos {
        self.placement.work.draw(&mut self.work)
    }
}

#[cfg(test)]
mod tests {
    use sidelane_policy::offer::LaneSpan;

    use super::*;
    use crate::demand::Demand;
    use crate::fleet::group::GroupResults;
    use crate::fleet::model::NodeModel;
    use crate::fleet::placement::nodes::LaneReport;
    use crate::time::S;
    use crate::{Choices, Experiment};

    /// Lanes whose open share in each second is given, in percent. A job's work is done in the time that its lane is
    /// open.
    struct ScriptedLanes {
        open_percent: [fn(u64) -> u64; 2],
        reports: [LaneReport; 2],
        now: Nanos,
        /// Second and lane of each start.
        starts: Vec<(u64, usize)>,
    }

    impl Nodes for ScriptedLanes {
        fn run_to(&mut self, time: Nanos, _threads: usize) {
            for (report, open_percent) in self.reports.iter_mut().zip(self.open_percent) {
                let open_ns = open_percent(self.now / S) * S / 100;
                report.left.subtract_work_done(open_ns, crate::time::Speed::ONE);
                report.span = LaneSpan { all_ns: time - self.now, open_ns, ..LaneSpan::default() };
            }
            self.now = time;
        }

        fn reports(&self) -> &[LaneReport] {
            &self.reports
        }

        fn place(&mut self, lane: usize, work: Work) {
            self.starts.push((self.now / S, lane));
            self.reports[lane].left = work;
        }

        fn remove(&mut self, lane: usize) -> Work {
            std::mem::take(&mut self.reports[lane].left)
        }

        fn into_results(self) -> GroupResults {
            GroupResults::new(self.now)
        }
    }

    /// Runs one job of 10 s for 100 s on two lanes: one is open until 20 s and closed then, the other is open for 30 %.
    fn run_one_job(offers_every_s: u64, evict_after_s: u64) -> (Vec<(u64, usize)>, PlacementFigures) {
        let text = "run_s = 100\n[service]\narrivals = { kind = \"poisson\", rate_per_s = 1 }\n\
                    demand = { kind = \"constant\", mean_ms = 1 }\n[[setting]]\npolicy = \"alone\"\n";
        let files = |_: &str| Err("no files here".to_owned());
        let model = &Experiment::parse("test.toml", text, Choices::default(), &files).unwrap().points[0].runs[0];
        let placement = Placement {
            node_model: NodeModel::Requests,
            step_ns: S,
            offers_every_ns: offers_every_s * S,
            work: Demand::Constant(10e9),
            arrivals: None,
            backlog: 1,
            evict_after_ns: evict_after_s * S,
            checkpoint_ns: Some(4 * S),
        };
        let mut lanes = ScriptedLanes {
            open_percent: [|second| if second < 20 { 100 } else { 0 }, |_| 30],
            reports: [LaneReport::default(); 2],
            now: 0,
            starts: Vec::new(),
        };
        let mut scheduler = Scheduler::new(&placement, model, 2, None);
        for second in 0..100 {
            scheduler.schedule(second * S, &mut lanes);
            lanes.run_to((second + 1) * S, 1);
            scheduler.observe((second + 1) * S, &mut lanes);
        }
        (lanes.starts, scheduler.figures(11e9))
    }

    /// A new lane is lent after 15 s, and the job gets the lane with the larger share. From 20 s on that lane is closed,
    /// so it is withdrawn at 25 s, and the job leaves it 3 s later. Of 5 s of work, the checkpoint keeps 4 s. The other 6
    /// s take 20 s on the lane that is open for 30 %.
    #[test]
    fn job_is_moved_from_a_withdrawn_lane_to_another() {
        let (starts, jobs) = run_one_job(0, 3);
        assert_eq!(starts, [(15, 0), (28, 1)]);
        assert_eq!((jobs.done, jobs.moved, jobs.rejected, jobs.lost_work_ns), (1, 1, 0, 1e9));
        assert_eq!((jobs.wait_p50_ms / 100, jobs.turnaround_p50_ms / 100), (150, 480));
        // The first lane is lent for 10 s, the other for 85 s; a share is counted at the end of each second.
        assert_eq!((jobs.lent_share, jobs.used_share), ((10 + 86) as f64 / 200.0, (13 + 20) as f64 / 200.0));
    }

    #[test]
    fn job_without_time_on_a_withdrawn_lane_leaves_at_once() {
        assert_eq!(run_one_job(0, 0).0, [(15, 0), (25, 1)]);
    }

    /// The view of 0 s shows no lane, so the job waits for the view of 20 s.
    #[test]
    fn view_is_as_old_as_the_last_update() {
        let (starts, jobs) = run_one_job(20, 3);
        assert_eq!(starts, [(20, 0), (28, 1)]);
        assert_eq!((jobs.done, jobs.moved, jobs.lost_work_ns), (1, 1, 0.0));
    }
}

//! Simulation of a threshold on the last requests.
//!
//! The same requests, with their known work, come at the same times to the same number of cores, each to an idle core.
//! A request over the threshold on a little core takes an empty big core, or that of the request that began last. The
//! simulation ignores three things: more threads than cores, cores that a thread may not use, and the rest after a
//! move.

use super::config::Learning;
use super::learning::{SERVED_MAX, ServedRequest};
use super::preplace;
use crate::Nanos;

/// Largest number of simulated cores. On a larger machine requests come less often, in proportion.
const CORES_MAX: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Job {
    since: Nanos,
    /// Remaining work of the request, as time on a big core.
    left_ns: Nanos,
}

/// Number of big and little cores of the machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct CoreLayout {
    pub(super) big: usize,
    pub(super) little: usize,
    /// Whether threads are sent to big cores before they take requests. Then requests start on an idle big core, if the
    /// threshold is one for which threads are sent ahead.
    pub(super) preplace: bool,
}

/// One simulated run through the last served requests.
pub(super) struct ThresholdReplay<'r> {
    /// Requests that are still to come, by their start.
    coming: &'r [ServedRequest],
    how: Learning,
    threshold_ns: Nanos,
    /// Requests on the cores; big cores come first.
    cores: [Option<Job>; CORES_MAX],
    count: usize,
    big: usize,
    preplace: bool,
    now: Nanos,
    /// Last pseudorandom number.
    random: u64,
    /// Times of requests that are done.
    times_ns: [Nanos; SERVED_MAX],
    done: usize,
}

impl<'r> ThresholdReplay<'r> {
    /// Creates the simulation in its state before the first request.
    pub(super) fn new(
        served: &'r [ServedRequest],
        config: Learning,
        CoreLayout { big, little, preplace }: CoreLayout,
    ) -> Self {
        let (big, count) = match big + little {
            all if all > CORES_MAX => ((big * CORES_MAX / all).max(1), CORES_MAX),
            all => (big, all),
        };
        Self {
            coming: served,
            how: config,
            threshold_ns: 0,
            cores: [None; CORES_MAX],
            count,
            big,
            preplace,
            // The simulated time starts at the first request, since times are multiplied and have to be small.
            now: served.first().map_or(0, |first| first.since),
            random: 1,
            times_ns: [0; SERVED_MAX],
            done: 0,
        }
    }

    /// Returns the percentile of the requests' times with this threshold.
    pub(super) fn percentile_time_ns(mut self, threshold_ns: Nanos) -> Nanos {
        self.threshold_ns = threshold_ns;
        while let Some(at) = self.next_event_at() {
            self.advance_to(at);
            self.finish_jobs();
            self.start_requests();
            self.move_long_jobs();
        }
        let times = &mut self.times_ns[..self.done];
        let rank = times.len() * self.how.percentile_e2 as usize / 10_000;
        let rank = rank.min(times.len().saturating_sub(1));
        if times.is_empty() { 0 } else { *times.select_nth_unstable(rank).1 }
    }

    fn speed_milli(&self, core: usize) -> Nanos {
        if core < self.big { 1000 } else { Nanos::from(self.how.little_speed_milli.max(1)) }
    }

    fn jobs(&self) -> impl Iterator<Item = (usize, Job)> + '_ {
        let of = |(core, job): (usize, &Option<Job>)| Some((core, (*job)?));
        self.cores[..self.count].iter().enumerate().filter_map(of)
    }

    /// Returns the time of the next event: a request is done, comes, or exceeds the threshold.
    fn next_event_at(&self) -> Option<Nanos> {
        let ends = self.jobs().map(|(core, job)| self.now + (job.left_ns * 1000).div_ceil(self.speed_milli(core)));
        let long = self.jobs().filter(|(core, _)| *core >= self.big).map(|(_, job)| job.since + self.threshold_ns);
        let has_room = self.jobs().count() < self.count;
        let comes = self.coming.first().filter(|_| has_room).map(|next| next.since.max(self.now));
        ends.chain(long.filter(|at| *at > self.now)).chain(comes).min()
    }

    fn advance_to(&mut self, to: Nanos) {
        let passed_ns = to - self.now;
        self.now = to;
        for core in 0..self.count {
            let work_ns = passed_ns * self.speed_milli(core) / 1000;
            if let Some(job) = &mut self.cores[core] {
                job.left_ns = job.left_ns.saturating_sub(work_ns);
            }
        }
    }

    fn finish_jobs(&mut self) {
        for core in &mut self.cores[..self.count] {
            if let Some(job) = core.take_if(|job| job.left_ns == 0) {
                self.times_ns[self.done] = self.now - job.since;
                self.done += 1;
            }
        }
    }

    /// Starts the requests that have arrived, each on an idle core.
    fn start_requests(&mut self) {
        while let Some((first, rest)) = self.coming.split_first().filter(|(first, _)| first.since <= self.now)
            && let Some(core) = self.idle_core()
        {
            // A request without work would never be done.
            self.cores[core] = Some(Job { since: first.since, left_ns: first.work_ns.max(1) });
            self.coming = rest;
        }
    }

    /// Returns an idle core, drawn by a linear congruential generator of Knuth, or a big one if threads are placed
    /// ahead.
    fn idle_core(&mut self) -> Option<usize> {
        let waits_on_big = self.preplace && preplace::should_preplace(self.threshold_ns);
        if let Some(big) = (0..self.big).find(|core| waits_on_big && self.cores[*core].is_none()) {
            return Some(big);
        }
        let idle = self.count - self.jobs().count();
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let chosen = (self.random >> 33) as usize % idle.max(1);
        (0..self.count).filter(|core| self.cores[*core].is_none()).nth(chosen)
    }

    /// Moves long requests to big cores, the longest first.
    fn move_long_jobs(&mut self) {
        while let Some((little, long)) = self.longest_little_job()
            && let Some(big) = self.big_core_for(long.since)
        {
            self.cores.swap(little, big);
            for core in [little, big] {
                self.cores[core].iter_mut().for_each(|job| job.left_ns += self.how.move_ns);
            }
        }
    }

    fn longest_little_job(&self) -> Option<(usize, Job)> {
        let is_long = |job: &Job| self.now - job.since >= self.threshold_ns;
        self.jobs().filter(|(core, job)| *core >= self.big && is_long(job)).min_by_key(|(_, job)| job.since)
    }

    /// Returns an empty big core, else the big core of the request that began last, if it began after `since`.
    fn big_core_for(&self, since: Nanos) -> Option<usize> {
        let began = |core: &usize| self.cores[*core].map_or(Nanos::MAX, |job| job.since);
        (0..self.big).max_by_key(began).filter(|core| began(core) > since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOW: Learning = Learning { first_ns: 0, percentile_e2: 9999, little_speed_milli: 500, move_ns: 0 };

    fn longest_time_ns(served: &[(Nanos, Nanos)], (big, little): (usize, usize), threshold_ns: Nanos) -> Nanos {
        let mut all = [ServedRequest::default(); 8];
        all.iter_mut()
            .zip(served)
            .for_each(|(to, (since, work_ns))| *to = ServedRequest { since: *since, work_ns: *work_ns });
        ThresholdReplay::new(&all[..served.len()], HOW, CoreLayout { big, little, preplace: false })
            .percentile_time_ns(threshold_ns)
    }

    #[test]
    fn request_on_little_core_moves_at_the_threshold() {
        // With only little or only big cores there is no move, so the request takes its time there.
        assert_eq!(longest_time_ns(&[(0, 100)], (0, 1), 1000), 200);
        assert_eq!(longest_time_ns(&[(0, 100)], (1, 0), 1000), 100);
        // Two requests come at once. After 40 the request on the little core has done 20 of 100; its neighbour ends at
        // 30.
        assert!([130, 100 + 20].contains(&longest_time_ns(&[(0, 30), (0, 100)], (1, 1), 40)));
    }

    #[test]
    fn large_start_times_give_the_same_result() {
        const YEARS_NS: Nanos = 10 * 365 * 24 * 3600 * 1_000_000_000;
        assert_eq!(longest_time_ns(&[(YEARS_NS, 100), (YEARS_NS + 10, 60)], (1, 0), 0), 150);
    }

    #[test]
    fn longer_request_keeps_its_big_core_and_others_wait() {
        // Alone on the little core, the first request moves at once. The second one finds the big core taken by a
        // longer request, and is long, too.
        assert_eq!(longest_time_ns(&[(0, 100), (10, 60)], (1, 1), 0), 105);
        assert_eq!(longest_time_ns(&[(0, 100), (10, 60)], (1, 0), 0), 150, "it waits for the only core");
    }

    #[test]
    fn the_percentile_is_the_time_of_its_rank() {
        // One after the other on a big core, the requests take 10, 20, 30 and 40.
        let served =
            [(0, 30), (100, 10), (200, 40), (300, 20)].map(|(since, work_ns)| ServedRequest { since, work_ns });
        let layout = || CoreLayout { big: 1, little: 0, preplace: false };
        let percentile = |percentile_e2| {
            ThresholdReplay::new(&served, Learning { percentile_e2, ..HOW }, layout()).percentile_time_ns(1000)
        };
        assert_eq!([0, 2500, 5000, 7499, 7500, 10_000].map(percentile), [10, 20, 30, 30, 40, 40]);
    }
}

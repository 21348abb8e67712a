//! Arrival times of requests: open-loop, so a slow service does not slow its clients.

use std::sync::Arc;

use crate::rng::Rng;
use crate::time::Nanos;

/// Pattern in which requests arrive.
#[derive(Clone, Debug, PartialEq)]
pub enum Arrivals {
    /// Poisson arrivals at one rate.
    Poisson {
        /// Mean time between two requests, in nanoseconds.
        gap_ns: f64,
    },
    /// Poisson arrivals at two rates in turn, each for an exponentially distributed time.
    Bursty {
        /// Mean time between two requests in calm periods, in nanoseconds.
        calm_gap_ns: f64,
        /// Mean time between two requests in bursts, in nanoseconds.
        burst_gap_ns: f64,
        /// Mean length of calm periods, in nanoseconds.
        calm_ns: f64,
        /// Mean length of bursts, in nanoseconds.
        burst_ns: f64,
    },
    /// Poisson arrivals and silence in turn. The length of each period is uniformly distributed between two bounds.
    OnOff {
        /// Mean time between two requests in periods with arrivals, in nanoseconds.
        gap_ns: f64,
        /// Shortest and longest period with arrivals, in nanoseconds.
        on_ns: (f64, f64),
        /// Shortest and longest period without arrivals, in nanoseconds.
        off_ns: (f64, f64),
    },
    /// Poisson arrivals at a rate that rises and falls each day: rate = mean · (1 − swing · cos 2π(t ÷ day + phase)). So a
    /// run begins at the quietest time of machine 0.
    Daily {
        /// Mean time between two requests over the day, in nanoseconds.
        gap_ns: f64,
        /// Largest deviation from the mean rate, as a share of it: at most 1.
        swing: f64,
        /// Length of a day, in nanoseconds.
        day_ns: f64,
        /// Number of machines, or of groups of a fan-out, with different phases; further ones repeat them.
        phases: u32,
        /// Phase of this machine, as a share of the day.
        phase: f64,
    },
    /// Recorded times between requests, repeated.
    Trace(Arc<[Nanos]>),
    /// Recorded tasks of each worker, repeated: requests with their own work, and what else the service did.
    Recording(Arc<[RecordedTask]>),
    /// Recordings of several machines; [`Arrivals::of_machine`] chooses one for each machine of a fleet.
    Recordings(Arc<[Arc<[RecordedTask]>]>),
}

/// A recorded task of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedTask {
    /// Time since the arrival of the task before it, of any worker, in nanoseconds.
    pub gap_ns: u32,
    /// Work on the lane, as nanoseconds without batch.
    pub work_ns: u32,
    /// Part of the latency in which the task did not need the lane, in nanoseconds.
    pub away_ns: u32,
    /// Number of the worker.
    pub worker: u8,
    /// Whether the task is a request; other tasks only keep the worker busy.
    pub is_request: bool,
}

impl Arrivals {
    /// Returns the arrivals of the machine `index` of a fleet. Machines beyond the recordings have them again, in turn.
    pub fn of_machine(&self, index: usize) -> Self {
        match self {
            Self::Recordings(all) => Self::Recording(Arc::clone(&all[index % all.len()])),
            Self::Daily { gap_ns, swing, day_ns, phases, .. } => {
                let phase = (index as u64 % u64::from(*phases)) as f64 / f64::from(*phases);
                Self::Daily { gap_ns: *gap_ns, swing: *swing, day_ns: *day_ns, phases: *phases, phase }
            }
            same => same.clone(),
        }
    }

    /// Returns the rate at `time_ns`, as a multiple of the mean rate.
    pub fn relative_rate(&self, time_ns: f64) -> f64 {
        match self {
            Self::Daily { swing, day_ns, phase, .. } => {
                1.0 - swing * libm::cos(core::f64::consts::TAU * (time_ns / day_ns + phase))
            }
            _ => 1.0,
        }
    }

    /// Returns the mean time between two requests, in nanoseconds.
    pub fn mean_gap_ns(&self) -> f64 {
        match self {
            Self::Poisson { gap_ns } | Self::Daily { gap_ns, .. } => *gap_ns,
            Self::Bursty { calm_gap_ns, burst_gap_ns, calm_ns, burst_ns } => {
                let requests = calm_ns / calm_gap_ns + burst_ns / burst_gap_ns;
                (calm_ns + burst_ns) / requests
            }
            Self::OnOff { gap_ns, on_ns, off_ns } => gap_ns * (middle(*on_ns) + middle(*off_ns)) / middle(*on_ns),
            Self::Trace(gaps) => gaps.iter().map(|ns| *ns as f64).sum::<f64>() / gaps.len().max(1) as f64,
            Self::Recording(tasks) => mean_request_gap_ns(tasks.iter()),
            Self::Recordings(all) => mean_request_gap_ns(all.iter().flat_map(|tasks| tasks.iter())),
        }
    }

    /// Returns the same pattern with another mean time between requests.
    pub fn with_mean_gap(mut self, mean_gap_ns: f64) -> Self {
        let factor = mean_gap_ns / self.mean_gap_ns();
        match &mut self {
            Self::Poisson { gap_ns } | Self::Daily { gap_ns, .. } | Self::OnOff { gap_ns, .. } => *gap_ns *= factor,
            Self::Bursty { calm_gap_ns, burst_gap_ns, .. } => {
                *calm_gap_ns *= factor;
                *burst_gap_ns *= factor;
            }
            Self::Trace(gaps) => *gaps = gaps.iter().map(|gap| (*gap as f64 * factor) as Nanos).collect(),
            Self::Recording(tasks) => {
                let stretched = |task: &RecordedTask| (f64::from(task.gap_ns) * factor) as u32;
                *tasks = tasks.iter().map(|task| RecordedTask { gap_ns: stretched(task), ..*task }).collect();
            }
            Self::Recordings(_) => unreachable!("a scenario with recordings has no rate"),
        }
        self
    }
}

fn mean_request_gap_ns<'t>(tasks: impl Iterator<Item = &'t RecordedTask>) -> f64 {
    let (requests, sum_ns) = tasks.fold((0_u64, 0.0), |(requests, sum_ns), task| {
        (requests + u64::from(task.is_request), sum_ns + f64::from(task.gap_ns))
    });
    sum_ns / requests.max(1) as f64
}

fn middle((shortest, longest): (f64, f64)) -> f64 {
    0.5 * (shortest + longest)
}

/// Source of the arrivals of a pattern, with its position in the pattern.
#[derive(Clone, Debug)]
pub struct Client {
    arrivals: Arrivals,
    bursting: bool,
    /// Remaining time of the present calm period or burst, in nanoseconds.
    left_ns: f64,
    /// Time of the last request of a daily curve, in nanoseconds.
    now_ns: Nanos,
    next: usize,
}

impl Client {
    /// Returns a client at the beginning of `arrivals`; of recordings, those of the first machine.
    pub fn new(arrivals: Arrivals) -> Self {
        // Recordings are those of several machines; other patterns may be those of another machine than the first.
        let is_of_several = matches!(arrivals, Arrivals::Recordings(_));
        let arrivals = if is_of_several { arrivals.of_machine(0) } else { arrivals };
        Self { arrivals, bursting: true, left_ns: 0.0, now_ns: 0, next: 0 }
    }

    /// Returns the time to the next request, in nanoseconds.
    #[inline]
    pub fn draw_gap_ns(&mut self, rng: &mut Rng) -> Nanos {
        match &self.arrivals {
            Arrivals::Poisson { gap_ns } => (gap_ns * rng.exponential()) as Nanos,
            Arrivals::Daily { .. } => self.draw_daily_gap_ns(rng),
            Arrivals::Bursty { .. } | Arrivals::OnOff { .. } => self.draw_gap_across_periods_ns(rng),
            Arrivals::Trace(gaps) => {
                let gap = gaps[self.next];
                self.next = (self.next + 1) % gaps.len();
                gap
            }
            Arrivals::Recording(tasks) => {
                let gap_ns = tasks[self.next].gap_ns;
                self.next = (self.next + 1) % tasks.len();
                gap_ns.into()
            }
            Arrivals::Recordings(_) => unreachable!("a client has the recording of its machine"),
        }
    }

    /// Returns the recorded task that arrives after the last drawn gap; `None` unless tasks are recorded.
    pub fn arriving_task(&self) -> Option<RecordedTask> {
        let Arrivals::Recording(tasks) = &self.arrivals else { return None };
        Some(tasks[self.next.checked_sub(1).unwrap_or(tasks.len() - 1)])
    }

    /// Draws the time to the next request of a daily curve by thinning (Lewis & Shedler 1979): from arrivals at the
    /// highest rate, each is kept with the probability of its time.
    fn draw_daily_gap_ns(&mut self, rng: &mut Rng) -> Nanos {
        let Arrivals::Daily { gap_ns, swing, .. } = self.arrivals else { return 0 };
        let last_ns = self.now_ns;
        loop {
            self.now_ns += (gap_ns / (1.0 + swing) * rng.exponential()) as Nanos;
            let relative = self.arrivals.relative_rate(self.now_ns as f64);
            if rng.happens(relative / (1.0 + swing)) {
                return self.now_ns - last_ns;
            }
        }
    }

    /// Draws the time to the next request, across as many calm periods and bursts as needed. A gap that does not fit
    /// is drawn anew, which is allowed because exponential gaps have no memory.
    fn draw_gap_across_periods_ns(&mut self, rng: &mut Rng) -> Nanos {
        let mut passed_ns = 0.0;
        loop {
            let gap_ns = self.mean_gap_now_ns().map(|mean_ns| mean_ns * rng.exponential());
            if let Some(gap_ns) = gap_ns.filter(|gap_ns| *gap_ns <= self.left_ns) {
                self.left_ns -= gap_ns;
                return (passed_ns + gap_ns) as Nanos;
            }
            passed_ns += self.left_ns;
            self.bursting = !self.bursting;
            self.left_ns = self.draw_period_ns(rng);
        }
    }

    /// Returns the mean time between requests in the present period; `None` if no request arrives in it.
    fn mean_gap_now_ns(&self) -> Option<f64> {
        match (&self.arrivals, self.bursting) {
            (Arrivals::Bursty { burst_gap_ns, .. }, true) => Some(*burst_gap_ns),
            (Arrivals::Bursty { calm_gap_ns, .. }, false) => Some(*calm_gap_ns),
            (Arrivals::OnOff { gap_ns, .. }, true) => Some(*gap_ns),
            _ => None,
        }
    }

    /// Draws the length of a period that begins, in nanoseconds.
    fn draw_period_ns(&self, rng: &mut Rng) -> f64 {
        match (&self.arrivals, self.bursting) {
            (Arrivals::Bursty { burst_ns, .. }, true) => rng.exponential() * burst_ns,
            (Arrivals::Bursty { calm_ns, .. }, false) => rng.exponential() * calm_ns,
            (Arrivals::OnOff { on_ns, .. }, true) => on_ns.0 + rng.draw_unit_interval() * (on_ns.1 - on_ns.0),
            (Arrivals::OnOff { off_ns, .. }, false) => off_ns.0 + rng.draw_unit_interval() * (off_ns.1 - off_ns.0),
            _ => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Stream;

    fn mean_gap_ns(arrivals: &Arrivals) -> f64 {
        let (mut client, mut rng) = (Client::new(arrivals.clone()), Rng::new(5, Stream::Arrivals));
        (0..400_000).map(|_| client.draw_gap_ns(&mut rng) as f64).sum::<f64>() / 400_000.0
    }

    #[test]
    fn drawn_gaps_have_the_mean_of_their_pattern() {
        let bursty = Arrivals::Bursty { calm_gap_ns: 1e6, burst_gap_ns: 1e5, calm_ns: 2e7, burst_ns: 5e6 };
        let on_off = Arrivals::OnOff { gap_ns: 1e5, on_ns: (1e7, 3e7), off_ns: (2e6, 4e6) };
        let trace = Arrivals::Trace([5_000, 10_000, 90_000].into());
        let request = |gap_ns| RecordedTask { gap_ns, work_ns: 1, away_ns: 0, worker: 0, is_request: true };
        let recording = Arrivals::Recording([5_000, 10_000, 90_000].map(request).into());
        let daily = Arrivals::Daily { gap_ns: 1e5, swing: 0.8, day_ns: 4e8, phases: 1, phase: 0.0 };
        for arrivals in [Arrivals::Poisson { gap_ns: 1e6 }, bursty, on_off, daily, trace, recording] {
            for arrivals in [arrivals.clone(), arrivals.with_mean_gap(3e6)] {
                let (mean, wanted) = (mean_gap_ns(&arrivals), arrivals.mean_gap_ns());
                assert!((mean / wanted - 1.0).abs() < 0.02, "{arrivals:?}: {mean} {wanted}");
            }
        }
    }

    #[test]
    fn recorded_tasks_arrive_in_their_order_and_again() {
        let task = |gap_ns, is_request| RecordedTask { gap_ns, work_ns: gap_ns / 2, away_ns: 0, worker: 1, is_request };
        let tasks = [task(10, true), task(20, false)];
        let (mut client, mut rng) = (Client::new(Arrivals::Recording(tasks.into())), Rng::new(5, Stream::Arrivals));
        for _ in 0..2 {
            for expected in tasks {
                assert_eq!(client.draw_gap_ns(&mut rng), Nanos::from(expected.gap_ns));
                assert_eq!(client.arriving_task(), Some(expected));
            }
        }
    }

    /// Checks the length of periods with arrivals. Such a period ends at the next gap that is long enough to be a
    /// period without arrivals.
    #[test]
    fn on_and_off_periods_stay_within_their_bounds() {
        let arrivals = Arrivals::OnOff { gap_ns: 1e3, on_ns: (1e6, 2e6), off_ns: (3e5, 4e5) };
        let (mut client, mut rng) = (Client::new(arrivals), Rng::new(5, Stream::Arrivals));
        let (mut on_ns, mut offs) = (0, 0);
        client.draw_gap_ns(&mut rng);
        for _ in 0..100_000 {
            let gap_ns = client.draw_gap_ns(&mut rng);
            if gap_ns < 100_000 {
                on_ns += gap_ns;
                continue;
            }
            assert!((300_000..430_000).contains(&gap_ns), "{gap_ns}");
            assert!(offs == 0 || (950_000..2_000_000).contains(&on_ns), "{on_ns}");
            (on_ns, offs) = (0, offs + 1);
        }
        assert!(offs > 50, "{offs}");
    }
}

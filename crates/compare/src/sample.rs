//! Sample rounds for tests.

use std::time::Duration;

use super::figures::{BatchFigures, Figures, Round, Setting};
use super::obstacle::Plan;
use super::verdict::Bounds;
use sidelane_report::Percentile;
use sidelane_requests::at_socket::SocketTimes;

pub(super) const BOUNDS: Bounds = Bounds { max_slowdown: 1.05, objective: None };
pub(super) const RUN: Duration = Duration::from_millis(1_500);
pub(super) const PLAN: Plan = Plan { settle: Duration::from_millis(500), run: RUN, percentile: 99.0 };

/// Sample run of 1.5 s.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    pub(super) requests: u64,
    pub(super) batch_cpu_s: f64,
}

impl Default for Run {
    fn default() -> Self {
        Self { p50_us: 100.0, p99_us: 1_000.0, requests: 2_000, batch_cpu_s: 1.0 }
    }
}

impl Run {
    pub(super) fn figures(self) -> Figures {
        let points = [(0.0, 10.0), (50.0, self.p50_us), (99.0, self.p99_us), (99.9, 2.0 * self.p99_us)];
        let seen = SocketTimes {
            requests: self.requests,
            p50_us: self.p50_us,
            p99_us: self.p99_us,
            curve: points.map(|(percentile, us)| Percentile { percentile, us }).to_vec(),
            ..SocketTimes::default()
        };
        let cpu = Duration::from_secs_f64(self.batch_cpu_s);
        Figures {
            length: RUN,
            seen: Some(seen).filter(|seen| seen.requests > 0),
            batch: Some(BatchFigures { cpu, ..BatchFigures::default() }),
        }
    }
}

/// Returns a number of equal rounds with these runs: alone, unmanaged, Sidelane.
pub(super) fn rounds(count: usize, runs: [Run; 3]) -> Vec<Round> {
    let mut round = Round::default();
    Setting::ALL.into_iter().zip(runs).for_each(|(setting, run)| round.put(setting, run.figures()));
    round.put(Setting::Alone, Figures { batch: None, ..runs[0].figures() });
    vec![round; count]
}

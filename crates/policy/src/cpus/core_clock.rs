//! Time for which batch stays away from a core. It grows fast after interference and falls after calm.
//!
//! Problem. Holmes takes a core's CPUs from batch at once when it sees interference. It gives them back after the
//! interference has been below the threshold for the calm time S. But batch was the cause: without batch there is calm.
//! So under steady load batch would return every S, and disturb the service again each time.
//!
//! Approach. If interference follows soon after batch returned, the core waits twice as long the next time, up to
//! [`WAIT_MAX`] times S. There are two kinds of calm. A service that works without being disturbed has to do so for the
//! whole wait. Without any traffic (§4.3, "traffic of the latency-critical service is over") S is enough, since there
//! is no request to disturb.

use crate::Nanos;

use super::average::Average;
use super::mask::{CpuMask, MAX_CPUS};

/// Longest wait, as a multiple of the calm time.
const WAIT_MAX: u32 = 32;
/// Time after batch's return, as a multiple of the wait before it, within which interference counts as caused by batch.
const SOON: u64 = 2;
/// Smallest share of a core's time that is traffic. A service's own timers take less.
const TRAFFIC_LEAST: f64 = 0.02;

/// Wait times of the cores of a machine, by core number.
#[derive(Clone, Debug)]
pub(crate) struct CoreClocks {
    /// Calm time: S of the Holmes paper.
    calm_ns: Nanos,
    clocks: [CoreClock; MAX_CPUS],
    taken: CpuMask,
}

impl CoreClocks {
    pub(crate) fn new(calm_ns: Nanos) -> Self {
        Self { calm_ns, clocks: [CoreClock::default(); MAX_CPUS], taken: CpuMask::EMPTY }
    }

    /// Returns the cores from which batch stays away.
    pub(crate) fn avoided_cores(&self) -> CpuMask {
        self.taken
    }

    /// Records interference on the core. Returns whether batch has to leave the core.
    pub(crate) fn record_interference(&mut self, core: usize, now: Nanos) -> bool {
        let has_to_leave = !self.taken.contains(core);
        self.clocks[core].record_interference(now, self.calm_ns);
        self.taken.insert(core);
        has_to_leave
    }

    /// Records that a core without batch has no interference. In the last `elapsed_ns` services used the share
    /// `serving_share` of the core. Returns whether batch may return.
    pub(crate) fn record_calm(&mut self, core: usize, now: Nanos, serving_share: f64, elapsed_ns: Nanos) -> bool {
        let is_over = self.clocks[core].record_calm(now, self.calm_ns, serving_share, elapsed_ns);
        if is_over {
            self.taken.remove(core);
        }
        is_over
    }

    /// Lets batch return to all cores except `cores`.
    pub(crate) fn retain_cores(&mut self, cores: &CpuMask) {
        self.taken.without(cores).iter().for_each(|core| self.clocks[core] = CoreClock::default());
        self.taken = self.taken.and(cores);
    }

    /// Returns when batch may return to the first core if all cores stay calm.
    pub(crate) fn first_return_at(&self) -> Option<Nanos> {
        self.taken.iter().map(|core| self.clocks[core].return_at(self.calm_ns)).min()
    }
}

/// Wait state of one core.
#[derive(Clone, Copy, Debug, Default)]
struct CoreClock {
    /// Time of the last interference, if batch stays away from the core.
    calm_since: Nanos,
    /// Time at which batch returned to the core; `None` if batch stays away or never left.
    back_since: Option<Nanos>,
    /// Required length of the calm, as a multiple of the calm time.
    wait: u32,
    traffic: Average,
}

impl CoreClock {
    fn record_interference(&mut self, now: Nanos, calm_ns: Nanos) {
        self.wait = match self.back_since.take() {
            Some(since) if now - since <= SOON * self.wait_ns(calm_ns) => (2 * self.wait).min(WAIT_MAX),
            Some(_) => 1,
            None => self.wait.max(1),
        };
        self.calm_since = now;
        self.traffic = Average::default();
    }

    fn record_calm(&mut self, now: Nanos, calm_ns: Nanos, serving_share: f64, elapsed_ns: Nanos) -> bool {
        let no_traffic = self.traffic.add(serving_share, elapsed_ns, calm_ns).is_some_and(|mean| mean < TRAFFIC_LEAST);
        let is_over = no_traffic || now >= self.return_at(calm_ns);
        if is_over {
            self.back_since = Some(now);
        }
        is_over
    }

    fn return_at(&self, calm_ns: Nanos) -> Nanos {
        self.calm_since.saturating_add(self.wait_ns(calm_ns))
    }

    fn wait_ns(&self, calm_ns: Nanos) -> Nanos {
        calm_ns.saturating_mul(u64::from(self.wait))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Nanos = 100;

    const CORE: usize = 3;

    /// Observes every 10 ns after one onset of interference, with a working service, until batch is back. Returns
    /// the time it took.
    fn time_until_return(clocks: &mut CoreClocks, onset: Nanos) -> Nanos {
        clocks.record_interference(CORE, onset);
        let mut observation_state = (1..).map(|look| onset + 10 * look);
        observation_state.find(|now| clocks.record_calm(CORE, *now, 0.5, 10)).expect("it comes back") - onset
    }

    #[test]
    fn batch_comes_back_after_the_calm_time() {
        let mut clocks = CoreClocks::new(S);
        assert!(clocks.record_interference(CORE, 1_000));
        assert!(!clocks.record_interference(CORE, 1_050), "it has left already");
        assert_eq!(clocks.first_return_at(), Some(1_150));
        assert!(!clocks.record_calm(CORE, 1_149, 0.5, 99));
        assert!(clocks.record_calm(CORE, 1_150, 0.5, 1));
        assert_eq!((clocks.avoided_cores(), clocks.first_return_at()), (CpuMask::EMPTY, None));
    }

    #[test]
    fn interference_soon_after_return_doubles_wait_up_to_limit() {
        let mut clocks = CoreClocks::new(S);
        let mut now = 0;
        let mut waits = std::vec::Vec::new();
        for _ in 0..8 {
            let wait = time_until_return(&mut clocks, now);
            now += wait + 50;
            waits.push(wait / S);
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 32, 32]);
        assert_eq!(time_until_return(&mut clocks, now + 2 * 32 * S), S, "it was calm for long enough beside batch");
    }

    #[test]
    fn batch_returns_after_calm_time_when_traffic_ends() {
        let mut clocks = CoreClocks::new(S);
        let wait = time_until_return(&mut clocks, 0);
        clocks.record_interference(CORE, wait + 10);
        let end = wait + 10 + S;
        assert_eq!(clocks.first_return_at(), Some(end + S));
        assert!(clocks.record_calm(CORE, end, 0.01, S), "only the service's own clock ran");
    }

    extern crate std;
}

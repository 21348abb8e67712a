//! Bursts of load, as in Holmes §6.1: 60 to 90 s of requests, then 5 to 10 s without requests.
//!
//! The paper says that both lengths "agree to Poisson distribution". Each length is therefore a Poisson number of
//! seconds around the middle of its range, drawn again until it lies in the range. A scale shortens all lengths alike.

use crate::clock::{Nanos, seconds_to_ns};
use crate::rng::Rng;

/// Number of the random stream from which the lengths of bursts are drawn.
const BURSTS_STREAM: u64 = 2;

/// Shortest and longest burst, in seconds.
const ON_S: (f64, f64) = (60.0, 90.0);
const OFF_S: (f64, f64) = (5.0, 10.0);

/// Interval in which requests are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Burst {
    /// Beginning of the burst, since the start of the run.
    pub start_ns: Nanos,
    /// End of the burst, since the start of the run.
    pub end_ns: Nanos,
}

/// Returns the bursts between two times. The first burst begins at `start_ns`; the last one may be cut off.
pub fn schedule(start_ns: Nanos, end_ns: Nanos, scale: f64, seed: u64) -> Vec<Burst> {
    let mut rng = Rng::new(seed, BURSTS_STREAM);
    let mut length_ns = |range| seconds_to_ns(draw_length_s(&mut rng, range) * scale).max(1);
    let mut bursts = Vec::new();
    let mut at_ns = start_ns;
    while at_ns < end_ns {
        let on_ns = length_ns(ON_S);
        bursts.push(Burst { start_ns: at_ns, end_ns: (at_ns + on_ns).min(end_ns) });
        at_ns += on_ns + length_ns(OFF_S);
    }
    bursts
}

fn draw_length_s(rng: &mut Rng, (least, most): (f64, f64)) -> f64 {
    let mean = (least + most) / 2.0;
    loop {
        let length = draw_poisson(rng, mean);
        if (least..=most).contains(&length) {
            return length;
        }
    }
}

/// Draws a Poisson number: the number of events in a time in which `mean` are expected.
fn draw_poisson(rng: &mut Rng, mean: f64) -> f64 {
    let mut waited = rng.exponential(1.0);
    let mut events = 0.0;
    while waited < mean {
        waited += rng.exponential(1.0);
        events += 1.0;
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE_NS: Nanos = 60_000_000_000;

    #[test]
    fn bursts_and_pauses_are_as_long_as_the_paper_says() {
        let bursts = schedule(MINUTE_NS, 500 * MINUTE_NS, 1.0, 3);
        assert_eq!(bursts[0].start_ns, MINUTE_NS);
        assert_eq!(bursts.iter().map(|burst| burst.end_ns).max(), bursts.last().map(|last| last.end_ns));
        let on = bursts[..bursts.len() - 1].iter().map(|burst| (burst.end_ns - burst.start_ns) as f64 / 1e9);
        let off = bursts.windows(2).map(|pair| (pair[1].start_ns - pair[0].end_ns) as f64 / 1e9);
        assert!(on.clone().all(|length_s| (60.0..=90.0).contains(&length_s)), "{:?}", on.collect::<Vec<_>>());
        assert!(off.clone().all(|length_s| (5.0..=10.0).contains(&length_s)), "{:?}", off.collect::<Vec<_>>());
        let mean_s = on.clone().sum::<f64>() / on.count() as f64;
        assert!((73.0..77.0).contains(&mean_s), "{mean_s} s");
    }

    #[test]
    fn scale_shortens_all_bursts_and_seed_fixes_them() {
        let (full, short) = (schedule(0, 100 * MINUTE_NS, 1.0, 7), schedule(0, MINUTE_NS, 0.01, 7));
        assert_eq!(short, schedule(0, MINUTE_NS, 0.01, 7));
        for (full, short) in full.iter().zip(&short) {
            assert!(full.start_ns.abs_diff(short.start_ns * 100) < 100 * 200, "{full:?} {short:?}");
        }
        assert_eq!(short.last().map(|last| last.end_ns <= MINUTE_NS), Some(true));
    }
}

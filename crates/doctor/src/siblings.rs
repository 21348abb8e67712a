//! Hidden siblings: whether two CPUs slow each other as the lanes of one core do.
//!
//! A virtual machine may get the two lanes of a core as two cores. The guest cannot query that, but it can measure it.
//! A computation that keeps the core's units busy runs on one CPU, alternately alone and beside a copy of itself on the
//! other CPU. Each of two lanes of one core loses a quarter or more of its speed. CPUs that only share a last-level
//! cache and a power budget lose little. Runs alternate because a machine's speed drifts, and the median is used
//! because other work interferes.

use std::hint::black_box;
use std::io;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use super::finding::Finding;
use crate::reaction::child::{Child, ChildMemory, Class};
use crate::reaction::pair::TestPair;
use sidelane_host::clock::now_ns;
use sidelane_host::priority::pin_this_thread;
use sidelane_host::topology::PairKind;
use sidelane_stats::ranks::median;

/// Smallest slowdown that counts as a shared core. Frequency and shared caches explain less; lanes of a core slow each
/// other by far more.
const SIBLING_SLOWDOWN_PERCENT: f64 = 12.0;
/// Number of words in the working set: half a first-level cache, so that the data of two lanes of a core just fits.
const WORDS: usize = 2_048;
/// Number of passes over the words in one run, which takes some milliseconds.
const PASSES: usize = 4_000;
/// Time for the process on the other CPU to start and to stop, with a large margin.
const SETTLE: Duration = Duration::from_millis(2);

/// Returns how much two CPUs slow each other, in percent of the speed of one CPU while the other is idle.
pub fn slowdown_percent(pair: &TestPair, run_pairs: usize) -> io::Result<Option<f64>> {
    thread::scope(|scope| {
        scope.spawn(|| measure_slowdown_percent(pair, run_pairs)).join().expect("measurements do not panic")
    })
}

fn measure_slowdown_percent(pair: &TestPair, run_pairs: usize) -> io::Result<Option<f64>> {
    pin_this_thread(&[pair.request])?;
    let other = Child::start(pair.batch, Class::Ordinary, None, run_competing_load)?;
    // The first runs bring the data into the cache and the clock to its frequency.
    measure_run_ns();
    let slowdowns = (0..run_pairs).map(|_| {
        let alone_ns = run_beside_ns(&other, false);
        let beside_ns = run_beside_ns(&other, true);
        100.0 * (1.0 - alone_ns / beside_ns)
    });
    Ok(median(slowdowns))
}

fn run_beside_ns(other: &Child, other_is_busy: bool) -> f64 {
    other.shared_memory().on.store(other_is_busy.into(), Ordering::Release);
    thread::sleep(SETTLE);
    measure_run_ns()
}

fn measure_run_ns() -> f64 {
    let words = [1; WORDS];
    let began_ns = now_ns();
    for _ in 0..PASSES {
        black_box(run_one_pass(black_box(&words)));
    }
    (now_ns() - began_ns) as f64
}

/// Does loads and independent multiplications, enough to fill the units that lanes of a core share.
fn run_one_pass(words: &[u64; WORDS]) -> u64 {
    let mut sums = [1_u64; 4];
    for chunk in words.chunks_exact(sums.len()) {
        for (sum, word) in sums.iter_mut().zip(chunk) {
            *sum = sum.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ word;
        }
    }
    sums.iter().fold(0, |all, sum| all ^ sum)
}

/// Runs the program of the process on the other CPU; never returns.
fn run_competing_load(memory: &ChildMemory) {
    let words = [1; WORDS];
    loop {
        if memory.on.load(Ordering::Acquire) == 1 {
            black_box(run_one_pass(black_box(&words)));
        } else {
            thread::sleep(SETTLE / 10);
        }
    }
}

/// Returns whether CPUs that slow each other down this much seem to share a core.
pub fn is_sibling(slowdown_percent: Option<f64>) -> bool {
    slowdown_percent.is_some_and(|percent| percent >= SIBLING_SLOWDOWN_PERCENT)
}

/// Returns the finding about `pair` for this slowdown.
pub fn sibling_finding(pair: &TestPair, slowdown_percent: f64) -> Finding {
    Finding::optional("hidden siblings", describe_slowdown(pair, slowdown_percent))
}

fn describe_slowdown(pair: &TestPair, percent: f64) -> String {
    let (a, b) = (pair.request, pair.batch);
    // With noise the measured slowdown may be negative.
    let slowed = percent.max(0.0).round();
    let seem = match (pair.kind, is_sibling(Some(percent))) {
        (PairKind::Smt, _) => "the kernel says that they share a core",
        (PairKind::Declared, true) => "they seem to share a core",
        (PairKind::Declared, false) => "they do not seem to share a core",
    };
    format!("CPUs {a} and {b} slow each other down by {slowed} %: {seem}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description_for(kind: PairKind, percent: f64) -> String {
        describe_slowdown(&TestPair { request: 0, batch: 1, kind }, percent)
    }

    #[test]
    fn mutual_slowdown_reveals_lanes_of_one_core() {
        assert_eq!(
            description_for(PairKind::Declared, 31.2),
            "CPUs 0 and 1 slow each other down by 31 %: they seem to share a core"
        );
        assert!(description_for(PairKind::Declared, 11.9).ends_with("they do not seem to share a core"));
        assert!(description_for(PairKind::Declared, -3.0).contains("by 0 %"));
        assert!(description_for(PairKind::Smt, 2.0).ends_with("the kernel says that they share a core"));
    }
}

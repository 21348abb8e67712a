//! The cost of observing for the target: its progress with and without an observer, in pairs.
//!
//! The observer pauses at intervals. The target's progress in the pause is compared with its
//! progress in windows of the same length just before and after, so that a slow period of the
//! machine affects both alike.

use std::time::{Duration, Instant};

use crate::channel::{Gone, Reader};
use sidelane_host::median::median;

/// Length of a pause, and of each window beside it.
const WINDOW: Duration = Duration::from_millis(20);
/// Time from one pause to the next.
const EVERY: Duration = Duration::from_millis(200);

/// Progress over time.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: Instant,
    count: u64,
}

impl Mark {
    fn rate_since(&self, earlier: &Mark) -> f64 {
        self.count.wrapping_sub(earlier.count) as f64 / (self.at - earlier.at).as_secs_f64()
    }
}

/// Pairs of windows with and without an observer.
pub struct CostMeter {
    progress: Reader,
    marks: Vec<Mark>,
    due: Instant,
    slowdowns: Vec<f64>,
}

/// An instruction to the observer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Continue to read.
    Observe,
    /// Pause.
    Pause,
}

/// What observing costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slowdown {
    /// By how much the target's progress is smaller while it is observed: the median of pairs.
    pub percent: f64,
    /// Number of pairs.
    pub pairs: u64,
}

impl CostMeter {
    /// A meter for a target whose progress is read by `progress`.
    pub fn new(progress: Reader) -> Self {
        Self { progress, marks: Vec::new(), due: Instant::now() + WINDOW, slowdowns: Vec::new() }
    }

    /// When [`CostMeter::step`] has to be called next.
    pub fn due(&self) -> Instant {
        self.due
    }

    /// Takes the next mark. Four marks make a pair: observed, paused, observed.
    pub fn step(&mut self) -> Result<Order, Gone> {
        let mark = Mark { at: Instant::now(), count: self.count()? };
        self.marks.push(mark);
        self.due = mark.at + WINDOW;
        match self.marks.as_slice() {
            [_, _] => return Ok(Order::Pause),
            [before, begins, ends, after] => {
                let with = (begins.rate_since(before) + after.rate_since(ends)) / 2.0;
                let without = ends.rate_since(begins);
                if without > 0.0 {
                    self.slowdowns.push(100.0 * (1.0 - with / without));
                }
                self.marks.clear();
                self.due = mark.at + EVERY - 3 * WINDOW;
            }
            _ => (),
        }
        Ok(Order::Observe)
    }

    fn count(&mut self) -> Result<u64, Gone> {
        match &mut self.progress {
            Reader::Word(word) => Ok(word.read()),
            Reader::Pmc(counter) => Ok(counter.read()),
            Reader::Call(call) => call.read(),
        }
    }

    /// The cost so far; `None` before the first pair, or if the target made no progress.
    pub fn slowdown(&self) -> Option<Slowdown> {
        let percent = median(self.slowdowns.iter().copied())?;
        Some(Slowdown { percent, pairs: self.slowdowns.len() as u64 })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::channel::Call;

    struct Count(Arc<AtomicU64>);

    impl Call for Count {
        fn read(&mut self) -> Result<u64, Gone> {
            Ok(self.0.load(Ordering::Relaxed))
        }
    }

    #[test]
    fn a_pause_stands_between_two_windows() {
        let count = Arc::new(AtomicU64::new(0));
        let mut meter = CostMeter::new(Reader::Call(Box::new(Count(Arc::clone(&count)))));
        let (mut orders, mut stepped) = (Vec::new(), Instant::now());
        for _ in 0..4 {
            count.fetch_add(100, Ordering::Relaxed);
            stepped = Instant::now();
            orders.push(meter.step().unwrap());
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(orders, [Order::Observe, Order::Pause, Order::Observe, Order::Observe]);
        assert_eq!(meter.slowdown().unwrap().pairs, 1);
        assert!(meter.due() > stepped + WINDOW, "the next pair comes later");
    }

    #[test]
    fn a_target_that_does_nothing_has_no_slowdown() {
        let mut meter = CostMeter::new(Reader::Call(Box::new(Count(Arc::default()))));
        (0..8).for_each(|_| drop(meter.step()));
        assert_eq!(meter.slowdown(), None);
    }
}

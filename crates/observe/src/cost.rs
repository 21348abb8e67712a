//! The cost of observing for the target: its progress with and without an observer, in pairs.
//!
//! The observer pauses at intervals. The target's progress in the pause is compared with its progress in windows of the
//! same length just before and after. So a slow period of the machine affects pause and windows alike.
//!
//! A counter measures progress. If a pair has only a few events, the difference between windows is chance. So a pair
//! with fewer than [`EVENTS_MIN`] events is not used.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use sidelane_stats::interval::median_interval;
use sidelane_stats::ranks::median;

use sidelane_channels::{ChannelEnd, Reader};

/// Length of a pause of the observer, and of each window beside the pause.
const WINDOW: Duration = Duration::from_millis(20);
/// Time from one pause of the observer to the next.
const EVERY: Duration = Duration::from_millis(200);

/// Number of events that a pair of windows needs to be used.
pub const EVENTS_MIN: u64 = 1_000;

pub struct Progress {
    /// Name of the counter in results.
    pub name: String,
    /// Reader of the counter.
    pub reader: Reader,
}

/// Values of the progress counters at one time.
#[derive(Clone, Debug)]
struct ProgressReading {
    at: Instant,
    /// Values, in the order of the counters.
    counts: Vec<u64>,
}

impl ProgressReading {
    fn events_since(&self, earlier: &ProgressReading, counter: usize) -> u64 {
        self.counts[counter].wrapping_sub(earlier.counts[counter])
    }

    fn rate_since(&self, earlier: &ProgressReading, counter: usize) -> f64 {
        self.events_since(earlier, counter) as f64 / (self.at - earlier.at).as_secs_f64()
    }
}

/// Results of the pairs by one progress counter.
#[derive(Clone, Debug, Default)]
struct Pairs {
    /// Number of events in each pair.
    events: Vec<f64>,
    /// Slowdowns of the pairs with enough events, in percent.
    slowdowns: Vec<f64>,
}

impl Pairs {
    fn add_pair(&mut self, [before, begins, ends, after]: [&ProgressReading; 4], counter: usize) {
        let events = after.events_since(before, counter);
        self.events.push(events as f64);
        let with = (begins.rate_since(before, counter) + after.rate_since(ends, counter)) / 2.0;
        let without = ends.rate_since(begins, counter);
        if events >= EVENTS_MIN && without > 0.0 {
            self.slowdowns.push(100.0 * (1.0 - with / without));
        }
    }

    fn events_a_pair(&self) -> Option<f64> {
        median(self.events.iter().copied())
    }
}

/// Meter that compares the target's progress in pairs of windows, with and without an observer.
pub struct CostMeter {
    progress: Vec<Progress>,
    marks: Vec<ProgressReading>,
    due: Instant,
    /// Results of the pairs, in the order of the counters.
    pairs: Vec<Pairs>,
}

/// Instruction to the observer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObserverOrder {
    /// Continue to read signals.
    Observe,
    /// Pause, so that the target runs unobserved.
    Pause,
}

/// Slowdown of the target by observing, by the first progress counter with enough events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slowdown {
    /// Name of the counter that measured progress.
    pub counter: String,
    /// Reduction of the target's progress while it is observed, in percent: the median of all pairs. `None` if no pair
    /// had enough events.
    pub percent: Option<f64>,
    /// Lower end of the 95 % confidence interval of the slowdown, in percent; `None` if there were too few pairs.
    pub low_percent: Option<f64>,
    /// Upper end of the 95 % confidence interval of the slowdown, in percent; `None` if there were too few pairs.
    pub high_percent: Option<f64>,
    /// Number of pairs of windows with enough events.
    pub pairs: u64,
    /// Number of events in a pair: the median of all pairs.
    #[serde(rename = "events_per_pair")]
    pub events_a_pair: f64,
}

impl CostMeter {
    /// Returns a meter for a target whose progress the counters `progress` measure. The first counter with enough
    /// events is used.
    pub fn new(progress: Vec<Progress>) -> Self {
        let pairs = vec![Pairs::default(); progress.len()];
        Self { progress, marks: Vec::new(), due: Instant::now() + WINDOW, pairs }
    }

    /// Returns when [`CostMeter::finish_window`] has to be called next.
    pub fn due(&self) -> Instant {
        self.due
    }

    /// Reads the progress counters, and returns what the observer does next. Windows of a pair are: observed, paused,
    /// observed.
    ///
    /// # Errors
    /// When a counter can no longer be read.
    pub fn finish_window(&mut self) -> Result<ObserverOrder, ChannelEnd> {
        let mark = ProgressReading { at: Instant::now(), counts: self.read_counts()? };
        let at = mark.at;
        self.marks.push(mark);
        self.due = at + WINDOW;
        match self.marks.as_slice() {
            [_, _] => return Ok(ObserverOrder::Pause),
            [before, begins, ends, after] => {
                let marks = [before, begins, ends, after];
                self.pairs.iter_mut().enumerate().for_each(|(counter, pairs)| pairs.add_pair(marks, counter));
                self.marks.clear();
                self.due = at + EVERY - 3 * WINDOW;
            }
            _ => (),
        }
        Ok(ObserverOrder::Observe)
    }

    fn read_counts(&mut self) -> Result<Vec<u64>, ChannelEnd> {
        let count = |progress: &mut Progress| match &mut progress.reader {
            Reader::Word(word) => Ok(word.read()),
            Reader::Pmc(counter) => Ok(counter.read()),
            Reader::Call(call) => call.read(),
        };
        self.progress.iter_mut().map(count).collect()
    }

    /// Returns the slowdown measured so far; `None` before the first pair.
    pub fn slowdown(&self) -> Option<Slowdown> {
        let told = |(progress, pairs): (&Progress, &Pairs)| slowdown_of_pairs(&progress.name, pairs);
        let all: Vec<Slowdown> = self.progress.iter().zip(&self.pairs).filter_map(told).collect();
        let enough = all.iter().find(|slowdown| slowdown.events_a_pair >= EVENTS_MIN as f64);
        let most = || all.iter().max_by(|one, other| one.events_a_pair.total_cmp(&other.events_a_pair));
        enough.or_else(most).cloned()
    }
}

fn slowdown_of_pairs(counter: &str, pairs: &Pairs) -> Option<Slowdown> {
    let interval = median_interval(pairs.slowdowns.iter().copied());
    Some(Slowdown {
        counter: counter.to_owned(),
        percent: interval.map(|interval| interval.measured),
        low_percent: interval.and_then(|interval| interval.low),
        high_percent: interval.and_then(|interval| interval.high),
        pairs: pairs.slowdowns.len() as u64,
        events_a_pair: pairs.events_a_pair()?,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use sidelane_channels::SyscallReader;

    struct Count(Arc<AtomicU64>);

    impl SyscallReader for Count {
        fn read(&mut self) -> Result<u64, ChannelEnd> {
            Ok(self.0.load(Ordering::Relaxed))
        }
    }

    #[test]
    fn pause_lies_between_two_observed_windows() {
        let count = Arc::new(AtomicU64::new(0));
        let mut meter = CostMeter::new(vec![progress_of_count(&count)]);
        let (mut orders, mut stepped) = (Vec::new(), Instant::now());
        for _ in 0..4 {
            count.fetch_add(400, Ordering::Relaxed);
            stepped = Instant::now();
            orders.push(meter.finish_window().unwrap());
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(
            orders,
            [ObserverOrder::Observe, ObserverOrder::Pause, ObserverOrder::Observe, ObserverOrder::Observe]
        );
        let slowdown = meter.slowdown().unwrap();
        assert_eq!((slowdown.pairs, slowdown.events_a_pair, slowdown.low_percent), (1, 1_200.0, None));
        assert!(meter.due() > stepped + WINDOW, "the next pair comes later");
    }

    fn progress_of_count(count: &Arc<AtomicU64>) -> Progress {
        Progress { name: "done".into(), reader: Reader::Call(Box::new(Count(Arc::clone(count)))) }
    }

    #[test]
    fn a_target_that_does_nothing_has_no_slowdown() {
        let mut meter = CostMeter::new(vec![progress_of_count(&Arc::default())]);
        assert_eq!(meter.slowdown(), None);
        (0..8).for_each(|_| drop(meter.finish_window()));
        let slowdown = meter.slowdown().unwrap();
        assert_eq!((slowdown.percent, slowdown.pairs, slowdown.events_a_pair), (None, 0, 0.0));
    }

    /// Makes the four readings at the borders of a pair's three windows. `window_events` are the events in each window.
    fn readings_of_pair(window_events: [u64; 3]) -> [ProgressReading; 4] {
        let (mut at, mut count) = (Instant::now(), 7);
        let mut mark = |events: u64| {
            (at, count) = (at + WINDOW, count + events);
            ProgressReading { at, counts: vec![count] }
        };
        [mark(0), mark(window_events[0]), mark(window_events[1]), mark(window_events[2])]
    }

    #[test]
    fn pairs_with_few_events_give_no_slowdown() {
        let mut pairs = Pairs::default();
        for events in [[333, 333, 333], [334, 334, 334], [450, 500, 450], [0, 2_000, 0]] {
            pairs.add_pair(readings_of_pair(events).each_ref(), 0);
        }
        let slowdowns: Vec<f64> = pairs.slowdowns.iter().map(|slowdown| slowdown.round()).collect();
        assert_eq!((slowdowns, pairs.events.len()), (vec![0.0, 10.0, 100.0], 4));
    }

    #[test]
    fn slowdown_uses_the_first_counter_with_enough_events() {
        let (few, enough): (Arc<AtomicU64>, Arc<AtomicU64>) = Default::default();
        let mut meter = CostMeter::new(vec![
            progress_of_count(&few),
            Progress { name: "more".into(), ..progress_of_count(&enough) },
        ]);
        for _ in 0..4 {
            few.fetch_add(10, Ordering::Relaxed);
            enough.fetch_add(1_000, Ordering::Relaxed);
            meter.finish_window().unwrap();
        }
        assert_eq!(meter.slowdown().unwrap().counter, "more");
    }
}

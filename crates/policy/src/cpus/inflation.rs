//! How much longer a service takes beside batch than alone: what stands in for counters on a machine without any.
//!
//! The requests of each look are counted as *beside* batch or *alone*, by whether batch had the siblings for most of
//! that time or for hardly any of it. What is between says nothing. The mean server time alone is remembered over many
//! looks, since load changes slowly; that beside batch only until there are enough to compare, since batch that
//! disturbs has to be seen soon.

use crate::Nanos;

/// Batch had so little of the siblings' time that the service was alone.
const ALONE_MOST: f64 = 0.05;
/// Batch had so much of it that the service was beside batch.
const BESIDE_LEAST: f64 = 0.5;
/// A mean of fewer requests than this is chance.
const REQUESTS_MIN: u64 = 30;
/// Requests alone that are remembered; later ones push earlier ones out.
const REMEMBERED: u64 = 10_000;

/// Requests of one kind: their server times.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Served {
    /// How many.
    pub count: u64,
    /// Together.
    pub sum_ns: Nanos,
}

impl Served {
    fn add(&mut self, other: Served) {
        self.count += other.count;
        self.sum_ns += other.sum_ns;
    }

    fn mean_ns(&self) -> Option<f64> {
        (self.count >= REQUESTS_MIN).then(|| self.sum_ns as f64 / self.count as f64)
    }
}

/// What was learned of one service.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Inflation {
    alone: Served,
    beside: Served,
    value: Option<f64>,
}

impl Inflation {
    /// Takes in the requests of a look, in which batch had this share of the siblings' time.
    pub fn note(&mut self, served: Served, batch_share: f64) {
        if batch_share <= ALONE_MOST {
            self.note_alone(served);
        } else if batch_share >= BESIDE_LEAST {
            self.note_beside(served);
        }
    }

    fn note_alone(&mut self, served: Served) {
        self.alone.add(served);
        if self.alone.count > REMEMBERED {
            self.alone = Served { count: self.alone.count / 2, sum_ns: self.alone.sum_ns / 2 };
        }
        // Nobody disturbs now.
        (self.beside, self.value) = (Served::default(), None);
    }

    fn note_beside(&mut self, served: Served) {
        self.beside.add(served);
        let both = self.beside.mean_ns().zip(self.alone.mean_ns());
        if let Some((beside_ns, alone_ns)) = both {
            self.value = Some((beside_ns / alone_ns - 1.0).max(0.0));
            self.beside = Served::default();
        }
    }

    /// By how much a request takes longer than alone: 0.5 is half as long again. `None` as long as nobody knows, and
    /// while batch is away.
    pub fn value(&self) -> Option<f64> {
        self.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALONE: Served = Served { count: 40, sum_ns: 40_000 };

    #[test]
    fn half_as_long_again_is_half() {
        let mut inflation = Inflation::default();
        inflation.note(ALONE, 0.0);
        inflation.note(Served { count: 30, sum_ns: 45_000 }, 1.0);
        assert_eq!(inflation.value(), Some(0.5));
        inflation.note(Served { count: 60, sum_ns: 60_000 }, 0.9);
        assert_eq!(inflation.value(), Some(0.0));
    }

    #[test]
    fn few_requests_say_nothing_until_they_are_enough_together() {
        let mut inflation = Inflation::default();
        inflation.note(ALONE, 0.0);
        inflation.note(Served { count: 20, sum_ns: 40_000 }, 1.0);
        assert_eq!(inflation.value(), None);
        inflation.note(Served { count: 10, sum_ns: 20_000 }, 1.0);
        assert_eq!(inflation.value(), Some(1.0));
    }

    #[test]
    fn nobody_who_is_away_disturbs() {
        let mut inflation = Inflation::default();
        inflation.note(Served { count: 40, sum_ns: 80_000 }, 1.0);
        assert_eq!(inflation.value(), None, "nothing to compare with");
        inflation.note(ALONE, 0.01);
        inflation.note(Served { count: 40, sum_ns: 80_000 }, 1.0);
        assert_eq!(inflation.value(), Some(1.0));
        inflation.note(Served::default(), 0.0);
        assert_eq!(inflation.value(), None);
    }

    #[test]
    fn what_is_between_changes_nothing() {
        let mut inflation = Inflation::default();
        inflation.note(ALONE, 0.0);
        let before = inflation;
        inflation.note(Served { count: 100, sum_ns: 1_000_000 }, 0.3);
        assert_eq!(inflation, before);
    }
}

//! Slowdowns that the lanes of one core cause to each other.
//!
//! Problem. Two threads on one core slow each other by an amount that depends on both: Elfen's Fig. 4 has a co-runner
//! with an IPC of 0.01 that costs requests more than half of their capacity.
//!
//! Approach. A matrix has measured slowdowns by class of victim and of aggressor: 1.3 means 30 % longer. The losses
//! to several aggressors are added: beside two of 1.3 and 1.5 a victim takes 1.8 times as long. A napping lane has a
//! class of its own, [`NAP`], since a poor nap (a PAUSE loop) takes execution resources, too.
//!
//! Holmes' VPI is memory stalls divided by loads and stores. For it, a class makes a number of accesses per unit of
//! work, and stalls on memory for a share of its time alone. The aggressor's *pressure* is the share of a class's
//! loss that is memory stalls; the rest is execution resources.

use crate::time::Speed;

/// Number of a class: programs with the same slowdowns.
pub type Class = usize;

/// Class of a lane that a napping thread keeps empty.
pub const NAP: Class = 0;

/// Memory use of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MemoryUse {
    /// Loads and stores per microsecond of work.
    pub accesses_per_us: f64,
    /// Share of the class's time alone in which it stalls on memory.
    pub stall_share: f64,
    /// Share of other classes' loss to this class that appears as memory stalls.
    pub pressure: f64,
}

/// Matrix of slowdowns, and the memory use of each class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Interference {
    names: Vec<String>,
    /// Slowdown − 1, by victim, then by aggressor.
    extra: Vec<f64>,
    memory: Vec<MemoryUse>,
}

impl Interference {
    /// Creates classes without slowdowns; [`NAP`] is added as the first.
    pub fn new(classes: &[String]) -> Self {
        let names: Vec<String> = std::iter::once("nap".to_owned()).chain(classes.iter().cloned()).collect();
        let count = names.len();
        Self { names, extra: vec![0.0; count * count], memory: vec![MemoryUse::default(); count] }
    }

    /// Returns the class with that name.
    pub fn class(&self, name: &str) -> Option<Class> {
        self.names.iter().position(|known| known == name)
    }

    /// Returns the names of all classes, by class.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Sets that `victim` takes `slowdown` times as long beside `aggressor`.
    pub fn set_slowdown(&mut self, victim: Class, aggressor: Class, slowdown: f64) {
        let count = self.names.len();
        self.extra[victim * count + aggressor] = slowdown - 1.0;
    }

    /// Sets the memory use of `class`.
    pub fn set_memory(&mut self, class: Class, memory: MemoryUse) {
        self.memory[class] = memory;
    }

    /// Returns the memory use of `class`.
    pub fn memory(&self, class: Class) -> MemoryUse {
        self.memory[class]
    }

    /// Returns the additional time of `victim` beside one `aggressor`: 0.3 for 30 %.
    #[inline]
    pub fn extra_slowdown(&self, victim: Class, aggressor: Class) -> f64 {
        self.extra[victim * self.names.len() + aggressor]
    }

    /// Returns how many times as long `victim` takes beside `aggressor` as alone.
    pub fn slowdown(&self, victim: Class, aggressor: Class) -> f64 {
        1.0 + self.extra_slowdown(victim, aggressor)
    }

    /// Returns the speed of a lane on a core of `core_speed`, beside aggressors with `extra_slowdown` in total.
    #[inline]
    pub fn speed_beside(core_speed: f64, extra_slowdown: f64) -> Speed {
        if extra_slowdown == 0.0 && core_speed == 1.0 {
            return Speed::ONE;
        }
        Speed::from_factor(core_speed / (1.0 + extra_slowdown))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slowdowns_of_several_aggressors_add_up() {
        let mut smt = Interference::new(&["search".to_owned(), "loop".to_owned()]);
        let (search, batch) = (smt.class("search").unwrap(), smt.class("loop").unwrap());
        smt.set_slowdown(search, batch, 1.25);
        let extra = smt.extra_slowdown(search, batch);
        assert_eq!(Interference::speed_beside(1.0, extra), Speed::from_factor(0.8));
        assert_eq!(Interference::speed_beside(0.5, 2.0 * extra), Speed::from_factor(1.0 / 3.0));
        assert_eq!(Interference::speed_beside(1.0, smt.extra_slowdown(batch, search)), Speed::ONE);
        assert_eq!(smt.class("nap"), Some(NAP));
    }
}

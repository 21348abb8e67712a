//! What lanes of one core do to each other.
//!
//! Problem. Two threads on one core slow each other by an amount that depends on both: Elfen's Fig. 4
//! has a co-runner with an IPC of 0.01 that costs requests more than half of their capacity.
//!
//! Approach. A matrix of measured slowdowns by class of victim and of aggressor: 1.3 is 30 % longer.
//! Several aggressors add up what each takes: beside two of 1.3 and 1.5 a victim takes 1.8 times as
//! long. A lane that naps is a class of its own, [`NAP`], since a poor nap (a PAUSE loop) takes
//! execution resources, too.
//!
//! For Holmes' VPI, memory stalls over loads and stores: a class does so many accesses per unit of
//! work and stalls on memory for a share of its time alone. What it loses to an aggressor is stalls to
//! the part that the aggressor's *pressure* says, and execution resources to the rest.

use crate::time::Speed;

/// A kind of program, as far as it matters to its neighbours.
pub type Class = usize;

/// The class of a lane that is kept empty by somebody who naps there.
pub const NAP: Class = 0;

/// How a class uses memory.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MemoryUse {
    /// Loads and stores in a microsecond of work.
    pub accesses_per_us: f64,
    /// The share of its time alone in which it stalls on memory.
    pub stall_share: f64,
    /// The share of what it costs others that shows as their memory stalls.
    pub pressure: f64,
}

/// The matrix.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Interference {
    names: Vec<String>,
    /// Slowdown − 1, by victim, then aggressor.
    extra: Vec<f64>,
    memory: Vec<MemoryUse>,
}

impl Interference {
    /// Classes that do nothing to each other; [`NAP`] comes before them.
    pub fn new(classes: &[String]) -> Self {
        let names: Vec<String> = std::iter::once("nap".to_owned()).chain(classes.iter().cloned()).collect();
        let count = names.len();
        Self { names, extra: vec![0.0; count * count], memory: vec![MemoryUse::default(); count] }
    }

    /// The class of that name.
    pub fn class(&self, name: &str) -> Option<Class> {
        self.names.iter().position(|known| known == name)
    }

    /// All names, by class.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// `victim` takes `slowdown` times as long beside `aggressor`.
    pub fn set_slowdown(&mut self, victim: Class, aggressor: Class, slowdown: f64) {
        let count = self.names.len();
        self.extra[victim * count + aggressor] = slowdown - 1.0;
    }

    /// How `class` uses memory.
    pub fn set_memory(&mut self, class: Class, memory: MemoryUse) {
        self.memory[class] = memory;
    }

    /// How `class` uses memory.
    pub fn memory(&self, class: Class) -> MemoryUse {
        self.memory[class]
    }

    /// How much longer than alone `victim` takes beside one of `aggressor`, as 0.3.
    #[inline]
    pub fn extra(&self, victim: Class, aggressor: Class) -> f64 {
        self.extra[victim * self.names.len() + aggressor]
    }

    /// How many times as long as alone `victim` takes beside `aggressor`.
    pub fn slowdown(&self, victim: Class, aggressor: Class) -> f64 {
        1.0 + self.extra(victim, aggressor)
    }

    /// The speed of a lane on a core of `core_speed` beside what takes `extra` in sum.
    #[inline]
    pub fn speed(core_speed: f64, extra: f64) -> Speed {
        if extra == 0.0 && core_speed == 1.0 {
            return Speed::ONE;
        }
        Speed::from_factor(core_speed / (1.0 + extra))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aggressors_add_up() {
        let mut smt = Interference::new(&["search".to_owned(), "loop".to_owned()]);
        let (search, batch) = (smt.class("search").unwrap(), smt.class("loop").unwrap());
        smt.set_slowdown(search, batch, 1.25);
        let extra = smt.extra(search, batch);
        assert_eq!(Interference::speed(1.0, extra), Speed::from_factor(0.8));
        assert_eq!(Interference::speed(0.5, 2.0 * extra), Speed::from_factor(1.0 / 3.0));
        assert_eq!(Interference::speed(1.0, smt.extra(batch, search)), Speed::ONE);
        assert_eq!(smt.class("nap"), Some(NAP));
    }
}

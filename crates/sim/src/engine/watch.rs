//! Callbacks during a simulation, for tests and fleets that need each request.

use crate::time::Nanos;

/// The result of one request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fate {
    /// Its number, from 1 on, in the order of arrival.
    pub number: u64,
    /// Time of arrival.
    pub arrived: Nanos,
    /// When a worker started it.
    pub started: Nanos,
    /// When it finished.
    pub finished: Nanos,
    /// Its work in units of [`crate::time::Work`], with the cost of its start.
    pub work: u64,
    /// Whether it had to wait for another one.
    pub waited: bool,
    /// Time that batch ran beside it.
    pub co_run_ns: Nanos,
    /// The part of that without leave.
    pub leak_ns: Nanos,
}

/// Receives events of a simulation.
pub trait Watch {
    /// A request has finished.
    #[inline]
    fn finished(&mut self, _fate: &Fate) {}
    /// A request lane became busy after this idle time.
    #[inline]
    fn idled(&mut self, _ns: Nanos) {}
    /// A request was refused.
    #[inline]
    fn refused(&mut self, _number: u64) {}
}

impl Watch for () {}

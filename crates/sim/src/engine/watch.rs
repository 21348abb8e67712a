//! Looking on while a machine runs: tests and fleets want to know each request.

use crate::time::Nanos;

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fate {
    /// Counts from 1, in the order of arrival.
    pub number: u64,
    /// When it came.
    pub arrived: Nanos,
    /// When a worker took it up.
    pub started: Nanos,
    /// When it was answered.
    pub finished: Nanos,
    /// What it was to do, in units of [`crate::time::Work`], with what its start cost.
    pub work: u64,
    /// It had to wait for another.
    pub waited: bool,
    /// Batch ran beside it.
    pub co_run_ns: Nanos,
    /// Of that, without leave.
    pub leak_ns: Nanos,
}

/// Somebody who looks on.
pub trait Watch {
    /// A request was answered.
    #[inline]
    fn finished(&mut self, _fate: &Fate) {}
    /// A request lane that was idle for so long no longer is.
    #[inline]
    fn idled(&mut self, _ns: Nanos) {}
    /// A request was turned away.
    #[inline]
    fn refused(&mut self, _number: u64) {}
}

impl Watch for () {}

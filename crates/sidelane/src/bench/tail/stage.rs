//! What every part is given.

use super::options::TailOptions;
use crate::experiment::place::Place;
use crate::lab::Lab;

/// Where a part is measured, and how.
pub(super) struct Stage<'a> {
    pub(super) lab: Lab,
    /// Services run on the request lane; clients, and what disturbs a service, on the other one.
    pub(super) place: Place,
    pub(super) options: &'a TailOptions,
}

//! The options of a session.

use sidelane_policy::borrow::Lending;

use crate::batch::BatchClass;
use crate::gate::Gate;
use sidelane_diagnostics::audit::{AuditFile, AuditLevel};

/// How a session runs.
pub struct SessionOptions {
    /// Batch's scheduling class.
    pub class: BatchClass,
    /// Hold lanes by this policy; `None` only watches, for comparison.
    pub hold: Option<Lending>,
    /// How batch gets off a lane.
    pub gate: Gate,
    /// Where the audit log goes.
    pub audit: Option<(AuditFile, AuditLevel)>,
    /// By how much batch may slow down requests, as 0.05 for 5 %, where a holder keeps the lanes and the policy does
    /// not ask for requests itself; `None`: that is not looked at.
    pub max_slowdown: Option<f64>,
    /// A command gets no input, and its output is nobody's: it is started several times.
    pub quiet: bool,
    /// A command keeps the rights to real-time classes and nice values, and its threads keep the class that they take.
    pub allow_realtime: bool,
}

impl SessionOptions {
    /// Whether batch is kept in its scheduling class. Batch that is only watched, for comparison, runs as it likes.
    pub(super) fn keeps_class(&self) -> bool {
        self.hold.is_some() && !self.allow_realtime
    }
}

//! What `sidelane trace` was asked to do.

use std::path::PathBuf;
use std::time::Duration;

use sidelane_host::service::Target;

use super::bound::Bound;

/// What `sidelane trace` was asked to do.
#[derive(Clone, Debug)]
pub struct TraceOptions {
    /// The service.
    pub target: Target,
    /// Which requests are slow.
    pub bound: Bound,
    /// For how long.
    pub length: Duration,
    /// Without softirqs and incoming segments.
    pub light: bool,
    /// Where records are written.
    pub log: Option<PathBuf>,
}

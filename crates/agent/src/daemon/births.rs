//! State that several files of the daemon share: the cgroups of new batch, the times without confinement, and the
//! things that the machine lacks.

use sidelane_host::cpulist::CpuSet;
use sidelane_policy::Nanos;
use sidelane_tracker::histogram::Histogram;

use crate::discover::NewBatchGroup;
use sidelane_diagnostics::note::Note;

/// Cgroups in which new batch starts, and the CPUs to which new batch is confined there.
#[derive(Debug, Default, PartialEq)]
pub(super) struct NewBatchConfinement {
    pub(super) places: Vec<NewBatchGroup>,
    pub(super) cpus: Option<CpuSet>,
}

impl NewBatchConfinement {
    /// Returns whether containers in this tree start on the CPUs that batch may have.
    pub(super) fn is_tree_confined(&self, tree: &str, unconfined: &[String]) -> bool {
        let is_it = |place: &&NewBatchGroup| place.path == tree && place.spared.is_empty();
        self.cpus.is_some()
            && self.places.iter().any(|place| is_it(&place))
            && !unconfined.iter().any(|path| path == tree)
    }
}

/// Times for which new containers ran outside the CPUs of batch, because they were not managed yet.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    /// Trees in which new batch cannot be confined.
    pub(super) unconfined: Vec<String>,
    pub(super) times: Histogram,
    pub(super) sum_ns: Nanos,
}

/// Group, process or service that the file names and the finder does not find.
#[derive(Debug)]
pub(super) struct Lacking {
    pub(super) since_ns: Nanos,
    /// Note that was made, if the lack has lasted long enough.
    pub(super) noted: Option<Note>,
}

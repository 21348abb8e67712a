//! The agent's policies, told of this machine.

use sidelane_policy::cpus::Cores;
use sidelane_policy::holmes::Holmes;
use sidelane_policy::perfiso::PerfIso;

use super::layout::Layout;
use super::model::Model;
use super::setting::Decider;
use super::state::control::CpuPolicy;

/// The policy of a setting.
pub(super) fn policy(by: Decider, model: &Model) -> Box<CpuPolicy> {
    let layout = Layout::new(&model.machine);
    let cores = Cores::of((0..layout.cores()).map(|core| layout.cpus_of(core).collect()));
    match by {
        Decider::Holmes(config) => Box::new(Holmes::new(config, cores)),
        Decider::PerfIso(config) => Box::new(PerfIso::new(config)),
    }
}

//! Policies of the agent, with the layout of the simulated machine.

use sidelane_policy::cpus::CoreTopology;
use sidelane_policy::holmes::Holmes;
use sidelane_policy::perfiso::PerfIso;

use super::layout::Layout;
use super::model::MachineModel;
use super::setting::CpuDecider;
use super::state::control::CpuPolicy;

/// Returns the agent's policy that `decider` names, with the cores of `model`.
pub(super) fn create_policy(decider: CpuDecider, model: &MachineModel) -> Box<CpuPolicy> {
    let layout = Layout::new(&model.machine);
    let cores = CoreTopology::from_cores((0..layout.cores()).map(|core| layout.cpus_of(core).collect()));
    match decider {
        CpuDecider::Holmes(config) => Box::new(Holmes::new(config, cores)),
        CpuDecider::PerfIso(config) => Box::new(PerfIso::new(config)),
    }
}

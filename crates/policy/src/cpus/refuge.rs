//! Choice of a CPU for a container that has none and cannot be paused.

use core::cmp::Reverse;

use super::mask::CpuMask;
use super::observation::ContainerObservation;

/// Returns the CPUs of a container that a policy gives `cpus`. A container without CPUs is paused. If it cannot be
/// paused, it gets one online CPU of those that it may use: the one that costs the services least, the highest of equal
/// ones. Several CPUs would disturb more, and all such containers share this one. The result is empty if the container
/// may use no online CPU.
pub(crate) fn cpus_or_one_least_costly_cpu<Cost: Ord>(
    cpus: CpuMask,
    container: &ContainerObservation,
    online: &CpuMask,
    cost: impl Fn(usize) -> Cost,
) -> CpuMask {
    if !cpus.is_empty() || container.can_pause {
        return cpus;
    }
    let candidates = container.allowed.and(online);
    candidates.iter().min_by_key(|cpu| (cost(*cpu), Reverse(*cpu))).into_iter().collect()
}

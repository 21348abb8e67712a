//! Where a container runs that has no CPU and cannot be paused.

use core::cmp::Reverse;

use super::mask::CpuMask;
use super::seen::ContainerSeen;

/// The CPUs of a container that a policy gives `cpus`. A container without any is paused. One that cannot be paused gets
/// the online CPU that costs the services least, of those that it may use, and of equal ones the highest. One CPU: several
/// would disturb more, and all such containers share it. No CPU at all if it may use none that is online.
pub(crate) fn or_refuge<Cost: Ord>(
    cpus: CpuMask,
    container: &ContainerSeen,
    online: &CpuMask,
    cost: impl Fn(usize) -> Cost,
) -> CpuMask {
    if !cpus.is_empty() || container.can_pause {
        return cpus;
    }
    let candidates = container.allowed.and(online);
    candidates.iter().min_by_key(|cpu| (cost(*cpu), Reverse(*cpu))).into_iter().collect()
}

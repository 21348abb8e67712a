//! Core sizes on a machine whose cores are all alike, from SMT. A lane has its core for itself while the other lanes of
//! the core are idle. Such a lane is big; a lane whose sibling works is little.

use super::event::BigLittleCores;
use crate::cpus::{self, CpuMask};

/// Returns which of these lanes are big and which are little, while requests are under way on the lanes
/// `working_lanes`.
pub fn classify_lanes(lanes: &CpuMask, siblings: &cpus::CoreTopology, working_lanes: &CpuMask) -> BigLittleCores {
    let is_alone = |lane: &usize| {
        let mut others = siblings.cpus_of(siblings.core_of_cpu(*lane)).filter(|other| other != lane);
        !others.any(|other| working_lanes.contains(other))
    };
    let big: CpuMask = lanes.iter().filter(is_alone).collect();
    BigLittleCores { big, little: lanes.without(&big) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(cpus: &[usize]) -> CpuMask {
        cpus.iter().copied().collect()
    }

    #[test]
    fn a_lane_is_big_while_its_siblings_are_idle() {
        let siblings = cpus::CoreTopology::from_cores([mask(&[0, 4]), mask(&[1, 5])]);
        let lanes = mask(&[0, 1, 4, 5]);
        let sizes = |working: &[usize]| classify_lanes(&lanes, &siblings, &mask(working));
        assert_eq!(sizes(&[]), BigLittleCores { big: lanes, little: CpuMask::EMPTY });
        assert_eq!(sizes(&[0]), BigLittleCores { big: mask(&[0, 1, 5]), little: mask(&[4]) });
        assert_eq!(sizes(&[0, 4]), BigLittleCores { big: mask(&[1, 5]), little: mask(&[0, 4]) });
        assert_eq!(sizes(&[0, 4, 1, 5]), BigLittleCores { big: CpuMask::EMPTY, little: lanes });
    }
}

//! Pair of lanes that the doctor tests everything on.

use sidelane_host::cpulist::CpuSet;
use sidelane_host::topology::{BatchLane, LaneError, Lanes, PairKind, Topology};

/// Pair of one request lane and one batch lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestPair {
    /// CPU that acts as the request lane, on which the service runs.
    pub request: u32,
    /// CPU that acts as the batch lane.
    pub batch: u32,
    /// Whether the two CPUs share a core.
    pub kind: PairKind,
}

impl TestPair {
    /// Returns the pair that `spec` (`--lanes`) names first. Without `spec` it is the first siblings that this process
    /// may use, or else the first two CPUs. `None` on a single CPU.
    pub fn choose(
        topology: &Topology,
        allowed: &CpuSet,
        lanes_option: Option<&str>,
    ) -> Result<Option<Self>, LaneError> {
        if let Some(spec) = lanes_option {
            let lanes = topology.declared_pairs(spec)?;
            return Ok(lanes.batch.first().and_then(|lane| Self::from_lane(lane, lanes.kind)));
        }
        Ok(Self::first_siblings(topology, allowed)
            .or_else(|| Self::first_two_cpus(&topology.online().intersection(allowed))))
    }

    fn first_siblings(topology: &Topology, allowed: &CpuSet) -> Option<Self> {
        let lanes = topology.smt_pairs(allowed).ok()?;
        let lane = lanes.batch.iter().find(|lane| allowed.contains(lane.cpu))?;
        Self::from_lane(lane, lanes.kind)
    }

    fn first_two_cpus(usable: &CpuSet) -> Option<Self> {
        let mut usable = usable.iter();
        Some(Self { request: usable.next()?, batch: usable.next()?, kind: PairKind::Declared })
    }

    fn from_lane(lane: &BatchLane, kind: PairKind) -> Option<Self> {
        Some(Self { request: lane.request_lanes.first()?, batch: lane.cpu, kind })
    }

    /// Returns the pair as lanes to track and hold.
    pub fn lanes(&self) -> Lanes {
        let requests: CpuSet = [self.request].into_iter().collect();
        let batch = vec![BatchLane { cpu: self.batch, request_lanes: requests.clone() }];
        Lanes { batch, request_lanes: requests, needs_pin: false, kind: self.kind }
    }

    /// Returns the CPU to which batch can be moved: off the pair if there is any other CPU.
    pub fn cpu_off_pair(&self, allowed: &CpuSet) -> u32 {
        allowed.iter().find(|cpu| ![self.request, self.batch].contains(cpu)).unwrap_or(self.request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sidelane_host::topology::{CoreId, Cpu, CpuKind};

    /// Returns a topology in which `siblings[i]` are the lanes of CPU i's core.
    fn topology_with_siblings(siblings: &[&str]) -> Topology {
        let cpu = |(id, siblings): (usize, &&str)| {
            let siblings: CpuSet = siblings.parse().unwrap();
            let core = CoreId(siblings.first().unwrap());
            let (package, numa_node, kind) = (0, 0, CpuKind::Uniform);
            Cpu { id: id as u32, online: true, core, package, numa_node, siblings, kind }
        };
        Topology { cpus: siblings.iter().enumerate().map(cpu).collect(), smt_switched_off: false }
    }

    fn chosen_pair(siblings: &[&str], allowed: &str, spec: Option<&str>) -> Option<(u32, u32, PairKind)> {
        let pair = TestPair::choose(&topology_with_siblings(siblings), &allowed.parse().unwrap(), spec).unwrap();
        pair.map(|pair| (pair.request, pair.batch, pair.kind))
    }

    #[test]
    fn siblings_come_before_any_two_cpus() {
        let two_cores = ["0,2", "1,3", "0,2", "1,3"];
        assert_eq!(chosen_pair(&two_cores, "0-3", None), Some((0, 2, PairKind::Smt)));
        assert_eq!(chosen_pair(&two_cores, "0-1", None), Some((0, 1, PairKind::Declared)));
        assert_eq!(chosen_pair(&two_cores, "0-3", Some("3:1")), Some((3, 1, PairKind::Smt)));
        assert_eq!(chosen_pair(&two_cores, "0-3", Some("3:2")), Some((3, 2, PairKind::Declared)));
        assert_eq!(chosen_pair(&["0", "1"], "0-1", None), Some((0, 1, PairKind::Declared)));
        assert_eq!(chosen_pair(&["0"], "0", None), None);
    }

    #[test]
    fn impossible_lane_declaration_is_an_error() {
        let allowed = "0-1".parse().unwrap();
        assert!(TestPair::choose(&topology_with_siblings(&["0", "1"]), &allowed, Some("0:7")).is_err());
    }

    #[test]
    fn batch_moves_to_the_request_lane_if_no_cpu_is_left() {
        let pair = TestPair { request: 0, batch: 1, kind: PairKind::Declared };
        assert_eq!(pair.cpu_off_pair(&"0-3".parse().unwrap()), 2);
        assert_eq!(pair.cpu_off_pair(&"0-1".parse().unwrap()), 0);
    }
}

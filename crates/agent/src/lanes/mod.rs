//! The lane gate: if batch may have the sibling of a service's CPU, a holder keeps batch off it while the service runs,
//! within microseconds (Elfen). The policy decides which CPUs batch has. On CPUs beside a service, the gate decides
//! when.

mod evictions;
mod offers;

use std::sync::Arc;

use anyhow::{Context, Result};
use sidelane_host::clock::now_ns;
use sidelane_host::cpulist::CpuSet;
use sidelane_host::topology::{BatchLane, Lanes, PairKind};
use sidelane_policy::borrow::{Lending, Objective};
use sidelane_policy::cpus::CoreTopology;
use sidelane_rollback::cpu_mask::{to_cpu_mask, to_cpu_set};
use sidelane_tracker::tracker::Tracker;

pub use evictions::{EvictionRequests, Evictions};
pub use offers::{LaneAccount, LaneCounters, Offers};

use super::config::LaneGate;
use sidelane_lanes::gate::{Gate, keepers};
use sidelane_lanes::holder::{Evictor, KeeperResources};
use sidelane_lanes::kept_lanes::KeptLanes;
use sidelane_lanes::lending_limits::{LendingError, LendingLimitsKeeper};
use sidelane_lanes::log::LaneAudit;
use sidelane_lanes::slowdown::SlowdownKeeper;

/// Gate, settings and audit log that the keepers of all lanes share.
pub struct LaneGates {
    gate: Gate,
    config: LaneGate,
    evictions: Arc<Evictions>,
    pen: LaneAudit,
}

impl LaneGates {
    /// Makes the gate that the file asks for. `audit` writes the decisions of keepers into the agent's own log.
    pub fn new(config: &LaneGate, audit: LaneAudit) -> Result<Self> {
        Ok(Self {
            gate: Gate::choose_for_adopted(config.gate)?,
            config: config.clone(),
            evictions: Arc::new(Evictions::new().context("cannot make an eventfd for the lanes' keepers")?),
            pen: audit,
        })
    }

    /// Returns the keepers' requests for evictions.
    pub fn evictions(&self) -> &Evictions {
        &self.evictions
    }

    /// Returns the policy by which the lanes of a service with this objective are lent.
    pub fn lending(&self, slo: Option<Objective>) -> Result<Lending> {
        let lending = self.config.lending(slo).map_err(LendingError::from)?;
        Ok(if self.gate == Gate::Freezer { lending.evicting_at_once() } else { lending })
    }

    /// Returns the gate that the file asks for.
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Makes the measurement of the slowdown of requests by batch; `None` if the slowdown is not bounded.
    pub fn new_slowdown_keeper(&self) -> Option<SlowdownKeeper> {
        let bound = self.config.slowdown_bound().filter(|_| self.gate == Gate::Holder)?;
        let config = self.config.lending(None).ok()?.config;
        Some(SlowdownKeeper::new(bound, config.min_idle_ns, now_ns()))
    }

    /// Starts a keeper on each of the lanes. The caller has to register the lanes with the tracker, as lanes of the
    /// service.
    pub fn start_keepers(&self, lanes: &Lanes, lending: Lending, tracker: &Tracker) -> Result<KeptLanes> {
        let memory = tracker.memory();
        let limits = LendingLimitsKeeper::new(lending, lanes, Arc::clone(&memory));
        let evictor: Arc<dyn Evictor> = Arc::clone(&self.evictions) as _;
        let means = KeeperResources { memory, evictor, audit: self.pen.clone() };
        let keepers = match self.gate {
            Gate::SchedIdle => Vec::new(),
            _ => keepers::start_holders(lanes, tracker, lending, &means)?,
        };
        Ok(KeptLanes::new(keepers, lanes, limits, &means.memory))
    }
}

/// Returns the lanes beside a service that may run on `service_cpus`: CPUs of its cores that are `usable` for batch. No
/// service may run on a lane, neither this service nor services on `other_service_cpus`, since a hold would delay the
/// service. `None` if there are no lanes.
pub fn lanes_beside_service(
    cores: &CoreTopology,
    service_cpus: &CpuSet,
    other_service_cpus: &CpuSet,
    usable: &CpuSet,
) -> Option<Lanes> {
    let spare = usable.difference(service_cpus).difference(other_service_cpus);
    let lane = |cpu| {
        let requests =
            to_cpu_set(&cores.with_siblings(&to_cpu_mask(&[cpu].into_iter().collect()))).intersection(service_cpus);
        (!requests.is_empty()).then_some(BatchLane { cpu, request_lanes: requests })
    };
    let batch: Vec<BatchLane> = spare.iter().filter_map(lane).collect();
    let lanes = Lanes { batch, request_lanes: service_cpus.clone(), needs_pin: false, kind: PairKind::Declared };
    (!lanes.batch.is_empty()).then_some(lanes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cpus(list: &str) -> CpuSet {
        list.parse().unwrap()
    }

    fn cores<const N: usize>(lists: [&str; N]) -> CoreTopology {
        CoreTopology::from_cores(lists.map(|list| to_cpu_mask(&cpus(list))))
    }

    #[test]
    fn siblings_of_a_service_are_its_lanes() {
        let cores = cores(["0,4", "1,5", "2,6", "3,7"]);
        let lanes = lanes_beside_service(&cores, &cpus("0-1"), &cpus("5"), &cpus("0-7")).unwrap();
        let told: Vec<(u32, String)> =
            lanes.batch.iter().map(|lane| (lane.cpu, lane.request_lanes.to_string())).collect();
        assert_eq!(told, [(4, "0".to_owned())]);
        assert_eq!(lanes.request_lanes, cpus("0-1"));
        assert_eq!(
            lanes_beside_service(&cores, &cpus("0,4"), &cpus(""), &cpus("0-7")),
            None,
            "a whole core leaves none"
        );
        assert_eq!(lanes_beside_service(&cores, &cpus("0"), &cpus(""), &cpus("0-3")), None, "of no other service");
    }

    proptest! {
        #[test]
        fn no_service_may_run_on_a_lane_that_is_held(own in any::<u8>(), others in any::<u8>(), usable in any::<u8>()) {
            let of = |bits: u8| (0..8).filter(|cpu| bits >> cpu & 1 == 1).collect::<CpuSet>();
            let cores = cores(["0,4", "1-2,5", "3,6-7"]);
            let (own, others, usable) = (of(own), of(others), of(usable));
            for lane in lanes_beside_service(&cores, &own, &others, &usable).iter().flat_map(|lanes| &lanes.batch) {
                prop_assert!(!own.contains(lane.cpu) && !others.contains(lane.cpu) && usable.contains(lane.cpu));
                prop_assert!(lane.request_lanes.is_subset(&own) && !lane.request_lanes.is_empty());
            }
        }
    }
}

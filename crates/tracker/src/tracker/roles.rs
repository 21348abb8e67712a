//! Roles of lanes, in the form of the kernel program.

use std::collections::BTreeMap;

use sidelane_host::topology::{BatchLane, Lanes};

use crate::identities::Number;
use crate::kernel_types::LaneRole;
use crate::tracker::error::TrackerError;

/// Role of a request lane: a value of `enum sidelane_role` of `bpf/lanes.h`.
const REQUEST: u32 = 1;
const BATCH: u32 = 2;

impl LaneRole {
    /// Adds these partners to the role. A lane with too many partners is refused: otherwise only a part of them would
    /// be guarded.
    fn with_partners(self, cpu: u32, partners: &[u32]) -> Result<Self, TrackerError> {
        let mut new = Self { partner_count: partners.len() as u32, ..self };
        let most = new.partners.len();
        let places = new.partners.get_mut(..partners.len());
        let too_many = || TrackerError::TooManyPartners { cpu, partners: partners.len(), most };
        places.ok_or_else(too_many)?.copy_from_slice(partners);
        Ok(new)
    }
}

/// Returns the roles of all lanes that are lent beside the service `number`, by CPU.
pub(super) fn kernel_roles(
    lanes: &Lanes,
    number: Number,
    lend_to_waited_requests: bool,
) -> Result<BTreeMap<u32, LaneRole>, TrackerError> {
    let role = |role| LaneRole {
        role,
        service: number.get(),
        lends_to_waited: lend_to_waited_requests.into(),
        ..LaneRole::default()
    };
    let request = |cpu: u32| {
        let partners = lanes.batch.iter().filter(|lane| lane.request_lanes.contains(cpu)).map(|lane| lane.cpu);
        Ok((cpu, role(REQUEST).with_partners(cpu, &partners.collect::<Vec<_>>())?))
    };
    let batch = |lane: &BatchLane| {
        let partners: Vec<u32> = lane.request_lanes.iter().collect();
        Ok((lane.cpu, role(BATCH).with_partners(lane.cpu, &partners)?))
    };
    lanes.request_lanes.iter().map(request).chain(lanes.batch.iter().map(batch)).collect()
}

#[cfg(test)]
mod tests {
    use sidelane_host::cpulist::CpuSet;
    use sidelane_host::topology::PairKind;

    use super::*;

    #[test]
    fn partners_know_each_other_and_their_service() {
        let batch = vec![BatchLane { cpu: 2, request_lanes: [0, 1].into_iter().collect() }];
        let lanes =
            Lanes { batch, request_lanes: [0, 1].into_iter().collect(), needs_pin: false, kind: PairKind::Declared };
        let number = Number::all().nth(4).unwrap();
        let roles = kernel_roles(&lanes, number, true).unwrap();
        assert_eq!(roles.len(), 3);
        assert_eq!((roles[&0].role, roles[&0].partner_count, roles[&0].partners[0]), (REQUEST, 1, 2));
        assert_eq!((roles[&2].role, roles[&2].partner_count, roles[&2].partners[1]), (BATCH, 2, 1));
        assert!(roles.values().all(|role| role.service == 5 && role.lends_to_waited == 1));
    }

    #[test]
    fn lane_with_too_many_partners_is_refused() {
        let lanes_beside = |count: u32| {
            let request_lanes: CpuSet = (0..count).collect();
            let batch = vec![BatchLane { cpu: count, request_lanes: request_lanes.clone() }];
            Lanes { batch, request_lanes, needs_pin: false, kind: PairKind::Declared }
        };
        let number = Number::all().next().unwrap();
        assert_eq!(kernel_roles(&lanes_beside(7), number, true).unwrap()[&7].partner_count, 7);
        let said = kernel_roles(&lanes_beside(8), number, true).unwrap_err().to_string();
        assert!(said.contains("cannot use 8 partner lanes for CPU 8") && said.contains("--lanes"), "{said}");
    }
}

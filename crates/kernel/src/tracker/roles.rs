//! What each lane is for, as the kernel program is told.

use std::collections::BTreeMap;

use sidelane_host::topology::Lanes;

use crate::identities::Number;

const MAX_PARTNERS: usize = 7;
/// `enum sidelane_role` of `bpf/lanes.h`.
const REQUEST: u32 = 1;
const BATCH: u32 = 2;

/// `struct sidelane_lane_role` of `bpf/lanes.h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct LaneRole {
    pub(crate) role: u32,
    pub(crate) service: u32,
    pub(crate) lends_to_waited: u32,
    pub(crate) partner_count: u32,
    pub(crate) partners: [u32; MAX_PARTNERS],
    pub(crate) reserved: u32,
}

impl LaneRole {
    fn new(role: u32, service: Number, lends_to_waited: bool, partners: impl Iterator<Item = u32>) -> Self {
        let mut new = Self { role, service: service.get(), lends_to_waited: lends_to_waited.into(), ..Self::default() };
        for (place, cpu) in new.partners.iter_mut().zip(partners) {
            *place = cpu;
            new.partner_count += 1;
        }
        new
    }

    /// As the kernel program reads it.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let before = [self.role, self.service, self.lends_to_waited, self.partner_count];
        before.into_iter().chain(self.partners).chain([self.reserved]).flat_map(u32::to_ne_bytes).collect()
    }
}

/// The roles of all lanes that are lent beside the service `number`, by CPU.
pub(super) fn roles(lanes: &Lanes, number: Number, lends_to_waited: bool) -> BTreeMap<u32, LaneRole> {
    let request = |cpu| {
        let partners = lanes.batch.iter().filter(move |lane| lane.request_lanes.contains(cpu)).map(|lane| lane.cpu);
        (cpu, LaneRole::new(REQUEST, number, lends_to_waited, partners))
    };
    let requests = lanes.request_lanes.iter().map(request);
    let batch = lanes
        .batch
        .iter()
        .map(|lane| (lane.cpu, LaneRole::new(BATCH, number, lends_to_waited, lane.request_lanes.iter())));
    requests.chain(batch).collect()
}

#[cfg(test)]
mod tests {
    use sidelane_host::topology::{BatchLane, PairKind};

    use super::*;
    use crate::layout::assert_layout;

    #[test]
    fn partners_know_each_other_and_their_service() {
        let batch = vec![BatchLane { cpu: 2, request_lanes: [0, 1].into_iter().collect() }];
        let lanes =
            Lanes { batch, request_lanes: [0, 1].into_iter().collect(), needs_pin: false, kind: PairKind::Declared };
        let number = Number::all().nth(4).unwrap();
        let roles = roles(&lanes, number, true);
        assert_eq!(roles.len(), 3);
        assert_eq!((roles[&0].role, roles[&0].partner_count, roles[&0].partners[0]), (REQUEST, 1, 2));
        assert_eq!((roles[&2].role, roles[&2].partner_count, roles[&2].partners[1]), (BATCH, 2, 1));
        assert!(roles.values().all(|role| role.service == 5 && role.lends_to_waited == 1));
        assert_eq!(roles[&0].bytes().len(), size_of::<LaneRole>());
    }

    #[test]
    fn the_layout_is_the_kernel_programs() {
        assert_layout!(
            LaneRole,
            "sidelane_lane_role",
            role,
            service,
            lends_to_waited,
            partner_count,
            partners,
            reserved
        );
    }
}

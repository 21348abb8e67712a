//! The ResourceSlice of a node: its lent lanes as devices, in JSON of `resource.k8s.io/v1`.

use serde_json::{Map, Value, json};
use sidelane_host::topology::Topology;

use crate::offer::{Offer, OfferedLane, device_name};

/// Name of the driver.
pub const DRIVER: &str = "sidelane.dev";
/// Path of all slices at the API server.
pub const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";
/// Most devices of a slice.
pub const DEVICES_MAX: usize = 128;
/// Longest text of an attribute, in bytes.
const TEXT_MAX: usize = 64;
/// Step of shares, in percent. A smaller change makes no difference to a scheduler, and costs the API server as much.
const SHARE_STEP_PERCENT: u32 = 10;

/// Lent lane as a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneDevice {
    /// Number of the CPU.
    pub cpu: u32,
    /// Lowest CPU of the lane's core, and number of its NUMA node; `None` for a CPU that came later.
    pub place: Option<(u32, u32)>,
    /// Share of the lane that was open to batch in the last minute, in steps of 10 percent.
    pub open_percent: u32,
    /// Name of the service beside which the lane lies.
    pub service: String,
}

impl LaneDevice {
    fn to_json(&self) -> Value {
        let mut attributes = Map::new();
        attributes.insert("cpu".to_owned(), json!({"int": self.cpu}));
        if let Some((core, numa_node)) = self.place {
            attributes.insert("core".to_owned(), json!({"int": core}));
            attributes.insert("numaNode".to_owned(), json!({"int": numa_node}));
        }
        attributes.insert("openPercent".to_owned(), json!({"int": self.open_percent}));
        if self.service.len() <= TEXT_MAX {
            attributes.insert("service".to_owned(), json!({"string": self.service}));
        }
        json!({"name": device_name(self.cpu), "attributes": attributes})
    }
}

/// Returns the lent lanes of an offer as devices, the lowest CPUs first, and [`DEVICES_MAX`] at most. A share that has
/// hardly changed is as `before`.
pub fn lane_devices(offer: &Offer, topology: &Topology, before: &[LaneDevice]) -> Vec<LaneDevice> {
    let device = |lane: &OfferedLane| {
        let before = before.iter().find(|device| device.cpu == lane.cpu).map(|device| device.open_percent);
        let cpu = topology.cpu(lane.cpu).filter(|cpu| cpu.online);
        LaneDevice {
            cpu: lane.cpu,
            place: cpu.map(|cpu| (cpu.core.0, cpu.numa_node)),
            open_percent: stepped(lane.share_percent, before),
            service: lane.service.clone(),
        }
    };
    offer.lanes.iter().filter(|lane| lane.is_lent).take(DEVICES_MAX).map(device).collect()
}

/// Returns a share in whole steps: as before, unless it has changed by a step or more.
fn stepped(share_percent: u32, before: Option<u32>) -> u32 {
    match before {
        Some(before) if before.abs_diff(share_percent) < SHARE_STEP_PERCENT => before,
        _ => (share_percent + SHARE_STEP_PERCENT / 2) / SHARE_STEP_PERCENT * SHARE_STEP_PERCENT,
    }
}

/// Returns the name of a node's slice.
pub fn slice_name(node: &str) -> String {
    format!("{node}-{DRIVER}")
}

/// Returns the first slice of a node. It goes with the node.
pub fn new_slice(node: &str, node_uid: &str, devices: &[LaneDevice]) -> Value {
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid, "controller": true});
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": slice_name(node), "ownerReferences": [owner]},
        "spec": {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": to_json(devices),
        },
    })
}

/// Returns the next generation of a slice, with these devices; `None` if it has them.
pub fn next_slice(known: &Value, devices: &[LaneDevice]) -> Option<Value> {
    let devices = to_json(devices);
    // The API server leaves an empty list out.
    let known_devices = known.pointer("/spec/devices").filter(|known| !known.is_null());
    if known_devices.map_or_else(|| devices == json!([]), |known| *known == devices) {
        return None;
    }
    let mut next = known.clone();
    let generation = known.pointer("/spec/pool/generation").and_then(Value::as_u64).unwrap_or(0);
    next["spec"]["pool"]["generation"] = json!(generation + 1);
    next["spec"]["devices"] = devices;
    Some(next)
}

/// Returns the version of a slice that the API server has stored.
pub fn version_of(slice: &Value) -> &str {
    slice.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default()
}

fn to_json(devices: &[LaneDevice]) -> Value {
    devices.iter().map(LaneDevice::to_json).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(cpu: u32, is_lent: bool, share_percent: u32) -> OfferedLane {
        OfferedLane { cpu, is_lent, share_percent, service: "default/redis".to_owned() }
    }

    fn devices(lanes: &[OfferedLane], before: &[LaneDevice]) -> Vec<LaneDevice> {
        let topology = Topology { cpus: Vec::new(), smt_switched_off: false };
        lane_devices(&Offer { lanes: lanes.to_vec() }, &topology, before)
    }

    fn device(cpu: u32, place: Option<(u32, u32)>) -> LaneDevice {
        LaneDevice { cpu, place, open_percent: 40, service: "default/redis".to_owned() }
    }

    #[test]
    fn only_lent_lanes_are_devices() {
        let devices = devices(&[lane(1, true, 44), lane(3, false, 90), lane(12, true, 100)], &[]);
        let told: Vec<_> = devices.iter().map(|device| (device.cpu, device.open_percent)).collect();
        assert_eq!(told, [(1, 40), (12, 100)]);
    }

    #[test]
    fn small_changes_of_a_share_are_left_out() {
        let mut told = Vec::new();
        let shares = [44, 46, 49, 50, 41, 36, 95, 100, 4, 0].map(|share| {
            told = devices(&[lane(1, true, share)], &told);
            told[0].open_percent
        });
        assert_eq!(shares, [40, 40, 40, 50, 50, 40, 100, 100, 0, 0]);
    }

    #[test]
    fn a_slice_has_no_more_devices_than_it_may() {
        let lanes: Vec<_> = (0..200).map(|cpu| lane(cpu, cpu % 4 != 0, 50)).collect();
        let devices = devices(&lanes, &[]);
        assert_eq!((devices.len(), devices[0].cpu), (DEVICES_MAX, 1));
    }

    #[test]
    fn devices_say_where_they_are_and_which_service_lends() {
        let expected = json!({"name": "lane-12", "attributes": {
            "cpu": {"int": 12}, "core": {"int": 4}, "numaNode": {"int": 1}, "openPercent": {"int": 40},
            "service": {"string": "default/redis"},
        }});
        assert_eq!(device(12, Some((4, 1))).to_json(), expected);
        let long = LaneDevice { service: "x".repeat(TEXT_MAX + 1), ..device(12, None) }.to_json();
        assert_eq!(long, json!({"name": "lane-12", "attributes": {"cpu": {"int": 12}, "openPercent": {"int": 40}}}));
    }

    #[test]
    fn slice_goes_with_its_node() {
        let slice = new_slice("node-7", "a-b-c", &[device(1, None)]);
        assert_eq!(slice["metadata"]["name"], "node-7-sidelane.dev");
        assert_eq!(slice["metadata"]["ownerReferences"][0]["uid"], "a-b-c");
        assert_eq!(slice["spec"]["pool"], json!({"name": "node-7", "generation": 1, "resourceSliceCount": 1}));
        assert_eq!(slice["spec"]["devices"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn changed_devices_are_a_new_generation() {
        let mut slice = new_slice("node", "uid", &[device(1, None)]);
        slice["metadata"]["resourceVersion"] = json!("17");
        assert_eq!(next_slice(&slice, &[device(1, None)]), None);
        let next = next_slice(&slice, &[]).unwrap();
        assert_eq!(next["spec"]["pool"]["generation"], 2);
        assert_eq!(next["spec"]["devices"], json!([]));
        assert_eq!((version_of(&next), &next["metadata"]), ("17", &slice["metadata"]));
        for empty in [json!([]), Value::Null] {
            slice["spec"]["devices"] = empty;
            assert_eq!(next_slice(&slice, &[]), None);
            assert!(next_slice(&slice, &[device(1, None)]).is_some());
        }
    }
}

//! The device plugin: batch lanes as devices of the extended resource `sidelane.dev/lane`.
//!
//! Each batch lane is a device, which is healthy while the lane is lent. The kubelet gives a container lanes that are
//! healthy, and does not end containers whose lane is withdrawn later.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, async_trait};

use crate::api::device_plugin::device_plugin_server::DevicePlugin;
use crate::api::{
    AllocateRequest, AllocateResponse, ContainerAllocateResponse, Device, DeviceIds, DevicePluginOptions, Empty,
    ListAndWatchResponse, PreStartContainerRequest, PreferredAllocationRequest, PreferredAllocationResponse,
};
use crate::offer::{Offer, cpu_of, device_name};
use crate::pods::PodReporter;

/// Name of the extended resource.
pub const RESOURCE: &str = "sidelane.dev/lane";
/// Environment variable with the CPUs of the lanes that a container has.
const LANES_VARIABLE: &str = "SIDELANE_LANES";

/// Options of the plugin.
pub const OPTIONS: DevicePluginOptions =
    DevicePluginOptions { pre_start_required: true, get_preferred_allocation_available: true };

/// Device plugin of the lanes in an offer.
#[derive(Clone)]
pub struct LanePlugin {
    offer: watch::Receiver<Offer>,
    pods: Arc<PodReporter>,
}

impl LanePlugin {
    /// Makes a plugin that tells the agent by `pods` which pods have lanes.
    pub fn new(offer: watch::Receiver<Offer>, pods: Arc<PodReporter>) -> Self {
        Self { offer, pods }
    }
}

/// Returns the lanes of an offer as devices.
fn devices(offer: &Offer) -> Vec<Device> {
    let device = |cpu: u32, is_lent| Device {
        id: device_name(cpu),
        health: if is_lent { "Healthy" } else { "Unhealthy" }.to_owned(),
    };
    offer.lanes.iter().map(|lane| device(lane.cpu, lane.is_lent)).collect()
}

/// Returns the devices that a container gets: those that it has to get, and then those with the largest share.
fn preferred(offer: &Offer, available: &[String], must_include: &[String], size: usize) -> Vec<String> {
    let share = |id: &String| cpu_of(id).and_then(|cpu| offer.lane(cpu)).map_or(0, |lane| lane.share_percent);
    let mut others: Vec<String> = available.iter().filter(|id| !must_include.contains(id)).cloned().collect();
    others.sort_by_key(|id| (std::cmp::Reverse(share(id)), cpu_of(id)));
    must_include.iter().cloned().chain(others).take(size).collect()
}

/// Returns the changes to a container that gets these devices.
///
/// # Errors
/// If a lane is not lent: it was withdrawn a moment ago.
fn allocate(offer: &Offer, ids: &[String]) -> Result<ContainerAllocateResponse, String> {
    let lanes = ids.iter().map(|id| {
        let lane = cpu_of(id).and_then(|cpu| offer.lane(cpu)).filter(|lane| lane.is_lent);
        lane.map(|lane| lane.cpu.to_string()).ok_or_else(|| {
            format!("cannot allocate {id}: this lane is not lent now; create the pod again, or wait until it is lent")
        })
    });
    let lanes = lanes.collect::<Result<Vec<String>, String>>()?.join(",");
    Ok(ContainerAllocateResponse { envs: HashMap::from([(LANES_VARIABLE.to_owned(), lanes)]) })
}

#[async_trait]
impl DevicePlugin for LanePlugin {
    type ListAndWatchStream = ReceiverStream<Result<ListAndWatchResponse, Status>>;

    async fn get_device_plugin_options(&self, _: Request<Empty>) -> Result<Response<DevicePluginOptions>, Status> {
        Ok(Response::new(OPTIONS))
    }

    async fn list_and_watch(&self, _: Request<Empty>) -> Result<Response<Self::ListAndWatchStream>, Status> {
        let (sender, receiver) = mpsc::channel(1);
        let mut offer = self.offer.clone();
        tokio::spawn(async move {
            let mut told = None;
            loop {
                let devices = devices(&offer.borrow_and_update());
                // Shares change each second; the kubelet needs to know only of lanes that come, go or change health.
                if told.as_ref() != Some(&devices) {
                    told = Some(devices.clone());
                    if sender.send(Ok(ListAndWatchResponse { devices })).await.is_err() {
                        return;
                    }
                }
                tokio::select! {
                    changed = offer.changed() => if changed.is_err() { return },
                    () = sender.closed() => return,
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn get_preferred_allocation(
        &self,
        request: Request<PreferredAllocationRequest>,
    ) -> Result<Response<PreferredAllocationResponse>, Status> {
        let offer = self.offer.borrow();
        let requests = request.into_inner().container_requests.into_iter();
        let container_responses = requests.map(|request| {
            let size = usize::try_from(request.size).unwrap_or(0);
            DeviceIds { ids: preferred(&offer, &request.available, &request.must_include, size) }
        });
        Ok(Response::new(PreferredAllocationResponse { container_responses: container_responses.collect() }))
    }

    async fn allocate(&self, request: Request<AllocateRequest>) -> Result<Response<AllocateResponse>, Status> {
        let requests = request.into_inner().container_requests;
        let allocated: Result<Vec<_>, _> = {
            let offer = self.offer.borrow();
            requests.iter().map(|container| allocate(&offer, &container.ids)).collect()
        };
        let container_responses = allocated.map_err(Status::failed_precondition)?;
        self.pods.expect(requests.into_iter().flat_map(|container| container.ids));
        Ok(Response::new(AllocateResponse { container_responses }))
    }

    async fn pre_start_container(&self, _: Request<PreStartContainerRequest>) -> Result<Response<Empty>, Status> {
        // The agent has to know the pod as batch before its container runs.
        self.pods.update().await.map_err(|error| Status::unavailable(format!("{error:#}")))?;
        Ok(Response::new(Empty {}))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::offer::OfferedLane;

    fn offer(lanes: [(u32, bool, u32); 3]) -> Offer {
        let lane = |(cpu, is_lent, share_percent)| OfferedLane { cpu, is_lent, share_percent, service: String::new() };
        Offer { lanes: lanes.map(lane).to_vec() }
    }

    fn ids<const N: usize>(cpus: [u32; N]) -> Vec<String> {
        cpus.map(device_name).to_vec()
    }

    #[test]
    fn each_lane_is_a_device_and_healthy_while_lent() {
        let devices = devices(&offer([(1, true, 40), (3, false, 5), (12, true, 90)]));
        let told: Vec<_> = devices.iter().map(|device| (device.id.as_str(), device.health.as_str())).collect();
        assert_eq!(told, [("lane-1", "Healthy"), ("lane-3", "Unhealthy"), ("lane-12", "Healthy")]);
        assert_eq!([cpu_of("lane-12"), cpu_of("gpu-1"), cpu_of("lane-")], [Some(12), None, None]);
    }

    #[test]
    fn lanes_with_the_largest_share_are_preferred() {
        let offer = offer([(1, true, 40), (3, true, 5), (5, true, 90)]);
        let all = ids([1, 3, 5]);
        assert_eq!(preferred(&offer, &all, &[], 2), ids([5, 1]));
        assert_eq!(preferred(&offer, &all, &ids([3]), 2), ids([3, 5]));
        assert_eq!(preferred(&offer, &all, &[], 9), ids([5, 1, 3]));
    }

    #[test]
    fn only_lent_lanes_are_allocated() {
        let offer = offer([(1, true, 40), (3, false, 5), (5, true, 90)]);
        let response = allocate(&offer, &ids([1, 5])).unwrap();
        assert_eq!(response.envs[LANES_VARIABLE], "1,5");
        for refused in [ids([3]), ids([7]), ids([1, 3])] {
            assert!(allocate(&offer, &refused).unwrap_err().contains("is not lent now"));
        }
    }
}

//! Reports to the agent which pods have lanes, and which services have an objective by annotation.
//!
//! The kubelet's pod resources say which pod has which device, and the container runtime has the annotations of pods.
//! The report is a file, so that the agent and this program may end and start independently.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use sidelane_agent::pod_file::{POD_FILE, Pod, PodFile};
use tokio::sync::{Mutex, Notify};
use tokio::time::{MissedTickBehavior, interval};

use crate::api::pod_resources::pod_resources_lister_client::PodResourcesListerClient;
use crate::api::runtime::runtime_service_client::RuntimeServiceClient;
use crate::api::{
    Claim, ContainerResources, ListPodResourcesRequest, ListPodResourcesResponse, ListPodSandboxRequest,
    ListPodSandboxResponse, PodSandboxFilter, PodSandboxState,
};
use crate::channel::connect;
use crate::device_plugin::RESOURCE;
use crate::offer::cpu_of;
use crate::slice::DRIVER;
use crate::warnings::Warnings;

/// Annotation of a pod with the objective of its requests.
const SLO_ANNOTATION: &str = "sidelane.dev/slo";
/// Interval of reports.
const UPDATE_EVERY: Duration = Duration::from_secs(1);
/// Interval of reports while the kubelet does not list a device that it has just allocated.
const EXPECT_EVERY: Duration = Duration::from_millis(10);
/// Number of reports after an allocation. The kubelet lists the device within microseconds.
const EXPECT_TIMES: usize = 50;
/// Largest answer of the kubelet or the runtime, which grows with the pods of the node.
const ANSWER_MAX: usize = 64 << 20;

/// CPUs of the lanes that pods have, by NAMESPACE/NAME.
pub type LanesByPod = BTreeMap<String, BTreeSet<u32>>;

/// Reporter of pods to the agent.
pub struct PodReporter {
    /// Socket of the kubelet's pod resources.
    pod_resources: PathBuf,
    /// Socket of the container runtime.
    runtime: PathBuf,
    state: Mutex<State>,
    expected: std::sync::Mutex<BTreeSet<String>>,
    prepared: std::sync::Mutex<PreparedClaims>,
    allocated: Notify,
}

#[derive(Default)]
struct State {
    /// Content of the file; `None` before the first report.
    written: Option<PodFile>,
    /// Objectives by pod, from the last answer of the runtime.
    objectives: BTreeMap<String, String>,
    warnings: Warnings,
}

/// Claims that are prepared, and not yet listed by the kubelet.
#[derive(Default)]
struct PreparedClaims {
    /// Lanes of the pods that have a claim, by the claim's namespace and name.
    claims: BTreeMap<(String, String), LanesByPod>,
}

impl PreparedClaims {
    /// Forgets the claims that the kubelet lists.
    fn forget_listed(&mut self, resources: &ListPodResourcesResponse) {
        for of in containers(resources).flat_map(|container| &container.dynamic_resources) {
            if of.claim_resources.iter().any(|device| device.driver_name == DRIVER) {
                self.claims.remove(&(of.claim_namespace.clone(), of.claim_name.clone()));
            }
        }
    }

    /// Adds the lanes of these claims to those that pods have.
    fn add_to(&self, lanes: &mut LanesByPod) {
        for (pod, cpus) in self.claims.values().flatten() {
            lanes.entry(pod.clone()).or_default().extend(cpus);
        }
    }
}

impl PodReporter {
    /// Makes a reporter for a kubelet with this folder, and a container runtime at this socket.
    pub fn new(kubelet_dir: &Path, runtime: PathBuf) -> Self {
        let pod_resources = kubelet_dir.join("pod-resources/kubelet.sock");
        let (state, expected, prepared, allocated) = Default::default();
        Self { pod_resources, runtime, state, expected, prepared, allocated }
    }

    /// Notes devices that the kubelet allocates now: the pod is reported as soon as the kubelet lists them, which is
    /// before any process of the pod runs.
    pub fn expect(&self, ids: impl IntoIterator<Item = String>) {
        self.expected.lock().expect("no panic while locked").extend(ids);
        self.allocated.notify_one();
    }

    /// Notes a claim that is prepared now: its pods are reported with these lanes until the kubelet lists them.
    pub fn prepare(&self, claim: &Claim, lanes: LanesByPod) {
        let key = (claim.namespace.clone(), claim.name.clone());
        self.prepared.lock().expect("no panic while locked").claims.insert(key, lanes);
    }

    /// Forgets a claim whose pods have ended.
    pub fn unprepare(&self, claim: &Claim) {
        let key = (claim.namespace.clone(), claim.name.clone());
        self.prepared.lock().expect("no panic while locked").claims.remove(&key);
    }

    /// Reports for ever: every second, and after allocations.
    pub async fn run(self: Arc<Self>) {
        let mut ticks = interval(UPDATE_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let is_allocation = tokio::select! {
                _ = ticks.tick() => false,
                () = self.allocated.notified() => true,
            };
            if is_allocation {
                self.report_expected().await;
            }
            let updated = self.update().await;
            self.state.lock().await.warnings.print(updated.err().map(|error| format!("{error:#}")));
        }
    }

    async fn report_expected(&self) {
        for _ in 0..EXPECT_TIMES {
            let _ = self.update().await;
            if self.expected.lock().expect("no panic while locked").is_empty() {
                return;
            }
            tokio::time::sleep(EXPECT_EVERY).await;
        }
        self.expected.lock().expect("no panic while locked").clear();
    }

    /// Writes the agent's file, if something has changed. Returns which lanes pods have.
    ///
    /// # Errors
    /// If the kubelet or the runtime does not answer, or the file cannot be written. The pods that have lanes are
    /// reported even if the runtime does not answer.
    pub async fn update(&self) -> Result<LanesByPod> {
        let mut state = self.state.lock().await;
        let resources = self.list_resources().await?;
        let lanes = self.known_lanes(&resources);
        self.expected.lock().expect("no panic while locked").retain(|id| !has_device(&resources, id));
        let objectives = self.list_sandboxes().await;
        if let Ok(sandboxes) = &objectives {
            state.objectives = objectives_by_pod(sandboxes);
        }
        let pods = merge(&lanes, &state.objectives);
        if state.written.as_ref() != Some(&pods) {
            pods.write(Path::new(POD_FILE))
                .with_context(|| format!("cannot write {POD_FILE}; run sidelane-kube as root"))?;
            state.written = Some(pods);
        }
        objectives.map(|_| lanes)
    }

    /// Returns which lanes pods have: as the kubelet lists them, and of claims that it does not list yet.
    fn known_lanes(&self, resources: &ListPodResourcesResponse) -> LanesByPod {
        let mut lanes = lanes_by_pod(resources);
        let mut prepared = self.prepared.lock().expect("no panic while locked");
        prepared.forget_listed(resources);
        prepared.add_to(&mut lanes);
        lanes
    }

    async fn list_resources(&self) -> Result<ListPodResourcesResponse> {
        let asked = async {
            let mut client = PodResourcesListerClient::new(connect(&self.pod_resources).await?)
                .max_decoding_message_size(ANSWER_MAX);
            Ok::<_, anyhow::Error>(client.list(ListPodResourcesRequest {}).await?.into_inner())
        };
        let answer = asked.await;
        answer.with_context(|| {
            format!(
                "cannot ask the kubelet at {} which pods have lanes; check that it runs, or name its folder by \
                 --kubelet-dir",
                self.pod_resources.display()
            )
        })
    }

    async fn list_sandboxes(&self) -> Result<ListPodSandboxResponse> {
        let asked = async {
            let mut client =
                RuntimeServiceClient::new(connect(&self.runtime).await?).max_decoding_message_size(ANSWER_MAX);
            let ready = PodSandboxFilter { state: Some(PodSandboxState { state: 0 }) };
            let request = ListPodSandboxRequest { filter: Some(ready) };
            Ok::<_, anyhow::Error>(client.list_pod_sandbox(request).await?.into_inner())
        };
        let answer = asked.await;
        answer.with_context(|| {
            format!(
                "cannot ask the container runtime at {} for annotations of pods; name its socket by --runtime",
                self.runtime.display()
            )
        })
    }
}

fn containers(resources: &ListPodResourcesResponse) -> impl Iterator<Item = &ContainerResources> {
    resources.pods.iter().flat_map(|pod| &pod.containers)
}

fn has_device(resources: &ListPodResourcesResponse, id: &str) -> bool {
    containers(resources).flat_map(lane_names).any(|other| other == id)
}

/// Returns the names of a container's lanes: devices of the device plugin, and of claims.
fn lane_names(container: &ContainerResources) -> impl Iterator<Item = &str> {
    let ids = container.devices.iter().filter(|devices| devices.resource_name == RESOURCE).flat_map(|of| &of.ids);
    let claimed = container.dynamic_resources.iter().flat_map(|claim| &claim.claim_resources);
    let names = claimed.filter(|device| device.driver_name == DRIVER).map(|device| &device.device_name);
    ids.chain(names).map(String::as_str)
}

/// Returns the lanes that each pod has.
fn lanes_by_pod(resources: &ListPodResourcesResponse) -> LanesByPod {
    let mut lanes = LanesByPod::new();
    for pod in &resources.pods {
        let cpus: BTreeSet<u32> = pod.containers.iter().flat_map(lane_names).filter_map(cpu_of).collect();
        if !cpus.is_empty() {
            lanes.entry(format!("{}/{}", pod.namespace, pod.name)).or_default().extend(cpus);
        }
    }
    lanes
}

/// Returns the objectives that pods have by annotation, by NAMESPACE/NAME.
fn objectives_by_pod(sandboxes: &ListPodSandboxResponse) -> BTreeMap<String, String> {
    let annotated = sandboxes.sandboxes.iter().filter_map(|sandbox| {
        let metadata = sandbox.metadata.as_ref()?;
        let slo = sandbox.annotations.get(SLO_ANNOTATION)?;
        Some((format!("{}/{}", metadata.namespace, metadata.name), slo.clone()))
    });
    annotated.collect()
}

fn merge(lanes: &LanesByPod, objectives: &BTreeMap<String, String>) -> PodFile {
    let names: BTreeSet<&String> = lanes.keys().chain(objectives.keys()).collect();
    let pod = |name: &String| Pod {
        name: name.clone(),
        lanes: lanes.get(name).map_or_else(Vec::new, |cpus| cpus.iter().copied().collect()),
        slo: objectives.get(name).cloned(),
    };
    PodFile { pods: names.into_iter().map(pod).collect() }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::api::{ClaimResource, ContainerDevices, DynamicResource, PodResources, PodSandbox, PodSandboxMetadata};

    fn pod(name: &str, containers: &[&[(&str, &[&str])]]) -> PodResources {
        let devices = |(resource, ids): &(&str, &[&str])| ContainerDevices {
            resource_name: (*resource).to_owned(),
            ids: ids.iter().map(|id| (*id).to_owned()).collect(),
        };
        let containers = containers.iter().map(|all| {
            let devices = all.iter().map(devices).collect();
            ContainerResources { devices, dynamic_resources: Vec::new() }
        });
        PodResources { name: name.to_owned(), namespace: "default".to_owned(), containers: containers.collect() }
    }

    #[test]
    fn pod_has_the_lanes_of_all_its_containers() {
        let lane = |ids: &'static [&'static str]| (RESOURCE, ids);
        let pods = vec![
            pod("two", &[&[lane(&["lane-3"])], &[("example.com/gpu", &["lane-9"]), lane(&["lane-1"])]]),
            pod("none", &[&[], &[("example.com/gpu", &["gpu-1"])]]),
        ];
        let resources = ListPodResourcesResponse { pods };
        let lanes = lanes_by_pod(&resources);
        assert_eq!(lanes, BTreeMap::from([("default/two".to_owned(), BTreeSet::from([1, 3]))]));
        assert!(has_device(&resources, "lane-3") && !has_device(&resources, "lane-9"));
    }

    /// Returns a pod of the namespace `default` whose container has a device of a claim.
    fn pod_with_claim(name: &str, claim: &str, driver: &str, device: &str) -> PodResources {
        let device = ClaimResource { driver_name: driver.to_owned(), device_name: device.to_owned() };
        let (claim_namespace, claim_name) = ("default".to_owned(), claim.to_owned());
        let claim = DynamicResource { claim_name, claim_namespace, claim_resources: vec![device] };
        let container = ContainerResources { devices: Vec::new(), dynamic_resources: vec![claim] };
        PodResources { containers: vec![container], ..pod(name, &[]) }
    }

    #[test]
    fn pod_has_the_lanes_of_its_claims() {
        let pods = vec![
            pod_with_claim("batch", "lane", DRIVER, "lane-3"),
            pod_with_claim("other", "gpu", "gpu.example.com", "lane-1"),
        ];
        let lanes = lanes_by_pod(&ListPodResourcesResponse { pods });
        assert_eq!(lanes, BTreeMap::from([("default/batch".to_owned(), BTreeSet::from([3]))]));
    }

    #[test]
    fn pod_of_a_prepared_claim_has_its_lanes_at_once() {
        let reporter = PodReporter::new(Path::new("/none"), PathBuf::from("/none"));
        let claim = |name: &str| Claim { namespace: "default".to_owned(), name: name.to_owned(), uid: name.to_owned() };
        let lanes = BTreeMap::from([("default/batch".to_owned(), BTreeSet::from([3]))]);
        for name in ["one", "two"] {
            reporter.prepare(&claim(name), lanes.clone());
        }
        reporter.unprepare(&claim("two"));
        let reported = |pods| reporter.known_lanes(&ListPodResourcesResponse { pods });
        assert_eq!(reported(vec![]), lanes);
        assert_eq!(reported(vec![pod_with_claim("batch", "two", DRIVER, "lane-3")]), lanes);
        assert_eq!(reported(vec![pod_with_claim("batch", "one", DRIVER, "lane-3")]), lanes);
        // The kubelet has listed the claim: now it alone knows when the pod ends.
        assert_eq!(reported(vec![]), BTreeMap::new());
    }

    #[test]
    fn report_has_pods_with_lanes_and_with_objectives() {
        let sandbox = |name: &str, annotation: &str| PodSandbox {
            metadata: Some(PodSandboxMetadata { name: name.to_owned(), namespace: "default".to_owned() }),
            annotations: HashMap::from([(annotation.to_owned(), "p99=10ms".to_owned())]),
        };
        let sandboxes = vec![sandbox("redis", SLO_ANNOTATION), sandbox("web", "example.com/slo")];
        let objectives = objectives_by_pod(&ListPodSandboxResponse { sandboxes });
        let report = merge(&BTreeMap::from([("default/batch".to_owned(), BTreeSet::from([3, 1]))]), &objectives);
        let batch = Pod { name: "default/batch".to_owned(), lanes: vec![1, 3], slo: None };
        let redis = Pod { name: "default/redis".to_owned(), lanes: Vec::new(), slo: Some("p99=10ms".to_owned()) };
        assert_eq!(report.pods, [batch, redis]);
    }
}

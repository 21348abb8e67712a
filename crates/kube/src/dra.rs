//! The driver of dynamic resource allocation (DRA): batch lanes as devices of ResourceClaims.
//!
//! The scheduler allocates a claim from the ResourceSlice that [`publisher`](crate::publisher) keeps. The kubelet then
//! asks the driver to prepare the claim, before it makes the pod's sandbox. There is nothing to prepare on the machine:
//! the driver reports the pod to the agent, so that it is batch before a process of it runs.

use std::collections::{BTreeSet, HashMap};
use std::convert::Infallible;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use hyper::body::Incoming;
use serde_json::Value;
use sidelane_report::terminal::eprint_fitted;
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::time::sleep;
use tonic::{Request, Response, Status, async_trait};
use tower::Service;

use crate::api::dra::d_r_a_plugin_server::{DRAPlugin, DRAPluginServer};
use crate::api::plugin_registration::registration_server::{Registration, RegistrationServer};
use crate::api::{
    Claim, ClaimsRequest, Empty, PluginInfo, PrepareResponse, PreparedClaim, PreparedDevice, RegistrationStatus,
    UnprepareResponse,
};
use crate::api_server::ApiServer;
use crate::channel::serve;
use crate::offer::{Offer, cpu_of};
use crate::pods::{LanesByPod, PodReporter};
use crate::slice::DRIVER;
use crate::warnings::{Warnings, warn};

/// Kind of the plugin.
const KIND: &str = "DRAPlugin";
/// Service of the kubelet's API that the driver has.
const SERVICE: &str = "v1.DRAPlugin";
/// Beginning of the paths of the kubelet's registration.
const REGISTRATION_PATH: &str = "/pluginregistration.Registration/";
/// Pause before another attempt to make the socket.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Driver of the lanes in an offer.
#[derive(Clone)]
pub struct LaneDriver {
    node: String,
    offer: watch::Receiver<Offer>,
    pods: Arc<PodReporter>,
    api: Arc<ApiServer>,
    registered: watch::Sender<bool>,
}

impl LaneDriver {
    /// Makes the driver of a node. It tells the agent by `pods` which pods have lanes, and sets `registered` when a
    /// kubelet uses it.
    pub fn new(
        node: String,
        offer: watch::Receiver<Offer>,
        pods: Arc<PodReporter>,
        api: Arc<ApiServer>,
        registered: watch::Sender<bool>,
    ) -> Self {
        Self { node, offer, pods, api, registered }
    }

    /// Serves the driver at a socket for ever. A kubelet finds it there, also when it starts later.
    pub async fn serve(self, socket: &Path) -> Infallible {
        let mut warnings = Warnings::default();
        loop {
            let failure = match listen(socket) {
                Ok(listener) => match serve(listener, Services::new(self.clone())).await {
                    Ok(never) => match never {},
                    Err(error) => error,
                },
                Err(error) => error,
            };
            warnings.print(Some(format!("{failure:#}")));
            sleep(RETRY_AFTER).await;
        }
    }

    async fn prepare(&self, claim: &Claim) -> Result<Vec<PreparedDevice>> {
        let path = format!("/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims/{}", claim.namespace, claim.name);
        let object = self.api.get(&path).await?.context("the claim is gone; create the pod again")?;
        let allocation = Allocation::of_claim(&object, claim, &self.node)?;
        let holders = self.pods.update().await?;
        allocation.check(&self.offer.borrow(), &holders)?;
        let cpus = allocation.cpus();
        self.pods.prepare(claim, allocation.pods.into_iter().map(|pod| (pod, cpus.clone())).collect());
        // The agent has to know the pod as batch before its container runs.
        self.pods.update().await?;
        Ok(allocation.devices)
    }
}

/// Returns the driver's socket in a kubelet's folder.
pub fn socket_path(kubelet_dir: &Path) -> PathBuf {
    // The kubelet names the host of its requests by this path, with %2F for each slash. A host has no percent sign, so
    // `http` refuses it; but a user name before an @ may have one.
    kubelet_dir.join("plugins_registry").join(format!("{DRIVER}@kubelet.sock"))
}

fn listen(socket: &Path) -> Result<UnixListener> {
    match fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("cannot remove the old {}", socket.display()));
        }
        _ => {}
    }
    UnixListener::bind(socket).with_context(|| {
        format!(
            "cannot listen at {}; start the kubelet, run sidelane-kube as root, or name the kubelet's folder by \
             --kubelet-dir",
            socket.display()
        )
    })
}

/// Both services of the driver, at one socket: the kubelet asks there for its registration, too.
#[derive(Clone)]
struct Services {
    registration: RegistrationServer<LaneDriver>,
    driver: DRAPluginServer<LaneDriver>,
}

impl Services {
    fn new(driver: LaneDriver) -> Self {
        Self { registration: RegistrationServer::new(driver.clone()), driver: DRAPluginServer::new(driver) }
    }
}

impl Service<hyper::Request<Incoming>> for Services {
    type Response = hyper::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = <DRAPluginServer<LaneDriver> as Service<hyper::Request<Incoming>>>::Future;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: hyper::Request<Incoming>) -> Self::Future {
        if request.uri().path().starts_with(REGISTRATION_PATH) {
            self.registration.call(request)
        } else {
            self.driver.call(request)
        }
    }
}

#[async_trait]
impl Registration for LaneDriver {
    async fn get_info(&self, _: Request<Empty>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            kind: KIND.to_owned(),
            name: DRIVER.to_owned(),
            endpoint: String::new(),
            supported_versions: vec![SERVICE.to_owned()],
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<Empty>, Status> {
        let status = request.into_inner();
        if status.plugin_registered {
            eprint_fitted(&format!("sidelane-kube: {DRIVER} is registered with the kubelet"));
            self.registered.send_replace(true);
        } else {
            warn(&format!(
                "the kubelet does not use {DRIVER}: {}; it needs Kubernetes 1.34 or later, or the device plugin",
                status.error
            ));
        }
        Ok(Response::new(Empty {}))
    }
}

#[async_trait]
impl DRAPlugin for LaneDriver {
    async fn node_prepare_resources(
        &self,
        request: Request<ClaimsRequest>,
    ) -> Result<Response<PrepareResponse>, Status> {
        let mut claims = HashMap::new();
        for claim in request.into_inner().claims {
            let prepared = match self.prepare(&claim).await {
                Ok(devices) => PreparedClaim { devices, error: String::new() },
                Err(error) => PreparedClaim { devices: Vec::new(), error: format!("{error:#}") },
            };
            claims.insert(claim.uid, prepared);
        }
        Ok(Response::new(PrepareResponse { claims }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<ClaimsRequest>,
    ) -> Result<Response<UnprepareResponse>, Status> {
        let claims = request.into_inner().claims;
        for claim in &claims {
            self.pods.unprepare(claim);
        }
        let claims = claims.into_iter().map(|claim| (claim.uid, Empty {})).collect();
        Ok(Response::new(UnprepareResponse { claims }))
    }
}

/// Lanes that the scheduler has allocated to a claim, and the pods that have the claim.
#[derive(Debug, PartialEq)]
struct Allocation {
    devices: Vec<PreparedDevice>,
    /// NAMESPACE/NAME of each pod.
    pods: Vec<String>,
}

impl Allocation {
    /// Reads the allocation of this node's lanes from a ResourceClaim.
    fn of_claim(object: &Value, claim: &Claim, node: &str) -> Result<Self> {
        let text = |value: &Value, path| value.pointer(path).and_then(Value::as_str).map(str::to_owned);
        let list = |path| object.pointer(path).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        if text(object, "/metadata/uid").as_deref() != Some(&claim.uid) {
            bail!("another claim has this name now; create the pod again");
        }
        let mut devices = Vec::new();
        for result in list("/status/allocation/devices/results") {
            if text(result, "/driver").as_deref() != Some(DRIVER) {
                continue;
            }
            let field = |path| text(result, path).with_context(|| format!("its allocation lacks {path}: {result}"));
            let (pool, device) = (field("/pool")?, field("/device")?);
            if pool != node || cpu_of(&device).is_none() {
                bail!("{pool}/{device} is no lane of node {node}; set NODE_NAME to the name of this node");
            }
            devices.push(PreparedDevice {
                request_names: vec![field("/request")?],
                pool_name: pool,
                device_name: device,
            });
        }
        if devices.is_empty() {
            bail!("no lane is allocated to it; create the pod again");
        }
        let pods = list("/status/reservedFor").iter().filter(|user| user["resource"] == "pods");
        let pods = pods.filter_map(|pod| Some(format!("{}/{}", claim.namespace, pod["name"].as_str()?))).collect();
        Ok(Self { devices, pods })
    }

    fn cpus(&self) -> BTreeSet<u32> {
        self.devices.iter().filter_map(|device| cpu_of(&device.device_name)).collect()
    }

    /// Checks that each lane is lent, or that a pod of the claim has it already. Pods keep lanes that are withdrawn.
    fn check(&self, offer: &Offer, holders: &LanesByPod) -> Result<()> {
        for cpu in self.cpus() {
            let mut owners = holders.iter().filter(|(_, cpus)| cpus.contains(&cpu)).map(|(pod, _)| pod).peekable();
            let has_owner = owners.peek().is_some();
            if let Some(other) = owners.find(|owner| !self.pods.contains(owner)) {
                bail!("lane {cpu} is pod {other}'s; delete that pod");
            }
            if !has_owner && !offer.lane(cpu).is_some_and(|lane| lane.is_lent) {
                bail!("lane {cpu} is not lent now; the kubelet tries again, or delete the pod to place it elsewhere");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::api::dra::d_r_a_plugin_client::DRAPluginClient;
    use crate::api::plugin_registration::registration_client::RegistrationClient;
    use crate::channel::connect;
    use crate::offer::OfferedLane;

    fn claim() -> Claim {
        Claim { namespace: "default".to_owned(), uid: "a-b-c".to_owned(), name: "batch-lane".to_owned() }
    }

    fn result(driver: &str, pool: &str, device: &str) -> Value {
        json!({"request": "lane", "driver": driver, "pool": pool, "device": device})
    }

    fn object(results: &[Value]) -> Value {
        json!({
            "metadata": {"uid": "a-b-c"},
            "status": {
                "allocation": {"devices": {"results": results}},
                "reservedFor": [
                    {"resource": "pods", "name": "batch", "uid": "1"},
                    {"apiGroup": "example.com", "resource": "jobs", "name": "other", "uid": "2"},
                ],
            },
        })
    }

    fn allocation(devices: &[&str]) -> Allocation {
        let results: Vec<_> = devices.iter().map(|device| result(DRIVER, "node", device)).collect();
        Allocation::of_claim(&object(&results), &claim(), "node").unwrap()
    }

    fn offer(lanes: &[(u32, bool)]) -> Offer {
        let lane = |&(cpu, is_lent)| OfferedLane { cpu, is_lent, share_percent: 50, service: String::new() };
        Offer { lanes: lanes.iter().map(lane).collect() }
    }

    #[test]
    fn the_kubelet_s_name_for_the_socket_is_a_host() {
        let path = socket_path(Path::new("/var/lib/kubelet"));
        assert_eq!(path.to_str(), Some("/var/lib/kubelet/plugins_registry/sidelane.dev@kubelet.sock"));
        let host = path.to_str().unwrap().replace('/', "%2F");
        host.parse::<hyper::http::uri::Authority>().unwrap();
        host.replace('@', "-").parse::<hyper::http::uri::Authority>().unwrap_err();
    }

    #[tokio::test]
    async fn kubelet_registers_the_driver_and_hears_of_each_claim() {
        let Some(account) = crate::api_server::tests::account() else { return };
        let dir = tempfile::tempdir().unwrap();
        // No API server listens at this port, which is that of no service.
        let api = ApiServer::new("127.0.0.1".to_owned(), 1, account.path()).unwrap();
        let (registered, is_registered) = watch::channel(false);
        let pods = Arc::new(PodReporter::new(dir.path(), dir.path().join("runtime")));
        let (_sender, offer) = watch::channel(Offer::default());
        let driver = LaneDriver::new("node".to_owned(), offer, pods, Arc::new(api), registered);
        let socket = dir.path().join("driver.sock");
        // A socket that an earlier driver has left.
        drop(listen(&socket).unwrap());
        let serving = tokio::spawn({
            let socket = socket.clone();
            async move { driver.serve(&socket).await }
        });
        let channel = loop {
            if let Ok(channel) = connect(&socket).await {
                break channel;
            }
            tokio::task::yield_now().await;
        };
        let mut kubelet = RegistrationClient::new(channel.clone());
        let info = kubelet.get_info(Empty {}).await.unwrap().into_inner();
        let told = (info.kind.as_str(), info.name.as_str(), info.endpoint.as_str(), info.supported_versions);
        assert_eq!(told, ("DRAPlugin", "sidelane.dev", "", vec!["v1.DRAPlugin".to_owned()]));
        for (plugin_registered, error) in [(false, "no such service"), (true, "")] {
            let status = RegistrationStatus { plugin_registered, error: error.to_owned() };
            kubelet.notify_registration_status(status).await.unwrap();
            assert_eq!(*is_registered.borrow(), plugin_registered);
        }
        let mut kubelet = DRAPluginClient::new(channel);
        let claims = || ClaimsRequest { claims: vec![claim()] };
        let prepared = kubelet.node_prepare_resources(claims()).await.unwrap().into_inner();
        let error = &prepared.claims["a-b-c"].error;
        assert!(error.starts_with("cannot GET /apis/resource.k8s.io/v1/namespaces/default/resourceclaims/"), "{error}");
        let unprepared = kubelet.node_unprepare_resources(claims()).await.unwrap().into_inner();
        assert_eq!(unprepared.claims.into_keys().collect::<Vec<_>>(), ["a-b-c"]);
        serving.abort();
    }

    #[test]
    fn claim_has_the_lanes_of_this_driver() {
        let results = [result("gpu.example.com", "x", "gpu-0"), result(DRIVER, "node", "lane-3")];
        let allocation = Allocation::of_claim(&object(&results), &claim(), "node").unwrap();
        let device = PreparedDevice {
            request_names: vec!["lane".to_owned()],
            pool_name: "node".to_owned(),
            device_name: "lane-3".to_owned(),
        };
        assert_eq!(allocation, Allocation { devices: vec![device], pods: vec!["default/batch".to_owned()] });
    }

    #[test]
    fn claims_without_a_lane_of_this_node_are_refused() {
        let cases = [
            (vec![], "no lane is allocated"),
            (vec![result("gpu.example.com", "x", "gpu-0")], "no lane is allocated"),
            (vec![result(DRIVER, "elsewhere", "lane-3")], "no lane of node node"),
            (vec![result(DRIVER, "node", "gpu-3")], "no lane of node node"),
            (vec![json!({"driver": DRIVER, "pool": "node", "device": "lane-3"})], "lacks /request"),
        ];
        for (results, reason) in cases {
            let refused = Allocation::of_claim(&object(&results), &claim(), "node").unwrap_err();
            assert!(refused.to_string().contains(reason), "{refused}");
        }
        let later = Claim { uid: "d".to_owned(), ..claim() };
        let refused = Allocation::of_claim(&object(&[]), &later, "node").unwrap_err();
        assert!(refused.to_string().contains("another claim"));
    }

    #[test]
    fn fuzzed_claims_are_read_or_refused() {
        let claim = Claim { uid: "0a1b2c3d".to_owned(), ..claim() };
        sidelane_testing::fuzz("claim", |bytes| {
            let Ok(object) = serde_json::from_slice(bytes) else { return };
            let Ok(allocation) = Allocation::of_claim(&object, &claim, "node") else { return };
            assert!(!allocation.cpus().is_empty());
        });
    }

    #[test]
    fn only_lent_lanes_are_prepared() {
        let none = BTreeMap::new();
        let lent = offer(&[(1, true), (3, false)]);
        allocation(&["lane-1"]).check(&lent, &none).unwrap();
        for devices in [&["lane-3"][..], &["lane-7"], &["lane-1", "lane-3"]] {
            let refused = allocation(devices).check(&lent, &none).unwrap_err();
            assert!(refused.to_string().contains("is not lent now"));
        }
    }

    #[test]
    fn pod_keeps_a_lane_that_is_withdrawn() {
        let withdrawn = offer(&[(3, false)]);
        let holders = |pod: &str| BTreeMap::from([(pod.to_owned(), BTreeSet::from([3]))]);
        allocation(&["lane-3"]).check(&withdrawn, &holders("default/batch")).unwrap();
    }

    #[test]
    fn a_lane_of_another_pod_is_refused() {
        let lent = offer(&[(3, true)]);
        let holders = BTreeMap::from([("default/other".to_owned(), BTreeSet::from([3]))]);
        let refused = allocation(&["lane-3"]).check(&lent, &holders).unwrap_err();
        assert!(refused.to_string().contains("pod default/other's"));
    }
}

//! Keeps the node's ResourceSlice at the API server as the offer is.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use sidelane_host::topology::Topology;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::api_server::ApiServer;
use crate::offer::Offer;
use crate::slice::{DEVICES_MAX, LaneDevice, SLICES, lane_devices, new_slice, next_slice, slice_name, version_of};
use crate::warnings::Warnings;

/// Shortest time between two changes of the slice.
const UPDATE_EVERY: Duration = Duration::from_secs(1);
/// Pause before another attempt, while the API server does not answer.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Publisher of a node's lent lanes.
pub struct Publisher {
    api: Arc<ApiServer>,
    node: String,
    topology: Topology,
}

impl Publisher {
    /// Makes a publisher for the node with this name.
    pub fn new(api: Arc<ApiServer>, node: String, topology: Topology) -> Self {
        Self { api, node, topology }
    }

    /// Publishes lent lanes for ever, after the kubelet has registered the driver. A kubelet that starts deletes the
    /// slices of its node, so each slice is watched.
    pub async fn run(&self, mut offer: watch::Receiver<Offer>, mut registered: watch::Receiver<bool>) -> Infallible {
        // The sender is the driver, which lives as long.
        let _ = registered.wait_for(|is_registered| *is_registered).await;
        let (mut warnings, mut left_out) = (Warnings::default(), Warnings::default());
        let mut devices = Vec::new();
        loop {
            devices = self.devices(&offer.borrow_and_update(), &devices);
            left_out.print(lanes_left_out(&offer.borrow()));
            let watched = match self.put(&devices).await {
                Ok(version) => {
                    sleep(UPDATE_EVERY).await;
                    self.wait_for_change(&mut offer, &devices, &version).await
                }
                Err(error) => Err(error),
            };
            if warnings.print(watched.err().map(|error| format!("{error:#}"))) {
                sleep(RETRY_AFTER).await;
            }
        }
    }

    /// Deletes the slice.
    ///
    /// # Errors
    /// If the API server does not answer, or refuses.
    pub async fn withdraw(&self) -> Result<()> {
        self.api.delete(&self.path()).await
    }

    fn devices(&self, offer: &Offer, before: &[LaneDevice]) -> Vec<LaneDevice> {
        lane_devices(offer, &self.topology, before)
    }

    /// Waits until the offer has other devices, or the slice is no longer at this version.
    async fn wait_for_change(
        &self,
        offer: &mut watch::Receiver<Offer>,
        devices: &[LaneDevice],
        version: &str,
    ) -> Result<()> {
        let name = slice_name(&self.node);
        tokio::select! {
            _ = offer.wait_for(|offer| self.devices(offer, devices) != devices) => Ok(()),
            watched = self.api.watch(SLICES, &name, version) => watched,
        }
    }

    /// Stores a slice with these devices, unless it is stored. Returns its version.
    async fn put(&self, devices: &[LaneDevice]) -> Result<String> {
        let Some(known) = self.api.get(&self.path()).await? else {
            let slice = new_slice(&self.node, &self.node_uid().await?, devices);
            return Ok(version_of(&self.api.create(SLICES, &slice).await?).to_owned());
        };
        match next_slice(&known, devices) {
            Some(next) => Ok(version_of(&self.api.replace(&self.path(), &next).await?).to_owned()),
            None => Ok(version_of(&known).to_owned()),
        }
    }

    async fn node_uid(&self) -> Result<String> {
        let node = self.api.get(&format!("/api/v1/nodes/{}", self.node)).await?;
        let uid = node.as_ref().and_then(|node| node.pointer("/metadata/uid")?.as_str());
        uid.map(str::to_owned).with_context(|| {
            format!("cannot find node {} at the API server; set NODE_NAME to the name of this node", self.node)
        })
    }

    fn path(&self) -> String {
        format!("{SLICES}/{}", slice_name(&self.node))
    }
}

/// Returns a warning if more lanes are lent than a slice has.
fn lanes_left_out(offer: &Offer) -> Option<String> {
    let is_too_many = offer.lanes.iter().filter(|lane| lane.is_lent).count() > DEVICES_MAX;
    is_too_many.then(|| {
        format!(
            "a ResourceSlice has {DEVICES_MAX} lanes at most, and more are lent; those with the highest CPUs are not \
             offered"
        )
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use hyper::body::Bytes;
    use hyper::{Method, Request, StatusCode};
    use serde_json::{Value, json};
    use tokio::sync::Notify;
    use tokio::time::timeout;

    use super::*;
    use crate::api_server::tests::{Body, account, body, event, serve};
    use crate::offer::OfferedLane;

    /// The only slice of an API server.
    #[derive(Clone, Default)]
    struct Store {
        slice: Arc<Mutex<Option<Value>>>,
        changed: Arc<Notify>,
    }

    impl Store {
        fn answer(&self, request: Request<Bytes>) -> (StatusCode, Body) {
            let mut slice = self.slice.lock().unwrap();
            let version = slice.as_ref().map_or(0, |slice| version_of(slice).parse::<u32>().unwrap());
            let written = serde_json::from_slice::<Value>(request.body());
            match (request.method().clone(), request.uri().path()) {
                (Method::GET, "/api/v1/nodes/node") => {
                    return (StatusCode::OK, body(&json!({"metadata": {"uid": "a-b-c"}})));
                }
                (Method::GET, SLICES) => return (StatusCode::OK, event(Arc::clone(&self.changed))),
                (Method::POST, SLICES) if slice.is_none() => *slice = written.ok(),
                (Method::PUT, _) if written.as_ref().is_ok_and(|new| version_of(new) == version.to_string()) => {
                    *slice = written.ok();
                }
                (Method::DELETE, _) => *slice = None,
                (Method::GET, _) => {}
                _ => return (StatusCode::CONFLICT, body(&json!({}))),
            }
            let Some(slice) = slice.as_mut() else { return (StatusCode::NOT_FOUND, body(&json!({}))) };
            if request.method() != Method::GET {
                slice["metadata"]["resourceVersion"] = json!((version + 1).to_string());
            }
            (StatusCode::OK, body(slice))
        }

        /// Waits until the slice has devices with these names, and this generation.
        async fn wait_for(&self, names: &[&str], generation: u64) {
            loop {
                if let Some(slice) = &*self.slice.lock().unwrap() {
                    let devices = slice["spec"]["devices"].as_array().unwrap();
                    let names_now: Vec<_> = devices.iter().map(|device| &device["name"]).collect();
                    if names_now == names && slice["spec"]["pool"]["generation"] == generation {
                        return;
                    }
                }
                sleep(Duration::from_millis(5)).await;
            }
        }
    }

    #[tokio::test]
    async fn slice_follows_the_offer_and_is_made_anew() {
        let Some(account) = account() else { return };
        let store = Store::default();
        let server = store.clone();
        let api = Arc::new(serve(account.path(), move |request| server.answer(request)).await);
        let topology = Topology { cpus: Vec::new(), smt_switched_off: false };
        let publisher = Arc::new(Publisher::new(api, "node".to_owned(), topology));
        let lent = |cpus: &[u32]| {
            let lane = |&cpu| OfferedLane { cpu, is_lent: true, share_percent: 50, service: String::new() };
            Offer { lanes: cpus.iter().map(lane).collect() }
        };
        let (offers, offer) = watch::channel(lent(&[1, 3]));
        let (registered, is_registered) = watch::channel(false);
        let running = tokio::spawn({
            let publisher = Arc::clone(&publisher);
            async move { publisher.run(offer, is_registered).await }
        });
        // No kubelet prepares claims yet.
        timeout(Duration::from_millis(200), store.wait_for(&["lane-1", "lane-3"], 1)).await.unwrap_err();
        registered.send_replace(true);
        store.wait_for(&["lane-1", "lane-3"], 1).await;
        offers.send_replace(lent(&[3]));
        store.wait_for(&["lane-3"], 2).await;
        // A kubelet that starts deletes the slices of its node.
        *store.slice.lock().unwrap() = None;
        store.changed.notify_one();
        store.wait_for(&["lane-3"], 1).await;
        running.abort();
        publisher.withdraw().await.unwrap();
        assert!(store.slice.lock().unwrap().is_none());
        publisher.withdraw().await.unwrap();
    }
}

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
        let mut warnings = Warnings::default();
        let mut devices = Vec::new();
        loop {
            devices = self.devices(&offer.borrow_and_update(), &devices);
            self.warn_of_lanes_left_out(&offer.borrow(), &mut warnings);
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

    fn warn_of_lanes_left_out(&self, offer: &Offer, warnings: &mut Warnings) {
        let lent = offer.lanes.iter().filter(|lane| lane.is_lent).count();
        if lent > DEVICES_MAX {
            warnings.print(Some(format!("{lent} lanes are lent, and a ResourceSlice has {DEVICES_MAX} at most")));
        }
    }
}

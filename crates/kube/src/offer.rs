//! The node's offer: its batch lanes, and which of them new pods may have. It is read from the agent's status every
//! second, and is plain data for any transport to a scheduler.

use std::path::Path;
use std::time::Duration;

use sidelane_agent::status::{SOCKET, Snapshot, read_snapshot};
use sidelane_report::terminal::{Level, eprint_fitted, eprint_with_level};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

/// Part of a device's name before the number of its CPU.
const NAME_PREFIX: &str = "lane-";
/// Interval of reads of the agent's status.
const READ_EVERY: Duration = Duration::from_secs(1);

/// Batch lanes of a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Offer {
    /// Lanes, by CPU.
    pub lanes: Vec<OfferedLane>,
}

/// Batch lane of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct OfferedLane {
    /// Number of the CPU.
    pub cpu: u32,
    /// Whether new pods may have the lane.
    pub is_lent: bool,
    /// Share of the lane that was open to batch in the last minute, in whole percent.
    pub share_percent: u32,
    /// Name of the service beside which the lane lies.
    pub service: String,
}

impl Offer {
    /// Returns the offer that an agent's status contains.
    pub fn from_status(status: &Snapshot) -> Self {
        let mut lanes: Vec<OfferedLane> = status
            .lanes
            .iter()
            .filter_map(|lane| {
                let offer = lane.offer.as_ref()?;
                let share_percent = offer.share_percent.round() as u32;
                Some(OfferedLane { cpu: lane.cpu, is_lent: offer.lent, share_percent, service: lane.service.clone() })
            })
            .collect();
        lanes.sort_by_key(|lane| lane.cpu);
        Self { lanes }
    }

    /// Returns the same lanes, all of them withdrawn: without an agent, no lane protects its service.
    pub fn withdrawn(&self) -> Self {
        let lanes = self.lanes.iter().map(|lane| OfferedLane { is_lent: false, share_percent: 0, ..lane.clone() });
        Self { lanes: lanes.collect() }
    }

    /// Returns the lane with this CPU.
    pub fn lane(&self, cpu: u32) -> Option<&OfferedLane> {
        self.lanes.iter().find(|lane| lane.cpu == cpu)
    }
}

/// Returns the name of a lane as a device.
pub fn device_name(cpu: u32) -> String {
    format!("{NAME_PREFIX}{cpu}")
}

/// Returns the CPU of a device.
pub fn cpu_of(name: &str) -> Option<u32> {
    name.strip_prefix(NAME_PREFIX)?.parse().ok()
}

/// Follows the offer of this node's agent for ever. Reports once when the agent is absent, and once when it is back.
pub async fn follow(offer: watch::Sender<Offer>) {
    let mut ticks = interval(READ_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_connected = None;
    loop {
        ticks.tick().await;
        let read = spawn_blocking(|| read_snapshot(Path::new(SOCKET))).await.expect("reading a status cannot panic");
        if is_connected != Some(read.is_ok()) {
            is_connected = Some(read.is_ok());
            match &read {
                Ok(status) => eprint_fitted(&format!(
                    "sidelane-kube: offers the lanes of agent {} (process {})",
                    status.agent.version, status.agent.pid
                )),
                Err(error) => eprint_with_level(
                    Level::Warning,
                    &format!(
                        "sidelane-kube: cannot read the agent's status at {SOCKET}: {error}; no lane is offered until \
                         `sidelane agent` runs on this node"
                    ),
                ),
            }
        }
        offer.send_if_modified(|known| {
            let now = read.as_ref().map_or_else(|_| known.withdrawn(), Offer::from_status);
            let is_new = now != *known;
            *known = now;
            is_new
        });
    }
}

#[cfg(test)]
mod tests {
    use sidelane_agent::status::{LaneStatus, OfferStatus};

    use super::*;

    fn lane(cpu: u32, offer: Option<OfferStatus>) -> LaneStatus {
        LaneStatus { cpu, offer, service: "default/redis".into(), ..LaneStatus::default() }
    }

    #[test]
    fn offer_has_the_lanes_that_the_agent_judges() {
        let lent = OfferStatus { lent: true, share_percent: 41.6, withdrawn_because: None };
        let withdrawn = OfferStatus { lent: false, share_percent: 3.0, withdrawn_because: Some("busy".into()) };
        let lanes = vec![lane(0, None), lane(3, Some(withdrawn)), lane(1, Some(lent))];
        let offer = Offer::from_status(&Snapshot { lanes, ..Snapshot::default() });
        let one = OfferedLane { cpu: 1, is_lent: true, share_percent: 42, service: "default/redis".into() };
        let three = OfferedLane { cpu: 3, is_lent: false, share_percent: 3, ..one.clone() };
        assert_eq!(offer.lanes, [one.clone(), three.clone()]);
        let absent = offer.withdrawn();
        assert_eq!(
            absent.lanes,
            [OfferedLane { is_lent: false, share_percent: 0, ..one }, OfferedLane { share_percent: 0, ..three }]
        );
    }
}

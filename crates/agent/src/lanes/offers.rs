//! Offers of batch lanes to a scheduler of a cluster, updated every second from the account of each lane.

use std::collections::BTreeMap;

use sidelane_lanes::status::OfferStatus;
use sidelane_policy::Nanos;
use sidelane_policy::borrow::Objective;
use sidelane_policy::offer::{LaneOffer, LaneSpan};
use sidelane_tracker::ledger::LedgerTimes;

use crate::discover::ServiceId;

/// Interval of updates of the offers.
const UPDATE_NS: Nanos = 1_000_000_000;

/// Offers of all batch lanes, by CPU.
#[derive(Debug, Default)]
pub struct Offers {
    due_ns: Nanos,
    lanes: BTreeMap<u32, OfferedLane>,
}

/// Offer of one lane, with the counters at the last update.
#[derive(Debug)]
struct OfferedLane {
    offer: LaneOffer,
    counted: LaneCounters,
}

/// Batch lane at an update of its offer.
#[derive(Clone, Copy, Debug)]
pub struct LaneAccount {
    /// Counters of the lane and of the service beside it.
    pub counted: LaneCounters,
    /// Objective of the service.
    pub objective: Option<Objective>,
    /// Whether batch may not use the lane at all, whatever the service does.
    pub is_closed: bool,
}

/// Counters of a lane and of the service beside it.
#[derive(Clone, Copy, Debug)]
pub struct LaneCounters {
    /// Service beside the lane.
    pub service: ServiceId,
    /// Times of the lane.
    pub times: LedgerTimes,
    /// Number of the service's requests that were compared with an objective, and of those that missed it.
    pub judged_and_late: (u64, u64),
}

impl LaneAccount {
    /// Returns the account of the span since `earlier`; `None` if the counters have restarted since.
    fn since(&self, earlier: &LaneCounters) -> Option<LaneSpan> {
        let counted = &self.counted;
        let is_continued = counted.service == earlier.service && counted.times.all_ns() >= earlier.times.all_ns();
        let times = counted.times.since(&earlier.times);
        is_continued.then(|| LaneSpan {
            all_ns: times.all_ns(),
            open_ns: times.open_ns(),
            judged: counted.judged_and_late.0.saturating_sub(earlier.judged_and_late.0),
            late: counted.judged_and_late.1.saturating_sub(earlier.judged_and_late.1),
            is_closed: self.is_closed,
        })
    }
}

impl Offers {
    /// Returns whether an update is due.
    pub fn is_due(&self, now_ns: Nanos) -> bool {
        now_ns >= self.due_ns
    }

    /// Updates the offers of all lanes that there are now, by CPU. Returns those that were lent or withdrawn, as text.
    pub fn update(&mut self, now_ns: Nanos, lanes: impl IntoIterator<Item = (u32, LaneAccount)>) -> Vec<String> {
        self.due_ns = now_ns + UPDATE_NS;
        let mut before = std::mem::take(&mut self.lanes);
        let mut changed = Vec::new();
        for (cpu, account) in lanes {
            let mut offer = LaneOffer::default();
            if let Some(known) = before.remove(&cpu)
                && let Some(span) = account.since(&known.counted)
            {
                offer = known.offer;
                if offer.observe(span, account.objective) {
                    changed.push(describe(cpu, &offer));
                }
            }
            self.lanes.insert(cpu, OfferedLane { offer, counted: account.counted });
        }
        changed
    }

    /// Returns the offer of a lane; `None` if the lane is unknown.
    pub fn status(&self, cpu: u32) -> Option<OfferStatus> {
        let offer = &self.lanes.get(&cpu)?.offer;
        Some(OfferStatus {
            lent: offer.is_lent(),
            share_percent: percent(offer),
            withdrawn_because: offer.withdraw_reason().map(|why| why.to_string()),
        })
    }

    /// Returns each lane with its offer.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &LaneOffer)> {
        self.lanes.iter().map(|(cpu, lane)| (*cpu, &lane.offer))
    }
}

fn percent(offer: &LaneOffer) -> f64 {
    f64::from(offer.share_ppm()) / 1e4
}

fn describe(cpu: u32, offer: &LaneOffer) -> String {
    match offer.withdraw_reason() {
        None => {
            format!("lane {cpu} is lent: {:.0} % of it was open to batch in the last minute", percent(offer))
        }
        Some(why) => format!("lane {cpu} is withdrawn: {why}"),
    }
}

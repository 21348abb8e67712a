//! Offers of batch lanes to a scheduler of a cluster, updated every second from the account of each lane.

use std::collections::BTreeMap;

use sidelane_host::cpulist::CpuSet;
use sidelane_policy::Nanos;
use sidelane_policy::borrow::idle_threshold::IdleThreshold;
use sidelane_policy::offer::{LaneOffer, LaneSpan};
use sidelane_tracker::ledger::LedgerTimes;

use super::Agent;
use crate::discover::ServiceId;
use crate::tracked::AgentService;
use sidelane_lanes::status::OfferStatus;

/// Interval of updates of the offers.
const UPDATE_NS: Nanos = 1_000_000_000;

/// Offers of all batch lanes, by CPU.
#[derive(Debug, Default)]
pub(super) struct Offers {
    due_ns: Nanos,
    lanes: BTreeMap<u32, OfferedLane>,
}

/// Offer of one lane, with the counters at the last update.
#[derive(Debug)]
struct OfferedLane {
    offer: LaneOffer,
    counted: LaneCounters,
}

/// Counters of a lane and of the service beside it.
#[derive(Clone, Copy, Debug)]
struct LaneCounters {
    service: ServiceId,
    times: LedgerTimes,
    judged: u64,
    late: u64,
}

impl LaneCounters {
    /// Returns the account of the span since `earlier`; `None` if the counters have restarted since.
    fn since(&self, earlier: &Self, is_closed: bool) -> Option<LaneSpan> {
        let is_continued = self.service == earlier.service && self.times.all_ns() >= earlier.times.all_ns();
        let times = self.times.since(&earlier.times);
        is_continued.then(|| LaneSpan {
            all_ns: times.all_ns(),
            open_ns: times.open_ns(),
            judged: self.judged.saturating_sub(earlier.judged),
            late: self.late.saturating_sub(earlier.late),
            is_closed,
        })
    }
}

impl Offers {
    /// Returns the offer of a lane; `None` if the lane is unknown.
    pub(super) fn status(&self, cpu: u32) -> Option<OfferStatus> {
        let offer = &self.lanes.get(&cpu)?.offer;
        Some(OfferStatus {
            lent: offer.is_lent(),
            share_percent: f64::from(offer.share_ppm()) / 1e4,
            withdrawn_because: offer.withdraw_reason().map(|why| why.to_string()),
        })
    }

    /// Returns each lane with its offer.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &LaneOffer)> {
        self.lanes.iter().map(|(cpu, lane)| (*cpu, &lane.offer))
    }
}

impl Agent {
    /// Updates the offers of all batch lanes, if an update is due.
    pub(super) fn update_offers(&mut self, now_ns: Nanos) {
        if now_ns < self.offers.due_ns {
            return;
        }
        self.offers.due_ns = now_ns + UPDATE_NS;
        let withheld = self.withheld_lanes();
        let accounting = self.tracked.kept_lanes().next().map(|_| self.tracked.tracker().memory().accounting());
        let mut before = std::mem::take(&mut self.offers.lanes);
        let (mut lanes, mut changed) = (BTreeMap::new(), Vec::new());
        for (_, served) in self.tracked.services.iter() {
            let (Some(kept), Some(accounting)) = (&served.tracked.kept, &accounting) else { continue };
            let is_kept_off = self.is_kept_off(served);
            for cpu in kept.lanes.iter().map(|lane| lane.cpu) {
                let times = accounting.ledger(&CpuSet::from_iter([cpu])).times;
                let (in_time, late) = served.figures.all.judged_counts();
                let counted = LaneCounters { service: served.found.id, times, judged: in_time + late, late };
                let is_closed = is_kept_off || withheld.contains(cpu);
                let known =
                    before.remove(&cpu).and_then(|lane| Some((lane.offer, counted.since(&lane.counted, is_closed)?)));
                let mut offer = LaneOffer::default();
                if let Some((known, span)) = known {
                    offer = known;
                    if offer.observe(span, served.figures.objective) {
                        changed.push((cpu, offer));
                    }
                }
                lanes.insert(cpu, OfferedLane { offer, counted });
            }
        }
        self.offers.lanes = lanes;
        for (cpu, offer) in changed {
            let percent = f64::from(offer.share_ppm()) / 1e4;
            match offer.withdraw_reason() {
                None => self.log_note(
                    "offer",
                    &format!("lane {cpu} is lent: {percent:.0} % of it was open to batch in the last minute"),
                ),
                Some(why) => self.log_note("offer", &format!("lane {cpu} is withdrawn: {why}")),
            }
        }
    }

    /// Returns whether batch never gets the lanes beside a service, because it slows the service by more than the bound.
    fn is_kept_off(&self, served: &AgentService) -> bool {
        self.slowdown_of(served).is_some_and(|outcome| outcome.threshold == IdleThreshold::Never)
    }
}

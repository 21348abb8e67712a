//! Offer of the machine to its node of Slurm.

use sidelane_agent::status::Snapshot;
use sidelane_policy::offer::WithdrawReason;

/// Offer of all batch lanes of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offer {
    /// At least one lane is lent.
    Lent,
    /// All lanes are withdrawn, for this reason.
    Withdrawn(String),
    /// No lane has been judged, for this reason.
    Unknown(String),
}

impl Offer {
    /// Returns the offer that an agent's status contains.
    pub fn from_status(status: &Snapshot) -> Self {
        let offers: Vec<_> = status.lanes.iter().filter_map(|lane| lane.offer.as_ref()).collect();
        let start = WithdrawReason::Start.to_string();
        let mut reasons = offers.iter().filter_map(|offer| offer.withdrawn_because.as_ref());
        if offers.iter().any(|offer| offer.lent) {
            Self::Lent
        } else if let Some(reason) = reasons.find(|reason| **reason != start) {
            Self::Withdrawn(reason.clone())
        } else if offers.is_empty() {
            Self::Unknown("the agent has no service beside a lane".to_owned())
        } else {
            Self::Unknown(start)
        }
    }
}

#[cfg(test)]
mod tests {
    use sidelane_agent::status::{LaneStatus, OfferStatus};

    use super::*;

    fn offer(reasons: &[Option<WithdrawReason>]) -> Offer {
        let lane = |reason: &Option<WithdrawReason>| {
            let withdrawn_because = reason.map(|reason| reason.to_string());
            let offer = OfferStatus { lent: reason.is_none(), share_percent: 0.0, withdrawn_because };
            LaneStatus { offer: Some(offer), ..LaneStatus::default() }
        };
        let lanes = reasons.iter().map(lane).chain([LaneStatus::default()]).collect();
        Offer::from_status(&Snapshot { lanes, ..Snapshot::default() })
    }

    #[test]
    fn one_lent_lane_is_enough() {
        assert_eq!(offer(&[Some(WithdrawReason::Saturated), None]), Offer::Lent);
    }

    #[test]
    fn new_lanes_and_absent_lanes_are_unknown() {
        assert_eq!(offer(&[Some(WithdrawReason::Start)]), Offer::Unknown("the lane is new".into()));
        assert_eq!(offer(&[]), Offer::Unknown("the agent has no service beside a lane".into()));
    }

    #[test]
    fn reason_is_that_of_the_first_judged_lane() {
        let reasons = [Some(WithdrawReason::Start), Some(WithdrawReason::ObjectiveMissed)];
        assert_eq!(offer(&reasons), Offer::Withdrawn("the service misses its objective".into()));
    }
}

//! Decision what to do with the node, from the offer and the node's state.

use crate::offer::Offer;

/// Beginning of each reason that is given to Slurm. It tells own drains from those of administrators.
const OWN: &str = "sidelane: ";

/// State of a node of Slurm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeState {
    /// New jobs may start.
    Open,
    /// No new job starts, for this reason; `None` if none was given.
    Drained(Option<String>),
    /// Slurm has no contact with the node, or an administrator took it down.
    Down,
}

/// Change to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Let new jobs start.
    Resume,
    /// Let no new job start, with this reason.
    Drain(String),
    /// Put the running jobs back into the queue.
    Requeue,
}

/// Returns the changes, in their order.
pub fn decide(offer: &Offer, node: &NodeState) -> Vec<Action> {
    let (reason, is_needed_by_service) = match offer {
        Offer::Lent => return if is_own_drain(node) { vec![Action::Resume] } else { Vec::new() },
        Offer::Withdrawn(reason) => (reason, true),
        Offer::Unknown(reason) => (reason, false),
    };
    let drain = (*node == NodeState::Open).then(|| Action::Drain(format!("{OWN}{reason}")));
    drain.into_iter().chain(is_needed_by_service.then_some(Action::Requeue)).collect()
}

/// Returns whether the node is drained by this program, or by `State=DRAIN` in slurm.conf, which has no reason.
pub fn is_own_drain(node: &NodeState) -> bool {
    matches!(node, NodeState::Drained(reason) if reason.as_ref().is_none_or(|reason| reason.starts_with(OWN)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn withdrawn() -> Offer {
        Offer::Withdrawn("busy".into())
    }

    fn drained(reason: &str) -> NodeState {
        NodeState::Drained(Some(reason.into()))
    }

    fn own_drain() -> Action {
        Action::Drain("sidelane: busy".into())
    }

    #[test]
    fn nodes_drained_by_others_stay_drained() {
        assert_eq!(decide(&Offer::Lent, &drained("new disk")), []);
        assert_eq!(decide(&Offer::Lent, &drained("sidelane: busy")), [Action::Resume]);
        assert_eq!(decide(&Offer::Lent, &NodeState::Drained(None)), [Action::Resume]);
    }

    #[test]
    fn jobs_are_requeued_only_when_services_need_all_lanes() {
        assert_eq!(decide(&withdrawn(), &NodeState::Open), [own_drain(), Action::Requeue]);
        assert_eq!(decide(&withdrawn(), &drained("new disk")), [Action::Requeue]);
        assert_eq!(decide(&Offer::Lent, &NodeState::Open), []);
    }

    #[test]
    fn without_an_agent_no_job_starts_and_none_is_requeued() {
        let unknown = Offer::Unknown("busy".into());
        assert_eq!(decide(&unknown, &NodeState::Open), [own_drain()]);
        assert_eq!(decide(&unknown, &drained("sidelane: busy")), []);
    }

    #[test]
    fn node_that_is_down_is_not_changed() {
        assert_eq!(decide(&Offer::Lent, &NodeState::Down), []);
        assert_eq!(decide(&withdrawn(), &NodeState::Down), [Action::Requeue]);
    }
}

//! Loop that keeps the node equal to the offer.

use std::collections::BTreeSet;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Result;
use sidelane_agent::status::{SOCKET, read_snapshot};
use sidelane_report::terminal::{Level, eprint_fitted, eprint_with_level};

use crate::decision::{Action, NodeState, decide, is_own_drain};
use crate::node::{Node, requeue};
use crate::offer::Offer;

/// Interval of reads of the agent's status.
const READ_EVERY: Duration = Duration::from_secs(1);
/// Interval of checks of a node that should not have changed: `scontrol reconfigure` restores the state in slurm.conf.
const CHECK_EVERY: Duration = Duration::from_secs(10);

/// Follower of the offer.
struct Follower {
    node: Node,
    /// Offer that the node is equal to; `None` after a failure.
    done: Option<Offer>,
    /// Description of the node that was printed last.
    printed: Option<String>,
    /// Failure that was printed last.
    failure: Option<String>,
    /// Jobs that Slurm refused to requeue.
    refused: BTreeSet<String>,
}

/// Keeps the node equal to the agent's offer for ever.
pub fn follow(node: Node) -> ! {
    let mut follower = Follower { node, done: None, printed: None, failure: None, refused: BTreeSet::new() };
    let mut checked_at = Instant::now();
    loop {
        let offer = read_offer();
        if follower.done.as_ref() != Some(&offer) || checked_at.elapsed() >= CHECK_EVERY {
            checked_at = Instant::now();
            let changed = follower.change_node(&offer);
            follower.print_failure(changed.as_ref().err().map(|error| format!("{error:#}; it is tried again")));
            follower.done = changed.is_ok().then_some(offer);
        }
        sleep(READ_EVERY);
    }
}

/// Reads the offer of this machine's agent.
fn read_offer() -> Offer {
    match read_snapshot(Path::new(SOCKET)) {
        Ok(status) => Offer::from_status(&status),
        Err(error) => Offer::Unknown(format!("cannot read the agent's status at {SOCKET}: {error}")),
    }
}

impl Follower {
    fn change_node(&mut self, offer: &Offer) -> Result<()> {
        let state = self.node.state()?;
        for action in decide(offer, &state) {
            match action {
                Action::Resume => self.node.resume()?,
                Action::Drain(reason) => self.node.drain(&reason)?,
                Action::Requeue => self.requeue_jobs()?,
            }
        }
        let text = describe(offer, &state);
        if self.printed.as_ref() != Some(&text) {
            eprint_fitted(&format!("sidelane-slurm: {text}"));
            self.printed = Some(text);
        }
        Ok(())
    }

    fn requeue_jobs(&mut self) -> Result<()> {
        let jobs = self.node.jobs()?;
        self.refused.retain(|job| jobs.contains(job));
        for job in jobs {
            match requeue(&job) {
                Ok(()) => eprint_fitted(&format!("sidelane-slurm: job {job} is requeued")),
                Err(error) => {
                    if self.refused.insert(job.clone()) {
                        warn(&format!(
                            "cannot requeue job {job}: {error:#}; it stays, and is held while the service needs the \
                             core; submit jobs with sbatch --requeue"
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    fn print_failure(&mut self, failure: Option<String>) {
        if self.failure != failure {
            if let Some(failure) = &failure {
                warn(failure);
            }
            self.failure = failure;
        }
    }
}

/// Describes what a node with this state has become by this offer.
fn describe(offer: &Offer, before: &NodeState) -> String {
    match (offer, before) {
        (Offer::Lent, NodeState::Drained(Some(reason))) if !is_own_drain(before) => format!(
            "a lane is lent, but the node stays drained: {reason}; let jobs start with `scontrol update NodeName=NODE \
             State=RESUME`"
        ),
        (_, NodeState::Down) => "the node is down; see `sinfo --list-reasons`".to_owned(),
        (Offer::Lent, _) => "the node is open: a lane is lent".to_owned(),
        (Offer::Withdrawn(reason) | Offer::Unknown(reason), _) => format!("the node is drained: {reason}"),
    }
}

fn warn(text: &str) {
    eprint_with_level(Level::Warning, &format!("sidelane-slurm: {text}"));
}

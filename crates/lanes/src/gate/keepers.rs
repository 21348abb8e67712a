//! Starts the keepers of all batch lanes.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use anyhow::{Context, Result};
use sidelane_policy::borrow::Lending;

use super::super::confinement::BatchConfinement;
use super::super::decider::Means;
use super::super::holder::Holder;
use super::{Gate, LaneKeeper};
use crate::gate::sched_ext::{ExtKeeper, Successor};
use crate::log::LaneAudit;
use sidelane_host::procfs::allowed_cpus;
use sidelane_host::topology::{BatchLane, Lanes};
use sidelane_tracker::scheduler::Scheduler;
use sidelane_tracker::summons::SummonsRing;
use sidelane_tracker::tracker::Tracker;

/// Resources that every keeper by batch's scheduler needs.
#[derive(Clone)]
struct Outfit {
    means: Means,
    confinement: Arc<BatchConfinement>,
    lending: Lending,
}

/// Starts a holder for each batch lane.
pub fn hold(lanes: &Lanes, tracker: &Tracker, lending: Lending, means: &Means) -> Result<Vec<LaneKeeper>> {
    let start =
        |lane: &BatchLane| Ok(LaneKeeper::Holder(holder(lane, tracker.ring(lane.cpu)?, lending, means.clone())?));
    lanes.batch.iter().map(start).collect::<io::Result<_>>().context(NO_HOLDER)
}

/// Lets lanes be held again that the service visited and may not run on any more. `processes` are those of the service.
/// If there are none, nothing is done, because the service's CPUs are unknown.
pub fn let_visitors_go<'a>(keepers: impl Iterator<Item = &'a LaneKeeper>, processes: &BTreeSet<u32>) {
    if processes.is_empty() {
        return;
    }
    let allowed = allowed_cpus(processes);
    keepers.filter(|keeper| !allowed.contains(keeper.cpu())).for_each(LaneKeeper::visitors_gone);
}

fn holder(lane: &BatchLane, ring: SummonsRing, lending: Lending, means: Means) -> io::Result<Holder> {
    let policy = lending.policy.policy(lending.config);
    let Means { memory, evictor, audit } = means;
    Holder::start(lane.clone(), memory, ring, policy, evictor, audit)
}

/// Starts a keeper for each batch lane, and batch's scheduler if the gate uses one.
pub fn start(
    gate: &Gate,
    lanes: &Lanes,
    tracker: &Tracker,
    confinement: &Arc<BatchConfinement>,
    lending: Lending,
    audit: &LaneAudit,
) -> Result<(Vec<LaneKeeper>, Option<Scheduler>)> {
    let means = Means { memory: tracker.memory(), evictor: Arc::clone(confinement) as _, audit: audit.clone() };
    let lending = if *gate == Gate::Freezer { lending.evicting_at_once() } else { lending };
    let outfit = Outfit { means, confinement: Arc::clone(confinement), lending };
    match gate {
        Gate::CoreSched | Gate::SchedIdle => Ok((Vec::new(), None)),
        Gate::Holder | Gate::Instrumented { .. } | Gate::Freezer => {
            Ok((hold(lanes, tracker, lending, &outfit.means)?, None))
        }
        Gate::SchedExt => {
            let scheduler = Scheduler::start(tracker)?;
            let start = |lane| outfit.keep_by(&scheduler, tracker, lane).map(LaneKeeper::SchedExt);
            let keepers = lanes.batch.iter().map(start).collect::<io::Result<_>>().context(
                "cannot start the threads \
                                                                                            that keep the batch lanes",
            )?;
            Ok((keepers, Some(scheduler)))
        }
    }
}

const NO_HOLDER: &str = "cannot hold the batch lanes: SCHED_FIFO is refused; run as root, or grant CAP_SYS_NICE and a \
                         real-time limit, and in a group of cgroup v1 time in its cpu.rt_runtime_us";

impl Outfit {
    fn keep_by(&self, scheduler: &Scheduler, tracker: &Tracker, lane: &BatchLane) -> io::Result<ExtKeeper> {
        let policy = self.lending.policy.policy(ExtKeeper::CONFIG);
        let succeed = self.successor(lane, tracker.ring(lane.cpu)?);
        ExtKeeper::start(lane, self.means.clone(), tracker.ring(lane.cpu)?, scheduler.orders(), policy, succeed)
    }

    /// Returns the function that starts a holder in place of the scheduler, and moves batch to the class that holders
    /// need.
    fn successor(&self, lane: &BatchLane, ring: SummonsRing) -> Successor {
        let (outfit, lane) = (self.clone(), lane.clone());
        Box::new(move || {
            let holder = holder(&lane, ring, outfit.lending, outfit.means.clone());
            outfit.confinement.make_idle();
            holder
        })
    }
}

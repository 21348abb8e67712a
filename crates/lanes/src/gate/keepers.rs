//! Starts the keepers of all batch lanes.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use anyhow::{Context, Result};
use sidelane_policy::borrow::Lending;

use super::super::confinement::BatchConfinement;
use super::super::decider::KeeperResources;
use super::super::holder::Holder;
use super::{Gate, LaneKeeper};
use crate::gate::sched_ext::{ExtKeeper, HolderStarter};
use crate::log::LaneAudit;
use sidelane_host::procfs::allowed_cpus;
use sidelane_host::topology::{BatchLane, Lanes};
use sidelane_tracker::scheduler::Scheduler;
use sidelane_tracker::summons::SummonsRing;
use sidelane_tracker::tracker::Tracker;

/// Resources for each keeper of a lane if batch has a scheduler of its own (sched_ext).
#[derive(Clone)]
struct KeeperSetup {
    means: KeeperResources,
    confinement: Arc<BatchConfinement>,
    lending: Lending,
}

/// Starts a holder for each batch lane.
pub fn start_holders(
    lanes: &Lanes,
    tracker: &Tracker,
    lending: Lending,
    resources: &KeeperResources,
) -> Result<Vec<LaneKeeper>> {
    let start = |lane: &BatchLane| {
        Ok(LaneKeeper::Holder(start_holder(lane, tracker.summons_ring(lane.cpu)?, lending, resources.clone())?))
    };
    lanes.batch.iter().map(start).collect::<io::Result<_>>().context(NO_HOLDER)
}

/// Lets lanes be held again that the service visited and may not run on any more. Does nothing if `service_pids` is
/// empty, because the service's CPUs are unknown then.
pub fn acknowledge_departed_visitors<'a>(keepers: impl Iterator<Item = &'a LaneKeeper>, service_pids: &BTreeSet<u32>) {
    if service_pids.is_empty() {
        return;
    }
    let allowed = allowed_cpus(service_pids);
    keepers.filter(|keeper| !allowed.contains(keeper.cpu())).for_each(LaneKeeper::acknowledge_visitors_gone);
}

fn start_holder(
    lane: &BatchLane,
    ring: SummonsRing,
    lending: Lending,
    resources: KeeperResources,
) -> io::Result<Holder> {
    let policy = lending.policy.policy(lending.config);
    let KeeperResources { memory, evictor, audit } = resources;
    Holder::start(lane.clone(), memory, ring, policy, evictor, audit)
}

/// Starts a keeper for each batch lane, and batch's scheduler if the gate uses one.
pub fn start_keepers(
    gate: &Gate,
    lanes: &Lanes,
    tracker: &Tracker,
    confinement: &Arc<BatchConfinement>,
    lending: Lending,
    audit: &LaneAudit,
) -> Result<(Vec<LaneKeeper>, Option<Scheduler>)> {
    let means =
        KeeperResources { memory: tracker.memory(), evictor: Arc::clone(confinement) as _, audit: audit.clone() };
    let lending = if *gate == Gate::Freezer { lending.evicting_at_once() } else { lending };
    let outfit = KeeperSetup { means, confinement: Arc::clone(confinement), lending };
    match gate {
        Gate::CoreSched | Gate::SchedIdle => Ok((Vec::new(), None)),
        Gate::Holder | Gate::Instrumented { .. } | Gate::Freezer => {
            Ok((start_holders(lanes, tracker, lending, &outfit.means)?, None))
        }
        Gate::SchedExt => {
            let scheduler = Scheduler::start(tracker)?;
            let start = |lane| outfit.start_ext_keeper(&scheduler, tracker, lane).map(LaneKeeper::SchedExt);
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

impl KeeperSetup {
    fn start_ext_keeper(&self, scheduler: &Scheduler, tracker: &Tracker, lane: &BatchLane) -> io::Result<ExtKeeper> {
        let policy = self.lending.policy.policy(ExtKeeper::CONFIG);
        let succeed = self.holder_starter(lane, tracker.summons_ring(lane.cpu)?);
        ExtKeeper::start(lane, self.means.clone(), tracker.summons_ring(lane.cpu)?, scheduler.orders(), policy, succeed)
    }

    /// Returns the function that starts a holder in place of the scheduler, and moves batch to the class that holders
    /// need.
    fn holder_starter(&self, lane: &BatchLane, ring: SummonsRing) -> HolderStarter {
        let (outfit, lane) = (self.clone(), lane.clone());
        Box::new(move || {
            let holder = start_holder(&lane, ring, outfit.lending, outfit.means.clone());
            outfit.confinement.move_to_sched_idle();
            holder
        })
    }
}

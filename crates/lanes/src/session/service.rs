//! One service of a session: the purpose for which it is tracked, and its confinement to its request lanes
//! (`--pin-service`).

use std::collections::BTreeSet;
use std::rc::Rc;

use anyhow::{Context, Result};
use sidelane_host::cpulist::CpuSet;
use sidelane_policy::borrow::contention_cost::ContentionCostSource;

use super::start::SessionOptions;
use crate::lending_limits::FinalLendingLimits;
use crate::note::LaneNote;
use crate::placement::Placement;
use crate::service::{ServiceRequests, TrackedService, emitted_request_source};
use sidelane_diagnostics::note::Note;
use sidelane_requests::RequestNote;
use sidelane_requests::emitted::Emitters;
use sidelane_requests::{RequestSource, Requests, can_track, unobserved_socket_note};
use sidelane_rollback::guardian::Guardian;
use sidelane_rollback::threads::{ThreadOwner, Threads};
use sidelane_tracker::counters::EventPair;
use sidelane_tracker::tracker::{Extension, LaneLending, Purpose, Tracker};
use sidelane_tracker::tracking::{LaneUse, ServiceTracking};

/// Service that was found, with the purpose for which it is to be tracked.
pub(super) struct PendingService {
    placement: Placement,
    emitters: Option<Emitters>,
    lane_use: LaneUse,
    requests: RequestPurpose,
}

/// Purpose for which the requests of a service are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestPurpose {
    /// No purpose: requests are not wanted.
    No,
    /// Measurement of the requests' slowdown by batch. The session works without them.
    ForTheirSlowdown,
    /// Policy that lends lanes by requests.
    ForThePolicy,
}

impl PendingService {
    pub(super) fn new(placement: Placement, options: &SessionOptions) -> Self {
        let lending = options.hold;
        let requests = match lending {
            Some(lending) if lending.policy.needs_requests() => RequestPurpose::ForThePolicy,
            _ if options.max_slowdown.is_some() => RequestPurpose::ForTheirSlowdown,
            _ => RequestPurpose::No,
        };
        // Emitted requests are more exact than those seen at sockets.
        let emitters = (requests != RequestPurpose::No).then(|| Emitters::find(&placement.service.pids)).flatten();
        let counting = lending.filter(|lending| lending.policy.needs_contention_cost());
        let lane_use = LaneUse {
            lends_to_waited: lending.is_some_and(|lending| !lending.policy.spares_waited_requests()),
            ..counting.map_or_else(LaneUse::default, |_| LaneUse::with_counters(EventPair::HARDWARE, &placement.lanes))
        };
        Self { placement, emitters, lane_use, requests }
    }

    fn is_seen_at_sockets(&self) -> bool {
        self.requests != RequestPurpose::No && self.emitters.is_none()
    }

    fn has_emitters_for_policy(&self) -> bool {
        self.requests == RequestPurpose::ForThePolicy && self.emitters.is_some()
    }

    /// Loads one tracker for all services of a session.
    pub(super) fn load_tracker(
        services: &[Self],
        options: &SessionOptions,
        with_scheduler: bool,
    ) -> Result<Rc<Tracker>> {
        let any = |needs: &dyn Fn(&Self) -> bool| services.iter().any(needs);
        let can_track = can_track();
        let requests = any(&Self::is_seen_at_sockets) && can_track.is_ok();
        let lent = LaneLending {
            turns: any(&Self::has_emitters_for_policy),
            counters: any(&|service| matches!(service.lane_use.counters, Some(Ok(_)))),
            self_checking: options.gate.is_instrumented(),
            single_places: services.iter().all(|service| service.placement.has_one_cpu_per_thread()),
            extension: with_scheduler.then_some(Extension::Scheduler),
        };
        let groups = any(&|service| service.placement.service.group.is_some());
        if any(&|service| service.is_seen_at_sockets() && service.requests == RequestPurpose::ForThePolicy) {
            can_track?;
        }
        Ok(Rc::new(Tracker::load(Purpose::Lend { requests, lent }, groups)?))
    }

    /// Begins to track the service.
    pub(super) fn track(self, tracker: &Rc<Tracker>) -> Result<SessionService> {
        let Self { placement, emitters, lane_use, requests } = self;
        let tracking = ServiceTracking::start(tracker, &placement.service, &placement.lanes, lane_use)?;
        let name = placement.target.to_string();
        let requests = match (emitters, requests) {
            (_, RequestPurpose::No) => ServiceRequests::default(),
            (Some(emitters), _) => ServiceRequests {
                source: Some(emitted_request_source(emitters, &tracking)),
                ..ServiceRequests::default()
            },
            (None, wanted) => {
                let track = || Requests::track(&tracking, &name, &placement.service.pids);
                let found = can_track().and_then(|()| track()).map(RequestSource::Sockets);
                if wanted == RequestPurpose::ForThePolicy {
                    ServiceRequests { source: Some(found?), ..ServiceRequests::default() }
                } else {
                    let why_not = found.as_ref().err().map(ToString::to_string);
                    ServiceRequests { source: found.ok(), unseen_reason: why_not, ..ServiceRequests::default() }
                }
            }
        };
        Ok(SessionService { tracked: TrackedService::new(name, tracking, requests), placement, pinned: None })
    }
}

/// A service of a session.
pub(super) struct SessionService {
    pub(super) tracked: TrackedService,
    pub(super) placement: Placement,
    /// Confinement of the service to its request lanes, if the user asked for it.
    pinned: Option<PinnedService>,
}

impl SessionService {
    /// Returns the processes whose threads will be confined.
    pub(super) fn pids_to_pin(&self) -> Vec<u32> {
        if self.placement.pin_service { self.tracked.tracking.processes() } else { Vec::new() }
    }

    /// Confines the service to its request lanes, if the user asked for it.
    pub(super) fn pin(&mut self, guardian: &mut Guardian) -> Result<()> {
        if self.placement.pin_service {
            let group = self.placement.service.group.as_ref().map(|group| group.dir.clone());
            let whose = ThreadOwner { pids: self.tracked.tracking.processes(), group };
            self.pinned =
                Some(PinnedService::confine_service(whose, self.placement.lanes.request_lanes.clone(), guardian)?);
        }
        Ok(())
    }

    /// Takes in the present processes of the service, so that new ones get their settings back too. A service that was
    /// restarted is confined anew.
    pub(super) fn update_pinned(&mut self, pids: &BTreeSet<u32>, guardian: &mut Guardian) -> Result<()> {
        match &mut self.pinned {
            Some(pinned) if pinned.has_any_of(pids) => pinned.update_processes(pids, guardian),
            Some(_) if !pids.is_empty() => self.pin(guardian),
            _ => Ok(()),
        }
    }

    /// Confines the service again after its threads were moved, if the user asked for it.
    pub(super) fn repin_moved_threads(&mut self, guardian: &mut Guardian) -> Result<()> {
        self.pinned.as_mut().map_or(Ok(()), |pinned| pinned.confine_moved_threads(guardian))
    }

    /// Returns notes on the service's requests: lost requests, requests that were not distinguished, and reasons why
    /// requests could not be seen or why contention cost comes from server times.
    pub(super) fn notes(&mut self) -> Vec<Note> {
        let TrackedService { kept, name, tracking, requests } = &mut self.tracked;
        let why = requests.unseen_reason.as_ref();
        let unseen = why.map(|why| LaneNote::CostUnknown { service: name.clone(), why: why.clone() });
        let limits = kept.as_ref().map(|kept| kept.limits.present_limits());
        let contention_cost = limits.as_ref().and_then(|limits| contention_cost_note(tracking, limits));
        let window = requests.source.as_mut().map(RequestSource::take_window).unwrap_or_default();
        let events = window.counts.dropped;
        let lost = (events > 0).then_some(LaneNote::RequestEventsLost { events });
        // Unless the policy lends by requests, a part of a connection's requests is not distinguished. No note is
        // needed for that.
        let lends_by_requests = limits.is_some_and(|limits| limits.lending.policy.needs_requests());
        let source = requests.source.as_ref().filter(|_| window.answered_count() > 0).map(RequestSource::kind);
        let vague =
            window.notes().chain(source.and_then(|source| source.explanation_note())).filter(|_| lends_by_requests);
        let vague = vague.chain(self.other_endpoint_note()).map(Note::from);
        lost.into_iter().chain(contention_cost).chain(unseen).map(Note::from).chain(vague).collect()
    }

    /// Returns another place where the service may take requests, if its sockets are observed.
    fn other_endpoint_note(&self) -> Option<RequestNote> {
        let TrackedService { name, tracking, requests, .. } = &self.tracked;
        let at_sockets = matches!(requests.source, Some(RequestSource::Sockets(_)));
        at_sockets.then(|| unobserved_socket_note(name, &self.tracked.processes(), tracking.port())).flatten()
    }
}

fn contention_cost_note(tracking: &ServiceTracking, limits: &FinalLendingLimits) -> Option<LaneNote> {
    if limits.source != ContentionCostSource::ServerTimes {
        return None;
    }
    Some(match tracking.counter_status()? {
        Err(lack) => LaneNote::ContentionCostWithoutCounters { cpu: lack.cpu, error: lack.source.to_string() },
        Ok(()) => LaneNote::ContentionCostCountedTooRarely,
    })
}

/// Threads of a service on its request lanes, with the CPUs that each gets back. A thread created by one of them
/// inherits its affinity, and gets back the CPUs that its parent had.
struct PinnedService {
    threads: Threads,
    whose: ThreadOwner,
    cpus: CpuSet,
}

impl PinnedService {
    /// Confines the service, after telling the guardian.
    fn confine_service(owner: ThreadOwner, cpus: CpuSet, guardian: &mut Guardian) -> Result<Self> {
        let mut threads = Threads::record(&owner, guardian)?;
        let confined = threads.confine(|| owner.clone(), &cpus, guardian);
        confined.with_context(|| format!("cannot confine the service to CPUs {cpus}"))?;
        Ok(Self { threads, whose: owner, cpus })
    }

    /// Returns whether any of these processes belonged to the service at the last check.
    fn has_any_of(&self, pids: &BTreeSet<u32>) -> bool {
        self.whose.pids.iter().any(|pid| pids.contains(pid))
    }

    /// Takes in the present processes of the service, which are descendants of confined ones.
    fn update_processes(&mut self, pids: &BTreeSet<u32>, guardian: &mut Guardian) -> Result<()> {
        if pids.iter().eq(&self.whose.pids) {
            return Ok(());
        }
        self.whose.pids = pids.iter().copied().collect();
        self.threads.set_owner(&self.whose, guardian)
    }

    /// Confines threads again that their owner has moved. At the end they get back the CPUs that the owner gave them
    /// last.
    fn confine_moved_threads(&mut self, guardian: &mut Guardian) -> Result<()> {
        let kept = self.threads.reconfine_strays(|| self.whose.clone(), guardian).map(drop);
        kept.with_context(|| format!("cannot confine the service to CPUs {}", self.cpus))
    }
}

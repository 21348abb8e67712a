//! Collects the status that the agent reports.

use sidelane_host::clock::now_ns;
use sidelane_policy::borrow::promise::BOUND_PPM;

use super::Agent;
use crate::owners::{Owner, Resource};
use crate::self_usage::resident_bytes;
use crate::status::{
    AgentStatus, ContainerStatus, CpuStatus, DecisionCount, IdleTimeStatus, LaneStatus, NoteStatus, OfferStatus,
    OverlapStatus, RequestStatus, ServiceStatus, SlowdownStatus, Snapshot,
};
use crate::tracked::{AgentService, TrackedContainer};
use sidelane_diagnostics::audit::AuditLog;
use sidelane_host::cpulist::CpuSet;
use sidelane_lanes::kept_lanes::KeptLanes;
use sidelane_lanes::promise::bound_percent;
use sidelane_requests::objective;
use sidelane_rollback::cpu_mask::to_cpu_set;
use sidelane_tracker::accounting::Accounting;

impl Agent {
    pub(super) fn snapshot(&self) -> Snapshot {
        let decisions = self.stats.decisions.iter();
        let decisions = decisions.map(|((action, why), count)| DecisionCount {
            action: (*action).to_owned(),
            why: why.to_string(),
            count: *count,
        });
        let memory = self.tracked.tracker().memory();
        let has_lanes =
            self.tracked.services.iter().any(|(_, served)| !served.tracked.tracking.lanes().batch.is_empty());
        let accounting = has_lanes.then(|| memory.accounting());
        let (services, accounting) = (&self.tracked.services, accounting.as_ref());
        let lanes_of = |accounting| {
            let lanes = services.iter().flat_map(|(_, served)| {
                let (kept, tracked) = (served.tracked.kept.as_ref(), served.tracked.tracking.lanes());
                let lanes = kept.map_or((&tracked.request_lanes, &tracked.batch[..]), |kept| {
                    (&kept.request_lanes, &kept.lanes[..])
                });
                LaneStatus::of_service(&served.found.name, lanes, kept, accounting)
            });
            lanes.map(|lane| LaneStatus { offer: self.offer_of(lane.cpu), ..lane }).collect()
        };
        let notes = self.stats.notes.iter().map(|(note, times)| NoteStatus { note: note.to_string(), times: *times });
        Snapshot {
            agent: self.own_status(),
            cpus: self.usable.iter().chain(self.cpus_claimed_elsewhere()).map(|cpu| self.cpu_status(cpu)).collect(),
            lanes: accounting.map(lanes_of).unwrap_or_default(),
            services: services.iter().map(|(place, served)| self.service_status(place, served, accounting)).collect(),
            containers: self.tracked.containers.iter().map(|(_, contained)| container_status(contained)).collect(),
            proxies: self.proxies.status(),
            flights: self.flights.status(),
            hurries: self.hurries.status(),
            decisions: decisions.collect(),
            last_decisions: self.stats.last.status(now_ns()),
            notes: notes.collect(),
            unmatched_rules: self.unmatched_rules(),
            ..Snapshot::default()
        }
    }

    fn offer_of(&self, cpu: u32) -> Option<OfferStatus> {
        self.lent.as_ref()?.offers.status(cpu)
    }

    fn own_status(&self) -> AgentStatus {
        let audit = self.log.as_ref().map(AuditLog::state);
        AgentStatus {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            config: self.options.config.display().to_string(),
            uptime_s: (now_ns() - self.times.began_ns) as f64 / 1e9,
            policy: self.config.policy.kind.name().to_owned(),
            metric: self.interference.text(),
            threshold: self.interference_threshold(),
            why: self.stats.why.to_string(),
            repaired: self.stats.repaired,
            reactions_count: self.stats.reaction.count(),
            reaction_p50_ns: self.stats.reaction.percentile_ns(50.0),
            reaction_p99_ns: self.stats.reaction.percentile_ns(99.0),
            cpu_percent: self.usage.recent_cpu_share().map(|share| share * 100.0),
            cpu_s: self.usage.cpu_ns() as f64 / 1e9,
            resident_bytes: resident_bytes(),
            audit_lost_lines: audit.as_ref().map(|audit| audit.lost_lines),
            audit_error: audit.and_then(|audit| audit.error),
            run: None,
        }
    }

    /// Returns the lanes beside a service that have a keeper or are observed; `None` if there are none.
    pub(super) fn lanes_with_ledger(&self, served: &AgentService) -> Option<CpuSet> {
        let observed = || self.observers.as_ref().map(|_| served.tracked.tracking.lanes().batch_cpus());
        served.tracked.kept.as_ref().map(KeptLanes::lanes_with_keepers).or_else(observed)
    }

    /// Returns the CPUs that another Sidelane process has claimed.
    fn cpus_claimed_elsewhere(&self) -> impl Iterator<Item = u32> {
        self.owners.iter().filter_map(|(thing, owner)| match (thing, owner) {
            (Resource::Cpu(cpu), Owner::Run(_)) => Some(*cpu),
            _ => None,
        })
    }

    fn cpu_status(&self, cpu: u32) -> CpuStatus {
        let span = self.slow.span();
        let percent = |part_ns: u64| span.share_of_time(part_ns) * 100.0;
        let shares = span.shares_on(cpu as usize).copied().unwrap_or_default();
        let may_run = |contained: &TrackedContainer| contained.cpus().contains(cpu as usize);
        CpuStatus {
            cpu,
            owner: self.owners.owner_of(&Resource::Cpu(cpu)).map_or_else(|| "none".to_owned(), ToString::to_string),
            containers_count: self.tracked.containers.iter().filter(|(_, contained)| may_run(contained)).count(),
            reserved: self.here.reserved.contains(cpu),
            busy_percent: percent(shares.all_ns() - shares.idle_ns),
            service_percent: percent(shares.services_ns()),
            batch_percent: percent(shares.batch_ns()),
            interference: self.interference.read(cpu),
        }
    }

    fn service_status(&self, slot: usize, served: &AgentService, accounting: Option<&Accounting>) -> ServiceStatus {
        let is_placed = self.actuator.as_ref().is_none_or(|actuator| actuator.is_placed(slot));
        let (span, identity) = (self.slow.span(), served.tracked.tracking.identity());
        let ran_on = span.cpus_used_by(identity);
        let values = ran_on.iter().filter_map(|cpu| self.interference.read(cpu as u32));
        let ran_ns = span.cpu_time_ns(identity);
        ServiceStatus {
            name: served.found.name.clone(),
            ran_on: ran_on.to_string(),
            allowed: served.allowed.to_string(),
            placed: served.placed.filter(|_| is_placed).map(|cpus| cpus.to_string()),
            used_percent: if span.length_ns == 0 { 0.0 } else { ran_ns as f64 * 100.0 / span.length_ns as f64 },
            interference: values.reduce(f64::max),
            requests: served.why_no_request_figures().is_none().then(|| request_status(served)),
            requests_missing: served.why_no_request_figures().map(str::to_owned),
            slowdown: self.slowdown_of(served).map(SlowdownStatus::from),
            overlap: served.tracked.kept.as_ref().map(|kept| OverlapStatus {
                percent: kept.overlap.recent().share_ppm().map(|ppm| f64::from(ppm) / 1e4),
                bound_percent: bound_percent(BOUND_PPM),
                broken: self.promises.broken_promise_to(&served.found.name).map(ToString::to_string),
            }),
            idle_time: self.lanes_with_ledger(served).and_then(|lanes| IdleTimeStatus::of_lanes(&lanes, accounting?)),
            observed: self.observers.as_ref().and_then(|observers| observers.status(served)),
        }
    }
}

fn request_status(served: &AgentService) -> RequestStatus {
    let (all, objective) = (&served.figures.all, served.figures.objective);
    RequestStatus {
        count: all.count(),
        latency_p50_ns: all.latency.percentile_ns(50.0),
        latency_p99_ns: all.latency.percentile_ns(99.0),
        slo: objective.map(objective::format_objective),
        in_time_percent: objective.and(all.attainment()).map(|share| share * 100.0),
        lost: served.figures.lost,
    }
}

fn container_status(contained: &TrackedContainer) -> ContainerStatus {
    let container = &contained.container;
    ContainerStatus {
        name: container.name.clone(),
        state: contained.given.text().to_owned(),
        cpus: to_cpu_set(&contained.cpus()).to_string(),
        allowed: contained.allowed.to_string(),
        wanted: container.cpu_demand.cpus,
        wanted_from: container.cpu_demand.from.to_string(),
        priority: container.priority,
        cgroup: container.id.path.clone(),
        cpu_ns: None,
    }
}

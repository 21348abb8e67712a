//! The status that a run reports, in the form of the agent's status.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sidelane_host::clock::now_ns;
use sidelane_host::topology::Lanes;
use sidelane_policy::borrow::Budget;
use sidelane_policy::borrow::promise::BOUND_PPM;
use sidelane_policy::borrow::slowdown::Side;
use sidelane_requests::objective;
use sidelane_tracker::accounting::Accounting;

use super::Session;
use super::service::SessionService;
use super::start::BatchRequest;
use crate::promise::bound_percent;
use crate::status::{
    DecisionStatus, IdleTimeStatus, LaneStatus, OverlapStatus, RequestStatus, ServiceStatus, SlowdownStatus,
};
use crate::status_socket::StatusSocket;

/// Number of the last notes that are reported as decisions.
const LAST_NOTES: usize = 32;

/// Socket of a run's status, with what does not change during the run.
pub(super) struct RunStatus {
    socket: StatusSocket,
    /// Batch, as text.
    batch: String,
    pub(super) began_ns: u64,
    /// Last notes, with their times.
    pub(super) last_notes: Vec<(u64, String)>,
}

impl RunStatus {
    /// Opens the socket at `path`.
    pub(super) fn open(path: &Path, batch: String) -> Result<Self> {
        let socket = StatusSocket::open(path)
            .with_context(|| format!("cannot listen at {}; check that /run is writable", path.display()))?;
        Ok(Self { socket, batch, began_ns: now_ns(), last_notes: Vec::new() })
    }

    /// Keeps a note.
    pub(super) fn add_note(&mut self, note: String) {
        if self.last_notes.len() == LAST_NOTES {
            self.last_notes.remove(0);
        }
        self.last_notes.push((now_ns(), note));
    }
}

/// Returns batch as text: its command, or the name that the user gave it.
pub(super) fn batch_text(batch: &BatchRequest<'_>) -> String {
    match batch {
        BatchRequest::Command(command) => {
            command.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
        }
        BatchRequest::Adoptee(adoptee) => adoptee.target.to_string(),
    }
}

impl Session {
    /// Returns the socket at which clients ask for the status.
    pub fn status_socket(&self) -> &StatusSocket {
        &self.status.socket
    }

    /// Answers all clients that wait for the status.
    pub fn answer_status_clients(&self) {
        self.status.socket.answer_clients(|_| serde_json::to_vec(&self.status()).unwrap_or_default());
    }

    fn status(&self) -> Value {
        let (memory, now_ns) = (self.memory(), now_ns());
        let accounting = memory.accounting();
        let since_start = accounting.since(&self.began);
        let blocked = self.blocked_time_and_reason().map(|(_, why)| why.to_string());
        let kept = self.services.iter().filter_map(|one| Some((&one.tracked.name, one.tracked.kept.as_ref()?)));
        let lanes: Vec<LaneStatus> = kept
            .flat_map(|(name, kept)| {
                LaneStatus::of_service(name, (&kept.request_lanes, &kept.lanes), Some(kept), &accounting)
            })
            .collect();
        let services = self.services.iter().enumerate();
        let services: Vec<ServiceStatus> =
            services.map(|(index, one)| self.service_status(index, one, (&accounting, &since_start))).collect();
        let decision = |(at_ns, note): &(u64, String)| DecisionStatus {
            ago_s: now_ns.saturating_sub(*at_ns) as f64 / 1e9,
            action: note.clone(),
            why: String::new(),
        };
        let last_decisions: Vec<DecisionStatus> = self.status.last_notes.iter().map(decision).collect();
        let policy = self.services[0].tracked.kept.as_ref().map(|kept| kept.limits.policy().name());
        let command: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
        json!({
            "agent": {
                "pid": std::process::id(),
                "version": env!("CARGO_PKG_VERSION"),
                "config": command.join(" "),
                "uptime_s": now_ns.saturating_sub(self.status.began_ns) as f64 / 1e9,
                "policy": policy.unwrap_or("none"),
                "why": blocked.as_deref().unwrap_or("batch may run"),
                "run": self.status.batch,
            },
            "lanes": lanes,
            "services": services,
            "containers": [{
                "name": self.status.batch,
                "state": if blocked.is_some() { "kept off" } else { "running" },
                "cpus": self.lanes.batch_cpus().to_string(),
                "wanted_cpus": self.lanes.batch.len(),
                "cpu_ns": since_start.batch_ns(&self.lanes),
            }],
            "last_decisions": last_decisions,
        })
    }

    fn service_status(
        &self,
        index: usize,
        service: &SessionService,
        (accounting, since_start): (&Accounting, &Accounting),
    ) -> ServiceStatus {
        let lanes: &Lanes = &service.placement.lanes;
        let kept = service.tracked.kept.as_ref();
        let slowdown = self.slowdown.as_ref().and_then(|slowdown| slowdown.outcome(index as u64));
        let slo = kept.and_then(|kept| match kept.limits.budget() {
            Budget::Slo(slo) => Some(objective::format_objective(slo)),
            _ => None,
        });
        let requests = slowdown.as_ref().map(|slowdown| RequestStatus {
            count: slowdown.whole.requests(Side::Beside) + slowdown.whole.requests(Side::Apart),
            latency_p50_ns: slowdown.whole.percentile_ns(Side::Beside, 50.0),
            latency_p99_ns: slowdown.whole.percentile_ns(Side::Beside, 99.0),
            slo,
            ..RequestStatus::default()
        });
        ServiceStatus {
            name: service.tracked.name.clone(),
            ran_on: lanes.request_lanes.to_string(),
            allowed: lanes.request_lanes.to_string(),
            used_percent: since_start.service_ns(lanes) as f64 * 100.0 / since_start.at_ns.max(1) as f64,
            requests,
            slowdown: slowdown.map(SlowdownStatus::from),
            overlap: kept.map(|kept| OverlapStatus {
                percent: kept.overlap.recent().share_ppm().map(|ppm| f64::from(ppm) / 1e4),
                bound_percent: bound_percent(BOUND_PPM),
                broken: None,
            }),
            idle_time: kept.and_then(|kept| IdleTimeStatus::of_lanes(&kept.lanes_with_keepers(), accounting)),
            ..ServiceStatus::default()
        }
    }
}

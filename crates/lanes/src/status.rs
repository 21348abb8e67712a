//! Status of services, lanes and batch at one moment, as `run` and the agent report it to `sidelane status` and
//! `sidelane top`.

use serde::{Deserialize, Serialize};
use sidelane_host::cpulist::CpuSet;
use sidelane_host::topology::BatchLane;
use sidelane_policy::borrow::idle_threshold::IdleThreshold;
use sidelane_policy::borrow::slowdown::PERCENTILES;
use sidelane_tracker::accounting::Accounting;
use sidelane_tracker::ledger::{Ledger, TurnKind};

use super::gate::LaneKeeper;
use super::kept_lanes::KeptLanes;
use super::slowdown::SlowdownOutcome;

/// Status of one service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServiceStatus {
    /// Name of the service.
    pub name: String,
    /// CPUs on which the service ran recently.
    pub ran_on: String,
    /// CPUs that the service could run on when it was found.
    pub allowed: String,
    /// CPUs that the service was placed on, if its settings allow that.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub placed: Option<String>,
    /// CPU time that the service used, in percent of one CPU.
    pub used_percent: f64,
    /// Highest interference on any CPU on which the service ran.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub interference: Option<f64>,
    /// Requests of the service; `None` if they cannot be seen.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub requests: Option<RequestStatus>,
    /// Reason why the service's requests cannot be seen.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub requests_missing: Option<String>,
    /// Slowdown of the service's requests by batch; `None` if it is not measured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub slowdown: Option<SlowdownStatus>,
    /// Overlap of batch beside the service in the last minute; `None` if the service has no lanes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub overlap: Option<OverlapStatus>,
    /// What had the batch lanes while the service was idle; `None` if the service has no lanes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub idle_time: Option<IdleTimeStatus>,
    /// What could be lent, while an agent lends nothing.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub observed: Option<ObservedStatus>,
}

/// What could be lent beside a service, while an agent lends nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ObservedStatus {
    /// CPUs of the batch lanes.
    pub lanes: String,
    /// Sums of the last days, the oldest first.
    pub days: Vec<ObservedDay>,
    /// Number of complete recordings.
    pub recordings_count: usize,
    /// Folder of the recordings; `None` until one is complete.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub recordings: Option<String>,
}

/// Time of a service's batch lanes on one day.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ObservedDay {
    /// Begin of the day (UTC), in seconds since 1970.
    pub begin_unix_s: u64,
    /// Time for which the lanes were observed, in seconds of all of them.
    pub observed_s: f64,
    /// Time for which the service was idle and its lanes were empty or ran batch.
    pub lendable_s: f64,
}

/// Idle time of a service, and what had its batch lanes then, since the gate has kept them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IdleTimeStatus {
    /// Share of the time in which the service was idle, in percent.
    pub idle_percent: f64,
    /// Share of that time that batch used, in percent.
    pub batch_percent: f64,
    /// Share of that time that batch, other programs, the kernel and the service used, in percent.
    pub used_percent: f64,
    /// Text that names the longest uses.
    pub text: String,
}

/// Time in which batch ran beside a service without permission.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OverlapStatus {
    /// Overlap in percent of the service's time; `None` if the service did not run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub percent: Option<f64>,
    /// Bound of the overlap, in percent.
    pub bound_percent: f64,
    /// Text on the broken overlap promise, with reason and what to do; `None` while it is kept.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub broken: Option<String>,
}

/// Slowdown of requests while batch may have the lanes beside the service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SlowdownStatus {
    /// Slowdown of the median; `None` while too few requests were seen.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p50: Option<SlowerStatus>,
    /// Slowdown of the 99th percentile; `None` while too few requests were seen.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p99: Option<SlowerStatus>,
    /// Bound of the slowdown, in percent.
    pub allowed_percent: f64,
    /// Idle time of the service after which batch has the lanes; `None` if batch is kept off.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub min_idle_ns: Option<u64>,
}

/// Increase of a percentile of latency, with its confidence interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SlowerStatus {
    /// Measured increase, in percent.
    pub percent: f64,
    /// Lower end of the confidence interval, in percent.
    pub low_percent: f64,
    /// Upper end of the confidence interval, in percent.
    pub high_percent: f64,
}

/// Requests of a service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RequestStatus {
    /// Number of requests since the agent began to see them.
    pub count: u64,
    /// Median of the time from arrival to finish.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub latency_p50_ns: Option<u64>,
    /// 99th percentile of the time from arrival to finish.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub latency_p99_ns: Option<u64>,
    /// Objective of the service, as text.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub slo: Option<String>,
    /// Share of requests that kept the objective, in percent.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub in_time_percent: Option<f64>,
    /// Number of requests whose records were lost.
    pub lost: u64,
}

/// Status of one lane. Times add up; the difference of two snapshots tells what had
/// the lane in between.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LaneStatus {
    /// Number of the CPU.
    pub cpu: u32,
    /// Role of the lane: `request` or `batch`.
    pub role: String,
    /// Name of the service that has the lane, or beside which it lies.
    pub service: String,
    /// Request lanes beside which a batch lane lies; empty for a request lane.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub request_lanes: String,
    /// Reason why batch may not run on the lane now; `None` if it may.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_because: Option<String>,
    /// Offer of a batch lane of an agent to a scheduler; `None` for other lanes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offer: Option<OfferStatus>,
    /// Time of the service.
    pub service_ns: u64,
    /// Time of batch.
    pub batch_ns: u64,
    /// Time in which the lane was kept free of batch.
    pub held_ns: u64,
    /// Time of other programs, the kernel and interrupts.
    pub other_ns: u64,
    /// Time that the hypervisor took (steal time).
    pub stolen_ns: u64,
    /// Time in which nothing ran; on a request lane, in which its service did not run.
    pub idle_ns: u64,
}

/// Offer of a batch lane to a scheduler that places jobs on machines.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OfferStatus {
    /// Whether the lane is lent: new jobs may be placed there.
    pub lent: bool,
    /// Share of the lane that was open to batch in the last minute, in percent.
    pub share_percent: f64,
    /// Reason why the lane is withdrawn; `None` while it is lent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub withdrawn_because: Option<String>,
}

/// Last action, with its reason.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DecisionStatus {
    /// Time since the action, in seconds.
    pub ago_s: f64,
    /// Action, as text.
    pub action: String,
    /// Reason of the action.
    pub why: String,
}

impl LaneStatus {
    /// Returns the lanes of a service: its own, and those beside it, with their keepers if they have some.
    pub fn of_service<'a>(
        service: &'a str,
        (request_lanes, lanes): (&'a CpuSet, &'a [BatchLane]),
        kept: Option<&'a KeptLanes>,
        accounting: &'a Accounting,
    ) -> impl Iterator<Item = Self> + 'a {
        let own = request_lanes.iter().map(move |cpu| Self::of_request_lane(cpu, service, accounting));
        let beside = lanes.iter().map(move |lane| {
            let ledger = accounting.ledger(&[lane.cpu].into_iter().collect());
            let keeper = kept.and_then(|kept| kept.keepers().find(|keeper| keeper.cpu() == lane.cpu));
            let held_because = keeper.and_then(LaneKeeper::block_reason).map(|why| why.to_string());
            let (cpu, service, request_lanes) = (lane.cpu, service.to_owned(), lane.request_lanes.to_string());
            Self { cpu, service, request_lanes, held_because, ..Self::from_ledger(&ledger) }
        });
        own.chain(beside)
    }

    /// Returns the times of a request lane: what is not the service's or stolen counts as idle.
    fn of_request_lane(cpu: u32, service: &str, accounting: &Accounting) -> Self {
        let lane = accounting.lane(cpu);
        let (role, service, service_ns, stolen_ns) =
            ("request".to_owned(), service.to_owned(), lane.lc_ns, lane.stolen_ns);
        let idle_ns = accounting.at_ns.saturating_sub(service_ns + stolen_ns);
        Self { cpu, role, service, service_ns, stolen_ns, idle_ns, ..Self::default() }
    }

    /// Returns the times of a batch lane. All of its time is in one of them.
    fn from_ledger(ledger: &Ledger) -> Self {
        let times = &ledger.times;
        let turns = |kinds: &[TurnKind]| kinds.iter().map(|kind| times.idle_ns(*kind) + times.busy_ns(*kind)).sum();
        let kept_free: u64 = [TurnKind::Empty, TurnKind::Away].map(|kind| times.busy_ns(kind)).iter().sum();
        let held_ns = turns(&[TurnKind::Holder, TurnKind::Apart]) + kept_free + times.idle_ns(TurnKind::Away);
        let (batch_ns, service_ns) = (turns(&[TurnKind::Batch, TurnKind::Lent]), turns(&[TurnKind::Service]));
        let (stolen_ns, idle_ns) = (times.stolen_ns(), times.idle_ns(TurnKind::Empty));
        let all_ns = times.all_idle_ns() + times.all_busy_ns();
        let other_ns = all_ns.saturating_sub(service_ns + batch_ns + held_ns + stolen_ns + idle_ns);
        Self {
            role: "batch".to_owned(),
            service_ns,
            batch_ns,
            held_ns,
            other_ns,
            stolen_ns,
            idle_ns,
            ..Self::default()
        }
    }
}

impl IdleTimeStatus {
    /// Returns what had these lanes of a service while it was idle; `None` if it was never idle.
    pub fn of_lanes(lanes: &CpuSet, accounting: &Accounting) -> Option<Self> {
        let ledger = accounting.ledger(lanes).since_begin();
        Some(Self {
            idle_percent: ledger.idle_percent()?,
            batch_percent: ledger.batch_percent()?,
            used_percent: ledger.used_percent()?,
            text: ledger.to_string(),
        })
    }
}

impl From<SlowdownOutcome> for SlowdownStatus {
    fn from(outcome: SlowdownOutcome) -> Self {
        let slower = |percentile: f64| {
            let [low_percent, percent, high_percent] = outcome.whole.ratio(percentile)?.percent_longer();
            Some(SlowerStatus { percent, low_percent, high_percent })
        };
        let [p50, p99] = PERCENTILES.map(slower);
        let min_idle_ns = match outcome.threshold {
            IdleThreshold::AfterIdle(ns) => Some(ns),
            IdleThreshold::Never => None,
        };
        Self { p50, p99, allowed_percent: outcome.bound * 100.0, min_idle_ns }
    }
}

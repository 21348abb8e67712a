//! The plan of a run: the user's request, with the services, lanes and batch that were found for it. Nothing is changed
//! yet.

use std::ffi::OsString;

use anyhow::{Context, Result, bail};
use sidelane_policy::borrow::Lending;

use super::adopt::Adoptee;
use super::gate::{Gate, GateChoice, GateReason};
use super::placement::{Placement, PlacementError};
use super::preflight_errors::PreflightErrors;
use super::slowdown::{BOUND, MaxSlowdown};
use sidelane_host::procfs::command_name;
use sidelane_host::service::Target;
use sidelane_rollback::own_threads::keep_off_cpus;

const MAX_SLOWDOWN_ALONE: &str = "cannot keep --max-slowdown with this gate or policy; use --gate holder and --policy \
                                  borrow-idle, or leave --max-slowdown out";

/// User's request for a run.
#[derive(Clone, Debug)]
pub struct RunRequest {
    /// Services, each with its lanes if `--lanes` names them.
    pub services: Vec<(Target, Option<String>)>,
    /// Whether the services are confined to their request lanes during the run.
    pub pin_service: bool,
    /// Gate that keeps batch off the lanes.
    pub gate: GateChoice,
    /// Policy, and the budget of requests.
    pub lending: Lending,
    /// Bound of the slowdown of requests, if the user gives one.
    pub max_slowdown: Option<MaxSlowdown>,
    /// Batch that is to use the lanes.
    pub batch: RequestedBatch,
}

/// Batch that is to use the lanes, as the user named it.
#[derive(Clone, Debug)]
pub enum RequestedBatch {
    /// Command with its arguments.
    Command(Vec<OsString>),
    /// Batch that runs already.
    Adopted(Target),
}

/// Batch that is to use the lanes, as it was found.
pub enum FoundBatch {
    Command(Vec<OsString>),
    Adoptee(Adoptee),
}

/// User's request with the services, lanes and batch that were found.
pub struct Plan {
    pub services: Vec<Placement>,
    pub gate: Gate,
    pub gate_reason: GateReason,
    pub lending: Lending,
    /// Bound of the slowdown, as 0.05 for 5 %; `None`: no bound.
    pub max_slowdown: Option<f64>,
    pub batch: FoundBatch,
}

impl Plan {
    /// Finds the services, lanes and batch that the user has named. Obstacles are added to `errors`, and the result may
    /// be `None` then. This process leaves the request lanes.
    pub fn find(request: RunRequest, errors: &mut PreflightErrors) -> Option<Self> {
        let services = find_services(request.services, request.pin_service, errors);
        // This process leaves the request lanes before any work, because loading the kernel program takes some hundred
        // milliseconds.
        for placement in &services {
            errors.collect_error(keep_off_cpus(&placement.lanes.request_lanes).context(
                "cannot keep sidelane's own threads off \
                                                                               the request lanes",
            ));
        }
        let found = find_batch(request.batch, request.gate, &services, errors);
        let gate = found.as_ref().map_or(Gate::Holder, |(gate, _)| gate.clone());
        let max_slowdown = errors.collect_error(check_max_slowdown(request.max_slowdown, &gate, &request.lending));
        let (gate, batch) = found?;
        let gate_reason = GateReason::of_choice(request.gate, &gate);
        Some(Self { services, gate, gate_reason, lending: request.lending, max_slowdown: max_slowdown?, batch })
    }

    /// Returns a line of text on the run for each service.
    pub fn summary_lines(&self) -> Vec<String> {
        let (gate, policy) = (self.gate.name(), self.lending.policy.name());
        let bound = self.max_slowdown.map(|bound| format!(", slowdown of requests at most {:.0} %", bound * 100.0));
        let why = match self.gate_reason {
            GateReason::Asked => String::new(),
            ref why => format!(" ({why})"),
        };
        let by = format!("gate {gate}{why}, policy {policy}{}", bound.unwrap_or_default());
        self.services.iter().map(|placement| format!("{}; {by}", summary_line(placement))).collect()
    }
}

fn summary_line(placement: &Placement) -> String {
    let pid = placement.service.pids.first().copied();
    let name = pid.and_then(command_name).unwrap_or_default();
    let more = placement.service.pids.len().saturating_sub(1);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let behind = placement.service.behind.as_ref().map(|stand| format!(" behind {}", stand.name())).unwrap_or_default();
    let process = pid.map(|pid| format!(" ({name}, process {pid}{more}{behind})")).unwrap_or_default();
    let (batch, requests) = (placement.lanes.batch_cpus(), &placement.lanes.request_lanes);
    format!("batch on CPU {batch} beside {}{process} on CPU {requests}", placement.target)
}

fn find_services(
    named: Vec<(Target, Option<String>)>,
    pin_service: bool,
    errors: &mut PreflightErrors,
) -> Vec<Placement> {
    let mut services = Vec::new();
    for (target, lanes) in named {
        let found = Placement::find(target, lanes.as_deref(), pin_service);
        // Without privileges the sockets of other users are not seen, so the service may exist.
        if errors.lacks_privileges() && found.as_ref().is_err_and(PlacementError::may_be_permission_denied) {
            continue;
        }
        services.extend(errors.collect_error(found));
    }
    if services.len() > 1 {
        errors.collect_error(Placement::combined_lanes(&services));
    }
    services
}

fn find_batch(
    batch: RequestedBatch,
    gate: GateChoice,
    services: &[Placement],
    errors: &mut PreflightErrors,
) -> Option<(Gate, FoundBatch)> {
    match batch {
        RequestedBatch::Command(command) => {
            // The gate's library maps the shared memory of one service only.
            let gate = if gate == GateChoice::Auto && services.len() > 1 { GateChoice::Holder } else { gate };
            let gate = errors.collect_error(Gate::choose(gate, &command))?;
            Some((gate, FoundBatch::Command(command)))
        }
        RequestedBatch::Adopted(target) => {
            let pids = services.iter().flat_map(|placement| placement.service.pids.iter().copied()).collect();
            let gate = errors.collect_error(Gate::choose_for_adopted(gate));
            let adoptee = errors.collect_error(Adoptee::find(&target, &pids));
            gate.zip(adoptee.map(FoundBatch::Adoptee))
        }
    }
}

/// Returns the bound of the slowdown; `None` if there is none.
///
/// # Errors
/// When the user gives a bound that cannot be kept with this gate and policy.
fn check_max_slowdown(wanted: Option<MaxSlowdown>, gate: &Gate, lending: &Lending) -> Result<Option<f64>> {
    let can_keep = *gate == Gate::Holder && !lending.policy.needs_requests();
    match wanted {
        Some(MaxSlowdown::Bound(_)) if !can_keep => bail!(MAX_SLOWDOWN_ALONE),
        Some(MaxSlowdown::Bound(bound)) => Ok(Some(bound)),
        Some(MaxSlowdown::Any) => Ok(None),
        None => Ok(can_keep.then_some(BOUND)),
    }
}

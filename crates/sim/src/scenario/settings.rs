//! Settings of a scenario: the ways of sharing the machine that are compared.

use sidelane_policy::borrow::{BorrowConfig, PolicyKind};

use super::inputs::{Files, Result};
use super::parts::{ms_to_ns, us_to_ns};
use crate::gate::{Gate, Latency};
use crate::model::{BatchMode, Budget, Lending, LendingDecider, Setting};
use crate::time::{NEVER, Nanos};
use sidelane_toml::Reader;

#[derive(Clone, Copy, PartialEq)]
enum SharingMode {
    Alone,
    Unmanaged,
    Exclusion,
    Freezer,
    Oracle,
    Policy(PolicyKind),
}

const SHARING_MODES: [(&str, SharingMode); 14] = [
    ("alone", SharingMode::Alone),
    ("unmanaged", SharingMode::Unmanaged),
    // On SMT, the scheduling class of batch has no effect: batch's lane is another CPU than the
    // service's.
    ("sched-idle", SharingMode::Unmanaged),
    ("exclusion", SharingMode::Exclusion),
    ("freezer", SharingMode::Freezer),
    ("borrow-idle", SharingMode::Policy(PolicyKind::BorrowIdle)),
    ("fixed-budget", SharingMode::Policy(PolicyKind::FixedBudget)),
    ("refresh-budget", SharingMode::Policy(PolicyKind::RefreshBudget)),
    ("dynamic-refresh", SharingMode::Policy(PolicyKind::DynamicRefresh)),
    ("deadline", SharingMode::Policy(PolicyKind::Deadline)),
    ("elfen-fixed", SharingMode::Policy(PolicyKind::ElfenFixed)),
    ("elfen-refresh", SharingMode::Policy(PolicyKind::ElfenRefresh)),
    ("elfen-dynamic", SharingMode::Policy(PolicyKind::ElfenDynamic)),
    ("oracle", SharingMode::Oracle),
];

/// Reads all settings; their names must differ.
pub(super) fn read_settings(top: &Reader, gate: &Gate, files: Files) -> Result<Vec<Setting>> {
    let readers = top.numbered_tables("setting");
    if readers.is_empty() {
        return Err(top.record_missing("setting", "write at least one [[setting]] with a policy"));
    }
    let mut settings: Vec<Setting> = Vec::new();
    for reader in readers {
        let setting = read_setting(&reader, gate, files)?;
        if settings.iter().any(|other| other.name == setting.name) {
            return Err(reader.record_problem(
                "name",
                format!("is \"{}\", which is used already", setting.name),
                "write another name",
            ));
        }
        settings.push(setting);
        reader.record_unknown_keys();
    }
    Ok(settings)
}

fn read_setting(reader: &Reader, default_gate: &Gate, files: Files) -> Result<Setting> {
    let mode = reader.required_choice("policy", &SHARING_MODES)?;
    let name = reader.text("policy", "").unwrap_or_default();
    let name = reader.text("name", "write a name").unwrap_or(name).to_owned();
    let own_gate = reader.table("gate");
    let gate = match mode {
        SharingMode::Exclusion => Gate::ideal(),
        _ => read_gate(own_gate, files)?.unwrap_or_else(|| default_gate.clone()),
    };
    Ok(Setting { name, beside: read_batch_mode(reader, mode)?, gate })
}

fn read_batch_mode(reader: &Reader, mode: SharingMode) -> Result<BatchMode> {
    let idle = |config| BatchMode::Lent(Lending::with_policy(PolicyKind::BorrowIdle, config, Budget::None));
    Ok(match mode {
        SharingMode::Alone => BatchMode::Nothing,
        SharingMode::Unmanaged => BatchMode::Unmanaged,
        SharingMode::Exclusion => {
            idle(BorrowConfig { min_idle_ns: 0, evict_after_ns: NEVER, ..BorrowConfig::default() })
        }
        SharingMode::Freezer => idle(BorrowConfig { evict_after_ns: 0, ..read_borrow_config(reader)? }),
        SharingMode::Oracle => BatchMode::Lent(read_lending(reader, LendingDecider::Oracle)?),
        SharingMode::Policy(policy) => BatchMode::Lent(read_lending(reader, LendingDecider::Policy(policy))?),
    })
}

fn read_lending(reader: &Reader, decider: LendingDecider) -> Result<Lending> {
    let lending = Lending {
        by: decider,
        ..Lending::with_policy(PolicyKind::Deadline, read_borrow_config(reader)?, read_budget(reader, decider)?)
    };
    if decider != LendingDecider::Policy(PolicyKind::Deadline) {
        return Ok(lending);
    }
    let queue_weight = reader.number("queue_weight", 0.0..=100.0).unwrap_or(lending.queue_weight);
    Ok(Lending { queue_weight, ..lending })
}

fn read_borrow_config(reader: &Reader) -> Result<BorrowConfig> {
    let default = BorrowConfig::default();
    Ok(BorrowConfig {
        min_idle_ns: reader.number("min_idle_us", 0.0..=1e9).map_or(default.min_idle_ns, us_to_ns),
        learns_min_idle: reader.flag("learns_min_idle").unwrap_or(default.learns_min_idle),
        evict_after_ns: reader.number("evict_after_ms", 0.0..=1e9).map_or(default.evict_after_ns, ms_to_ns),
        ..default
    })
}

fn read_budget(reader: &Reader, decider: LendingDecider) -> Result<Budget> {
    let given = reader.number("budget_ms", 0.0..=1e6).map(|budget| Budget::Given(ms_to_ns(budget)));
    let kinds = [("slo", Budget::Slo), ("slo-less-alone", Budget::SloLessAlone), ("tuned", Budget::Tuned)];
    let worked_out = reader.choice("budget", &kinds);
    match (decider.lends(), given, worked_out) {
        (_, Some(_), Some(_)) => Err(reader.record_problem(
            "budget",
            "is given, but budget_ms is given, too",
            "write one of \
                                                                                                      them",
        )),
        (false, None, None) => Ok(Budget::None),
        (false, ..) => {
            let key = if given.is_some() { "budget_ms" } else { "budget" };
            Err(reader.record_problem(
                key,
                "has no effect under borrow-idle",
                "choose a policy with a budget, or leave the budget out",
            ))
        }
        (true, None, None) => {
            Err(reader.record_missing("budget", "write budget_ms, or budget = slo, slo-less-alone or tuned"))
        }
        (true, _, Some(Budget::Slo)) if decider == LendingDecider::Oracle => Err(reader.record_problem(
            "budget",
            "is for policies that learn, and the oracle does not",
            "write budget_ms, or budget = tuned",
        )),
        (true, given, worked_out) => Ok(given.or(worked_out).unwrap_or(Budget::None)),
    }
}

#[derive(Clone, Copy)]
enum GateKind {
    Ideal,
    Holder,
    Nanonap,
    Given,
    Doctor,
}

/// Reads the table `[gate]`, if the file has it.
pub(super) fn read_gate(reader: Reader, files: Files) -> Result<Option<Gate>> {
    if !reader.exists() {
        return Ok(None);
    }
    let kinds = [
        ("ideal", GateKind::Ideal),
        ("holder", GateKind::Holder),
        ("nanonap", GateKind::Nanonap),
        ("given", GateKind::Given),
        ("doctor", GateKind::Doctor),
    ];
    let mut gate = match reader.required_choice("kind", &kinds)? {
        GateKind::Ideal => Gate::ideal(),
        GateKind::Holder => Gate::holder(),
        GateKind::Nanonap => Gate::nanonap(),
        GateKind::Given => read_given_gate(&reader)?,
        GateKind::Doctor => read_measured_gate(&reader, files)?,
    };
    if let Some(cost) = reader.number("summons_cost_us", 0.0..=1e6) {
        gate.lc_cost_ns = us_to_ns(cost);
    }
    reader.record_unknown_keys();
    Ok(Some(gate))
}

fn read_given_gate(reader: &Reader) -> Result<Gate> {
    let time = |key| Ok(us_to_ns(reader.required_number(key, 0.0..=1e6)?));
    let off = Latency::from_percentiles(time("off_p50_us")?, time("off_p99_us")?);
    let on = Latency::from_percentiles(time("on_p50_us")?, time("on_p99_us")?);
    Ok(Gate { off, on, lc_cost_ns: 0, batch_looks: false })
}

/// Reads the latencies of a gate that `sidelane doctor --json` measured.
fn read_measured_gate(reader: &Reader, files: Files) -> Result<Gate> {
    let allowed = "name a file that `sidelane doctor --json` wrote";
    let name = reader.required_text("file", allowed)?;
    let wrong = |problem: String| reader.record_problem("file", problem, allowed);
    let text = files.text(name).map_err(|why| wrong(format!("cannot be read: {name}: {why}")))?;
    let result: serde_json::Value = serde_json::from_str(&text).map_err(|why| wrong(format!("is not JSON: {why}")))?;
    let rows = result["rows"].as_array().ok_or_else(|| wrong(format!("names {name}, which has no rows")))?;
    let measured: Vec<&serde_json::Value> = rows.iter().filter(|row| row["off_p50_ns"].is_number()).collect();
    let gates = measured.iter().filter_map(|row| row["setting"].as_str()).collect::<Vec<_>>().join(", ");
    let gates = format!("write one of {gates}");
    let wanted = reader.required_text("gate", &gates)?;
    let row = measured.into_iter().find(|row| row["setting"] == wanted);
    let row = row.ok_or_else(|| reader.record_problem("gate", format!("is \"{wanted}\""), gates))?;
    let ns = |key: &str| row[key].as_f64().map_or(0, |ns| ns as Nanos);
    let off = Latency::from_percentiles(ns("off_p50_ns"), ns("off_p99_ns"));
    let on = Latency::from_percentiles(ns("on_p50_ns"), ns("on_p99_ns"));
    Ok(Gate { off, on, lc_cost_ns: 0, batch_looks: false })
}

//! Settings of batch lanes: the table `[lanes]`, with the names of `sidelane run`'s options.

use std::time::Duration;

use clap::ValueEnum;
use sidelane_policy::borrow::{BorrowConfig, Budget, Lending, LendingMismatch, Objective, PolicyKind};

use super::LaneGate;
use super::policy::{ReadTime, quote_time};
use sidelane_lanes::gate::{Gate, GateChoice};
use sidelane_lanes::slowdown::MaxSlowdown;
use sidelane_toml::{Reader, parse_percent};

/// Reads the table `[lanes]`, if the file has it.
pub(super) fn read_lane_gate(reader: Reader) -> Option<LaneGate> {
    if !reader.exists() {
        return None;
    }
    let gate = read_gate(&reader);
    let policies = PolicyKind::ALL.map(|kind| (kind.name(), kind));
    let policy = reader.choice("policy", &policies);
    let budget = reader.read_time("budget", Duration::from_nanos(1));
    let min_idle = reader.read_time("min_idle", Duration::ZERO);
    let lanes = LaneGate {
        gate: reader.record_setting("gate", gate, GateChoice::Auto, |gate| format!("\"{}\"", gate_name(*gate))),
        policy: reader.record_setting("policy", policy.map(Some), None, |policy| {
            policy
                .map_or("deadline with an slo, dynamic-refresh with a budget, else borrow-idle".to_owned(), |policy| {
                    format!("\"{policy}\"")
                })
        }),
        budget: reader.record_setting("budget", budget.map(Some), None, |budget| {
            budget.map_or("what each service's slo leaves".to_owned(), |budget| quote_time(&budget))
        }),
        min_idle: reader.record_setting("min_idle", min_idle.map(Some), None, |min_idle| {
            min_idle.map_or("learned from each service's idle moments".to_owned(), |time| quote_time(&time))
        }),
        max_slowdown: read_max_slowdown(&reader),
    };
    if lanes.budget.is_some() && lanes.policy == Some(PolicyKind::BorrowIdle) {
        let advice = "leave it out, or choose another policy, such as deadline";
        reader.record_problem("budget", "is given, but borrow-idle never runs batch beside a request", advice);
    }
    if reader.has("max_slowdown") && !lanes.can_bound_slowdown() {
        let problem = "is given, but only gate \"holder\" with policy \"borrow-idle\" has such a bound";
        reader.record_problem(
            "max_slowdown",
            problem,
            "leave it out, or write gate = \"holder\" and policy = \"borrow-idle\"",
        );
    }
    reader.record_unknown_keys();
    Some(lanes)
}

fn read_max_slowdown(reader: &Reader) -> MaxSlowdown {
    const KEY: &str = "max_slowdown";
    let bound =
        reader.parse_text(KEY, parse_max_slowdown, "write a percentage with its sign, as in \"5%\", or \"none\"");
    reader.record_setting(KEY, bound, MaxSlowdown::default(), |bound| format!("\"{bound}\""))
}

fn parse_max_slowdown(text: &str) -> Result<MaxSlowdown, &'static str> {
    if text == "none" {
        return Ok(MaxSlowdown::Any);
    }
    let percent = parse_percent(text).filter(|percent| (0.0..=100.0).contains(percent));
    percent.map(|percent| MaxSlowdown::Bound(percent / 100.0)).ok_or("is not a percentage from 0 to 100")
}

fn read_gate(reader: &Reader) -> Option<GateChoice> {
    let names: Vec<(String, GateChoice)> =
        GateChoice::value_variants().iter().map(|choice| (gate_name(*choice), *choice)).collect();
    let names: Vec<(&str, GateChoice)> = names.iter().map(|(name, choice)| (name.as_str(), *choice)).collect();
    let choice = reader.choice("gate", &names)?;
    if Gate::choose_for_adopted(choice).is_err() {
        let advice = "write holder, freezer or sched-idle";
        reader.record_problem(
            "gate",
            format!("is \"{}\", which works only for commands that Sidelane starts", gate_name(choice)),
            advice,
        );
    }
    Some(choice)
}

fn gate_name(choice: GateChoice) -> String {
    choice.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

impl LaneGate {
    /// Returns whether the slowdown of requests by batch can be bounded. This requires that batch never runs beside a
    /// request, and that the gate is a holder.
    pub fn can_bound_slowdown(&self) -> bool {
        let by_holder = matches!(self.gate, GateChoice::Auto | GateChoice::Holder);
        by_holder && self.budget.is_none() && !self.policy.is_some_and(PolicyKind::needs_requests)
    }

    /// Returns the bound on the slowdown of requests by batch, such as 0.05 for 5 %; `None` if there is no bound, or if
    /// these settings do not allow one.
    pub fn slowdown_bound(&self) -> Option<f64> {
        match self.max_slowdown {
            MaxSlowdown::Bound(bound) if self.can_bound_slowdown() => Some(bound),
            _ => None,
        }
    }

    /// Returns the policy by which the lanes of a service with this objective are lent.
    ///
    /// # Errors
    /// When the policy needs a budget, and neither the budget nor the objective is set.
    pub fn lending(&self, slo: Option<Objective>) -> Result<Lending, LendingMismatch> {
        let spends = self.policy.is_none_or(PolicyKind::needs_requests);
        let budget = match (self.budget, slo) {
            (Some(budget), _) => Budget::Given(budget.as_nanos() as u64),
            (None, Some(slo)) if spends => Budget::Slo(slo),
            _ => Budget::None,
        };
        let config = BorrowConfig::with_min_idle(self.min_idle.map(|time| time.as_nanos() as u64));
        Lending::new(self.policy, budget, config)
    }
}

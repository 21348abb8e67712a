//! The result of a run, as text and as JSON.

use std::fmt;

use serde_json::{Map, json};

use super::lending_limits::{FinalLendingLimits, ObjectiveOutcome};
use super::promise::{Circumstances, OverlapPromise, bound_percent};
use super::session::{Ending, Outcome, ServiceOutcome};
use super::slowdown::SlowdownOutcome;
use crate::gate::{Gate, GateReason};
use crate::note::LaneNote;
use sidelane_diagnostics::machine;
use sidelane_diagnostics::note::{Note, notes_as_text};
use sidelane_host::clock::process_cpu_ns;
use sidelane_host::topology::{Lanes, PairKind};
use sidelane_policy::borrow::promise::{BOUND_PPM, overlap_in_turns_never_left_ns};
use sidelane_policy::borrow::slowdown::{PERCENTILES, Side};
use sidelane_report::{LatencyHistogram, ResultFile, Row, Series, Unit};
use sidelane_requests::objective::format_objective as written_objective;
use sidelane_tracker::accounting::{Accounting, reaction_max_and_count, reaction_percentiles};
use sidelane_tracker::gate_accounting::GateAccounting;
use sidelane_tracker::histogram::Histogram;
use sidelane_tracker::ledger::{InterruptTimeSource, Ledger, TurnKind};
use sidelane_tracker::stolen::StealTimeSource;

/// Figures of one run, all measured in this run.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Request lanes and batch lanes of the run.
    pub lanes: Lanes,
    /// Time for which batch ran beside the service.
    pub wall_s: f64,
    /// CPU time of batch on the batch lanes.
    pub batch_cpu_s: f64,
    /// CPU time of the service on the request lanes.
    pub lc_cpu_s: f64,
    /// Share of the request lanes' idle time that batch used.
    pub batch_share_of_idle_percent: Option<f64>,
    /// Overlap: time for which batch ran beside the service without permission, in percent of the service's time.
    pub overlap_percent: Option<f64>,
    /// Time for which batch ran beside the service on the budget of requests, in percent of the service's time.
    pub lent_overlap_percent: Option<f64>,
    /// Results for each service, in the order in which the user named them.
    pub services: Vec<ServiceSummary>,
    /// Overlap promise to each service, judged.
    promises: Vec<OverlapPromise>,
    /// Bound of the overlap, in millionths of a service's time.
    bound_ppm: u32,
    /// Gate of the run: the mechanism that keeps batch off the lanes.
    pub gate: Gate,
    /// Reason for the gate.
    gate_reason: GateReason,
    /// Accounting of self-checking batch; `None` if the gate allows none.
    pub looked: Option<GateAccounting>,
    /// All time of the batch lanes, by what had them.
    ledger: Ledger,
    /// Reaction times from the service's start until batch is off.
    pub reaction_off: Histogram,
    /// Overlap in turns of the service that batch never left, and which so have no reaction time.
    never_left_ns: u64,
    /// Reaction times from the service's stop until batch is back.
    pub reaction_on: Histogram,
    /// Number of context switches to the service.
    pub lc_switches: u64,
    /// Number of wakeups that a request lane sent to a holder, at its own cost.
    pub lc_summons: u64,
    /// Number of holds begun.
    pub holds: u64,
    /// Number of holds that lasted until batch was evicted.
    pub evictions: u64,
    /// Mean time of the kernel program in a context switch, from sampled switches.
    pub cost_per_switch_ns: Option<f64>,
    /// CPU time of this process without the holders' naps.
    pub own_cpu_s: f64,
    /// Time for which the holders napped.
    pub napped_s: f64,
    /// Steal time of the lanes, in percent. CPU times do not contain it.
    pub stolen_percent: Option<f64>,
    /// Longest gap of steal time, in µs.
    pub stolen_gap_max_us: Option<f64>,
    /// Source of the steal time.
    pub stolen_from: StealTimeSource,
    /// Name and counts of batch that was adopted and given back; `None` if batch was a command.
    pub adopted: Option<String>,
    /// Notes on what was degraded or failed.
    pub notes: Vec<Note>,
    /// Use of the lanes over time.
    pub over_time: Option<Series>,
}

/// Names of the figures on the lending limits of a service's lanes.
const LIMIT_FIGURES: [&str; 5] =
    ["budget_ms", "contention_cost_percent", "requests_count", "delay_bound_mean_us", "delay_bound_max_us"];

/// Figures of one service in a run.
#[derive(Clone, Debug)]
pub struct ServiceSummary {
    /// Result of the session for the service.
    outcome: ServiceOutcome,
    /// CPU time of the service on its request lanes.
    lc_cpu_s: f64,
    /// CPU time of batch on the service's batch lanes.
    batch_cpu_s: f64,
    batch_share_of_idle_percent: Option<f64>,
    overlap_percent: Option<f64>,
    lent_overlap_percent: Option<f64>,
}

impl ServiceSummary {
    fn new(outcome: &ServiceOutcome, accounting: &Accounting) -> Self {
        let lanes = &outcome.lanes;
        Self {
            lc_cpu_s: seconds(accounting.service_ns(lanes)),
            batch_cpu_s: seconds(accounting.batch_ns(lanes)),
            batch_share_of_idle_percent: accounting.batch_share_of_idle_percent(lanes),
            overlap_percent: accounting.overlap_percent(lanes),
            lent_overlap_percent: accounting.lent_overlap_percent(lanes),
            outcome: outcome.clone(),
        }
    }

    fn to_row(&self) -> Row {
        let mut row = Row::new(self.outcome.target.to_string());
        let figures = [
            ("batch_cpu_s", Some(self.batch_cpu_s)),
            ("service_cpu_s", Some(self.lc_cpu_s)),
            ("batch_share_of_idle_percent", self.batch_share_of_idle_percent),
            ("overlap_percent", self.overlap_percent),
            ("lent_overlap_percent", self.lent_overlap_percent),
        ];
        for (key, value) in figures.into_iter().chain(self.limit_figures()).chain(self.cost_figures()) {
            row.put(key, value);
        }
        row
    }

    /// Returns the lending limits of the service's lanes, by their names in results.
    fn limit_figures(&self) -> [(&'static str, Option<f64>); 5] {
        let limits = self.outcome.limits.filter(|limits| limits.lending.policy.needs_requests());
        let requests = limits.filter(|_| self.outcome.requests.is_some()).map(|limits| limits.requests as f64);
        let values = [
            limits.map(|limits| limits.budget_ns as f64 / 1e6),
            limits.map(|limits| f64::from(limits.contention_cost.ppm()) / 1e4),
            requests,
            limits.and_then(|limits| Some(limits.delay_mean_ns? / 1e3)),
            limits.and_then(|limits| Some(limits.delay_max_ns? as f64 / 1e3)),
        ];
        std::array::from_fn(|at| (LIMIT_FIGURES[at], values[at]))
    }

    /// Writes the lines about the service's budget and its requests, if the policy has any.
    fn show_limits(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(limits) = self.outcome.limits.filter(|limits| limits.lending.policy.needs_requests()) else {
            return Ok(());
        };
        let lent = self.lent_overlap_percent.filter(|percent| *percent > 0.0).map(format_percent);
        let lent = lent.map(|lent| format!("; batch ran beside requests for {lent} of the service's time"));
        writeln!(f, "  budget     {limits}{}", lent.unwrap_or_default())?;
        let mut source = self.outcome.requests.iter();
        source.try_for_each(|source| writeln!(f, "  requests   {}, {source}", format_count(limits.requests)))
    }

    /// Writes the lines about the cost of batch for the service's requests.
    fn show_cost(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.outcome.objective.iter().try_for_each(|objective| show_objective(objective, f))?;
        self.outcome.slowdown.iter().try_for_each(|slowdown| show_slowdown(slowdown, f))
    }

    /// Returns the cost of batch for the service's requests: the objective, and percentiles beside batch and without.
    fn cost_figures(&self) -> [(&'static str, Option<f64>); 8] {
        let objective = self.outcome.objective;
        let slowdown = self.outcome.slowdown.as_ref();
        let us = |ns: u64| ns as f64 / 1e3;
        let at =
            |side, percentile| slowdown.and_then(|slowdown| slowdown.whole.percentile_ns(side, percentile)).map(us);
        let by = |percentile| Some(slowdown?.whole.ratio(percentile)?.percent_longer()[1]);
        [
            ("objective_us", objective.map(|objective| us(objective.all_ns))),
            ("objective_missed_s", objective.map(|objective| seconds(objective.missed_ns))),
            ("p50_beside_us", at(Side::Beside, 50.0)),
            ("p50_apart_us", at(Side::Apart, 50.0)),
            ("p50_slowdown_percent", by(50.0)),
            ("p99_beside_us", at(Side::Beside, 99.0)),
            ("p99_apart_us", at(Side::Apart, 99.0)),
            ("p99_slowdown_percent", by(99.0)),
        ]
    }

    /// Writes the lines of one service, if a run has several.
    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ServiceOutcome { target, lanes, .. } = &self.outcome;
        writeln!(
            f,
            "  {target} on lane {}: {} of CPU; batch overlapped {} of it, and got {} of its idle time",
            lanes.request_lanes,
            Unit::S.human(self.lc_cpu_s),
            percent(self.overlap_percent),
            percent(self.batch_share_of_idle_percent)
        )?;
        self.show_cost(f)?;
        self.show_limits(f)
    }
}

impl Summary {
    /// Returns whether the objective of any service was missed.
    pub fn misses_objective(&self) -> bool {
        self.services.iter().filter_map(|service| service.outcome.objective).any(|objective| !objective.is_met())
    }

    /// Returns whether batch ran beside any service for longer than the bound allows.
    pub fn breaks_promise(&self) -> bool {
        self.promises.iter().any(OverlapPromise::is_broken)
    }

    /// Returns the text of the broken promises, a line each; empty if there are none.
    pub fn broken_promises(&self) -> String {
        let broken = self.promises.iter().filter(|promise| promise.is_broken());
        broken.map(|promise| format!("sidelane: {promise}\n")).collect()
    }

    /// Computes the figures of `outcome`. Overlap is judged by `bound_ppm`, in millionths of a service's time; `None`:
    /// 1 %.
    pub fn new(outcome: &Outcome, lanes: Lanes, bound_ppm: Option<u32>) -> Self {
        let accounting = &outcome.accounting;
        let napped_s = seconds(outcome.holders.napped_ns);
        Self {
            wall_s: seconds(accounting.at_ns),
            batch_cpu_s: seconds(accounting.batch_ns(&lanes)),
            lc_cpu_s: seconds(accounting.service_ns(&lanes)),
            batch_share_of_idle_percent: accounting.batch_share_of_idle_percent(&lanes),
            overlap_percent: accounting.overlap_percent(&lanes),
            lent_overlap_percent: accounting.lent_overlap_percent(&lanes),
            services: outcome.services.iter().map(|service| ServiceSummary::new(service, accounting)).collect(),
            promises: promises(outcome, bound_ppm),
            bound_ppm: bound_ppm.unwrap_or(BOUND_PPM),
            looked: accounting.gates().reduce(|sum, one| sum.plus(&one)).filter(|_| outcome.self_checking),
            ledger: accounting.ledger(&lanes.batch_cpus()),
            reaction_off: accounting.batch_off_latencies().clone(),
            never_left_ns: if outcome.self_checking { 0 } else { never_left_overlap_ns(accounting, &lanes) },
            reaction_on: accounting.batch_on_latencies().clone(),
            lc_switches: accounting.sum(|lane| lane.lc_switches),
            lc_summons: accounting.sum(|lane| lane.lc_summons),
            holds: outcome.holders.holds,
            evictions: outcome.holders.evictions,
            cost_per_switch_ns: accounting.cost_per_switch_ns(),
            stolen_percent: accounting.stolen_percent(&lanes),
            stolen_gap_max_us: accounting.stolen_gap_max_us(&lanes),
            stolen_from: accounting.steal_time_source(),
            own_cpu_s: (process_cpu_ns() as f64 / 1e9 - napped_s).max(0.0),
            napped_s,
            adopted: match &outcome.ending {
                Ending::Command(_) => None,
                Ending::GivenBack(batch) => Some(batch.clone()),
            },
            notes: outcome.notes.clone(),
            over_time: None,
            gate: outcome.gate.clone(),
            gate_reason: outcome.gate_reason.clone(),
            lanes,
        }
    }

    /// Returns the figures as a result of one row.
    pub fn to_result(&self) -> ResultFile {
        let mut settings = Map::new();
        settings.insert("policy".into(), json!(self.policy()));
        settings.insert("gate".into(), json!(self.gate.name()));
        settings.insert("gate_reason".into(), json!(self.gate_reason.to_string()));
        if let Some(adopted) = &self.adopted {
            settings.insert("adopted".into(), json!(adopted));
        }
        let services: Vec<String> = self.services.iter().map(|service| service.outcome.target.to_string()).collect();
        settings.insert("services".into(), json!(services));
        let first = self.services.first().map(|service| &service.outcome);
        let lends_by_requests = |limits: &FinalLendingLimits| limits.lending.policy.needs_requests();
        if let Some(requests) =
            first.filter(|f| f.limits.as_ref().is_some_and(lends_by_requests)).and_then(|f| f.requests)
        {
            settings.insert("requests".into(), json!(requests.to_string()));
        }
        if let Some(limits) =
            first.and_then(|first| first.limits).filter(|limits| limits.lending.policy.needs_contention_cost())
        {
            settings.insert("contention_cost_source".into(), json!(limits.source.name()));
        }
        settings.insert("request_lanes".into(), json!(self.lanes.request_lanes.to_string()));
        settings.insert("batch_lanes".into(), json!(self.lanes.batch_cpus().to_string()));
        settings.insert("stolen_time".into(), json!(self.stolen_from.to_string()));
        settings.insert("interrupt_time".into(), json!(InterruptTimeSource::find().to_string()));
        let broken: Vec<String> =
            self.promises.iter().filter(|promise| promise.is_broken()).map(OverlapPromise::to_string).collect();
        if !broken.is_empty() {
            settings.insert("broken_promise".into(), json!(broken));
        }
        let mut result = ResultFile::new(machine::describe(self.lanes.kind), settings);
        let mut row = Row::new(self.policy());
        let never_left = ("never_left_s", Some(seconds(self.never_left_ns)));
        let figures = self.figures().into_iter().chain(self.ledger.figures()).chain(self.kernel_figures());
        for (key, value) in figures.chain([never_left]) {
            row.put(key, value);
        }
        if let [only] = &self.services[..] {
            for (key, value) in only.cost_figures() {
                row.put(key, value);
            }
        }
        result.rows.push(row);
        if self.services.len() > 1 {
            result.rows.extend(self.services.iter().map(ServiceSummary::to_row));
        }
        result.histograms = self.histograms();
        result.series = self.over_time.iter().cloned().collect();
        result.notes = notes_as_text(&self.notes);
        result.checks = self.promises.iter().map(OverlapPromise::to_check).collect();
        result
    }

    /// Returns the histograms of reactions, and of requests beside batch and without it.
    fn histograms(&self) -> Vec<LatencyHistogram> {
        let several = self.services.len() > 1;
        let of_service = |service: &ServiceSummary| {
            let whole = service.outcome.slowdown.as_ref().map(|slowdown| &slowdown.whole);
            let name = if several { format!(" of {}", service.outcome.target) } else { String::new() };
            let sides = [(Side::Beside, "requests beside batch"), (Side::Apart, "requests without batch")];
            let histograms = whole.map(|whole| {
                sides.map(|(side, what)| LatencyHistogram::new(format!("{what}{name}"), whole.latency_counts(side)))
            });
            histograms.into_iter().flatten()
        };
        let reactions = [("batch off its lane", &self.reaction_off), ("batch back", &self.reaction_on)];
        let reactions = reactions.map(|(what, times)| LatencyHistogram::new(what, times.latency_counts()));
        let all = self.services.iter().flat_map(of_service).chain(reactions);
        all.filter(|histogram| !histogram.counts.is_empty()).collect()
    }

    /// Returns the gate of the run, with the reason if it was not there from the start.
    fn gate_text(&self) -> String {
        match &self.gate_reason {
            why @ GateReason::TookOver { .. } => format!("{} ({why})", self.gate.name()),
            _ => self.gate.name().to_owned(),
        }
    }

    /// Returns the name of the policy in results.
    fn policy(&self) -> String {
        let limits = self.services.first().and_then(|service| service.outcome.limits);
        limits.map_or("unmanaged".to_owned(), |limits| limits.lending.policy.name().replace('-', "_"))
    }

    fn figures(&self) -> [(&'static str, Option<f64>); 31] {
        let looked =
            |figure: fn(&GateAccounting) -> u64| self.looked.as_ref().map(|accounting| figure(accounting) as f64);
        let only = (self.services.len() == 1).then(|| self.services[0].limit_figures());
        let [budget, contention_cost, requests, delay_mean, delay_max] =
            only.unwrap_or_else(|| LIMIT_FIGURES.map(|key| (key, None)));
        let [off_p50, off_p99, on_p50, on_p99] = reaction_percentiles(&self.reaction_off, &self.reaction_on);
        let [off_max, off_count] = reaction_max_and_count(&self.reaction_off);
        [
            ("wall_s", Some(self.wall_s)),
            ("batch_cpu_s", Some(self.batch_cpu_s)),
            ("service_cpu_s", Some(self.lc_cpu_s)),
            ("batch_share_of_idle_percent", self.batch_share_of_idle_percent),
            ("overlap_percent", self.overlap_percent),
            ("overlap_bound_percent", Some(bound_percent(self.bound_ppm))),
            ("overlap_per_turn_us", self.overlap_a_turn_us()),
            ("lent_overlap_percent", self.lent_overlap_percent),
            budget,
            contention_cost,
            requests,
            delay_mean,
            delay_max,
            off_p50,
            off_p99,
            off_max,
            off_count,
            on_p50,
            on_p99,
            ("service_switches_count", Some(self.lc_switches as f64)),
            ("service_summons_count", Some(self.lc_summons as f64)),
            ("holds_count", Some(self.holds as f64)),
            ("evictions_count", Some(self.evictions as f64)),
            ("cost_per_switch_ns", self.cost_per_switch_ns),
            ("own_cpu_s", Some(self.own_cpu_s)),
            ("napped_s", Some(self.napped_s)),
            ("stolen_percent", self.stolen_percent),
            ("stolen_gap_max_us", self.stolen_gap_max_us),
            ("gate_threads_count", looked(|gate| gate.promises)),
            ("gate_naps_count", looked(|gate| gate.naps)),
            ("gate_slow_paths_count", looked(|gate| gate.slow_paths)),
        ]
    }
}

/// Share of the busy time below which work of the kernel or of other programs has no line, in percent.
const WORK_SHOWN_PERCENT: f64 = 0.05;

impl Summary {
    /// Returns the time of `ns` on the batch lanes while the service was busy beside them, in percent of its busy time.
    fn busy_percent(&self, ns: u64) -> Option<f64> {
        let busy_ns = self.ledger.times.all_busy_ns();
        (busy_ns > 0).then(|| ns as f64 * 100.0 / busy_ns as f64)
    }

    /// Returns the kernel's threads on the batch lanes beside the busy service, by kind: the parts of
    /// `busy_kernel_percent` of the ledger.
    fn kernel_figures(&self) -> [(&'static str, Option<f64>); 3] {
        let share = |kind| self.busy_percent(self.ledger.times.busy_ns(kind));
        [
            ("busy_kworkers_percent", share(TurnKind::Worker)),
            ("busy_interrupt_threads_percent", share(TurnKind::Interrupt)),
            ("busy_kernel_threads_percent", share(TurnKind::Kernel)),
        ]
    }

    /// Writes the lines about other work on the batch lanes, unless it is negligible.
    fn show_work(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const KINDS: [&str; 3] = ["kworkers", "ksoftirqd and interrupt threads", "other kernel threads"];
        let times = &self.ledger.times;
        let shown = |percent: Option<f64>| percent.filter(|percent| *percent >= WORK_SHOWN_PERCENT).map(format_percent);
        let threads = KINDS.into_iter().zip(self.kernel_figures().map(|(_, percent)| percent));
        let kinds = threads.chain([("interrupts", self.busy_percent(times.busy_interrupts_ns()))]);
        let kinds: Vec<String> =
            kinds.filter_map(|(kind, percent)| Some(format!("{kind} {}", shown(percent)?))).collect();
        if let Some(kernel) = shown(self.busy_percent(times.busy_kernel_ns() + times.busy_interrupts_ns())) {
            let kinds = if kinds.is_empty() { String::new() } else { format!(" ({})", kinds.join(", ")) };
            writeln!(f, "  kernel     work on the batch lanes for {kernel} of the service's busy time{kinds}")?;
        }
        if let Some(programs) = shown(self.busy_percent(times.busy_ns(TurnKind::Program))) {
            let what = "programs that are not batch ran on the batch lanes";
            writeln!(f, "  others     {what} for {programs} of the service's busy time")?;
        }
        Ok(())
    }
}

/// Number of turns below which no share is shown, because one interrupted turn would decide it.
const TURNS_MIN: u64 = 100;

impl Summary {
    /// Returns the text on the overlap in a turn of the service, with its share of all time.
    fn overlap_text(&self) -> String {
        let Some(turn_us) = self.overlap_a_turn_us() else { return "no turn".to_owned() };
        match self.overlap_percent.filter(|_| self.lc_switches >= TURNS_MIN) {
            Some(percent) => {
                format!("{} of each turn without permission, {} of all", micros(turn_us), format_percent(percent))
            }
            None => format!("{} of each turn without permission; too few turns for a share", micros(turn_us)),
        }
    }

    fn overlap_a_turn_us(&self) -> Option<f64> {
        let turns = Some(self.lc_switches as f64).filter(|turns| *turns > 0.0)?;
        Some(self.overlap_percent? / 100.0 * self.lc_cpu_s * 1e6 / turns)
    }

    /// Returns the text on the cost of the run, without parts that are zero.
    fn cost_text(&self) -> String {
        let switch = self.cost_per_switch_ns.map(|ns| {
            // Each turn of the service begins and ends with a switch.
            let share = 2.0 * self.lc_switches as f64 * ns / 1e7 / self.lc_cpu_s;
            let share = if share.is_finite() {
                format!(", {} of the service's CPU", format_percent(share))
            } else {
                String::new()
            };
            format!("{} a context switch (sampled){share}", Unit::Ns.human(ns))
        });
        let summons = self.lc_summons;
        let paid = (summons > 0).then(|| format!("{} wakeups of holders, paid by the service", format_count(summons)));
        let evictions = match self.evictions {
            0 => String::new(),
            evictions => format!(" ({} evictions)", format_count(evictions)),
        };
        let (own, napped) = (Unit::S.human(self.own_cpu_s), Unit::S.human(self.napped_s));
        let holds = format_count(self.holds);
        let napping = (self.holds > 0).then(|| format!(", napping {napped} in {holds} holds{evictions}"));
        let own = format!("sidelane itself {own} of CPU{}", napping.unwrap_or_default());
        let service = [switch, paid].into_iter().flatten().collect::<Vec<_>>().join(", ");
        if service.is_empty() { own } else { format!("{service}; {own}") }
    }

    fn show_stolen(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((percent, gap_us)) =
            self.stolen_percent.zip(self.stolen_gap_max_us).filter(|(percent, _)| *percent > 0.0)
        else {
            return Ok(());
        };
        let (percent, gap) = (format_percent(percent), micros(gap_us));
        writeln!(f, "  stolen     {percent} of the lanes' time, {gap} at once at most; left out of all figures above")
    }

    fn show_adopted(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut adopted = self.adopted.iter();
        adopted.try_for_each(|batch| writeln!(f, "  adopted    {batch}; given back as they were found"))
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.broken_promises())?;
        let (requests, batch) = (&self.lanes.request_lanes, self.lanes.batch_cpus());
        let pair = match self.lanes.kind {
            PairKind::Smt => "SMT siblings",
            PairKind::Declared => "a declared pair; whether they share a core is not known",
        };
        writeln!(f, "sidelane: {:.1} s, batch on lane {batch} beside lane {requests} ({pair})", self.wall_s)?;
        self.show_adopted(f)?;
        if let [only] = &self.services[..] {
            only.show_cost(f)?;
        }
        writeln!(
            f,
            "  batch      {} of CPU, {} of the request lanes' idle time",
            Unit::S.human(self.batch_cpu_s),
            percent(self.batch_share_of_idle_percent)
        )?;
        writeln!(f, "  idle time  {}", self.ledger)?;
        writeln!(
            f,
            "  service    {} of CPU in {} turns; batch overlapped {}",
            Unit::S.human(self.lc_cpu_s),
            format_count(self.lc_switches),
            self.overlap_text()
        )?;
        match &self.services[..] {
            [only] => only.show_limits(f)?,
            several => several.iter().try_for_each(|service| service.show(f))?,
        }
        self.show_work(f)?;
        f.write_str(&reaction_line(self.never_left_ns, &self.reaction_off, &self.reaction_on))?;
        writeln!(f, "  cost       {}", self.cost_text())?;
        self.show_stolen(f)?;
        if let Some(looked) = &self.looked {
            writeln!(
                f,
                "  gate       {}: {} threads checked their lane; they napped {:.2} s in {} naps ({} checks found the \
                 lane taken)",
                self.gate_text(),
                looked.promises,
                seconds(looked.napped_ns),
                looked.naps,
                looked.slow_paths
            )?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "  note       {note}"))
    }
}

/// Returns the overlap in turns that batch never left. Reaction times reported by self-checking batch are not used,
/// because they are not exact enough.
fn never_left_overlap_ns(accounting: &Accounting, lanes: &Lanes) -> u64 {
    let reactions = accounting.batch_off_latencies().latency_counts();
    // Batch can write any counts into its histogram.
    let reactions_ns = reactions.fold(0_u64, |sum, (ns, count)| sum.saturating_add(ns.saturating_mul(count)));
    overlap_in_turns_never_left_ns(accounting.overlap(lanes).overlap_ns, reactions_ns)
}

/// Returns the line about reactions, with the overlap of turns that have none; empty if there was nothing to react to.
fn reaction_line(never_left_ns: u64, off_reactions: &Histogram, on_reactions: &Histogram) -> String {
    if off_reactions.count() + on_reactions.count() + never_left_ns == 0 {
        return String::new();
    }
    let at =
        |times: &Histogram, percentile| Unit::Ns.human_or_missing(times.percentile_ns(percentile).map(|ns| ns as f64));
    let [off_p50, off_p99, on_p50, on_p99] =
        [at(off_reactions, 50.0), at(off_reactions, 99.0), at(on_reactions, 50.0), at(on_reactions, 99.0)];
    let never_left = match never_left_ns {
        0 => String::new(),
        ns => format!("never off in turns with {} of the overlap; else ", time(ns)),
    };
    format!("  reaction   batch {never_left}off p50 {off_p50} p99 {off_p99}, back on p50 {on_p50} p99 {on_p99}\n")
}

/// Judges the overlap beside each service.
fn promises(outcome: &Outcome, bound_ppm: Option<u32>) -> Vec<OverlapPromise> {
    let circumstances = || Circumstances {
        gate: outcome.gate.clone(),
        was_stopped: outcome.was_stopped,
        note: LaneNote::best_overlap_explanation(&outcome.notes).cloned(),
    };
    let judge = |service: &ServiceOutcome| {
        let overlap = outcome.accounting.overlap(&service.lanes);
        OverlapPromise::new(service.target.to_string(), overlap, bound_ppm, circumstances())
    };
    outcome.services.iter().map(judge).collect()
}

/// Writes whether the objective was kept, with its percentile.
fn show_objective(outcome: &ObjectiveOutcome, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let name = format!("p{}", outcome.slo.percentile);
    let (verdict, slo) = (if outcome.is_met() { "✓ kept" } else { "✗ missed" }, written_objective(outcome.slo));
    write!(f, "  objective  {slo} {verdict}: {name} was {}", time(outcome.all_ns))?;
    if let (Some(beside), Some(apart)) = (outcome.beside_ns, outcome.apart_ns) {
        write!(f, " ({} with batch beside it, {} without)", time(beside), time(apart))?;
    }
    if outcome.missed_ns > 0 {
        write!(f, "; beyond it for {}", time(outcome.missed_ns))?;
    }
    writeln!(f)
}

/// Writes how much slower requests were beside batch, if enough requests were seen.
fn show_slowdown(outcome: &SlowdownOutcome, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let whole = &outcome.whole;
    let seen = [Side::Beside, Side::Apart].map(|side| format_count(whole.requests(side)));
    let told: Vec<String> = PERCENTILES
        .iter()
        .filter_map(|percentile| {
            let [low, middle, high] = whole.ratio(*percentile)?.percent_longer();
            let [beside, apart] = [Side::Beside, Side::Apart].map(|side| whole.percentile_ns(side, *percentile));
            let (beside, apart) = (time(beside?), time(apart?));
            Some(format!("p{percentile} {beside}, {apart} without ({middle:+.0} %, {low:+.0} to {high:+.0})"))
        })
        .collect();
    match told.is_empty() {
        true => {
            writeln!(f, "  requests   too few to measure the slowdown ({} beside batch, {} without)", seen[0], seen[1])
        }
        false => writeln!(
            f,
            "  requests   beside batch {}; {:.0} % allowed; {} and {} requests",
            told.join("; "),
            outcome.bound * 100.0,
            seen[0],
            seen[1]
        ),
    }
}

fn time(ns: u64) -> String {
    Unit::Ns.human(ns as f64)
}

fn micros(us: f64) -> String {
    Unit::Us.human(us)
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn percent(value: Option<f64>) -> String {
    Unit::Percent.human_or_missing(value)
}

fn format_count(count: u64) -> String {
    Unit::Count.human(count as f64)
}

fn format_percent(value: f64) -> String {
    Unit::Percent.human(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_that_batch_never_left_come_before_the_percentiles() {
        let [mut off, on] = [Histogram::default(), Histogram::default()];
        assert_eq!(reaction_line(0, &off, &on), "", "nothing happened");
        off.record(20);
        assert_eq!(
            reaction_line(0, &off, &on),
            "  reaction   batch off p50 20.0 ns p99 20.0 ns, back on p50 — p99 —\n"
        );
        let wanted = "  reaction   batch never off in turns with 840 ms of the overlap; else off p50 — p99 —, back on";
        assert!(reaction_line(840_000_000, &on, &on).starts_with(wanted), "{}", reaction_line(840_000_000, &on, &on));
    }
}

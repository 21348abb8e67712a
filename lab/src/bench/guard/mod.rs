//! `sidelane-lab bench guard`: Holmes' evaluation (§6), on this machine.
//!
//! Key-value stores get requests in bursts, and batch comes and goes in containers. Five ways of sharing the machine
//! take turns with the same requests. Two of the ways are the stores alone, and batch without management. In the other
//! three ways `sidelane agent` decides, with PerfIso, with Holmes, or with Holmes and a gate on borrowed lanes. The
//! agent is the real `sidelane agent`: a process with a configuration file.
//!
//! - `plan`: stores, mixes, containers and ways of sharing, their number and time
//! - `environment`: one sample and its figures; `agent`: the agent's process and its file
//! - `idle`: the cost of an idle agent; `reaction`: from interference to batch being off
//! - `results`: comparisons, checks, rows and pictures; `text`: the explanation and the notes

mod agent;
mod environment;
mod idle;
mod plan;
mod reaction;
mod results;
mod text;

use anyhow::{Context, Result};

use crate::experiment::comparison::{Experiment, Report, Samples};
use crate::experiment::place::ExperimentCpus;
use crate::experiment::sibling::{EmulatedSibling, SiblingDescription};
use crate::programs::LabBinary;
pub use agent::InterferenceSource;
use agent::NotificationMode;
use environment::{Environment, Figures};
use plan::{Group, Plan};
pub use plan::{GuardOptions, GuardVariant};
use reaction::Reactions;
use results::{GroupSamples, GuardMeasurements};
use sidelane_diagnostics::note::{Note, notes_as_text};
use sidelane_report::ResultFile;
use sidelane_stats::rounds::{Limit, Turn, run_until_decided};

/// Columns of the tables on a terminal; the HTML page shows all columns.
pub const COLUMNS: [&str; 14] = [
    "mean_us",
    "p99_us",
    "p99_over_alone",
    "slo_violations_percent",
    "utilisation_ratio",
    "batch_work_ratio",
    "agent_cpu_percent",
    "agent_memory_mib_count",
    "rounds_count",
    "left_out_percent",
    "reaction_p50_us",
    "reaction_p99_us",
    "reaction_max_us",
    "reactions_count",
];

/// Measures all groups of stores, and the agent's own cost and reactions.
pub fn run(options: &GuardOptions) -> Result<ResultFile> {
    let lab = LabBinary::find()?;
    let plan = Plan::from_options(options, &lab)?;
    let place = ExperimentCpus::choose(options.lanes.as_deref())?;
    let mut measured = GuardMeasurements {
        emulated: None,
        groups: Vec::new(),
        idle: None,
        reactions: Vec::new(),
        notes: plan.notes.clone(),
    };
    for group in &plan.groups {
        let samples = measure_group(options, &plan, group, place, &lab, &mut measured);
        measured.groups.push((group.clone(), samples.with_context(|| group.name())?));
    }
    let report = Report {
        rows: results::rows(&measured),
        checks: results::checks(&measured),
        multiples: results::latency_charts(&measured),
        notes: notes_as_text(&text::notes(&measured, place)),
        ..Report::with_settings(text::settings(&plan, place, &measured))
    };
    Ok(report.into_result_file(place.kind, plan.round_options, plan.limit.rounds))
}

fn measure_group(
    options: &GuardOptions,
    plan: &Plan,
    group: &Group,
    place: ExperimentCpus,
    lab: &LabBinary,
    measured: &mut GuardMeasurements,
) -> Result<Samples<GuardVariant, Figures>> {
    let sibling = EmulatedSibling::start_chosen_with_stand_in(options.sibling, place, lab)?;
    measured.emulated = SiblingDescription::from_sibling(sibling.as_ref(), &place.lanes());
    let mut environment = Environment::prepare(plan, group, place, lab, sibling)?;
    if plan.variants.contains(&GuardVariant::Holmes) {
        let uncounted = environment.choose_source(options.source)?;
        measure_agent_alone(plan, &environment, uncounted.is_none(), measured)?;
        measured.notes.extend(uncounted.map(Note::from));
    }
    // Rotates the variants from round to round, so that each is first equally often. A round has a block of runs of
    // each variant.
    let turns = |round: u64, _: &Samples<_, _>| {
        let variants = plan.variants.iter().copied().cycle();
        variants.skip(round as usize * 2).take(plan.variants.len()).collect()
    };
    let (name, title) = (&group.name(), |variant: &GuardVariant| variant.title().to_owned());
    let checks = |samples: &Samples<_, _>| results::checks_of_group(GroupSamples { group, samples });
    let guard = Experiment { name, limit: plan.limit, turns: &turns, title, checks: &checks };
    Ok(guard.run(|variant, round, samples| environment.measure_block(plan, variant, round, samples))?.0)
}

/// Measures reactions to interference in rounds. Rounds repeat until the check is decided, but only for the agent's
/// default notification mode, the only one with a check.
fn measure_reactions(plan: &Plan, environment: &Environment, notification: NotificationMode) -> Result<Reactions> {
    let mut reactions = Reactions::new(notification);
    let first = plan.onset_limit.first;
    let limit = if notification == NotificationMode::Wakeup {
        plan.onset_limit
    } else {
        Limit { rounds: first, ..plan.onset_limit }
    };
    let round = |reactions: &mut Reactions, _: Turn<'_>| reaction::measure_round(environment, plan.onsets, reactions);
    let checks = |reactions: &Reactions| results::check_of_reactions(reactions).into_iter().collect();
    run_until_decided(&format!("onsets, {}", notification.name()), limit, &mut reactions, round, checks)?;
    Ok(reactions)
}

/// Measures the cost of an idle agent once, and the agent's reaction times if it can count page faults.
fn measure_agent_alone(
    plan: &Plan,
    environment: &Environment,
    can_count_stand_in: bool,
    measured: &mut GuardMeasurements,
) -> Result<()> {
    if measured.idle.is_none() {
        measured.idle = Some(idle::measure_idle_agent(environment, plan)?);
    }
    if measured.reactions.is_empty() && can_count_stand_in {
        for notification in plan.notification {
            measured.reactions.push(measure_reactions(plan, environment, *notification).context("reactions")?);
        }
    }
    Ok(())
}

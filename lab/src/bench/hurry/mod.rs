//! `sidelane-lab bench hurry`: Hurry-up's evaluation (Nishtala et al., §IV), on one big and one little core.
//!
//! - `variant`: the ways of mapping threads; `plan`: loads, number and time of runs
//! - `environment`: the service and one run
//! - `cost`: the kernel program's cost to the service for each request
//! - `results`: figures, checks, rows and pictures; `text`: the explanation

mod cost;
mod environment;
mod plan;
mod results;
mod text;
mod variant;

use anyhow::Result;

use crate::experiment::comparison::{Experiment, Report};
use crate::experiment::place::ExperimentCpus;
use crate::note::LabNote;
use environment::Environment;
pub use plan::{HurryOptions, LITTLE_SPEED};
use plan::{Load, Plan};
use results::{HurrySamples, Samples};
use sidelane_diagnostics::note::{Note, notes_as_text};
use sidelane_report::ResultFile;
use variant::Variant;

/// Measures all variants at all loads, and the mapper's cost for a request.
pub fn run(options: &HurryOptions) -> Result<ResultFile> {
    let plan = Plan::from_options(options);
    let place = ExperimentCpus::choose(Some(&options.cores))?;
    let mut environment = Environment::prepare(options, &plan, place)?;
    environment.learn_thresholds(&plan)?;
    let turns = |round, _: &Samples| plan.turns(round, options.speed);
    let title = |(variant, _): &(Variant, Vec<Load>)| variant.title();
    let checks = |samples: &Samples| results::checks(HurrySamples(samples));
    let mapping = Experiment { name: "hurry", limit: plan.limit, turns: &turns, title, checks: &checks };
    let (samples, rounds) = mapping.run(|(variant, loads), round, samples| {
        // Starts one mapper per load if thresholds are learnt, since a threshold learnt at one load does not fit
        // another load.
        let together = if variant == Variant::Hurry && plan.learns_everywhere { 1 } else { loads.len() };
        for loads in loads.chunks(together) {
            samples.add(round, variant, environment.run_under_mapper(&plan, variant, loads, round)?);
        }
        Ok(())
    })?;
    let little_speed = environment.slow.as_mut().map(|slow| slow.measured_speed()).transpose()?.flatten();
    let cost = cost::measure_request_cost(&mut environment, plan.cost)?;
    let (compared, measures) = (HurrySamples(&samples), environment.measures);
    let report = Report {
        rows: results::rows(compared, &cost, measures),
        checks: results::checks(compared).into_iter().chain([results::check_of_cost(&cost.added_us)]).collect(),
        multiples: results::latency_charts(compared, measures),
        notes: notes_as_text(&notes(&environment, place)),
        ..Report::with_settings(text::settings(options, &plan, place, &environment, little_speed))
    };
    Ok(report.into_result_file(place.kind, options.round_options, rounds))
}

fn notes(environment: &Environment, place: ExperimentCpus) -> std::collections::BTreeSet<Note> {
    let client = place.is_client_on_batch_lane().then_some(LabNote::ClientOnLittleCore);
    environment.slow.iter().map(|slow| slow.note()).chain(client).map(Note::from).collect()
}

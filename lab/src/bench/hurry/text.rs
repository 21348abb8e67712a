//! The explanation in the result of the hurry bench: the compared variants, and which parts are real.

use serde_json::{Value, json};

use super::environment::Environment;
use super::plan::{HurryOptions, Load, Plan};
use crate::experiment::place::ExperimentCpus;

const WHAT: &str = "Hurry-up's evaluation (Nishtala et al., §IV) on one big and one little core. A search server with a thread \
                    for each core answers searches that are as long as they have keywords; an open-loop client counts \
                    each latency from the moment at which a search should have been sent. Within a round every variant of \
                    mapping threads gets the same searches.";

pub(super) fn settings(
    options: &HurryOptions,
    plan: &Plan,
    place: ExperimentCpus,
    environment: &Environment,
    little_speed: Option<f64>,
) -> Value {
    let loads: Vec<f64> = Load::all(plan.quick).iter().map(|load| load.percent().round()).collect();
    json!({
        "title": "Sidelane bench: hurry",
        "explanation": [WHAT, search_time_text(environment)],
        "big": place.request.to_string(),
        "little": place.batch.to_string(),
        "little_speed_ratio": options.speed,
        "little_speed_achieved_ratio": little_speed,
        "client_cpu": place.client,
        "mean_service_us": environment.measures.mean_us,
        "loads_percent": loads,
        "run_s": plan.run.as_secs_f64(),
        "warm_up_s": plan.warm_up.as_secs_f64(),
        "energy": environment.energy_source(),
        "quick": plan.quick,
    })
}

fn search_time_text(environment: &Environment) -> String {
    format!(
        "A search takes {:.1} ms on the big core in the mean, 70 ms in the paper: its sampling time and its thresholds are \
         shorter in this proportion. Loads are those of its Fig. 8, as shares of what all cores can do.",
        environment.measures.mean_us / 1e3
    )
}

//! Implementation of the verbs: each passes the options to the crate that does the work, and writes and prints its
//! result.

pub mod completions;
mod doctor;
#[cfg(feature = "full")]
mod full;
pub mod out;
pub mod privileges;
mod run;
pub mod show;

use anyhow::Result;

use crate::cli::{Internal, Verb};
use out::RunOutput;
use sidelane_doctor::reaction::instrumented;
use sidelane_lanes::batch;
use sidelane_lanes::batch::BatchClass;
use sidelane_rollback::own_threads::ServiceRelation;
use sidelane_rollback::{guardian, own_threads};

/// Runs a verb, and returns its exit code.
pub fn dispatch(verb: Verb, output: RunOutput) -> Result<u8> {
    privileges::give_up_capabilities(&verb);
    treatment_of_service_cpus(&verb).into_iter().for_each(own_threads::start_placing);
    let outcome = run_verb(verb, &output);
    output.end(outcome)
}

fn run_verb(verb: Verb, output: &RunOutput) -> Result<u8> {
    match verb {
        Verb::Run(args) => run::run_batch(args, output),
        Verb::Doctor(args) => doctor::run_doctor(args, output),
        Verb::Compare(args) => run::run_compare(*args, output),
        Verb::Calibrate(args) => doctor::run_calibrate(args, output),
        #[cfg(feature = "full")]
        Verb::Full(verb) => full::run_verb(verb, output),
        Verb::Completions(args) => completions::print_completions(args),
        Verb::Internal(internal) => run_internal(internal),
    }
}

/// Runs a hidden verb by which Sidelane starts itself, and returns its exit code.
///
/// # Errors
/// Fails with the error of the step that failed.
pub fn run_internal(internal: Internal) -> Result<u8> {
    match internal {
        Internal::Guardian { agent_pid, halt_fd } => Ok(guardian::main(agent_pid, halt_fd).map(|()| 0)?),
        Internal::Checks => instrumented::check_lane_forever(),
        Internal::Batch { entrance_fd, class, without_rights, command } => {
            Ok(batch::main(entrance_fd, BatchClass::from_name(&class), without_rights, &command) as u8)
        }
    }
}

/// Returns how the verb treats the CPUs of the services that it names. Returns `None` for verbs that name no services,
/// start their own, or place all threads themselves for a measurement.
fn treatment_of_service_cpus(verb: &Verb) -> Option<ServiceRelation> {
    match verb {
        Verb::Run(_) | Verb::Compare(_) => Some(ServiceRelation::ActsFor),
        #[cfg(feature = "full")]
        Verb::Full(verb) => full::treatment_of_service_cpus(verb),
        Verb::Doctor(_) | Verb::Calibrate(_) | Verb::Completions(_) | Verb::Internal(_) => None,
    }
}

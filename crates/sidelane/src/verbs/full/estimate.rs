//! Implementation of `sidelane estimate`.

use anyhow::{Result, bail};
use sidelane_diagnostics::note::Note;
use sidelane_estimate::EstimateNote;
use sidelane_estimate::observe::{ObserveOptions, observe};
use sidelane_estimate::services::ServiceEstimates;
use sidelane_estimate::text::{Choices, Estimate};
use sidelane_report::grid::Ink;
use sidelane_report::terminal::{self, print_fitted};
use sidelane_rollback::own_threads::run_bulk_work;
use sidelane_sim::recording::{RecordedService, Recording};

use crate::cli::EstimateArgs;
use crate::verbs::out::RunOutput;
use crate::verbs::show::{FirstError, check_json_writable};

pub(super) fn run_estimate(args: EstimateArgs, output: &RunOutput) -> Result<u8> {
    check_json_writable(&args.json)?;
    output.begin(&args.out)?;
    let choices = Choices { objective: args.slo, slowdown: args.slowdown };
    let (mut estimates, mut silent) = (Vec::new(), Vec::new());
    let mut add = |name: String, recording: &Recording, notes: Vec<Note>| match recording.requests.is_empty() {
        true => silent.push(name),
        // The simulations would take the CPUs of services for seconds.
        false => estimates.push((name, run_bulk_work(|| Estimate::new(recording, choices, notes)))),
    };
    match args.service {
        Some(target) => {
            let options = ObserveOptions { target, lanes: args.lanes, length: args.length, keep: args.keep };
            let (recording, notes) = observe(&options)?;
            add(recording.head.service.clone(), &recording, notes);
        }
        None => {
            for service in RecordedService::find(&args.recordings)? {
                let recording = service.load()?;
                let cut = recording.is_cut.then_some(EstimateNote::RecordingCut);
                add(service.name, &recording, cut.map(Note::from).into_iter().collect());
            }
        }
    }
    let (width, ink) = (terminal::stdout_width(), Ink { color: terminal::should_use_color() });
    let (result, text) = match (&estimates[..], &silent[..]) {
        ([], _) => bail!(
            "cannot estimate anything: {} answered no request; send it its usual traffic during the recording",
            silent.join(", ")
        ),
        ([(_, estimate)], []) => (estimate.to_result(), estimate.text(width, ink)),
        _ => {
            let services = ServiceEstimates::new(estimates, silent);
            (services.to_result(), services.text(width, ink))
        }
    };
    let mut failed = FirstError::default();
    failed.keep_error(args.json.file.as_deref().map_or(Ok(()), |path| result.write_json(path)));
    failed.keep_error(output.keep(&result));
    failed.keep_error(print_fitted(&text));
    failed.into_result(0)
}

//! Implementation of `sidelane estimate`.

use anyhow::{Result, bail};
use sidelane_diagnostics::note::Note;
use sidelane_estimate::EstimateNote;
use sidelane_estimate::observe::{ObserveOptions, observe};
use sidelane_estimate::text::{Choices, Estimate};
use sidelane_report::grid::Ink;
use sidelane_report::terminal::{self, print_fitted};
use sidelane_rollback::own_threads::run_bulk_work;
use sidelane_sim::recording::Recording;

use crate::cli::EstimateArgs;
use crate::verbs::out::RunOutput;
use crate::verbs::show::{FirstError, check_json_writable};

pub(super) fn run_estimate(args: EstimateArgs, output: &RunOutput) -> Result<u8> {
    check_json_writable(&args.json)?;
    output.begin(&args.out)?;
    let choices = Choices { objective: args.slo, slowdown: args.slowdown };
    let (recording, notes) = match args.service {
        Some(target) => observe(&ObserveOptions { target, lanes: args.lanes, length: args.length, keep: args.keep })?,
        None => {
            let recording = Recording::load_joined(&args.recordings)?;
            let cut = recording.is_cut.then_some(EstimateNote::RecordingCut);
            (recording, cut.map(Note::from).into_iter().collect())
        }
    };
    if recording.requests.is_empty() {
        bail!(
            "cannot estimate anything: {} answered no request; send it its usual traffic during the recording",
            recording.head.service
        );
    }
    // The simulations would take the CPUs of services for seconds.
    let estimate = run_bulk_work(|| Estimate::new(&recording, choices, notes));
    let result = estimate.to_result();
    let mut failed = FirstError::default();
    failed.keep_error(args.json.file.as_deref().map_or(Ok(()), |path| result.write_json(path)));
    failed.keep_error(output.keep(&result));
    let ink = Ink { color: terminal::should_use_color() };
    failed.keep_error(print_fitted(&estimate.text(terminal::stdout_width(), ink)));
    failed.into_result(0)
}

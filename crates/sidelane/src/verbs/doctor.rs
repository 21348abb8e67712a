//! Implementation of `sidelane doctor` and `calibrate`.

use anyhow::Result;
use sidelane_doctor::DoctorOptions;
use sidelane_doctor::calibrate::{self, CalibrateOptions};
use sidelane_report::terminal;

use super::out::RunOutput;
use super::show::{check_csv_writable, check_json_writable, show_tables};
use crate::cli::{CalibrateArgs, DoctorArgs, ResultFiles};

/// Exit code of a calibration that found no metric.
const NO_CONCLUSION: u8 = 1;

pub(super) fn run_doctor(args: DoctorArgs, output: &RunOutput) -> Result<u8> {
    check_json_writable(&args.json)?;
    output.begin(&args.out)?;
    let options = DoctorOptions { lanes: args.lanes, quick: args.quick, verbose: args.verbose, json: args.json.file };
    sidelane_doctor::run(options, |result| output.keep(result))
}

pub(super) fn run_calibrate(args: CalibrateArgs, output: &RunOutput) -> Result<u8> {
    check_json_writable(&args.json)?;
    check_csv_writable(&args.table)?;
    output.begin(&args.out)?;
    let options = CalibrateOptions { lanes: args.lanes, events: args.events, quick: args.quick };
    let calibration = calibrate::run(&options, terminal::eprint_fitted)?;
    output.keep(&calibration.result)?;
    let files = ResultFiles { json: args.json, page: None, table: args.table };
    show_tables(&calibration.result, |_| true, &files)?;
    Ok(if calibration.concluded { 0 } else { NO_CONCLUSION })
}

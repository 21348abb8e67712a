//! Implementation of `sidelane hurry`.

use std::path::Path;

use anyhow::Result;

use crate::cli::HurryArgs;
use crate::verbs::out::RunOutput;
use crate::verbs::show::{FirstError, check_json_writable};
use sidelane_host::cores::Cores;
use sidelane_host::shutdown::Shutdown;
use sidelane_host::topology::{Topology, online_cpus};
use sidelane_hurry as hurry;
use sidelane_hurry::CoreSizes;
use sidelane_report::check_directory_exists;
use sidelane_report::terminal::{eprint_fitted, print_fitted};

pub(super) fn run_hurry(args: HurryArgs, output: &RunOutput) -> Result<u8> {
    check_json_writable(&args.json)?;
    args.log.as_deref().map_or(Ok(()), check_directory_exists)?;
    let (sizes, little_speed_milli) = core_sizes(&args)?;
    output.begin(&args.out)?;
    let settings = hurry::Settings {
        config: args.config(little_speed_milli),
        service: args.service,
        sizes,
        source: args.stats.unwrap_or_default(),
        log: output.audit_log(args.log),
    };
    let until = Shutdown::on_posix_signals()?;
    let mut is_told = false;
    let summary = hurry::run(&settings, args.length, &until, |_| {
        if !std::mem::replace(&mut is_told, true) {
            eprint_fitted(&format!("{}; Ctrl-C ends it", settings.ready_message()));
        }
    })?;
    let mut failed = FirstError::default();
    let result = summary.to_result();
    failed.keep_error(args.json.file.map_or(Ok(()), |path| result.write_json(&path)));
    failed.keep_error(output.keep(&result));
    failed.keep_error(print_fitted(&summary.to_string()));
    failed.into_result(0)
}

/// Returns the big and little cores, and the speed of a little core in thousandths of a big one, if it is known.
fn core_sizes(args: &HurryArgs) -> Result<(CoreSizes, Option<u32>)> {
    let sizes = match (&args.siblings, &args.big, &args.little) {
        (Some(siblings), ..) if siblings.is_empty() => {
            CoreSizes::from_siblings(Topology::read(Path::new("/sys"))?.lanes_of_cores())?
        }
        (Some(siblings), ..) => CoreSizes::Lanes(siblings.clone()),
        (None, Some(big), Some(little)) => CoreSizes::Cores(Cores::from_user_lists(big, little, &online_cpus()?)?),
        _ => CoreSizes::Cores(Cores::find(Path::new("/sys"))?),
    };
    let little_speed_milli = sizes.little_speed_milli();
    Ok((sizes, little_speed_milli))
}

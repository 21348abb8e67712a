//! Implementation of `sidelane hurry`.

use std::path::Path;

use anyhow::Result;

use super::show::{FirstError, check_json};
use crate::cli::HurryArgs;
use sidelane_host::cores::Cores;
use sidelane_host::shutdown::Shutdown;
use sidelane_host::topology::{Topology, online_cpus};
use sidelane_hurry as hurry;
use sidelane_hurry::Sizes;
use sidelane_report::check_writable;
use sidelane_report::terminal::{eprint_fitted, print_fitted};

pub(super) fn hurry_up(args: HurryArgs) -> Result<u8> {
    check_json(&args.json)?;
    args.log.as_deref().map_or(Ok(()), check_writable)?;
    let (sizes, little_speed_milli) = sizes_of(&args)?;
    let settings = hurry::Settings {
        config: args.config(little_speed_milli),
        service: args.service,
        sizes,
        source: args.stats.unwrap_or_default(),
        log: args.log,
    };
    let until = Shutdown::signal()?;
    let mut is_told = false;
    let summary = hurry::run(&settings, args.length, &until, |_| {
        if !std::mem::replace(&mut is_told, true) {
            eprint_fitted(&format!("{}; Ctrl-C ends it", settings.opening()));
        }
    })?;
    let mut failed = FirstError::default();
    failed.of(args.json.file.map_or(Ok(()), |path| summary.to_result().write_json(&path)));
    failed.of(print_fitted(&summary.to_string()));
    failed.or(0)
}

/// Returns the big and little cores, and the speed of a little one if it is known.
fn sizes_of(args: &HurryArgs) -> Result<(Sizes, Option<u32>)> {
    let sizes = match (&args.siblings, &args.big, &args.little) {
        (Some(siblings), ..) if siblings.is_empty() => {
            Sizes::of_siblings(Topology::read(Path::new("/sys"))?.lanes_of_cores())?
        }
        (Some(siblings), ..) => Sizes::Lanes(siblings.clone()),
        (None, Some(big), Some(little)) => Sizes::Cores(Cores::given(big, little, &online_cpus()?)?),
        _ => Sizes::Cores(Cores::find(Path::new("/sys"))?),
    };
    let little_speed_milli = sizes.little_speed_milli();
    Ok((sizes, little_speed_milli))
}

//! The verbs of `sidelane-lab`: they turn options into experiments with checks, and print the results.

use std::path::PathBuf;

use anyhow::Result;
use sidelane::verbs::run_internal;
use sidelane::verbs::show::{check_csv_writable, check_json_writable, write_files, write_json_and_print_table};
use sidelane_report::{Column, terminal};
use sidelane_stats::rounds::RoundOptions;

use crate::cli::{DemoArgs, Verb};
use crate::demo::{self, DemoOptions};
use crate::interrupt;

/// Carries out a verb. Returns the exit code.
///
/// # Errors
/// Returns the error of the measurement that failed.
pub fn dispatch(verb: Verb) -> Result<u8> {
    match verb {
        Verb::Demo(args) => run_demo(args),
        #[cfg(feature = "bench")]
        Verb::Bench(bench) => crate::bench::verbs::run_bench(bench),
        #[cfg(feature = "bench")]
        Verb::Results(args) => crate::bench::results::write_page(&args.folder).map(|()| 0),
        Verb::Program(command) => sidelane_programs::run(command).map(|()| 0),
        Verb::Internal(internal) => run_internal(internal),
    }
}

fn run_demo(args: DemoArgs) -> Result<u8> {
    check_json_writable(&args.json)?;
    check_csv_writable(&args.table)?;
    let options = DemoOptions {
        round_options: RoundOptions { quick: false, rounds: args.rounds },
        lanes: args.core.lanes,
        sibling: args.core.sibling,
        load: args.load.map(|percent| f64::from(percent) / 100.0),
        judges: args.check,
        batch: args.batch,
        out: args.out,
        cache: args.cache.dir.unwrap_or_else(default_cache),
    };
    interrupt::catch_signals();
    let result = demo::run(&options)?;
    if !args.table.detail.quiet {
        terminal::print(&demo::first_screen(&result, &options, terminal::should_use_color()))?;
    }
    // The screen says all that a user needs; a judge, or a user who asks, gets the tables and checks, too.
    let has_tables = args.check || args.table.detail.verbose || args.table.detail.quiet;
    let verdict = match has_tables {
        true => write_json_and_print_table(&result, &demo::COLUMNS.map(Column::from_key), &args.json, &args.table)?,
        false => {
            write_files(&result, &args.json, &args.table)?;
            0
        }
    };
    // Exits with 0 without `--check`: a missed bound on a noisy machine is a finding of the demo, not a failure.
    Ok(if args.check { verdict } else { 0 })
}

/// Returns the folder for caches of the XDG base directory specification.
pub(crate) fn default_cache() -> PathBuf {
    let of_home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"));
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(of_home);
    base.unwrap_or_else(std::env::temp_dir).join("sidelane")
}

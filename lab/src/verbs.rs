//! The verbs of `sidelane-lab`: they turn options into experiments with checks, and print the results.

use std::path::PathBuf;

use anyhow::Result;
use sidelane::verbs::run_internal;
use sidelane::verbs::show::{
    check_csv_writable, check_files_writable, check_json_writable, show_tables, write_files, write_json_and_print_table,
};
use sidelane_report::{Column, ResultFile, terminal};
use sidelane_stats::rounds::RoundOptions;

use crate::bench;
use crate::bench::foresight::ForesightOptions;
use crate::bench::guard::GuardOptions;
use crate::bench::hurry::HurryOptions;
use crate::bench::lanes::LanesOptions;
use crate::bench::parity::ParityOptions;
use crate::bench::sibling::SiblingOptions;
use crate::bench::tail::TailOptions;
use crate::cli::{
    Bench, DemoArgs, EstimateBenchArgs, GuardArgs, HurryBenchArgs, LanesArgs, ObserveBenchArgs, PairArgs, PapersArgs,
    ParityArgs, SiblingArgs, TailArgs, Verb,
};
use crate::demo::{self, DemoOptions};
use crate::interrupt;
use crate::results;

/// Carries out a verb. Returns the exit code.
///
/// # Errors
/// Returns the error of the measurement that failed.
pub fn dispatch(verb: Verb) -> Result<u8> {
    match verb {
        Verb::Demo(args) => run_demo(args),
        Verb::Bench(bench) => run_bench(bench),
        Verb::Results(args) => results::write_page(&args.folder).map(|()| 0),
        Verb::Program(command) => sidelane_programs::run(command).map(|()| 0),
        Verb::Internal(internal) => run_internal(internal),
    }
}

fn run_bench(bench: Bench) -> Result<u8> {
    match bench {
        Bench::Hold(args) => bench_pair(args, bench::hold::run),
        Bench::Gate(args) => bench_pair(args, bench::gate::run),
        Bench::Requests(args) => bench_pair(args, bench::requests::run),
        Bench::Observe(args) => bench_observe(args),
        Bench::Lanes(args) => bench_lanes(args),
        Bench::Guard(args) => bench_guard(args),
        Bench::Tail(args) => bench_tail(args),
        Bench::Hurry(args) => bench_hurry(args),
        Bench::Papers(args) => bench_papers(args),
        Bench::Parity(args) => bench_parity(args),
        Bench::Estimate(args) => bench_estimate(args),
        Bench::Sibling(args) => bench_sibling(args),
    }
}

fn run_demo(args: DemoArgs) -> Result<u8> {
    check_json_writable(&args.json)?;
    check_csv_writable(&args.table)?;
    let options = DemoOptions {
        round_options: args.round_options.into(),
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

/// Runs a bench that needs a pair of lanes and no other options.
fn bench_pair(args: PairArgs, run: fn(&str, RoundOptions) -> Result<ResultFile>) -> Result<u8> {
    check_json_writable(&args.json)?;
    check_csv_writable(&args.table)?;
    let result = run(&args.lanes, args.round_options.into())?;
    write_json_and_print_table(&result, &Column::from_rows(&result.rows), &args.json, &args.table)
}

fn bench_observe(args: ObserveBenchArgs) -> Result<u8> {
    check_files_writable(&args.files)?;
    let result = bench::observe::run(&args.lanes, args.round_options.into())?;
    show_tables(&result, |_| true, &args.files)
}

fn bench_lanes(args: LanesArgs) -> Result<u8> {
    check_files_writable(&args.files)?;
    let result = bench::lanes::run(&LanesOptions {
        round_options: args.round_options.into(),
        lanes: args.core.lanes,
        sibling: args.core.sibling,
        loads: args.loads,
        batches: args.batches,
        slo: args.slo,
        cache: args.cache.dir.unwrap_or_else(default_cache),
    })?;
    show_tables(&result, |column| bench::lanes::COLUMNS.contains(&column.key.as_str()), &args.files)
}

fn bench_guard(args: GuardArgs) -> Result<u8> {
    check_files_writable(&args.files)?;
    let options = GuardOptions {
        round_options: args.round_options.into(),
        lanes: args.core.lanes,
        sibling: args.core.sibling,
        variants: args.ways,
        stores: args.stores,
        mixes: args.mixes,
        source: args.interference,
    };
    let result = bench::guard::run(&options)?;
    show_tables(&result, |column| bench::guard::COLUMNS.contains(&column.key.as_str()), &args.files)
}

fn bench_tail(args: TailArgs) -> Result<u8> {
    check_files_writable(&args.files)?;
    let result = bench::tail::run(&TailOptions {
        round_options: args.round_options.into(),
        lanes: args.lanes,
        parts: args.parts,
        cache: args.cache.dir.unwrap_or_else(default_cache),
    })?;
    show_tables(&result, |_| true, &args.files)
}

fn bench_hurry(args: HurryBenchArgs) -> Result<u8> {
    check_files_writable(&args.files)?;
    let result = bench::hurry::run(&HurryOptions {
        round_options: args.round_options.into(),
        cores: args.cores,
        slow_cpu: args.slow_cpu,
        speed: args.speed,
        mean: args.mean,
        cache: args.cache.dir.unwrap_or_else(default_cache),
    })?;
    show_tables(&result, |_| true, &args.files)
}

fn bench_papers(args: PapersArgs) -> Result<u8> {
    check_files_writable(&args.files)?;
    let result = bench::papers::run(args.quick)?;
    show_tables(&result, |column| bench::papers::COLUMNS.contains(&column.key.as_str()), &args.files)
}

fn bench_parity(args: ParityArgs) -> Result<u8> {
    check_json_writable(&args.json)?;
    check_csv_writable(&args.table)?;
    let result = bench::parity::run(&ParityOptions {
        scenario: args.scenario,
        round_options: args.round_options.into(),
        lanes: args.core.lanes,
        sibling: args.core.sibling,
        cache: args.cache.dir.unwrap_or_else(default_cache),
    })?;
    write_json_and_print_table(&result, &Column::from_rows(&result.rows), &args.json, &args.table)
}

fn bench_estimate(args: EstimateBenchArgs) -> Result<u8> {
    check_json_writable(&args.json)?;
    check_csv_writable(&args.table)?;
    let result = bench::foresight::run(&ForesightOptions {
        round_options: args.round_options.into(),
        lanes: args.core.lanes,
        sibling: args.core.sibling,
        cache: args.cache.dir.unwrap_or_else(default_cache),
    })?;
    write_json_and_print_table(&result, &Column::from_rows(&result.rows), &args.json, &args.table)
}

fn bench_sibling(args: SiblingArgs) -> Result<u8> {
    check_json_writable(&args.json)?;
    check_csv_writable(&args.table)?;
    let cache = args.cache.dir.unwrap_or_else(default_cache);
    let options = SiblingOptions { round_options: args.round_options.into(), lanes: args.lanes, cache };
    let result = bench::sibling::run(&options)?;
    let all = Column::from_rows(&result.rows);
    write_json_and_print_table(&result, &all, &args.json, &args.table)
}

/// Returns the folder for caches of the XDG base directory specification.
fn default_cache() -> PathBuf {
    let of_home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"));
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(of_home);
    base.unwrap_or_else(std::env::temp_dir).join("sidelane")
}

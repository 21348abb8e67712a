//! The benches as verbs: they turn options into experiments with checks, and print the results.

use anyhow::Result;
use sidelane::verbs::show::{
    check_csv_writable, check_files_writable, check_json_writable, show_tables, write_json_and_print_table,
};
use sidelane_report::{Column, ResultFile};
use sidelane_stats::rounds::RoundOptions;

use super::cli::{
    Bench, EstimateBenchArgs, GuardArgs, HurryBenchArgs, LanesArgs, ObserveBenchArgs, PairArgs, PapersArgs, ParityArgs,
    SiblingArgs, TailArgs,
};
use super::foresight::ForesightOptions;
use super::guard::GuardOptions;
use super::hurry::HurryOptions;
use super::lanes::LanesOptions;
use super::parity::ParityOptions;
use super::sibling::SiblingOptions;
use super::tail::TailOptions;
use crate::bench;
use crate::verbs::default_cache;

/// Runs a bench, and returns its exit code.
///
/// # Errors
/// Returns the error of the measurement that failed.
pub fn run_bench(bench: Bench) -> Result<u8> {
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

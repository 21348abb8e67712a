//! The `sidelane` command.

use std::io::{IsTerminal, stderr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::{CommandFactory, Parser};
use sidelane::agent::config::{Config, EXAMPLE};
use sidelane::agent::show::Shown;
use sidelane::agent::status::StatusOptions;
use sidelane::agent::{self, AgentOptions};
use sidelane::bench;
use sidelane::bench::guard::GuardOptions;
use sidelane::bench::hurry::HurryOptions;
use sidelane::bench::lanes::LanesOptions;
use sidelane::bench::parity::ParityOptions;
use sidelane::bench::rounds::Patience;
use sidelane::bench::sibling::SiblingOptions;
use sidelane::bench::tail::TailOptions;
use sidelane::calibrate::{self, CalibrateOptions};
use sidelane::cli::{
    Agent, AgentArgs, Bench, CalibrateArgs, Cli, CompareArgs, DemoArgs, DoctorArgs, GuardArgs, HurryArgs,
    HurryBenchArgs, JsonFile, LanesArgs, ListArgs, ObserveArgs, ObserveBenchArgs, Outputs, PairArgs, PapersArgs,
    ParityArgs, ProxyArgs, ReportArgs, RequestsArgs, ResultFiles, RunArgs, ShowArgs, SiblingArgs, SimArgs, TableArgs,
    TailArgs, TraceArgs, Verb, WhenBlocked,
};
use sidelane::compare::{self, Comparison};
use sidelane::demo::{self, DemoOptions};
use sidelane::doctor::{self, DoctorOptions};
use sidelane::hurry::{self, Sizes};
use sidelane::lane::batch::{self, BatchClass};
use sidelane::lane::plan::{Asked, AskedBatch};
use sidelane::lane::run::{OnBlocked, Run, RunOptions};
use sidelane::lane::talk::TalkOptions;
use sidelane::list::{Listing, list};
use sidelane::machine;
use sidelane::observe::observed::Observed;
use sidelane::observe::replay::{ReplayOptions, replay};
use sidelane::observe::session::{self, ObserveOptions};
use sidelane::proxy;
use sidelane::request::watch::{self, WatchOptions};
use sidelane::sim::{self, SimOptions};
use sidelane::tale;
use sidelane::tale::bound::Bound;
use sidelane::tale::flight::{self, Event, FlightOptions};
use sidelane::tale::log::is_trace;
use sidelane::tale::options::TraceOptions;
use sidelane::tale::terminal::{headline, text};
use sidelane::tale::told::Told;
use sidelane::undo::guardian;
use sidelane::until::Until;
use sidelane_host::cores::Cores;
use sidelane_host::service::Target;
use sidelane_host::topology::{Topology, online_cpus};
use sidelane_report::{Column, Detail, ResultFile, Style, check_writable, fitted, html, table, terminal, write_whole};
use sidelane_sim::Choices;

/// The exit code for a scenario that cannot be run, or an agent's file: it is an argument, and wrong.
const WRONG_FILE: u8 = 2;

/// For how long is traced unless the user says otherwise.
const TRACE_LENGTH: Duration = Duration::from_secs(10);

/// The exit code of an error.
const EXIT_FAILURE: u8 = 1;
/// The exit code of an error in a run, whose batch may well end with 1.
const EXIT_OWN_FAILURE: u8 = 125;
/// The exit code of a run whose objective was missed, if the user asks for one.
const EXIT_OBJECTIVE_MISSED: u8 = 99;

/// The exit code of a calibration that found no metric.
const NO_CONCLUSION: u8 = 1;

fn main() -> ExitCode {
    machine::begin();
    let verb = Cli::parse().verb;
    // The exit codes of `run` are batch's own but for a few, as with env and timeout.
    let failure = if matches!(verb, Verb::Run(_)) { EXIT_OWN_FAILURE } else { EXIT_FAILURE };
    dispatch(verb).map(ExitCode::from).unwrap_or_else(|error| {
        eprint_fitted(&format!("sidelane: {error:#}"));
        ExitCode::from(failure)
    })
}

fn dispatch(verb: Verb) -> Result<u8> {
    match verb {
        Verb::Run(args) => run_beside(args),
        Verb::Doctor(args) => examine(args),
        Verb::Demo(args) => demonstrate(args),
        Verb::Compare(args) => weigh(*args),
        Verb::Calibrate(args) => find_metric(args),
        Verb::Requests(args) => watch_requests(args),
        Verb::List(args) => list_of(args),
        Verb::Proxy(args) => pass_on(*args),
        Verb::Observe(args) => observe(args),
        Verb::Trace(args) => trace(args),
        Verb::Report(args) => report_again(args),
        Verb::Bench(Bench::Hold(args)) => bench_pair(args, bench::hold::run),
        Verb::Bench(Bench::Gate(args)) => bench_pair(args, bench::gate::run),
        Verb::Bench(Bench::Requests(args)) => bench_pair(args, bench::requests::run),
        Verb::Bench(Bench::Observe(args)) => bench_observe(args),
        Verb::Bench(Bench::Lanes(args)) => bench_lanes(args),
        Verb::Bench(Bench::Guard(args)) => bench_guard(args),
        Verb::Bench(Bench::Tail(args)) => bench_tail(args),
        Verb::Bench(Bench::Hurry(args)) => bench_hurry(args),
        Verb::Bench(Bench::Papers(args)) => bench_papers(args),
        Verb::Bench(Bench::Parity(args)) => bench_parity(args),
        Verb::Bench(Bench::Sibling(args)) => bench_sibling(args),
        Verb::Sim(args) => simulate(args),
        Verb::Hurry(args) => hurry_up(args),
        Verb::Agent(args) => run_agent(args),
        Verb::Status(args) => agent::status::run(StatusOptions { json: args.json }),
        Verb::Guardian { agent_pid } => Ok(guardian::main(agent_pid).map(|()| 0)?),
        Verb::Batch { entrance_fd, class, command } => {
            Ok(batch::main(entrance_fd, BatchClass::of_name(&class), &command) as u8)
        }
    }
}

fn run_beside(args: RunArgs) -> Result<u8> {
    let lending = args.lend.lending().unwrap_or_else(|error| refuse(&error.to_string()));
    let asked = Asked {
        services: pair_lanes(args.services, args.lanes),
        pin_service: args.pin_service,
        gate: args.lend.gate,
        lending,
        max_slowdown: args.lend.max_slowdown,
        batch: match args.adopt {
            Some(target) => AskedBatch::Adopted(target),
            None => AskedBatch::Command(args.command),
        },
    };
    let run = Run::prepare(RunOptions {
        asked,
        audit: args.audit.map(|path| (path, args.audit_level)),
        json: args.json.file.clone(),
        grace: args.grace,
        on_blocked: OnBlocked { after: args.blocked_after, ends: args.on_blocked == WhenBlocked::Fail },
        talk: TalkOptions { quiet: args.quiet, status_every: args.status },
    })?;
    if args.dry_run {
        return Ok(tell_plan(&run.lines()));
    }
    let (exit_code, summary) = run.run()?;
    if !args.quiet {
        eprint_fitted(&summary.to_string());
    }
    if let Some(path) = args.json.file {
        summary.to_result().write_json(&path)?;
    }
    Ok(if args.fail_on_slo && summary.misses_objective() { EXIT_OBJECTIVE_MISSED } else { exit_code })
}

/// What would be done.
fn tell_plan(lines: &[String]) -> u8 {
    lines.iter().for_each(|line| print_fitted(line));
    0
}

/// Each service with its lanes: those of none, or of all, are named.
fn pair_lanes(services: Vec<Target>, lanes: Vec<String>) -> Vec<(Target, Option<String>)> {
    if !lanes.is_empty() && lanes.len() != services.len() {
        let (services, lanes) = (services.len(), lanes.len());
        refuse(&format!(
            "--lanes goes with each --service, or with none: there are {services} services and {lanes} --lanes"
        ));
    }
    let lanes = lanes.into_iter().map(Some).chain(std::iter::repeat(None));
    services.into_iter().zip(lanes).collect()
}

/// Ends with the usage and the exit code of wrong arguments.
fn refuse(why: &str) -> ! {
    Cli::command().error(clap::error::ErrorKind::ArgumentConflict, why).exit()
}

fn examine(args: DoctorArgs) -> Result<u8> {
    check_json(&args.json)?;
    doctor::run(DoctorOptions { lanes: args.lanes, quick: args.quick, json: args.json.file })
}

fn weigh(mut args: CompareArgs) -> Result<u8> {
    let (files, dry_run) = (std::mem::take(&mut args.files), args.dry_run);
    let options = args.options().unwrap_or_else(|error| refuse(&error.to_string()));
    let comparison = Comparison::prepare(options, files.paths())?;
    if dry_run {
        return Ok(tell_plan(&comparison.lines()));
    }
    show_tables(&comparison.run()?, |column| compare::COLUMNS.contains(&column.key.as_str()), &files)
}

fn find_metric(args: CalibrateArgs) -> Result<u8> {
    check_json(&args.json)?;
    check_table(&args.table)?;
    let options = CalibrateOptions { lanes: args.lanes, events: args.events, quick: args.quick };
    let calibration = calibrate::run(&options, |step| eprintln!("{step}"))?;
    let files = ResultFiles { json: args.json, page: None, table: args.table };
    show_tables(&calibration.result, |_| true, &files)?;
    Ok(if calibration.concluded { 0 } else { NO_CONCLUSION })
}

fn check_json(json: &JsonFile) -> Result<()> {
    Ok(json.file.as_deref().map_or(Ok(()), check_writable)?)
}

fn check_table(table: &TableArgs) -> Result<()> {
    Ok(table.csv.as_deref().map_or(Ok(()), check_writable)?)
}

fn check_files(files: &ResultFiles) -> Result<()> {
    Ok(files.paths().try_for_each(check_writable)?)
}

fn demonstrate(args: DemoArgs) -> Result<u8> {
    check_json(&args.json)?;
    check_table(&args.table)?;
    let options = DemoOptions {
        patience: args.patience.into(),
        lanes: args.core.lanes,
        sibling: args.core.sibling,
        load: f64::from(args.load) / 100.0,
        batch: args.batch,
        out: args.out,
        cache: args.cache.dir.unwrap_or_else(default_cache),
    };
    let result = demo::run(&options)?;
    let code = show(&result, &demo::COLUMNS.map(Column::of_key), &args.json, &args.table)?;
    println!("\nresults: {0}/result.json, page: {0}/index.html", options.out.display());
    Ok(code)
}

/// Where the XDG base directory specification puts caches.
fn pass_on(args: ProxyArgs) -> Result<u8> {
    check_json(&args.json)?;
    let json = args.json.file.clone();
    let summary = proxy::run(args.into())?;
    print_fitted(&summary.to_string());
    if let Some(path) = json {
        write_whole(&path, &serde_json::to_vec_pretty(&summary)?)?;
    }
    Ok(0)
}

fn default_cache() -> PathBuf {
    let of_home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"));
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(of_home);
    base.unwrap_or_else(std::env::temp_dir).join("sidelane")
}

fn watch_requests(args: RequestsArgs) -> Result<u8> {
    check_json(&args.json)?;
    check_table(&args.table)?;
    let summary = watch::run(&WatchOptions { target: args.service, length: args.length, log: args.log })?;
    let (result, style) = (summary.to_result(), style(&args.table));
    print_fitted(&summary.text(style.detail));
    if style.detail == Detail::All {
        print!("\n{}", table::render_tables(&result, |_| true, style));
    }
    args.table.csv.as_deref().map_or(Ok(()), |path| result.write_csv(path))?;
    args.json.file.as_deref().map_or(Ok(()), |path| result.write_json(path))?;
    Ok(0)
}

fn observe(args: ObserveArgs) -> Result<u8> {
    check_outputs(&args.outputs)?;
    if let Some(target) = &args.list {
        return list_signals(target, args.filter.as_deref(), args.outputs.files.json.file.as_deref());
    }
    let observation = session::run(&ObserveOptions {
        target: args.service,
        command: args.command,
        signals: args.signals,
        progress: args.progress,
        length: args.length,
        period: args.period,
        cpu: args.cpu,
        observer_cpu: args.observer_cpu,
        tolerance: args.tolerance / 100.0,
        log: args.log,
        live: true,
    })?;
    tell(&observation, args.outputs)
}

fn list_of(args: ListArgs) -> Result<u8> {
    check_json(&args.json)?;
    list_signals(&args.service, args.filter.as_deref(), args.json.file.as_deref())
}

/// What can be observed of each process of the target.
fn list_signals(target: &Target, filter: Option<&str>, json: Option<&Path>) -> Result<u8> {
    let listings: Vec<Listing> = target.find()?.pids.into_iter().map(|pid| list(pid, filter)).collect();
    for listing in &listings {
        print!("{}", listing.render(terminal::width(), terminal::color_wanted()));
    }
    if let Some(path) = json {
        write_whole(path, &serde_json::to_vec_pretty(&listings)?)?;
    }
    Ok(0)
}

fn trace(args: TraceArgs) -> Result<u8> {
    check_outputs(&args.outputs)?;
    args.log.as_deref().map_or(Ok(()), check_writable)?;
    let bound = args.slo.unwrap_or(Bound::P99);
    if let Some(dir) = args.record {
        return record(
            &FlightOptions {
                service: args.service.to_string(),
                target: args.service,
                bound,
                light: args.light,
                dir,
                keep: flight::KEEP,
                recordings: flight::RECORDINGS,
            },
            args.length,
        );
    }
    let length = args.length.unwrap_or(TRACE_LENGTH);
    let options = TraceOptions { target: args.service, bound, length, light: args.light, log: args.log };
    tell_trace(&tale::trace::run(&options)?, args.outputs)
}

fn record(options: &FlightOptions, length: Option<Duration>) -> Result<u8> {
    let tell = |event: Event| match event {
        Event::Began(_) => eprintln!("sidelane: {event}; Ctrl-C ends it"),
        _ => eprintln!("sidelane: {event}"),
    };
    flight::run(options, length, Until::signal()?, Arc::new(tell)).map(|()| 0)
}

fn hurry_up(args: HurryArgs) -> Result<u8> {
    check_json(&args.json)?;
    args.log.as_deref().map_or(Ok(()), check_writable)?;
    let (sizes, little_speed_milli) = sizes_of(&args)?;
    let settings = hurry::Settings {
        config: args.config(little_speed_milli),
        service: args.service,
        sizes,
        told: args.stats.unwrap_or_default(),
        log: args.log,
    };
    let until = Until::signal()?;
    let mut is_told = false;
    let summary = hurry::run(&settings, args.length, &until, |_| {
        if !std::mem::replace(&mut is_told, true) {
            eprintln!("{}; Ctrl-C ends it", settings.opening());
        }
    })?;
    print_fitted(&summary.to_string());
    if let Some(path) = args.json.file {
        summary.to_result().write_json(&path)?;
    }
    Ok(0)
}

/// Which cores are big, and how fast a little one is, if that is known.
fn sizes_of(args: &HurryArgs) -> Result<(Sizes, Option<u32>)> {
    let sizes = match (&args.siblings, &args.big, &args.little) {
        (Some(siblings), ..) if siblings.is_empty() => Sizes::of_siblings(&Topology::read(Path::new("/sys"))?)?,
        (Some(siblings), ..) => Sizes::Lanes(siblings.clone()),
        (None, Some(big), Some(little)) => Sizes::Cores(Cores::given(big, little, &online_cpus()?)?),
        _ => Sizes::Cores(Cores::find(Path::new("/sys"))?),
    };
    let little_speed_milli = sizes.little_speed_milli();
    Ok((sizes, little_speed_milli))
}

/// What was traced, for people and for programs.
fn tell_trace(told: &Told, outputs: Outputs) -> Result<u8> {
    let result = told.to_result();
    outputs.files.json.file.as_deref().map_or(Ok(()), |path| result.write_json(path))?;
    outputs.perfetto.as_deref().map_or(Ok(()), |path| told.to_trace().write(path))?;
    outputs.files.table.csv.as_deref().map_or(Ok(()), |path| result.write_csv(path))?;
    let style = style(&outputs.files.table);
    match style.detail {
        Detail::Quiet => print_fitted(&headline(told)),
        _ => print!("{}", text(told, style.width)),
    }
    if style.detail == Detail::All {
        print!("\n{}", table::render_tables(&result, |_| true, style));
    }
    write_and_open(&result, outputs.files.page, outputs.open.then_some("sidelane-trace.html"))?;
    Ok(result.exit_code())
}

fn report_again(args: ReportArgs) -> Result<u8> {
    check_outputs(&args.outputs)?;
    if is_trace(&args.log) {
        return report_trace(args);
    }
    ensure!(args.slo.is_none(), "--slo is for logs of sidelane trace, and {} is none", args.log.display());
    let options = ReplayOptions {
        from_s: args.from.as_secs_f64(),
        to_s: args.to.map(|to| to.as_secs_f64()),
        tolerance: args.tolerance.map(|percent| percent / 100.0),
        turns: args.outputs.perfetto.is_some(),
    };
    tell(&replay(&args.log, &options)?, args.outputs)
}

fn report_trace(args: ReportArgs) -> Result<u8> {
    let log = args.log.display();
    ensure!(
        args.tolerance.is_none(),
        "--tolerance is for logs of sidelane observe, and {log} is one of sidelane trace"
    );
    let options = tale::replay::ReplayOptions {
        from_s: args.from.as_secs_f64(),
        to_s: args.to.map(|to| to.as_secs_f64()),
        bound: args.slo,
    };
    tell_trace(&tale::replay::replay(&args.log, &options)?, args.outputs)
}

fn check_outputs(outputs: &Outputs) -> Result<()> {
    check_files(&outputs.files)?;
    Ok(outputs.perfetto.as_deref().map_or(Ok(()), check_writable)?)
}

/// What was observed, for people and for programs.
fn tell(observation: &Observed, outputs: Outputs) -> Result<u8> {
    let result = observation.to_result();
    outputs.files.json.file.as_deref().map_or(Ok(()), |path| result.write_json(path))?;
    outputs.perfetto.as_deref().map_or(Ok(()), |path| observation.to_trace().write(path))?;
    outputs.files.table.csv.as_deref().map_or(Ok(()), |path| result.write_csv(path))?;
    let style = style(&outputs.files.table);
    let shown = observation.shown(&result, style.width, style.detail);
    print!("{}", table::render_tables(&shown, |_| true, style));
    if style.detail == Detail::All {
        print!("\n{}", observation.histograms(style.width));
    }
    write_and_open(&result, outputs.files.page, outputs.open.then_some("sidelane-observe.html"))?;
    Ok(result.exit_code())
}

/// Writes the page to `page`, or else to `opened` if it is to be opened, and opens it where there is a
/// desktop; elsewhere says where it is.
fn write_and_open(result: &ResultFile, page: Option<PathBuf>, opened: Option<&str>) -> Result<()> {
    let Some(page) = page.or_else(|| opened.map(PathBuf::from)) else { return Ok(()) };
    html::write_page(result, &page)?;
    if opened.is_none_or(|_| !html::open_page(&page)) {
        println!("\npage: {}", page.display());
    }
    Ok(())
}

/// Runs a bench that needs a pair of lanes, and no more.
fn bench_pair(args: PairArgs, run: fn(&str, Patience) -> Result<ResultFile>) -> Result<u8> {
    check_json(&args.json)?;
    check_table(&args.table)?;
    let result = run(&args.lanes, args.patience.into())?;
    show(&result, &Column::of_rows(&result.rows), &args.json, &args.table)
}

fn bench_observe(args: ObserveBenchArgs) -> Result<u8> {
    check_files(&args.files)?;
    let result = bench::observe::run(&args.lanes, args.patience.into())?;
    show_tables(&result, |_| true, &args.files)
}

fn bench_lanes(args: LanesArgs) -> Result<u8> {
    check_files(&args.files)?;
    let result = bench::lanes::run(&LanesOptions {
        patience: args.patience.into(),
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
    check_files(&args.files)?;
    let options = GuardOptions {
        patience: args.patience.into(),
        lanes: args.core.lanes,
        sibling: args.core.sibling,
        ways: args.ways,
        source: args.interference,
    };
    let result = bench::guard::run(&options)?;
    show_tables(&result, |column| bench::guard::COLUMNS.contains(&column.key.as_str()), &args.files)
}

fn bench_tail(args: TailArgs) -> Result<u8> {
    check_files(&args.files)?;
    let result = bench::tail::run(&TailOptions {
        patience: args.patience.into(),
        lanes: args.lanes,
        parts: args.parts,
        cache: args.cache.dir.unwrap_or_else(default_cache),
    })?;
    show_tables(&result, |_| true, &args.files)
}

fn bench_hurry(args: HurryBenchArgs) -> Result<u8> {
    check_files(&args.files)?;
    let result = bench::hurry::run(&HurryOptions {
        patience: args.patience.into(),
        cores: args.cores,
        slow_cpu: args.slow_cpu,
        speed: args.speed,
        cache: args.cache.dir.unwrap_or_else(default_cache),
    })?;
    show_tables(&result, |_| true, &args.files)
}

fn bench_papers(args: PapersArgs) -> Result<u8> {
    check_files(&args.files)?;
    let result = bench::papers::run(args.quick)?;
    show_tables(&result, |column| bench::papers::COLUMNS.contains(&column.key.as_str()), &args.files)
}

fn bench_parity(args: ParityArgs) -> Result<u8> {
    check_json(&args.json)?;
    check_table(&args.table)?;
    let result = bench::parity::run(&ParityOptions {
        scenario: args.scenario,
        patience: args.patience.into(),
        lanes: args.core.lanes,
        sibling: args.core.sibling,
        cache: args.cache.dir.unwrap_or_else(default_cache),
    })?;
    show(&result, &Column::of_rows(&result.rows), &args.json, &args.table)
}

fn bench_sibling(args: SiblingArgs) -> Result<u8> {
    check_json(&args.json)?;
    check_table(&args.table)?;
    let cache = args.cache.dir.unwrap_or_else(default_cache);
    let options = SiblingOptions { patience: args.patience.into(), lanes: args.lanes, cache };
    let result = bench::sibling::run(&options)?;
    let all = Column::of_rows(&result.rows);
    show(&result, &all, &args.json, &args.table)
}

fn run_agent(args: AgentArgs) -> Result<u8> {
    let AgentArgs { verb, file, dry_run } = args;
    match verb {
        Some(Agent::Check { file }) => check_agent_file(&file),
        Some(Agent::Show(args)) => show_agent_file(&args),
        Some(Agent::Example) => {
            print!("{EXAMPLE}");
            Ok(0)
        }
        None => match read_agent_file(&file.config) {
            Some(config) => agent::run(config, AgentOptions { config: file.config, dry_run }),
            None => Ok(WRONG_FILE),
        },
    }
}

fn check_agent_file(file: &Path) -> Result<u8> {
    let Some(config) = read_agent_file(file) else { return Ok(WRONG_FILE) };
    println!("{}: {}", file.display(), config.in_words());
    Ok(0)
}

fn show_agent_file(args: &ShowArgs) -> Result<u8> {
    check_json(&args.json)?;
    let file = &args.agent.config;
    let Some(config) = read_agent_file(file) else { return Ok(WRONG_FILE) };
    let shown = Shown::now(file, &config)?;
    print!("{}", shown.render(terminal::width(), terminal::color_wanted()));
    if let Some(path) = &args.json.file {
        write_whole(path, &serde_json::to_vec_pretty(&shown)?)?;
    }
    Ok(shown.exit_code())
}

/// The agent's file; what is wrong with it is said.
fn read_agent_file(file: &Path) -> Option<Config> {
    Config::load(file).map_err(|problems| eprintln!("{problems}")).ok()
}

fn simulate(args: SimArgs) -> Result<u8> {
    check_files(&args.files)?;
    let choices = Choices { seed: args.seed, quick: args.quick };
    let simulated = match sim::run(&SimOptions { scenario: args.scenario, choices }) {
        Ok(simulated) => simulated,
        Err(error) => {
            eprintln!("sidelane: {error}");
            return Ok(WRONG_FILE);
        }
    };
    let result = &simulated.result;
    args.files.json.file.as_deref().map_or(Ok(()), |path| result.write_json(path))?;
    let shown = |column: &Column| simulated.shows(&column.key);
    args.files.table.csv.as_deref().map_or(Ok(()), |path| result.write_csv(path))?;
    print!("{}", table::render_tables(result, shown, style(&args.files.table)));
    write_and_open(result, args.files.page, args.open.then_some("sidelane-sim.html"))?;
    Ok(result.exit_code())
}

/// Writes a result that takes long to get, before the terminal, which may be gone by then; and prints a
/// table for each kind of its rows.
fn show_tables(result: &ResultFile, shown: impl Fn(&Column) -> bool, files: &ResultFiles) -> Result<u8> {
    files.json.file.as_deref().map_or(Ok(()), |path| result.write_json(path))?;
    files.table.csv.as_deref().map_or(Ok(()), |path| result.write_csv(path))?;
    files.page.as_deref().map_or(Ok(()), |path| html::write_page(result, path))?;
    print!("{}", table::render_tables(result, shown, style(&files.table)));
    Ok(result.exit_code())
}

/// Writes a result for programs, and prints it for people.
fn show(result: &ResultFile, columns: &[Column], json: &JsonFile, table: &TableArgs) -> Result<u8> {
    json.file.as_deref().map_or(Ok(()), |path| result.write_json(path))?;
    table.csv.as_deref().map_or(Ok(()), |path| result.write_csv(path))?;
    print!("{}", table::render(result, columns, style(table)));
    Ok(result.exit_code())
}

/// How results are shown on this terminal, or in this pipe.
fn style(table: &TableArgs) -> Style {
    Style { width: terminal::width(), color: terminal::color_wanted(), detail: table.detail.into() }
}

/// As [`print_fitted`], to standard error; programs that read it there get its lines as they are.
fn eprint_fitted(text: &str) {
    let width = if stderr().is_terminal() { terminal::size(stderr()).0 } else { usize::MAX };
    eprint!("{}", fitted(text, width));
}

/// Prints text that is laid out already; lines that are longer than the terminal is wide go on below.
fn print_fitted(text: &str) {
    print!("{}", fitted(text, terminal::width()));
}

//! Tests of scenario files: errors give the key, the line and what to do.

use sidelane_sim::scenario::PointValue;
use sidelane_sim::{Choices, Experiment, Scenario, sweep};

const GOOD: &str = r#"title = "a test"
run_s = 2

[machine]
lanes_per_core = 2

[service]
name = "search"
workers = 1
arrivals = { kind = "poisson", rate_per_s = 100 }
demand = { kind = "exponential", mean_ms = 5 }

[[batch]]
name = "loop"

[slowdown.search]
loop = 1.5

[slo]
limit_ms = 100

[[setting]]
policy = "alone"

[[setting]]
policy = "fixed-budget"
budget = "slo-less-alone"

[sweep]
"service.arrivals.rate_per_s" = [20, 40]
"#;

fn read(text: &str) -> Result<Experiment, String> {
    read_with(text, Choices::default())
}

fn read_with(text: &str, choices: Choices) -> Result<Experiment, String> {
    let files = |name: &str| match name {
        "work.txt" => Ok("# recorded\n1000\n2000.5\n".to_owned()),
        "log.jsonl" => Ok("{\"arrived_ns\":100,\"started_ns\":200,\"finished_ns\":1200}\n\
            {\"arrived_ns\":1100,\"started_ns\":1200,\"finished_ns\":4200}\n"
            .to_owned()),
        "words.txt" => Ok("fast\n".to_owned()),
        "doctor.json" => Ok(r#"{"rows":[{"setting":"lane holder","off_p50_ns":4400,"off_p99_ns":11000,
            "on_p50_ns":1500,"on_p99_ns":4000},{"setting":"SIGSTOP","off_p50_ns":null}]}"#
            .to_owned()),
        _ => Err("no such file".to_owned()),
    };
    Experiment::parse("a.toml", text, choices, &files).map_err(|error| error.to_string())
}

#[track_caller]
fn assert_rejected(from: &str, to: &str, message: &str) {
    assert!(GOOD.contains(from), "{from}");
    assert_eq!(read(&GOOD.replace(from, to)).map(|_| ()), Err(message.to_owned()));
}

#[test]
fn valid_scenario_has_a_point_per_value_and_run_per_setting() {
    let experiment = read(GOOD).unwrap();
    assert_eq!((experiment.title.as_str(), experiment.points.len(), experiment.runs()), ("a test", 2, 4));
    assert_eq!(experiment.swept, ["service.arrivals.rate_per_s"]);
    assert_eq!(experiment.points[1].value("service.arrivals.rate_per_s"), Some(&PointValue::Number(40.0)));
    assert_eq!(experiment.points[1].runs[0].service.arrivals.mean_gap_ns(), 25e6);
}

#[test]
fn unknown_keys_are_refused() {
    assert_rejected(
        "workers = 1",
        "worker = 1",
        "a.toml:9: `service.worker` is not a key here; did you mean `workers`? the keys here are `arrivals`, `demand`, \
         `name`, `queue`, `queue_limit`, `workers`",
    );
    assert_rejected(
        "rate_per_s\" = [20",
        "rate\" = [20",
        "a.toml:30: `service.arrivals.rate` is in [sweep], but is not a key of this scenario; write the path of a key \
         that this scenario can have, such as service.arrivals.rate_per_s",
    );
    assert_rejected(
        "\nloop = 1.5",
        "\nlop = 1.5",
        "a.toml:17: `slowdown.search.lop` is not a program of this scenario; write one of nap, search, loop",
    );
}

#[test]
fn all_errors_of_a_scenario_are_reported_at_once() {
    let text = GOOD
        .replace("workers = 1", "worker = 1")
        .replace("run_s = 2", "run_s = true")
        .replace("loop = 1.5", "loop = 0");
    let lines: Vec<usize> =
        read(&text).unwrap_err().lines().filter_map(|line| line.split(':').nth(1)?.parse().ok()).collect();
    assert_eq!(lines, [2, 9, 17]);
}

#[test]
fn wrong_types_are_refused() {
    assert_rejected(
        "workers = 1",
        "workers = \"one\"",
        "a.toml:9: `service.workers` is \"one\"; write a whole number from 1 to 1",
    );
    assert_rejected("run_s = 2", "run_s = true", "a.toml:2: `run_s` is true; write a number from 0.000001 to 10000000");
    assert_rejected("[machine]", "[[machine]]", "a.toml:4: `machine` is a list; write a table, [machine]");
}

#[test]
fn unknown_names_are_refused() {
    assert_rejected(
        "policy = \"fixed-budget\"",
        "policy = \"greedy\"",
        "a.toml:26: `setting.1.policy` is \"greedy\"; write one of `alone`, `unmanaged`, `sched-idle`, `exclusion`, `freezer`, \
         `borrow-idle`, `fixed-budget`, `refresh-budget`, `dynamic-refresh`, `deadline`, `elfen-fixed`, `elfen-refresh`, \
         `elfen-dynamic`, `oracle`",
    );
    assert_rejected(
        "kind = \"poisson\"",
        "kind = \"random\"",
        "a.toml:10: `service.arrivals.kind` is \"random\"; write one of `poisson`, `bursty`, `daily`, `on-off`, `trace`",
    );
}

#[test]
fn numbers_out_of_range_are_refused() {
    assert_rejected(
        "lanes_per_core = 2",
        "lanes_per_core = 9",
        "a.toml:5: `machine.lanes_per_core` is 9; write a whole number from 1 to 8",
    );
    assert_rejected(
        "loop = 1.5",
        "loop = 0.5",
        "a.toml:17: `slowdown.search.loop` is 0.5; write a number from 1 to 100",
    );
    // An error in a swept value gives the line in the sweep.
    assert_rejected(
        "[20, 40]",
        "[20,\n0]",
        "a.toml:31: `service.arrivals.rate_per_s` is 0; write a number from 0.001 to 100000000",
    );
}

#[test]
fn missing_files_are_errors() {
    let file = |name: &str| format!("kind = \"empirical\", file = \"{name}\"");
    assert_rejected(
        "kind = \"exponential\", mean_ms = 5",
        &file("gone.txt"),
        "a.toml:11: `service.demand.file` cannot be read: gone.txt: no such file; name a file with one number of \
         microseconds a line, or one that `sidelane requests --log` wrote",
    );
    assert_rejected(
        "kind = \"exponential\", mean_ms = 5",
        &file("words.txt"),
        "a.toml:11: `service.demand.file` names words.txt, which has another form; name a file with one number of \
         microseconds a line, or one that `sidelane requests --log` wrote",
    );
    let recorded = read(&GOOD.replace("kind = \"exponential\", mean_ms = 5", &file("work.txt"))).unwrap();
    assert_eq!(recorded.points[0].runs[0].service.demand.mean_ns(), 1_500_250.0);
}

/// Reads a log that `sidelane requests --log` wrote: requests of 1 and 3 µs of work, 1 µs apart.
#[test]
fn recorded_requests_become_arrivals_and_demand() {
    let trace = "arrivals = { kind = \"trace\", file = \"log.jsonl\" }\n\
                 demand = { kind = \"empirical\", file = \"log.jsonl\" }\n";
    let start = GOOD.find("arrivals =").unwrap();
    let end = GOOD.find("[[batch]]").unwrap();
    let text = format!("{}{trace}{}", &GOOD[..start], &GOOD[end..]);
    let text = &text[..text.find("[sweep]").unwrap()];
    let service = &read(text).unwrap().points[0].runs[0].service;
    assert_eq!((service.demand.mean_ns(), service.arrivals.mean_gap_ns()), (2_000.0, 1_000.0));
}

/// Every key with a path can be swept, such as the second setting's budget.
#[test]
fn settings_can_be_swept() {
    let text = GOOD.replace("budget = \"slo-less-alone\"", "budget_ms = 1");
    let text = text.replace("\"service.arrivals.rate_per_s\" = [20, 40]", "\"setting.1.budget_ms\" = [5, 10, 20]");
    let experiment = read(&text).unwrap();
    let budgets: Vec<u64> = sweep::run(&experiment, 1, &|_| ())
        .iter()
        .filter(|outcome| outcome.setting == "fixed-budget")
        .map(|outcome| outcome.figures.budget_ns)
        .collect();
    assert_eq!(budgets, [5_000_000, 10_000_000, 20_000_000]);
}

#[test]
fn gate_latencies_are_read_from_doctor_results() {
    let gate = |gate: &str| {
        GOOD.replace("[slo]", &format!("[gate]\nkind = \"doctor\"\nfile = \"doctor.json\"\n{gate}\n\n[slo]"))
    };
    let measured = read(&gate("gate = \"lane holder\"")).unwrap();
    assert!((10_000..20_000).contains(&measured.points[0].runs[1].setting.gate.off.longest_ns()));
    let error = read(&gate("gate = \"SIGSTOP\"")).unwrap_err();
    assert_eq!(error, "a.toml:22: `gate.gate` is \"SIGSTOP\"; write one of lane holder");
}

#[test]
fn downtime_above_half_the_crash_period_is_refused() {
    let fault = "[[fault]]\nkind = \"agent-crash\"\nevery_ms = 100\ngone_ms = 200\n\n[slo]";
    assert_rejected("[slo]", fault, "a.toml:22: `fault.0.gone_ms` is 200; write a number from 0.001 to 50");
}

#[test]
fn empty_sweeps_are_refused() {
    assert_rejected(
        "[20, 40]",
        "[]",
        "a.toml:30: `sweep.service.arrivals.rate_per_s` is an empty list; write a list of at least one value",
    );
}

#[test]
fn missing_keys_are_refused_with_an_example() {
    assert_rejected(
        "kind = \"poisson\", ",
        "",
        "a.toml:10: `service.arrivals.kind` is missing; write one of `poisson`, `bursty`, `daily`, `on-off`, `trace`",
    );
    assert_rejected(
        "[slo]\nlimit_ms = 100\n",
        "",
        "a.toml: `slo` is missing; write [slo] with limit_ms, from which the budget of fixed-budget follows",
    );
    assert_rejected(
        "budget = \"slo-less-alone\"",
        "",
        "a.toml:25: `setting.1.budget` is missing; write budget_ms, or budget = slo, slo-less-alone or tuned",
    );
}

#[test]
fn invalid_toml_is_refused_with_its_line() {
    let error = read("run_s = \n").unwrap_err();
    assert!(error.starts_with("a.toml:1: `file` is not TOML: "), "{error}");
}

#[test]
fn quick_runs_are_shorter() {
    let text = format!("{GOOD}\n[quick]\nrun_s = 1\n[quick.sweep]\n\"service.arrivals.rate_per_s\" = [80]\n");
    let quick = read_with(&text, Choices { quick: true, seed: Some(9) }).unwrap();
    assert_eq!((quick.runs(), quick.points[0].runs[0].seed), (2, 9));
    assert_eq!(quick.points[0].runs[0].until, sidelane_sim::model::RunEnd::Time(1_000_000_000));
    assert_eq!(read(&text).unwrap().runs(), 4);
    let other = text.replace("[quick.sweep]\n\"service.arrivals.rate_per_s\"", "[quick.sweep]\n\"service.workers\"");
    let error = read_with(&other, Choices { quick: true, seed: None }).unwrap_err();
    assert_eq!(
        error,
        "a.toml:35: `quick.sweep.service.workers` is not in [sweep]; the sweep has service.arrivals.rate_per_s"
    );
}

/// Each case runs with each value of the sweep; `[quick]` overrides a case, and the names of cases must differ.
#[test]
fn cases_combine_with_each_swept_value() {
    let case = |name: &str, limit: u32, run_s: u32| {
        format!("[[case]]\nname = \"{name}\"\nset = {{ run_s = {run_s}, \"service.queue_limit\" = {limit} }}\n")
    };
    let text = format!("{GOOD}\n[quick]\nrun_s = 1\n{}{}", case("few", 1, 3), case("many", 4, 5));
    let read = |quick| read_with(&text, Choices { quick, seed: None }).unwrap();
    let limits = |experiment: &Experiment| {
        experiment.points.iter().map(|point| point.runs[0].service.queue_limit).collect::<Vec<_>>()
    };
    assert_eq!(limits(&read(false)), [1, 1, 4, 4], "each with each value of the sweep");
    assert_eq!(read(false).points[2].value("case"), Some(&PointValue::Text("many".to_owned())));
    let seconds = |quick: bool, s: u64| {
        assert_eq!(read(quick).points[3].runs[0].until, sidelane_sim::model::RunEnd::Time(s * 1_000_000_000));
    };
    seconds(false, 5);
    seconds(true, 1);
    let twice = format!("{GOOD}\n{}{}", case("few", 1, 3), case("few", 4, 5));
    let error = read_with(&twice, Choices::default()).unwrap_err();
    assert_eq!(error, "a.toml:36: `case.1.name` is \"few\", which is used already; write another name");
    let unknown = format!("{GOOD}\n{}", case("few", 1, 3).replace("queue_limit", "queue_limits"));
    let error = read_with(&unknown, Choices::default()).unwrap_err();
    assert!(error.contains("`service.queue_limits` is in [sweep], but is not a key of this scenario"), "{error}");
}

#[test]
fn results_are_determined_by_the_seed() {
    let experiment = read(GOOD).unwrap();
    let runs = |threads, experiment: &Experiment| sweep::run(experiment, threads, &|_| ());
    let one = runs(1, &experiment);
    assert_eq!(one, runs(3, &experiment));
    assert_eq!(
        one.iter().map(|outcome| outcome.setting.as_str()).collect::<Vec<_>>(),
        ["alone", "fixed-budget", "alone", "fixed-budget"]
    );
    assert_eq!(one[2].number("service.arrivals.rate_per_s"), Some(40.0));
    let other = read_with(GOOD, Choices { seed: Some(2), quick: false }).unwrap();
    assert_ne!(one, runs(1, &other));
    // The budget is the objective less the p99 of the service alone (Elfen §3.4).
    assert_eq!(one[1].figures.budget_ns, 100_000_000 - one[0].figures.p99_ns);
}

/// The results of a fixed scenario must be the same on every machine, bit for bit.
#[test]
fn results_are_the_same_on_every_machine() {
    let outcome = &sweep::run(&read(GOOD).unwrap(), 1, &|_| ())[3].figures;
    let bits = (outcome.requests, outcome.p99_ns, outcome.max_ns, outcome.mean_ns.to_bits(), outcome.events);
    assert_eq!(bits, (69, 28_590_079, 28_590_079, 4_710_261_661_043_231_046, 479));
}

/// Reads the scenario files that come with the program. A scenario with recorded requests needs a recording on the
/// machine, which the test imitates.
#[test]
fn all_scenarios_can_be_read() {
    let scenarios = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/scenarios");
    let mut read = 0;
    let recorded = |file: &str| match file {
        "requests.jsonl" => Ok(r#"{"arrived_ns":1,"started_ns":2,"finished_ns":500000}"#.to_owned()),
        file => Err(format!("no scenario names {file}")),
    };
    for entry in std::fs::read_dir(scenarios).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        for quick in [false, true] {
            let scenario = Scenario::parse("a scenario", &text, Choices { quick, seed: None }, &recorded);
            let runs = scenario.map(|scenario| match scenario {
                Scenario::Cores(experiment) => experiment.runs(),
                Scenario::Machine(experiment) => experiment.runs(),
            });
            assert!(runs.is_ok_and(|runs| runs > 0), "{}", path.display());
            read += 1;
        }
    }
    assert!(read >= 4);
}

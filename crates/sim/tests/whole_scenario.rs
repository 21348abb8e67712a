//! Tests of scenario files of whole machines: errors give the key, the line and what to do; the seed determines
//! results.

use sidelane_sim::machine::sweep;
use sidelane_sim::{Choices, Experiment, Scenario};

type Machines = Experiment<sidelane_sim::machine::model::MachineModel>;

const GOOD: &str = r#"title = "a test"
run_s = 2
warm_up_s = 0.1

[machine]
cores_per_package = 4

[[service]]
name = "front"
cpus = "0-1"
workers = 2
arrivals = { kind = "poisson", rate_per_s = 2000 }
demand = { kind = "exponential", mean_ms = 0.1 }
calls = [{ service = "leaf", fan_out = 2 }]

[[service]]
name = "leaf"
cpus = "2"
demand = { kind = "exponential", mean_ms = 0.1 }

[[container]]
name = "sort"
cpus = 3
count = 2
work = { kind = "exponential", mean_ms = 50 }

[slowdown.leaf]
sort = 1.5

[memory.leaf]
accesses_per_us = 20
stall_share = 0.2

[memory.sort]
pressure = 0.9

[[setting]]
policy = "alone"

[[setting]]
policy = "holmes"
calm_time_ms = 10
control = { look_us = 100, ring_p50_us = 20, act_p50_us = 10 }
gate = { kind = "holder" }

[sweep]
"service.0.arrivals.rate_per_s" = [2000, 4000]
"#;

fn read(text: &str) -> Result<Machines, String> {
    let files = |_: &str| Err("no such file".to_owned());
    match Scenario::parse("a.toml", text, Choices::default(), &files) {
        Ok(Scenario::Machine(experiment)) => Ok(experiment),
        Ok(Scenario::Cores(_)) => Err("cores".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

#[track_caller]
fn assert_rejected(from: &str, to: &str, message: &str) {
    assert!(GOOD.contains(from), "{from}");
    assert_eq!(read(&GOOD.replacen(from, to, 1)).map(|_| ()), Err(message.to_owned()));
}

#[test]
fn valid_scenario_has_a_point_per_value_and_run_per_setting() {
    let experiment = read(GOOD).unwrap();
    assert_eq!((experiment.points.len(), experiment.runs(), experiment.machines()), (2, 4, 4));
    assert!(experiment.settings().eq(["alone", "holmes"]));
    let services = &experiment.points[1].runs[0].services;
    assert_eq!(services[0].arrivals.as_ref().unwrap().mean_gap_ns(), 250_000.0);
    assert_eq!((services[0].calls[0].service, services[0].calls[0].fan_out), (1, 2));
    assert_eq!(services[0].cpus.to_string(), "0-1");
}

#[test]
fn service_list_describes_a_whole_machine() {
    let table = "run_s = 1\n[service]\ndemand = { kind = \"constant\", mean_ms = 1 }\n\
                 arrivals = { kind = \"poisson\", rate_per_s = 1 }\n[[setting]]\npolicy = \"alone\"\n";
    assert_eq!(read(table).map(|_| ()), Err("cores".to_owned()));
    let list = table.replace("[service]", "[[service]]\nname = \"s\"");
    assert_eq!(read(&list).unwrap().runs(), 1);
    let no = |_: &str| Err(String::new());
    let error = Experiment::parse("a.toml", &list, Choices::default(), &no).unwrap_err().to_string();
    assert_eq!(error, "a.toml:2: `service` is a list; write a table, [service]");
}

#[test]
fn unknown_keys_and_names_are_refused() {
    assert_rejected(
        "workers = 2",
        "worker = 2",
        "a.toml:11: `service.0.worker` is not a key here; did you mean `workers`? the keys here are `arrivals`, \
         `calls`, `class`, `cpus`, `demand`, `limit_ms`, `may_be_placed`, `name`, `queue`, `queue_limit`, `workers`",
    );
    assert_rejected(
        "count = 2",
        "counts = 2",
        "a.toml:24: `container.0.counts` is not a key here; did you mean `count`? the keys here are `allowed`, \
         `arrivals`, `class`, `count`, `cpus`, `gap_ms`, `name`, `priority`, `work`",
    );
    assert_rejected(
        "service = \"leaf\", fan_out",
        "service = \"leave\", fan_out",
        "a.toml:14: `service.0.calls.0.service` is \"leave\"; write one of `front`, `leaf`",
    );
    assert_rejected(
        "policy = \"alone\"",
        "policy = \"borrow-idle\"",
        "a.toml:38: `setting.0.policy` is \"borrow-idle\"; write one of `alone`, `unmanaged`, `holmes`, \
         `perfiso`, `hurry-up`, `static`, `all-big`, `all-little`",
    );
    assert_rejected(
        "look_us",
        "looks_us",
        "a.toml:43: `setting.1.control.looks_us` is not a key here; did you mean `look_us`? the keys here are \
         `act_p50_us`, `act_p99_us`, `look_us`, `ring_p50_us`, `ring_p99_us`",
    );
    assert_rejected(
        "[[setting]]\npolicy = \"alone\"",
        "[gate]\nkind = \"holder\"\n[[setting]]\npolicy = \"alone\"",
        "a.toml:37: `gate` is not a key here; the keys here are `case`, `chip`, `container`, `control`, `explanation`, \
         `machine`, `memory`, `quick`, `requests`, `run_s`, `seed`, `service`, `setting`, `slowdown`, `sweep`, \
         `title`, `warm_up_s`",
    );
    assert_rejected(
        "sort = 1.5",
        "sart = 1.5",
        "a.toml:28: `slowdown.leaf.sart` is not a program of this scenario; write one of nap, front, leaf, sort",
    );
}

#[test]
fn missing_cpus_are_refused() {
    assert_rejected(
        "cpus = \"0-1\"",
        "cpus = \"0-8\"",
        "a.toml:10: `service.0.cpus` is \"0-8\"; write a list such as \"0-3,8\", of CPUs 0 to 7",
    );
    assert_rejected("cpus = 3", "cpus = 9", "a.toml:23: `container.0.cpus` is 9; write a whole number from 1 to 8");
    assert_rejected(
        "cores_per_package = 4",
        "cores_per_package = 300",
        "a.toml:5: `machine` has 600 CPUs; write 512 at most",
    );
}

#[test]
fn cyclic_calls_are_refused() {
    assert_rejected(
        "cpus = \"2\"",
        "cpus = \"2\"\ncalls = [{ service = \"front\" }]",
        "a.toml:8: `service` has a cycle of calls, which front is in or leads to; write calls from one service to the \
         next, and never back",
    );
}

#[test]
fn contradicting_keys_are_refused() {
    assert_rejected(
        "[[container]]",
        "[[service]]\nname = \"leaf\"\n\n[[container]]",
        "a.toml:22: `service.2.name` is \"leaf\", which is used already; write another name",
    );
    assert_rejected(
        "arrivals = { kind = \"poisson\", rate_per_s = 2000 }\n",
        "",
        "a.toml:8: `service` has no clients; write arrivals of at least one service",
    );
    assert_rejected(
        "accesses_per_us = 20",
        "accesses_per_us = 0",
        "a.toml:41: `setting.1.policy` needs memory stalls, but no service has any; write [memory.SERVICE] with \
         accesses_per_us and stall_share for at least one service",
    );
    assert_rejected(
        "count = 2",
        "gap_ms = 2\narrivals = { kind = \"poisson\", rate_per_s = 1 }",
        "a.toml:24: `container.0.gap_ms` is given, but arrivals is given, too; write one of them",
    );
    assert_rejected(
        "kind = \"poisson\"",
        "on_ms = [3, 2], off_ms = [1, 1], kind = \"on-off\"",
        "a.toml:12: `service.0.arrivals.on_ms` is not such a list; write a list of the shortest and the longest time, \
         such as [60_000, 90_000]",
    );
    assert_rejected(
        "[[setting]]\npolicy = \"alone\"",
        "[chip]\nslowdown = [{ pressure = 1, times = 1 }, { pressure = 1, times = 2 }]\n[[setting]]\npolicy = \"alone\"",
        "a.toml:38: `chip.slowdown.1.pressure` is 1; write a higher number than at the point before",
    );
}

/// The same seed gives the same result on any number of threads, and gives each service the same requests with each
/// setting.
#[test]
fn results_are_determined_by_the_seed() {
    let experiment = read(GOOD).unwrap();
    let one = sweep::run(&experiment, 1, &|_| ());
    assert_eq!(one, sweep::run(&experiment, 3, &|_| ()));
    assert_eq!(one.iter().map(|outcome| outcome.setting.as_str()).collect::<Vec<_>>(), ["alone", "holmes"].repeat(2));
    let requests = |at: usize| one[at].figures.services[0].own.count;
    assert!(requests(0).abs_diff(requests(1)) <= 2 && requests(2) > requests(0));
    // The limit of a request is the 90th percentile of the service alone.
    let (alone, holmes) = (&one[0].figures.services[0], &one[1].figures.services[0]);
    assert_eq!((alone.limit_ns, holmes.limit_ns), (Some(alone.whole.p90_ns), Some(alone.whole.p90_ns)));
    assert!((alone.violations.unwrap() - 0.1).abs() < 0.001);
    let other = sweep::run(&read(&format!("seed = 2\n{GOOD}")).unwrap(), 1, &|_| ());
    assert_ne!(one, other);
}

/// The results of a fixed scenario must be the same on every machine, bit for bit.
#[test]
fn results_are_the_same_on_every_machine() {
    let outcome = &sweep::run(&read(GOOD).unwrap(), 1, &|_| ())[3].figures;
    let front = &outcome.services[0].whole;
    let bits = (front.count, front.p99_ns, front.max_ns, front.mean_ns.to_bits(), outcome.events, outcome.actions);
    let batch = (outcome.finished_containers(), outcome.batch_work_ns.to_bits(), outcome.migrations);
    assert_eq!(
        (bits, batch),
        ((7942, 3_411_967, 4_517_887, 4_696_113_710_102_873_879, 83_272, 142), (142, 4_754_684_709_346_213_888, 284))
    );
}

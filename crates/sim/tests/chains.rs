//! Tests of whole machines against queueing theory: closed forms, within 1 % at millions of requests.

mod common;

use common::machine;
use sidelane_sim::machine::MachineEngine;
use sidelane_sim::machine::figures::{LatencyFigures, MachineFigures};
use sidelane_sim::machine::model::MachineModel;

const REQUESTS: u64 = 4_000_000;
/// Mean work of a request, in nanoseconds.
const MEAN_NS: f64 = 1e6;

fn model(text: &str, requests: u64) -> MachineModel {
    let text = format!("requests = {requests}\nwarm_up_s = 10\n{text}[[setting]]\npolicy = \"alone\"\n");
    machine(&text).points[0].runs[0].clone()
}

fn run(text: &str) -> MachineFigures {
    run_for(text, REQUESTS)
}

fn run_for(text: &str, requests: u64) -> MachineFigures {
    let mut engine = MachineEngine::new(model(text, requests));
    engine.run();
    MachineFigures::from_engine(&engine, &[])
}

/// Scenario text for exponential work with a mean of 1 ms.
const WORK: &str = "demand = { kind = \"exponential\", mean_ms = 1 }\n";

fn poisson_arrivals_text(load: f64) -> String {
    format!("arrivals = {{ kind = \"poisson\", load_percent = {} }}\n", load * 100.0)
}

#[track_caller]
fn assert_near(name: &str, measured: f64, expected: f64) {
    let error = measured / expected - 1.0;
    println!("{name}: {measured:.5e}, theory {expected:.5e}, {:+.3} %", error * 100.0);
    assert!(error.abs() < 0.01, "{name}: {measured} is not {expected}");
}

/// Compares latencies with M/M/1, in which the sojourn time is exponential with rate µ − λ.
fn assert_mm1(name: &str, figures: &LatencyFigures, load: f64) {
    let sojourn_ns = MEAN_NS / (1.0 - load);
    assert_near(&format!("{name} mean"), figures.mean_ns, sojourn_ns);
    assert_near(&format!("{name} p50"), figures.p50_ns as f64, sojourn_ns * 2_f64.ln());
    assert_near(&format!("{name} p90"), figures.p90_ns as f64, sojourn_ns * 10_f64.ln());
    assert_near(&format!("{name} p99"), figures.p99_ns as f64, sojourn_ns * 100_f64.ln());
}

/// Returns the probability that a request waits (Erlang's C), and the mean time to drain the queue by one.
fn mmc_wait_probability_and_drain_ns(workers: f64, load: f64) -> (f64, f64) {
    let offered = workers * load;
    let term = |n: u32| offered.powi(n as i32) / (1..=n).map(f64::from).product::<f64>();
    let last = term(workers as u32) / (1.0 - load);
    let waits = last / ((0..workers as u32).map(term).sum::<f64>() + last);
    (waits, MEAN_NS / (workers * (1.0 - load)))
}

fn mmc_mean_ns(workers: f64, load: f64) -> f64 {
    let (waits, drain_ns) = mmc_wait_probability_and_drain_ns(workers, load);
    waits * drain_ns + MEAN_NS
}

#[test]
fn one_worker_is_mm1() {
    let figures = run(&format!("[[service]]\nname = \"s\"\n{WORK}{}", poisson_arrivals_text(0.6)));
    assert_mm1("M/M/1 60 %", &figures.services[0].whole, 0.6);
    assert_near("utilisation", figures.services[0].busy_cpus, 0.6);
}

#[test]
fn four_workers_on_four_cpus_are_mm4() {
    let figures = run(&format!(
        "[machine]\ncores_per_package = 4\n[[service]]\nname = \"s\"\nworkers = 4\ncpus = \"0-3\"\n{WORK}{}",
        poisson_arrivals_text(0.8)
    ));
    assert_near("M/M/4 mean", figures.services[0].whole.mean_ns, mmc_mean_ns(4.0, 0.8));
}

/// Workers that wait for a CPU wait in the order in which they came, so there are as many servers as CPUs.
#[test]
fn eight_workers_on_two_cpus_are_mm2() {
    let figures = run(&format!(
        "[machine]\ncores_per_package = 2\n[[service]]\nname = \"s\"\nworkers = 8\ncpus = \"0-1\"\n{WORK}{}",
        poisson_arrivals_text(0.7 / 4.0)
    ));
    assert_near("M/M/2 mean", figures.services[0].whole.mean_ns, mmc_mean_ns(2.0, 0.7));
}

/// By Burke and Jackson, each stage behaves as if it were alone. By Reich, the times at stages of one worker each are
/// independent.
#[test]
fn chain_of_single_workers_is_a_tandem_queue() {
    let loads = [0.5, 0.6, 0.7];
    let stage = |name: &str, cpu: usize, load: f64, rest: &str| {
        let mean_ms = load / 0.5;
        format!(
            "[[service]]\nname = \"{name}\"\ncpus = \"{cpu}\"\n\
             demand = {{ kind = \"exponential\", mean_ms = {mean_ms} }}\n{rest}"
        )
    };
    let text = [
        "[machine]\ncores_per_package = 3\nlanes_per_core = 1\n".to_owned(),
        stage("front", 0, loads[0], &format!("calls = [{{ service = \"middle\" }}]\n{}", poisson_arrivals_text(0.5))),
        stage("middle", 1, loads[1], "calls = [{ service = \"leaf\" }]\n"),
        stage("leaf", 2, loads[2], ""),
    ];
    let figures = run(&text.concat());
    let sojourns_ns = loads.map(|load| load / 0.5 * MEAN_NS / (1.0 - load));
    for (service, sojourn_ns) in figures.services.iter().zip(sojourns_ns) {
        assert_near(&format!("{} mean", service.name), service.own.mean_ns, sojourn_ns);
        assert_near(&format!("{} p99", service.name), service.own.p99_ns as f64, sojourn_ns * 100_f64.ln());
    }
    let whole = &figures.services[0].whole;
    assert_near("chain mean", whole.mean_ns, sojourns_ns.iter().sum());
    for (percent, measured) in [(50.0, whole.p50_ns), (90.0, whole.p90_ns), (99.0, whole.p99_ns)] {
        assert_near(
            &format!("chain p{percent}"),
            measured as f64,
            hypoexponential_quantile(&sojourns_ns, percent / 100.0),
        );
    }
    assert_near("middle and leaf", figures.services[1].whole.mean_ns, sojourns_ns[1] + sojourns_ns[2]);
}

/// Returns the quantile `share` of a sum of exponentially distributed times with different means.
fn hypoexponential_quantile(means: &[f64], share: f64) -> f64 {
    let above = |at: f64| {
        let term = |mean: &f64| {
            let others = means.iter().filter(|other| *other != mean);
            others.map(|other| mean / (mean - other)).product::<f64>() * (-at / mean).exp()
        };
        means.iter().map(term).sum::<f64>()
    };
    let (mut low, mut high) = (0.0, 100.0 * means.iter().sum::<f64>());
    for _ in 0..80 {
        let middle = 0.5 * (low + high);
        if above(middle) > 1.0 - share { low = middle } else { high = middle }
    }
    low
}

/// Jackson's theorem also holds for stages of several workers.
#[test]
fn chain_of_worker_pools_is_a_jackson_network() {
    let stage = |name: &str, workers: usize, cpus: &str, rest: &str| {
        format!("[[service]]\nname = \"{name}\"\nworkers = {workers}\ncpus = \"{cpus}\"\n{WORK}{rest}")
    };
    let text = [
        "[machine]\ncores_per_package = 9\nlanes_per_core = 1\n".to_owned(),
        stage("front", 2, "0-1", &format!("calls = [{{ service = \"middle\" }}]\n{}", poisson_arrivals_text(0.8))),
        stage("middle", 3, "2-4", "calls = [{ service = \"leaf\" }]\n"),
        stage("leaf", 4, "5-8", ""),
    ];
    let figures = run(&text.concat());
    let means_ns = [(2.0, 0.8), (3.0, 1.6 / 3.0), (4.0, 0.4)].map(|(workers, load)| mmc_mean_ns(workers, load));
    for (service, mean_ns) in figures.services.iter().zip(means_ns) {
        assert_near(&service.name, service.own.mean_ns, mean_ns);
    }
    assert_near("chain", figures.services[0].whole.mean_ns, means_ns.iter().sum());
}

/// Flatto and Hahn (1984) give the mean for two M/M/1 queues with the same arrivals, and a request that waits for
/// both.
#[test]
fn fork_join_of_two_queues_has_the_mean_of_flatto_and_hahn() {
    let load = 0.6;
    let leaf = |name: &str, cpu: usize| format!("[[service]]\nname = \"{name}\"\ncpus = \"{cpu}\"\n{WORK}");
    // The own work of the front takes 1 µs, which is negligible.
    let gap_ns = MEAN_NS / load;
    let front = format!(
        "[[service]]\nname = \"front\"\ncpus = \"2\"\ndemand = {{ kind = \"constant\", mean_ms = 0.001 }}\n\
         arrivals = {{ kind = \"poisson\", rate_per_s = {} }}\n\
         calls = [{{ service = \"a\" }}, {{ service = \"b\" }}]\n",
        1e9 / gap_ns
    );
    let machine = "[machine]\ncores_per_package = 3\nlanes_per_core = 1\n";
    let figures = run(&format!("{machine}{}{}{front}", leaf("a", 0), leaf("b", 1)));
    assert_mm1("leaf", &figures.services[0].own, load);
    let fork_ns = figures.services[2].whole.mean_ns - figures.services[2].own.mean_ns;
    assert_near("fork of two", fork_ns, (12.0 - load) / 8.0 * MEAN_NS / (1.0 - load));
}

/// With a free worker for each request, the last of n answers takes 1 + 1/2 + … + 1/n times the mean.
#[test]
fn a_fan_out_without_queues_takes_as_long_as_its_slowest_leaf() {
    let text = format!(
        "[machine]\ncores_per_package = 65\nlanes_per_core = 1\n\
         [[service]]\nname = \"front\"\ncpus = \"64\"\ndemand = {{ kind = \"constant\", mean_ms = 0.001 }}\n\
         arrivals = {{ kind = \"poisson\", rate_per_s = 500 }}\ncalls = [{{ service = \"leaf\", fan_out = 10 }}]\n\
         [[service]]\nname = \"leaf\"\nworkers = 64\ncpus = \"0-63\"\n{WORK}"
    );
    let figures = run_for(&text, REQUESTS / 10);
    let slowest: f64 = (1..=10).map(|n| 1.0 / f64::from(n)).sum();
    assert_near("leaf", figures.services[1].own.mean_ns, MEAN_NS);
    assert_near("front", figures.services[0].whole.mean_ns, MEAN_NS * slowest + 1e3);
    assert_eq!(figures.services[1].own.count / 1_000, figures.services[0].own.count / 100);
}

/// A fan-out to one worker brings requests in groups: M[k]/M/1, with ρ (k + 1) ÷ 2 (1 − ρ) requests in the queue on
/// average.
#[test]
fn fan_out_to_one_worker_is_a_queue_with_group_arrivals() {
    let (load, group) = (0.6, 4.0);
    let rate_per_s = load / group * 1e3;
    let text = format!(
        "[machine]\ncores_per_package = 2\nlanes_per_core = 1\n\
         [[service]]\nname = \"front\"\ncpus = \"1\"\ndemand = {{ kind = \"constant\", mean_ms = 0.001 }}\n\
         arrivals = {{ kind = \"poisson\", rate_per_s = {rate_per_s} }}\n\
         calls = [{{ service = \"leaf\", fan_out = {group} }}]\n\
         [[service]]\nname = \"leaf\"\ncpus = \"0\"\n{WORK}"
    );
    let inside = load * (group + 1.0) / (2.0 * (1.0 - load));
    let figures = run(&text);
    assert_near("M[4]/M/1 mean", figures.services[1].own.mean_ns, inside / (load / MEAN_NS));
}

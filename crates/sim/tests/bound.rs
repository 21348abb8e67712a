//! Tests of threads that are bound to big and little cores: results computed by hand, and invariants.

use sidelane_sim::machine::figures::MachineFigures;
use sidelane_sim::machine::sweep::run_machine;
use sidelane_sim::{Choices, Scenario};

/// Machine with a big core of 2 W, a little one of half its speed and 0.5 W, and 1 W for the package.
const MACHINE: &str = "
[machine]
cores_per_package = 2
lanes_per_core = 1
core_speed = [1, 0.5]
migration_us = 1000
[machine.power]
package_w = 1
core_busy_w = [2, 0.5]
";

/// Service with a request of 100 ms every second.
const SEARCH: &str = "
[[service]]
name = \"search\"
workers = 2
limit_ms = 500
demand = { kind = \"constant\", mean_ms = 100 }
arrivals = { kind = \"trace\", file = \"gaps\" }
";

fn parsed(text: &str) -> Result<Scenario, String> {
    let gaps = |_: &str| Ok("1000000\n1000000\n".to_owned());
    Scenario::parse("test", text, Choices::default(), &gaps).map_err(|error| error.to_string())
}

fn run(scenario_rest: &str) -> MachineFigures {
    let text = format!("run_s = 100\n{MACHINE}{SEARCH}{scenario_rest}");
    let Scenario::Machine(experiment) = parsed(&text).expect("it is right") else { panic!("a whole machine") };
    run_machine(&experiment.points[0].runs[0], &[])
}

fn ns_to_ms(ns: u64) -> u64 {
    ns / 1_000_000
}

#[test]
fn time_and_energy_follow_speed_and_power_of_the_core() {
    let big = run("[[setting]]\npolicy = \"all-big\"");
    assert_eq!((ns_to_ms(big.services[0].whole.max_ns), big.on_big), (100, Some(1.0)));
    // The big core is busy a tenth of the time, at 2 W.
    assert!((big.energy_j - 120.0).abs() < 1.0, "{}", big.energy_j);
    let little = run("[[setting]]\npolicy = \"all-little\"");
    assert_eq!((ns_to_ms(little.services[0].whole.p50_ns), little.on_big), (200, Some(0.0)));
    assert!((little.energy_j - 110.0).abs() < 1.0, "{}", little.energy_j);
}

#[test]
fn long_request_moves_from_little_core_and_pays_for_the_move() {
    let moved = run("[[setting]]\npolicy = \"hurry-up\"\nthreshold_ms = 40");
    // In 40 ms on the little core the request does 20 ms of its work. 80 ms are left, and 1 ms for the move.
    assert_eq!(ns_to_ms(moved.services[0].whole.max_ns), 121);
    assert_eq!(moved.threshold_ns, Some(40_000_000));
    // Hurry-up swaps the threads of two cores, so the next request always begins on the little core.
    let moves = moved.thread_moves.expect("threads are bound");
    assert!(moves > 0 && moves.is_multiple_of(2), "{moves}");
    let fixed = run("[[setting]]\npolicy = \"static\"");
    assert_eq!(
        (ns_to_ms(fixed.services[0].whole.p90_ns), fixed.thread_moves, fixed.threshold_ns),
        (200, Some(0), None)
    );
}

#[test]
fn sampling_as_in_the_paper_moves_requests_at_observations() {
    let moved = run("[[setting]]\npolicy = \"hurry-up\"\nas_printed = true\nthreshold_ms = 40\nsampling_ms = 25");
    // Observations are 25 ms apart, from the start of the request on. The request moves after 50 ms, with 75 ms left.
    assert_eq!(ns_to_ms(moved.services[0].whole.max_ns), 126);
}

#[test]
fn requests_are_conserved_under_every_mapping_and_queue() {
    for mapping in ["hurry-up", "static", "all-big", "all-little"] {
        for queue in ["shared", "per-worker"] {
            let text = format!(
                "run_s = 500\n{MACHINE}[[service]]\nname = \"a\"\nworkers = 5\nqueue = \"{queue}\"\nlimit_ms = 1\n\
                 demand = {{ kind = \"exponential\", mean_ms = 20 }}\n\
                 arrivals = {{ kind = \"poisson\", rate_per_s = 20 }}\n[[setting]]\npolicy = \"{mapping}\""
            );
            let Scenario::Machine(experiment) = parsed(&text).expect("it is right") else { panic!("a whole machine") };
            let mut engine = sidelane_sim::machine::MachineEngine::new(experiment.points[0].runs[0].clone());
            engine.run();
            let accounting = &engine.accounting().services[0];
            assert_eq!(
                accounting.arrived,
                accounting.whole.all.len() + engine.requests_under_way() as u64,
                "{mapping} {queue}"
            );
            assert!(engine.requests_under_way() < 50, "{mapping} {queue}: {}", engine.requests_under_way());
        }
    }
}

/// Runs sixteen threads on four cores, two of them big. The longest requests take about twenty times the mean.
fn run_sixteen_threads_on_four_cores(load: f64, setting: &str) -> MachineFigures {
    let rate_per_s = load * 3.0 / 0.002_9;
    let text = format!(
        "run_s = 200\n[machine]\ncores_per_package = 4\nlanes_per_core = 1\ncore_speed = [1, 1, 0.5, 0.5]\n\
         [[service]]\nname = \"a\"\nworkers = 16\nqueue = \"shared\"\nlimit_ms = 100\n\
         demand = {{ kind = \"lognormal\", mean_ms = 2.9, sigma = 1.4, longest_ms = 60 }}\n\
         arrivals = {{ kind = \"poisson\", rate_per_s = {rate_per_s} }}\n[[setting]]\n{setting}"
    );
    let Scenario::Machine(experiment) = parsed(&text).expect("it is right") else { panic!("a whole machine") };
    run_machine(&experiment.points[0].runs[0], &[])
}

#[test]
fn hurry_up_with_more_threads_than_cores_is_as_fast_as_kernel() {
    for load in [0.3, 0.5, 0.7, 0.85] {
        let by_kernel = run_sixteen_threads_on_four_cores(load, "policy = \"alone\"");
        let figures = run_sixteen_threads_on_four_cores(load, "policy = \"hurry-up\"");
        let [kernel, hurry] = [&by_kernel, &figures].map(|figures| figures.services[0].whole);
        let at_most = |name: &str, one: u64, other: u64| {
            assert!(one as f64 <= other as f64 * 1.01, "{name} at {load}: {one} ns, by the kernel {other} ns");
        };
        at_most("mean", hurry.mean_ns as u64, kernel.mean_ns as u64);
        at_most("p90", hurry.p90_ns, kernel.p90_ns);
        at_most("p99", hurry.p99_ns, kernel.p99_ns);
        assert!(figures.thread_moves.is_some_and(|moves| moves > 0), "long requests move");
    }
}

#[test]
fn hurry_up_without_two_core_speeds_is_an_error() {
    let text = format!("run_s = 1\n[machine]\nlanes_per_core = 1\n{SEARCH}[[setting]]\npolicy = \"hurry-up\"");
    let error = parsed(&text).expect_err("all cores are equal");
    assert!(error.contains("cores of two speeds"), "{error}");
    let cores = "run_s = 1\n[machine.power]\ncore_busy_w = [1, 2]\n[service]\nname = \"a\"\n\
                 demand = { kind = \"constant\", mean_ms = 1 }\narrivals = { kind = \"poisson\", rate_per_s = 1 }\n\
                 [[setting]]\npolicy = \"alone\"";
    let error = parsed(cores).expect_err("cores that share have one power");
    assert!(error.contains("one number"), "{error}");
}

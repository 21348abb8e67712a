//! Tests of the machine's effect on service and batch, against sums computed by hand.

mod common;

use common::experiment;
use sidelane_sim::Figures;
use sidelane_sim::sweep::run_machine;

/// Scenario of a service that is half busy with requests of 1 ms. Batch beside it makes them take 1.5 times as long,
/// and is slowed by 1.4 itself.
const SERVICE: &str = r#"
requests = 50_000
[service]
arrivals = { kind = "poisson", load_percent = 50 }
demand = { kind = "exponential", mean_ms = 1 }
[[batch]]
name = "loop"
[slowdown.service]
loop = 1.5
[slowdown.loop]
service = 1.4
loop = 1.2
[gate]
kind = "ideal"
[slo]
limit_ms = 50
"#;

fn run(scenario_rest: &str) -> Figures {
    run_machine(&experiment(&format!("{SERVICE}{scenario_rest}")).points[0].runs[0])
}

#[track_caller]
fn assert_near(measured: f64, expected: f64, tolerance: f64) {
    assert!((measured / expected - 1.0).abs() <= tolerance, "{measured} is not {expected}");
}

#[test]
fn energy_is_the_sum_of_busy_and_idle_power() {
    let power = "[machine.power]\npackage_w = 10\ncore_idle_w = 1\ncore_busy_w = 5\nlane_w = 2\n";
    let watts = |figures: &Figures| figures.energy_j / (figures.elapsed_ns as f64 / 1e9);
    let alone = run(&format!("[machine]\ncores_per_package = 2\n{power}[[setting]]\npolicy = \"alone\"\n"));
    let busy = alone.lc_utilisation;
    assert_near(watts(&alone), 10.0 + 1.0 + 5.0 * busy + (1.0 - busy), 1e-9);
    let unmanaged = run(&format!("{power}[[setting]]\npolicy = \"unmanaged\"\n"));
    assert_near(watts(&unmanaged), 10.0 + 5.0 + 2.0 * unmanaged.lc_utilisation, 1e-9);
}

/// The service makes 20 accesses and stalls 0.2 µs per microsecond of work. Beside batch it loses 0.5 µs, 60 % of it
/// to memory.
#[test]
fn vpi_includes_memory_stalls_caused_by_batch() {
    let memory = "[memory.service]\naccesses_per_us = 20\nstall_share = 0.2\n[memory.loop]\npressure = 0.6\n";
    let vpi = |policy: &str| run(&format!("{memory}[[setting]]\npolicy = \"{policy}\"\n")).vpi.unwrap();
    assert_near(vpi("alone"), 0.2 * 2_000.0 / 20.0, 1e-9);
    assert_near(vpi("unmanaged"), (0.2 + 0.3) * 2_000.0 / 20.0, 1e-4);
    assert_near(vpi("exclusion"), vpi("alone"), 1e-9);
}

#[test]
fn request_on_a_half_speed_core_takes_twice_as_long() {
    let figures = run("[machine]\ncore_speed = [0.5]\n[[setting]]\npolicy = \"alone\"\n");
    let reference = run("[[setting]]\npolicy = \"alone\"\n");
    assert_near(figures.server_mean_ns, 2.0 * reference.server_mean_ns, 1e-5);
}

/// With batch on its second lane a core never sleeps, so requests start sooner (Elfen §5).
#[test]
fn core_kept_awake_by_batch_starts_requests_sooner() {
    let sleep = "[machine]\nsleep_after_us = 0\nsleep_wake_us = 100\n";
    let server_ns = |policy: &str| run(&format!("{sleep}[[setting]]\npolicy = \"{policy}\"\n")).server_mean_ns;
    let awake_ns = run("[[setting]]\npolicy = \"alone\"\n").server_mean_ns;
    assert_near(server_ns("exclusion"), awake_ns, 1e-9);
    assert!(server_ns("alone") > awake_ns + 40_000.0);
}

/// Beside two batch lanes with a slowdown of 1.5 each, a request takes 1 + 0.5 + 0.5 times as long.
#[test]
fn slowdowns_of_two_batch_lanes_add_up() {
    let figures = run("[machine]\nlanes_per_core = 3\n[[setting]]\npolicy = \"unmanaged\"\n");
    let alone = run("[[setting]]\npolicy = \"alone\"\n");
    assert_near(figures.server_mean_ns, 2.0 * alone.server_mean_ns, 1e-4);
    let (busy, slowed) = (figures.lc_utilisation, 1.0 / (1.0 + 0.2 + 0.4));
    assert_near(figures.batch_work_ratio.unwrap(), busy * slowed + (1.0 - busy) / 1.2, 1e-4);
}

/// A poor nap of the keeper takes execution resources from requests, too.
#[test]
fn keeper_with_a_costly_nap_slows_requests() {
    let nap = SERVICE.replace("loop = 1.5", "loop = 1.5\nnap = 1.25") + "[[setting]]\npolicy = \"exclusion\"\n";
    let figures = run_machine(&experiment(&nap).points[0].runs[0]);
    let alone = run("[[setting]]\npolicy = \"alone\"\n");
    assert_near(figures.server_mean_ns, 1.25 * alone.server_mean_ns, 1e-4);
}

/// Fig. 9(d): contention cost is 1 − LC_IPC ÷ ref_IPC, and the budget is stretched accordingly.
#[test]
fn contention_cost_of_batch_is_measured() {
    let contention_cost = |gate: &str| {
        let setting = "[[setting]]\npolicy = \"dynamic-refresh\"\nbudget_ms = 1\n";
        run(&format!("{setting}[setting.gate]\nkind = \"{gate}\"\n")).contention_cost_ppm
    };
    for gate in ["ideal", "nanonap", "holder"] {
        assert!((325_000..350_000).contains(&contention_cost(gate)), "{gate}: {}", contention_cost(gate));
    }
    let fixed = run("[[setting]]\npolicy = \"fixed-budget\"\nbudget_ms = 0.3\n");
    let dynamic = run("[[setting]]\npolicy = \"dynamic-refresh\"\nbudget_ms = 0.3\n");
    assert!(dynamic.lent_overlap_percent > 1.5 * fixed.lent_overlap_percent, "{dynamic:?} {fixed:?}");
}

#[test]
fn budget_is_derived_from_the_objective() {
    let figures = run("[[setting]]\npolicy = \"dynamic-refresh\"\nbudget = \"slo\"\n");
    assert!(figures.budget_ns > 1_000_000 && figures.lent_overlap_percent > 10.0, "{figures:?}");
    assert!(figures.p99_ns <= 50_000_000);
}

/// A batch job that waits most of its time loses less to holds than a job that never waits (Elfen, Fig. 12).
#[test]
fn batch_job_with_waits_loses_less_to_holds() {
    let phases = SERVICE.replace("name = \"loop\"", "name = \"loop\"\nphase = [{ work_ms = 0.5 }, { wait_ms = 2 }]");
    let waits = experiment(&format!("{phases}[[setting]]\npolicy = \"exclusion\"\n"));
    let waits = run_machine(&waits.points[0].runs[0]).batch_work_ratio.unwrap();
    let never = run("[[setting]]\npolicy = \"exclusion\"\n").batch_work_ratio.unwrap();
    assert!(waits > 1.1 * never, "{waits} {never}");
}

#[test]
fn freezer_policy_evicts_batch_at_each_hold() {
    let figures = run("[[setting]]\npolicy = \"freezer\"\n");
    assert!(figures.holds > 10_000 && figures.evictions == figures.holds, "{figures:?}");
}

#[test]
fn bursty_arrivals_queue_longer_at_the_same_rate() {
    let queue_ns = |arrivals: &str| {
        let text = SERVICE.replace("kind = \"poisson\"", arrivals) + "[[setting]]\npolicy = \"alone\"\n";
        run_machine(&experiment(&text).points[0].runs[0]).queue_mean_ns
    };
    let bursty = "kind = \"bursty\", burst_factor = 5, calm_ms = 100, burst_ms = 20";
    assert!(queue_ns(bursty) > 1.5 * queue_ns("kind = \"poisson\""));
}

/// Requests that do not fit into the queue are refused and counted.
#[test]
fn requests_beyond_the_queue_limit_are_refused() {
    let text =
        SERVICE.replace("load_percent = 50", "load_percent = 150").replace("[service]", "[service]\nqueue_limit = 10");
    let figures = run_machine(&experiment(&format!("{text}[[setting]]\npolicy = \"alone\"\n")).points[0].runs[0]);
    let refused = figures.refused as f64 / (figures.refused + figures.requests) as f64;
    assert_near(refused, 1.0 / 3.0, 0.05);
    assert!(figures.max_ns < 60_000_000);
}

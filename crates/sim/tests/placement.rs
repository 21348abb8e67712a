//! Tests of a fleet whose scheduler places jobs: hand-worked fleets, conservation, both models of nodes.

mod common;

use common::experiment;
use proptest::prelude::*;
use sidelane_sim::fleet::{FleetFigures, PlacementFigures};
use sidelane_sim::scenario::Files;
use sidelane_sim::{Choices, Experiment, Figures, Outcome, sweep};

const MODELS: [&str; 2] = ["requests", "fluid"];

/// A fleet of 40 machines in groups of 4, whose service takes 10 ms. Two lanes with batch slow each other by 1.25.
fn scenario(arrivals: &str, run_s: f64, placement: &str) -> String {
    format!(
        "warm_up_s = 20\nrun_s = {run_s}\n[service]\narrivals = {{ {arrivals} }}\n\
         demand = {{ kind = \"exponential\", mean_ms = 10 }}\n[[batch]]\nname = \"loop\"\n\
         [slowdown.loop]\nloop = 1.25\n[fleet]\nnodes = 40\nfan_out = 4\n\
         [fleet.placement]\n{placement}\n[[setting]]\npolicy = \"borrow-idle\"\n"
    )
}

fn run_on(threads: usize, text: &str) -> Outcome {
    sweep::run(&experiment(text), threads, &|_| ()).remove(0)
}

fn run(text: &str) -> (Figures, FleetFigures, PlacementFigures) {
    let outcome = run_on(2, text);
    let fleet = outcome.fleet.unwrap();
    (outcome.figures, fleet, fleet.placement.unwrap())
}

fn poisson(load_percent: f64) -> String {
    format!("kind = \"poisson\", load_percent = {load_percent}")
}

/// Each of the 40 lanes is lent and has a job all the time. A dedicated server does the work of 1.6 lanes.
#[test]
fn idle_fleet_saves_all_servers_that_its_lanes_are_worth() {
    for model in MODELS {
        let jobs = "work = { kind = \"constant\", mean_ms = 1_000_000 }\nbacklog = 100";
        let (_, fleet, jobs) = run(&scenario(&poisson(0.1), 100.0, &format!("model = \"{model}\"\n{jobs}")));
        assert_eq!((jobs.submitted, jobs.running, jobs.waiting, jobs.done), (100, 40, 60, 0), "{model}");
        assert_eq!((jobs.lent_share, jobs.used_share), (1.0, 1.0), "{model}");
        let wanted = 40.0 * 0.999 / 1.6;
        assert!((fleet.servers_saved() / wanted - 1.0).abs() < 0.005, "{model}: {} {wanted}", fleet.servers_saved());
    }
}

/// A lane that was never open for 20 % of its time is never lent.
#[test]
fn saturated_fleet_places_nothing() {
    for (model, load) in [("requests", 120.0), ("fluid", 95.0)] {
        let jobs = format!("model = \"{model}\"\nwork = {{ kind = \"constant\", mean_ms = 1000 }}\nbacklog = 100");
        let (figures, fleet, jobs) = run(&scenario(&poisson(load), 60.0, &jobs));
        assert_eq!((jobs.waiting, jobs.running, jobs.done, jobs.lent_share), (100, 0, 0, 0.0), "{model}");
        assert_eq!((figures.batch_work_ns, fleet.servers_saved()), (0.0, 0.0), "{model}");
    }
}

/// 40 lanes take 80 jobs of 10 s in two rounds. A job that ends between two steps is seen at the next: so the second
/// round begins at 11 s, because a lane is not open for all of the 10 s.
#[test]
fn jobs_wait_for_the_lanes_of_the_jobs_before_them() {
    for model in MODELS {
        let jobs = format!("model = \"{model}\"\nwork = {{ kind = \"constant\", mean_ms = 10_000 }}\nbacklog = 80");
        let (_, _, jobs) = run(&scenario(&poisson(1.0), 30.0, &jobs));
        assert_eq!((jobs.done, jobs.running, jobs.waiting), (80, 0, 0), "{model}");
        let s = |ms: u64| (ms as f64 / 1e3).round();
        assert_eq!((s(jobs.wait_p50_ms), s(jobs.wait_p99_ms)), (0.0, 11.0), "{model}");
        assert_eq!((s(jobs.turnaround_p50_ms), s(jobs.turnaround_p99_ms)), (11.0, 22.0), "{model}");
    }
}

/// The load of all machines rises from 2 % to 98 % and falls again, within 200 s.
fn busy_by_day() -> &'static str {
    "kind = \"daily\", load_percent = 47, swing_percent = 100, day_s = 200"
}

#[test]
fn old_offers_place_jobs_on_withdrawn_lanes() {
    for model in MODELS {
        let with_age = |age_s: u32| {
            let jobs = "work = { kind = \"exponential\", mean_ms = 5000 }\n\
                        arrivals = { kind = \"poisson\", load_percent = 40 }\nevict_after_s = 2";
            let jobs = format!("model = \"{model}\"\noffers_every_s = {age_s}\n{jobs}");
            run(&scenario(busy_by_day(), 400.0, &jobs)).2
        };
        let (fresh, old) = (with_age(0), with_age(50));
        assert_eq!(fresh.submitted, old.submitted, "{model}: the same jobs come");
        assert!(fresh.rejected == 0 && old.rejected > 0, "{model}: {fresh:?} {old:?}");
        assert!(fresh.moved > 0 && old.wait_p99_ms > fresh.wait_p99_ms, "{model}: {fresh:?} {old:?}");
        assert!(fresh.useful_work_ns > old.useful_work_ns, "{model}: {fresh:?} {old:?}");
    }
}

/// The fluid model agrees with the simulation of each request.
#[test]
fn fluid_nodes_do_what_simulated_nodes_do() {
    let figures = MODELS.map(|model| {
        let jobs = "work = { kind = \"exponential\", mean_ms = 20_000 }\n\
                    arrivals = { kind = \"poisson\", load_percent = 30 }\n[slo]\nlimit_ms = 300";
        let arrivals = "kind = \"daily\", load_percent = 40, swing_percent = 50, day_s = 300, phases = 5";
        run(&scenario(arrivals, 600.0, &format!("model = \"{model}\"\n{jobs}")))
    });
    let near = |name: &str, within: f64, number: fn(&(Figures, FleetFigures, PlacementFigures)) -> f64| {
        let [requests, fluid] = [number(&figures[0]), number(&figures[1])];
        assert!((fluid / requests - 1.0).abs() < within, "{name}: {requests} {fluid}");
    };
    near("requests", 0.02, |(leaves, ..)| leaves.requests as f64);
    near("whole requests", 0.02, |(_, roots, _)| roots.requests as f64);
    near("utilisation", 0.02, |(leaves, ..)| leaves.lc_utilisation);
    near("batch work", 0.02, |(leaves, ..)| leaves.batch_work_ns);
    near("p99", 0.05, |(leaves, ..)| leaves.p99_ns as f64);
    // The machines of a group have the same arrivals, so they are slow together; the fluid model knows only one of them.
    near("p99 of whole requests", 0.15, |(_, roots, _)| roots.p99_ns as f64);
    assert!(figures[1].1.p99_ns > figures[0].1.p99_ns, "{figures:?}");
    near("jobs", 0.02, |(.., jobs)| jobs.done as f64);
    near("lent", 0.02, |(.., jobs)| jobs.lent_share);
}

#[test]
fn placement_does_not_depend_on_the_thread_count() {
    for model in MODELS {
        let jobs = "work = { kind = \"exponential\", mean_ms = 5000 }\n\
                    arrivals = { kind = \"poisson\", load_percent = 50 }\nevict_after_s = 2\noffers_every_s = 10";
        let text = scenario(busy_by_day(), 100.0, &format!("model = \"{model}\"\n{jobs}"));
        assert_eq!(run_on(1, &text), run_on(3, &text), "{model}");
    }
}

/// Without batch there is nothing to place, and each model has the requests alone.
#[test]
fn fleet_without_batch_has_no_jobs() {
    for model in MODELS {
        let jobs = format!("model = \"{model}\"\nwork = {{ kind = \"constant\", mean_ms = 1000 }}\nbacklog = 100");
        let fleet = run_on(2, &scenario(&poisson(50.0), 20.0, &jobs).replace("borrow-idle", "alone")).fleet.unwrap();
        assert_eq!((fleet.placement, fleet.batch_servers), (None, 0.0), "{model}");
        assert!((fleet.requests as f64 / (10.0 * 20.0 * 50.0) - 1.0).abs() < 0.05, "{model}: {fleet:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// No job is lost or doubled, and neither is its work: all of it is that of jobs that are done or under way, or was
    /// lost by moves. Fresh offers place no job on a withdrawn lane.
    #[test]
    fn jobs_and_their_work_are_conserved(
        seed in 0_u32..1000,
        load in 5_u32..48,
        swing in 0_u32..=95,
        day_s in 30_u32..300,
        job_s in 1_u32..40,
        jobs_load in 5_u32..120,
        age_s in prop::sample::select(vec![0_u32, 7, 60]),
        evict_after_s in 0_u32..20,
        checkpoint in prop::sample::select(vec!["", "checkpoint_s = 3\n"]),
        model in prop::sample::select(MODELS.to_vec()),
    ) {
        let arrivals =
            format!("kind = \"daily\", load_percent = {load}, swing_percent = {swing}, day_s = {day_s}, phases = 3");
        let jobs = format!(
            "model = \"{model}\"\noffers_every_s = {age_s}\nwork = {{ kind = \"constant\", mean_ms = {job_s}000 }}\n\
             arrivals = {{ kind = \"poisson\", load_percent = {jobs_load} }}\nbacklog = 5\n{checkpoint}\
             evict_after_s = {evict_after_s}"
        );
        let text = format!("seed = {seed}\n{}", scenario(&arrivals, 120.0, &jobs));
        let (figures, fleet, jobs) = run(&text);
        prop_assert_eq!(jobs.submitted, jobs.done + jobs.waiting + jobs.running);
        prop_assert!(age_s > 0 || jobs.rejected == 0, "{:?}", jobs);
        prop_assert!((jobs.useful_work_ns + jobs.lost_work_ns - figures.batch_work_ns).abs() < 1e4, "{:?}", jobs);
        let work_ns = f64::from(job_s) * 1e9;
        let (least, most) = (jobs.done as f64 * work_ns, jobs.submitted as f64 * work_ns);
        // A move rounds the rest of the work to nanoseconds, and a fluid job's speed to a millionth.
        let rounding_ns = 1e3 + 1e-5 * figures.batch_work_ns;
        prop_assert!(jobs.useful_work_ns >= least - rounding_ns, "{:?} {} {}", jobs, least, fleet.batch_servers);
        prop_assert!(jobs.useful_work_ns <= most + rounding_ns, "{:?} {}", jobs, most);
    }
}

/// Runs the scenario that comes with the program, in its short form.
#[test]
fn shipped_scenario_keeps_its_statements() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/scenarios/placement.toml");
    let choices = Choices { quick: true, seed: None };
    let experiment = Experiment::load(&path, choices).unwrap();
    let outcomes = sidelane_sim::run::run_experiment(&experiment);
    let result = sidelane_sim::run::to_result(&experiment, &outcomes, &path, choices);
    assert!(result.checks.len() == 4 && result.checks.iter().all(|check| check.ok), "{:#?}", result.checks);
    let findings = result.settings["finding"].as_array().unwrap();
    let finding = findings[0].as_str().unwrap();
    assert!(findings.len() == 1 && finding.contains(" servers saved beside 480 machines"), "{findings:?}");
    assert!(finding.contains("every 3600 s instead of at each step"), "{findings:?}");
}

#[track_caller]
fn assert_rejected(from: &str, to: &str, message: &str) {
    let jobs = "model = \"fluid\"\nwork = { kind = \"constant\", mean_ms = 1000 }\nbacklog = 9";
    let good = scenario(&poisson(50.0), 20.0, jobs);
    let files: Files = &|_: &str| Err("no files here".to_owned());
    let parse = |text: &str| Experiment::parse("a.toml", text, Choices::default(), files).map(|_| ());
    assert!(good.contains(from) && parse(&good).is_ok(), "{from}");
    assert_eq!(parse(&good.replace(from, to)).map_err(|error| error.to_string()), Err(message.to_owned()));
}

#[test]
fn wrong_placements_are_refused_with_their_line() {
    assert_rejected(
        "\"fluid\"",
        "\"minutes\"",
        "a.toml:14: `fleet.placement.model` is \"minutes\"; write one of `requests`, `fluid`",
    );
    assert_rejected(
        "backlog = 9",
        "jobs = 9",
        "a.toml:13: `fleet.placement.arrivals` is missing; write arrivals of jobs, a backlog, or both",
    );
    assert_rejected(
        "mean_ms = 1000 ",
        "mean_ms = 1_000_001 ",
        "a.toml:15: `fleet.placement.work` is too long; write a mean of 1000 s at most",
    );
    assert_rejected(
        "backlog = 9",
        "backlog = 9\nevict_after_s = -1",
        "a.toml:17: `fleet.placement.evict_after_s` is -1; write a number from 0 to 10000000",
    );
    assert_rejected(
        "load_percent = 50",
        "load_percent = 96",
        "a.toml:14: `fleet.placement.model` is fluid, but the highest load is 96 %, at which a queue grows; lower the rate \
         to 95 %, or write model = requests",
    );
    assert_rejected(
        "name = \"loop\"",
        "name = \"loop\"\nphase = [{ work_ms = 1 }]",
        "a.toml:6: `batch` has the job loop with phases, but [fleet.placement] has the jobs' work; leave phase out",
    );
}

//! Tests of fleets: against closed forms, and on different numbers of threads.

mod common;

use std::fs::{self, File};

use common::experiment;
use sidelane_sim::fleet::{Fleet, FleetFigures, run};
use sidelane_sim::recording::{Head, LaneSecond, RecordedRequest, RecordingWriter, Second};
use sidelane_sim::{Choices, Experiment, Figures, sweep};

fn run_fleet(nodes: usize, fan_out: usize, load_percent: f64, requests: u64, policy: &str) -> (Figures, FleetFigures) {
    let text = format!(
        "requests = {requests}\n[service]\narrivals = {{ kind = \"poisson\", load_percent = {load_percent} }}\n\
         demand = {{ kind = \"exponential\", mean_ms = 1 }}\n[[batch]]\nname = \"loop\"\n\
         [slowdown.loop]\nloop = 1.25\n[slo]\nlimit_ms = 20\n[[setting]]\npolicy = \"{policy}\"\n"
    );
    run(&Fleet { nodes, fan_out, placement: None }, &experiment(&text).points[0].runs[0], 2, &|_| ())
}

/// Without queues, the answer time is the largest of k exponential times; its mean is the k-th harmonic number.
#[test]
fn fan_out_latency_is_that_of_the_slowest_leaf() {
    let (_, roots) = run_fleet(100, 20, 0.1, 40_000, "alone");
    let harmonic: f64 = (1..=20).map(|k| 1.0 / f64::from(k)).sum();
    let p99 = -(1.0 - 0.99_f64.powf(1.0 / 20.0)).ln();
    println!("mean {} wanted {harmonic}, p99 {} wanted {p99}", roots.mean_ns / 1e6, roots.p99_ns as f64 / 1e6);
    assert!((roots.mean_ns / 1e6 / harmonic - 1.0).abs() < 0.01, "{roots:?}");
    assert!((roots.p99_ns as f64 / 1e6 / p99 - 1.0).abs() < 0.01, "{roots:?}");
    assert_eq!((roots.nodes, roots.failed), (100, 0));
}

/// The two lanes of a dedicated server slow each other by 1.25, so the server does the work of 1.6 lanes. In the
/// fleet, half of each machine's core is idle.
#[test]
fn servers_saved_equal_the_servers_that_batch_would_need() {
    let (leaves, roots) = run_fleet(64, 4, 50.0, 2_000, "exclusion");
    let wanted = 64.0 * (1.0 - leaves.lc_utilisation) / 1.6;
    assert!((roots.batch_servers / wanted - 1.0).abs() < 1e-6, "{roots:?} {wanted}");
    assert_eq!(roots.servers_saved(), roots.batch_servers);
    let (_, late) = run_fleet(64, 4, 95.0, 20_000, "exclusion");
    assert_eq!((late.meets, late.servers_saved()), (Some(false), 0.0));
}

#[test]
fn fleet_results_do_not_depend_on_the_thread_count() {
    let text = "run_s = 5\n[service]\narrivals = { kind = \"poisson\", load_percent = 60 }\n\
                demand = { kind = \"lucene\" }\n[[batch]]\nname = \"loop\"\n[slowdown.service]\nloop = 1.5\n\
                [fleet]\nnodes = 60\nfan_out = 5\n[[setting]]\npolicy = \"borrow-idle\"\n";
    let experiment = experiment(text);
    let one = sweep::run(&experiment, 1, &|_| ());
    assert_eq!(one, sweep::run(&experiment, 3, &|_| ()));
    assert!(one[0].fleet.unwrap().p99_ns > one[0].figures.p99_ns);
}

/// A fleet with a fan-out of one is a number of independent machines.
#[test]
fn fan_out_of_one_has_the_latency_of_its_leaf() {
    let (leaves, roots) = run_fleet(16, 1, 50.0, 20_000, "alone");
    assert_eq!((leaves.p99_ns, leaves.requests), (roots.p99_ns, roots.requests));
}

/// Writes a recording of ten seconds in which `per_s` requests a second need their lane for 1 ms each, and each second
/// has five further turns.
fn write_recording(path: &std::path::Path, per_s: u64) {
    let head = Head {
        service: "port:1".to_owned(),
        request_lanes: vec![0],
        batch_lanes: vec![1],
        declared: None,
        source: String::new(),
        machine: serde_json::from_str(
            r#"{"cpu": "", "lanes": 2, "pair": "declared", "kernel": "", "pmu": false, "gates": []}"#,
        )
        .unwrap(),
    };
    let mut writer = RecordingWriter::new(File::create(path).unwrap(), &head).unwrap();
    for second in 0..10 {
        let arrived = |number: u64| second * 10_000_000 + number * 10_000_000 / per_s;
        let request = |number| RecordedRequest { arrived: arrived(number), queueing: 0, server: 10_000, lane: 0 };
        let lanes = vec![LaneSecond { busy: per_s * 10_000, turns: per_s + 5 }];
        let requests = (0..per_s).map(request).collect();
        writer.write(&Second { length: 10_000_000, lanes, requests, ..Second::default() }).unwrap();
    }
    writer.end().unwrap();
}

#[test]
fn each_machine_of_a_fleet_has_a_recording_in_turn() {
    let dir = tempfile::tempdir().unwrap();
    let (scenario, recordings) = (dir.path().join("fleet.toml"), dir.path().join("monday"));
    fs::create_dir(&recordings).unwrap();
    write_recording(&recordings.join("a.sidelane"), 100);
    write_recording(&recordings.join("b.sidelane"), 400);
    let text = "run_s = 10\n[service]\narrivals = { kind = \"recordings\", dir = \"monday\" }\n[[batch]]\nname = \"loop\"\n\
                [fleet]\nnodes = 6\n[[setting]]\npolicy = \"borrow-idle\"\n";
    let load = |text: &str| {
        fs::write(&scenario, text).unwrap();
        Experiment::load(&scenario, Choices::default()).map_err(|problems| problems.to_string())
    };
    let run = &sweep::run(&load(text).unwrap(), 2, &|_| ())[0];
    let fleet = run.fleet.unwrap();
    assert!((3 * 5_000 - 6..=3 * 5_000).contains(&fleet.requests), "{fleet:?}");
    assert!((run.figures.lc_utilisation - 0.25).abs() < 1e-3, "{:?}", run.figures);
    assert!((fleet.p50_ns as f64 / 1e6 - 1.0).abs() < 0.1, "{fleet:?}");

    let jobs = "[fleet.placement]\nmodel = \"fluid\"\nwork = { kind = \"constant\", mean_ms = 1e6 }\nbacklog = 6\n";
    let with_jobs =
        text.replace("run_s", "warm_up_s = 20\nrun_s").replace("[[setting]]", &format!("{jobs}[[setting]]"));
    let run = &sweep::run(&load(&with_jobs).unwrap(), 2, &|_| ())[0];
    let fleet = run.fleet.unwrap();
    assert!((3 * 5_000 - 6..=3 * 5_000).contains(&fleet.requests), "{fleet:?}");
    assert!((run.figures.lc_utilisation - 0.25).abs() < 5e-3, "{:?}", run.figures);
    assert_eq!(fleet.placement.map(|jobs| (jobs.running, jobs.used_share)), Some((6, 1.0)), "{fleet:?}");
    assert!((run.figures.batch_work_ns / 60e9 - 0.75).abs() < 0.02, "{:?}", run.figures);

    for (wrong, wanted) in [
        (
            text.replace("[service]", "[service]\nworkers = 2"),
            "has a recording of port:1 with 1 request lane(s); write workers = 1",
        ),
        (text.replace("nodes = 6", "nodes = 6\nfan_out = 2"), "each machine has the requests of its own recording"),
        (text.replace("monday", "tuesday"), "cannot be read"),
    ] {
        let wrong =
            if wrong.contains("workers = 2") { format!("{wrong}[machine]\ncores_per_package = 2\n") } else { wrong };
        let refused = load(&wrong).unwrap_err();
        assert!(refused.contains(wanted), "{refused}");
    }
}

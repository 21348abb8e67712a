//! Tests of a whole machine, against sums computed by hand.

mod common;

use common::machine;
use sidelane_policy::cpus::{CpuAction, CpuActions, CpuMask, CpuReason, MachineObservation};
use sidelane_policy::{Nanos, Policy};
use sidelane_sim::machine::MachineEngine;
use sidelane_sim::machine::figures::MachineFigures;
use sidelane_sim::machine::model::MachineModel;
use sidelane_sim::machine::sweep::run_machine;

/// Scenario of a service that is half busy with requests of 1 ms, on CPU 0 of one core with two lanes.
const SERVICE: &str = r#"
run_s = 20
warm_up_s = 1
[machine]
migration_us = 0
context_switch_us = 0
clock_ghz = 2
[[service]]
name = "kv"
cpus = "0"
demand = { kind = "exponential", mean_ms = 1 }
arrivals = { kind = "poisson", load_percent = 50 }
[memory.kv]
accesses_per_us = 20
stall_share = 0.2
[slowdown.kv]
sort = 1.5
[slowdown.sort]
kv = 1.4
sort = 1.2
[memory.sort]
pressure = 0.6
"#;

fn model(scenario_rest: &str) -> MachineModel {
    machine(&format!("{SERVICE}{scenario_rest}")).points[0].runs[0].clone()
}

fn run(scenario_rest: &str) -> MachineFigures {
    run_machine(&model(scenario_rest), &[])
}

#[track_caller]
fn assert_near(measured: f64, expected: f64, tolerance: f64) {
    assert!((measured / expected - 1.0).abs() <= tolerance, "{measured} is not {expected}");
}

const ENDLESS: &str = "work = { kind = \"constant\", mean_ms = 1_000_000 }\n";

fn sort_container_text(cpus: u32, container_rest: &str) -> String {
    format!("[[container]]\nname = \"sort\"\ncpus = {cpus}\n{container_rest}\n")
}

/// Batch always runs on the sibling. Every request takes 1.5 times as long, batch 1.4 times while there is a request.
#[test]
fn container_and_service_on_siblings_slow_each_other() {
    let figures =
        run(&format!("{}allowed = \"1\"\n[[setting]]\npolicy = \"unmanaged\"\n", sort_container_text(1, ENDLESS)));
    let kv = &figures.services[0];
    assert_near(kv.busy_cpus, 0.75, 0.02);
    assert_eq!(kv.beside_batch, 1.0);
    assert_near(figures.batch_work_ns, figures.elapsed_ns as f64 * (1.0 - kv.busy_cpus + kv.busy_cpus / 1.4), 1e-4);
    assert_near(figures.utilisation, (1.0 + kv.busy_cpus) / 2.0, 1e-6);
}

/// The service makes 20 accesses and stalls 0.2 µs per microsecond of work. Beside batch it loses 0.5 µs, 60 % of it
/// to memory.
#[test]
fn vpi_includes_memory_stalls_caused_by_batch() {
    let alone = run(&format!("{}[[setting]]\npolicy = \"alone\"\n", sort_container_text(1, ENDLESS)));
    assert_near(alone.services[0].vpi.unwrap(), 0.2 * 2_000.0 / 20.0, 1e-4);
    let beside =
        run(&format!("{}allowed = \"1\"\n[[setting]]\npolicy = \"unmanaged\"\n", sort_container_text(1, ENDLESS)));
    assert_near(beside.services[0].vpi.unwrap(), (0.2 + 0.3) * 2_000.0 / 20.0, 1e-4);
}

/// A service displaces batch on its own CPU: batch has the rest of the time, and no service is slower.
#[test]
fn a_service_displaces_a_container_on_its_cpu() {
    let figures =
        run(&format!("{}allowed = \"0\"\n[[setting]]\npolicy = \"unmanaged\"\n", sort_container_text(1, ENDLESS)));
    let alone = run(&format!("{}[[setting]]\npolicy = \"alone\"\n", sort_container_text(1, ENDLESS)));
    assert_eq!(figures.services, alone.services);
    assert_near(figures.batch_work_ns, figures.elapsed_ns as f64 * (1.0 - alone.services[0].busy_cpus), 1e-6);
    assert_eq!(figures.utilisation, 0.5);
}

/// Each displacement costs a container 100 µs.
#[test]
fn a_displaced_container_loses_the_time_of_a_switch() {
    let beside = format!("{}allowed = \"0\"\n[[setting]]\npolicy = \"unmanaged\"\n", sort_container_text(1, ENDLESS));
    let text = format!("{SERVICE}{beside}").replace("context_switch_us = 0", "context_switch_us = 100");
    let dear = run_machine(&machine(&text).points[0].runs[0], &[]);
    let free = run(&beside);
    // Half of the requests find the service idle, and only those displace the container.
    let lost_ns = free.batch_work_ns - dear.batch_work_ns;
    assert_near(lost_ns, 0.5 * free.services[0].own.count as f64 * 1e5, 0.02);
}

/// A request stalls on memory for 0.2 of its time, so memory that takes twice as long makes it 1.2 times as long.
#[test]
fn pressure_on_the_chip_makes_memory_slower() {
    let chip = "[chip]\nslowdown = [{ pressure = 1, times = 1 }, { pressure = 3, times = 2 }]\n\
                [chip.intensity]\nsort = 3\n";
    let rest =
        format!("{chip}{}allowed = \"2\"\n[[setting]]\npolicy = \"unmanaged\"\n", sort_container_text(1, ENDLESS));
    let text = format!("{SERVICE}{rest}").replace("clock_ghz = 2\n", "clock_ghz = 2\ncores_per_package = 2\n");
    // With `allowed = "1"`, the container runs on core 1 of the same chip: CPU 1 is on core 1, CPU 2 on core 0.
    let figures = run_machine(&machine(&text.replace("allowed = \"2\"", "allowed = \"1\"")).points[0].runs[0], &[]);
    assert_near(figures.services[0].busy_cpus, 0.5 * 1.2, 0.02);
    assert_near(figures.services[0].vpi.unwrap(), 0.4 * 2_000.0 / 20.0, 1e-4);
    let apart = text.replace("cores_per_package = 2", "packages = 2").replace("allowed = \"2\"", "allowed = \"1\"");
    let figures = run_machine(&machine(&apart).points[0].runs[0], &[]);
    assert_near(figures.services[0].busy_cpus, 0.5, 0.02);
}

/// A container has 100 ms of work for two threads, each on a CPU of its own; the next one starts 50 ms after its end.
#[test]
fn repeated_containers_start_again_after_the_gap() {
    let work = "work = { kind = \"constant\", mean_ms = 100 }\ngap_ms = 50\nallowed = \"1-2\"";
    let text = format!("{SERVICE}{}[[setting]]\npolicy = \"unmanaged\"\n", sort_container_text(2, work));
    let text = text.replace("clock_ghz = 2\n", "clock_ghz = 2\ncores_per_package = 3\nlanes_per_core = 1\n");
    let figures = run_machine(&machine(&text).points[0].runs[0], &[]);
    assert_eq!(figures.finished_containers(), 200);
    assert_near(figures.batch_work_ns, 200.0 * 1e8, 1e-3);
    // Two containers on the same CPUs take turns: together they do as much work.
    let two = text.replace("cpus = 2\n", "cpus = 2\ncount = 2\n").replace("gap_ms = 50", "gap_ms = 0");
    let figures = run_machine(&machine(&two).points[0].runs[0], &[]);
    assert_near(figures.finished_containers() as f64, 400.0, 0.01);
}

/// Submitted containers end as fast as they are submitted, up to what the machine can do.
#[test]
fn submitted_containers_wait_for_room() {
    let finished = |rate: f64| {
        let work = "work = { kind = \"constant\", mean_ms = 100 }\nallowed = \"1\"\ncount = 2";
        let arrivals = format!("{work}\narrivals = {{ kind = \"poisson\", rate_per_s = {rate} }}");
        let text = format!("{SERVICE}{}[[setting]]\npolicy = \"unmanaged\"\n", sort_container_text(1, &arrivals));
        let text = text.replace("clock_ghz = 2\n", "clock_ghz = 2\ncores_per_package = 2\nlanes_per_core = 1\n");
        run_machine(&machine(&text).points[0].runs[0], &[]).finished_containers() as f64
    };
    assert_near(finished(3.0), 60.0, 0.3);
    assert_near(finished(50.0), 200.0, 0.01);
}

/// Policy that confines the only container at its second observation, pauses it at the third, and moves the service
/// at the fourth.
struct Script {
    looks: usize,
    seen: std::sync::Arc<std::sync::Mutex<Vec<MachineObservation>>>,
}

impl Policy for Script {
    type Observation = MachineObservation;
    type Actions = CpuActions;
    type Reason = CpuReason;

    fn observe(&mut self, _: Nanos, seen: &MachineObservation, out: &mut CpuActions) {
        self.seen.lock().unwrap().push(seen.clone());
        self.looks += 1;
        match self.looks {
            2 => out.push(CpuAction::Confine { container: 0, cpus: CpuMask::from_iter([1]) }),
            3 => out.push(CpuAction::Pause { container: 0 }),
            4 => out.push(CpuAction::Place { service: 0, cpus: CpuMask::from_iter([1]) }),
            _ => {}
        }
    }

    fn next_wakeup(&self) -> Option<Nanos> {
        None
    }

    fn why(&self) -> CpuReason {
        CpuReason::Steady
    }
}

/// Observations are 1 s apart; an action takes effect 10 ms after its observation.
#[test]
fn policy_sees_the_past_and_its_actions_take_effect_later() {
    let text = format!(
        "{}[control]\nlook_us = 1_000_000\nact_p50_us = 10_000\n[[setting]]\npolicy = \"perfiso\"\n",
        sort_container_text(2, ENDLESS)
    );
    let seen = std::sync::Arc::default();
    let script = Script { looks: 0, seen: std::sync::Arc::clone(&seen) };
    let mut engine = MachineEngine::with_policy(model(&text), Some(Box::new(script)));
    let on = |engine: &MachineEngine| [0, 1].map(|cpu| engine.service_and_containers_on(cpu).1.len());
    for (at_ms, wanted) in [(500, [1, 1]), (1_009, [1, 1]), (1_010, [0, 1]), (2_009, [0, 1]), (2_010, [0, 0])] {
        engine.run_to(at_ms * 1_000_000);
        assert_eq!(on(&engine), wanted, "{at_ms} ms");
    }
    engine.run_to(4_500_000_000);
    let seen = seen.lock().unwrap();
    let mask = |cpus: &[usize]| cpus.iter().copied().collect::<CpuMask>();
    // In the first second both CPUs were busy all the time, CPU 0 with the service for about three quarters of it.
    let first = &seen[1];
    assert_eq!([first.cpus[0].busy, first.cpus[1].busy, first.cpus[1].serving], [1.0, 1.0, 0.0]);
    assert!(first.cpus[0].online && !first.cpus[2].online);
    assert_near(first.cpus[0].serving, 0.75, 0.2);
    assert_near(first.cpus[0].interference.unwrap(), 50.0, 1e-3);
    let service = first.services[0].unwrap();
    assert_eq!((service.allowed, service.ran_on), (mask(&[0]), mask(&[0])));
    let container = first.containers[0].unwrap();
    assert_eq!((container.allowed, container.wanted), (mask(&[0, 1]), 2));
    // The service was placed on CPU 1 after the fourth observation.
    let last = seen[4].services[0].unwrap();
    assert_eq!((last.allowed, last.ran_on.contains(1)), (mask(&[1]), true));
    assert_eq!(engine.accounting().actions, 3);
}

/// Settings for a service with calm periods and bursts. Holmes gives batch the calm periods.
const BURSTS: &str = r#"
[[setting]]
policy = "alone"
[[setting]]
policy = "unmanaged"
[[setting]]
policy = "perfiso"
buffer = 1
[[setting]]
policy = "holmes"
calm_time_ms = 5
[[setting]]
name = "rung"
policy = "holmes"
calm_time_ms = 5
control = { look_us = 10_000, ring_p50_us = 30, act_p50_us = 20 }
[[setting]]
name = "gated"
policy = "holmes"
calm_time_ms = 5
gate = { kind = "holder" }
"#;

#[test]
fn holmes_protects_the_service_and_a_gate_gives_batch_more() {
    let bursts = "kind = \"bursty\", load_percent = 15, burst_factor = 20, calm_ms = 100, burst_ms = 50";
    let text = format!("{SERVICE}{}{BURSTS}", sort_container_text(3, ENDLESS))
        .replace("kind = \"poisson\", load_percent = 50", bursts)
        .replace("clock_ghz = 2\n", "clock_ghz = 2\ncores_per_package = 2\n")
        .replace("mean_ms = 1 }", "mean_ms = 0.1 }")
        .replace("accesses_per_us = 20", "accesses_per_us = 12.5");
    let runs = machine(&text).points[0].runs.clone();
    let figures: Vec<MachineFigures> = runs.iter().map(|run| run_machine(run, &[])).collect();
    let [alone, unmanaged, perfiso, holmes, rung, gated] = figures.as_slice() else { panic!("six settings") };
    let mean_ns = |figures: &MachineFigures| figures.services[0].whole.mean_ns;
    assert!(mean_ns(unmanaged) > 1.5 * mean_ns(alone));
    assert!(mean_ns(perfiso) > 1.5 * mean_ns(alone), "it knows no siblings");
    for protected in [holmes, rung, gated] {
        assert!(mean_ns(protected) < 1.05 * mean_ns(alone), "{} {}", mean_ns(protected), mean_ns(alone));
    }
    assert!(holmes.batch_work_ns > 0.5 * unmanaged.batch_work_ns);
    assert!(gated.batch_work_ns > 1.05 * holmes.batch_work_ns);
    // `holmes` observes every 50 µs and needs 10 µs for the action. `rung` needs a window of 50 µs, 30 µs for the
    // ring, and 20 µs for the action.
    let [polled, rung_at] = [holmes, rung].map(|figures| figures.onset.unwrap());
    assert!(polled.count > 10 && polled.p50_ns <= 80_000 && polled.max_ns < 10_000_000, "{polled:?}");
    assert!(rung_at.p50_ns >= 100_000 && rung_at.p50_ns < 400_000, "{rung_at:?}");
    assert!(rung.looks < holmes.looks / 20 && rung.rings > 0 && holmes.rings == 0);
}

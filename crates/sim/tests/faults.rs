//! Tests that each fault has an effect on the expected figures and on no others.

mod common;

use common::experiment;
use sidelane_sim::Figures;
use sidelane_sim::sweep::run_machine;

fn run(setting: &str, faults: &str) -> Figures {
    let text = format!(
        "requests = 20_000\n[service]\narrivals = {{ kind = \"poisson\", load_percent = 30 }}\n\
         demand = {{ kind = \"exponential\", mean_ms = 1 }}\n[[batch]]\nname = \"loop\"\n\
         [slowdown.service]\nloop = 1.5\n[gate]\nkind = \"nanonap\"\n[[setting]]\n{setting}\n{faults}"
    );
    run_machine(&experiment(&text).points[0].runs[0])
}

const IDLE: &str = "policy = \"borrow-idle\"";
const DYNAMIC: &str = "policy = \"dynamic-refresh\"\nbudget_ms = 1";

#[test]
fn lost_summons_causes_overlap_until_the_service_stops() {
    let (well, ill) = (run(IDLE, ""), run(IDLE, "[[fault]]\nkind = \"lost-summons\"\nprobability = 0.1\n"));
    assert!(well.overlap_percent < 0.2, "{well:?}");
    assert!((5.0..20.0).contains(&ill.overlap_percent), "{ill:?}");
}

#[test]
fn late_wakeup_causes_overlap_for_its_delay() {
    let late = run(IDLE, "[[fault]]\nkind = \"late-wake-up\"\nprobability = 1\ndelay_us = 100\n");
    let each_us =
        late.overlap_percent / 100.0 * late.lc_utilisation * late.elapsed_ns as f64 / 1e3 / late.summons as f64;
    // The mean may be below the 100 µs of the late wakeup, since some requests end before the keeper is awake.
    assert!((85.0..102.0).contains(&each_us), "{each_us}");
}

#[test]
fn counter_glitch_raises_the_contention_cost() {
    let well = run(DYNAMIC, "");
    let ill = run(DYNAMIC, "[[fault]]\nkind = \"counter-glitch\"\nprobability = 0.01\n");
    assert!(
        ill.contention_cost_ppm > well.contention_cost_ppm,
        "{} {}",
        ill.contention_cost_ppm,
        well.contention_cost_ppm
    );
}

#[test]
fn batch_stays_away_while_the_agent_is_down() {
    let (well, ill) = (run(IDLE, ""), run(IDLE, "[[fault]]\nkind = \"agent-crash\"\nevery_ms = 100\ngone_ms = 50\n"));
    let share = ill.batch_work_ratio.unwrap() / well.batch_work_ratio.unwrap();
    assert!((0.48..0.52).contains(&share), "{share}");
    assert!(ill.overlap_percent < 0.2 && ill.p99_ns <= well.p99_ns * 101 / 100);
}

#[test]
fn container_churn_causes_no_overlap() {
    let ill = run(IDLE, "[[fault]]\nkind = \"container-churn\"\nevery_ms = 10\ngone_ms = 2\n");
    assert!(ill.overlap_percent < 0.3, "{ill:?}");
    assert!(ill.batch_work_ratio.unwrap() < 0.6, "{ill:?}");
}

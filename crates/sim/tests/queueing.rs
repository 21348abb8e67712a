//! Tests of the simulated cores against queueing theory: closed forms, within 1 % at ten million requests.

use hdrhistogram::Histogram;
use sidelane_sim::engine::watch::{CompletedRequest, Watch};
use sidelane_sim::{Choices, Engine, Experiment, Figures, Model};

const REQUESTS: u64 = 10_000_000;
/// Mean work of a request, in nanoseconds.
const MEAN_NS: f64 = 1e6;

/// Watch that records how long requests waited.
struct Waits(Histogram<u64>);

impl Watch for Waits {
    fn request_finished(&mut self, request: &CompletedRequest) {
        self.0.saturating_record(request.started - request.arrived);
    }
}

fn model(text: &str) -> Model {
    let text = format!("requests = {REQUESTS}\nwarm_up_s = 10\n{text}");
    let files = |_: &str| Err("no files here".to_owned());
    Experiment::parse("test.toml", &text, Choices::default(), &files).unwrap().points[0].runs[0].clone()
}

fn model_alone(service: &str, load: f64, demand: &str) -> Model {
    model(&format!(
        "[machine]\ncores_per_package = 8\n[service]\n{service}\n\
         arrivals = {{ kind = \"poisson\", load_percent = {} }}\ndemand = {{ {demand} }}\n\
         [[setting]]\npolicy = \"alone\"\n",
        load * 100.0
    ))
}

fn model_with_batch(policy: &str, load: f64) -> Model {
    model(&format!(
        "[service]\narrivals = {{ kind = \"poisson\", load_percent = {} }}\n\
         demand = {{ kind = \"exponential\", mean_ms = 1 }}\n[[batch]]\nname = \"loop\"\n\
         [slowdown.service]\nloop = 1.25\n[slowdown.loop]\nservice = 1.6\n\
         [[setting]]\npolicy = \"{policy}\"\n",
        load * 100.0
    ))
}

fn run(model: Model) -> (Figures, Histogram<u64>) {
    let mut engine = Engine::new(model, Waits(Histogram::new_with_max(1 << 42, 3).unwrap()));
    engine.run();
    (Figures::from_engine(&engine), engine.watch().0.clone())
}

#[track_caller]
fn assert_near(name: &str, measured: f64, expected: f64) {
    let error = measured / expected - 1.0;
    println!("{name}: {measured:.5e}, theory {expected:.5e}, {:+.3} %", error * 100.0);
    assert!(error.abs() < 0.01, "{name}: {measured} is not {expected}");
}

/// Compares latencies with M/M/1, in which the sojourn time is exponential with rate µ − λ.
fn assert_mm1(name: &str, figures: &Figures, mean_ns: f64, load: f64) {
    let sojourn_ns = mean_ns / (1.0 - load);
    assert_near(&format!("{name} mean"), figures.mean_ns, sojourn_ns);
    assert_near(&format!("{name} p50"), figures.p50_ns as f64, sojourn_ns * 2_f64.ln());
    assert_near(&format!("{name} p95"), figures.p95_ns as f64, sojourn_ns * 20_f64.ln());
    assert_near(&format!("{name} p99"), figures.p99_ns as f64, sojourn_ns * 100_f64.ln());
}

#[test]
fn mm1_at_half_load() {
    let (figures, _) = run(model_alone("", 0.5, "kind = \"exponential\", mean_ms = 1"));
    assert_mm1("M/M/1 50 %", &figures, MEAN_NS, 0.5);
    assert_near("utilisation", figures.lc_utilisation, 0.5);
}

#[test]
fn mm1_at_high_load() {
    let (figures, _) = run(model_alone("", 0.7, "kind = \"exponential\", mean_ms = 1"));
    assert_mm1("M/M/1 70 %", &figures, MEAN_NS, 0.7);
}

/// Each of several queues is M/M/1, since arrivals are split at random.
#[test]
fn per_worker_queues_are_each_mm1() {
    let (figures, _) =
        run(model_alone("workers = 4\nqueue = \"per-worker\"", 0.5, "kind = \"exponential\", mean_ms = 1"));
    assert_mm1("4 × M/M/1", &figures, MEAN_NS, 0.5);
}

/// Erlang's C is the share of requests that wait; their wait is exponential with rate cµ − λ.
#[test]
fn four_workers_are_mm4() {
    let (workers, load) = (4.0, 0.8);
    let offered: f64 = workers * load;
    let term = |n: u32| offered.powi(n as i32) / (1..=n).map(f64::from).product::<f64>();
    let last = term(4) / (1.0 - load);
    let waits = last / ((0..4).map(term).sum::<f64>() + last);
    let drain_ns = MEAN_NS / (workers * (1.0 - load));

    let (figures, waited) = run(model_alone("workers = 4", load, "kind = \"exponential\", mean_ms = 1"));
    assert_near("M/M/4 wait", figures.queue_mean_ns, waits * drain_ns);
    assert_near("M/M/4 mean", figures.mean_ns, waits * drain_ns + MEAN_NS);
    for percentile in [90.0, 99.0] {
        let wanted_ns = drain_ns * (waits / (1.0 - percentile / 100.0)).ln();
        assert_near(&format!("M/M/4 wait p{percentile}"), waited.value_at_percentile(percentile) as f64, wanted_ns);
    }
}

/// Compares the mean wait with Pollaczek and Khinchine: λE[S²] ÷ 2(1 − ρ).
fn assert_pollaczek_khinchine(name: &str, load: f64, square_over_mean_square: f64, demand: &str) {
    let (figures, _) = run(model_alone("", load, demand));
    let wanted_ns = load * MEAN_NS * square_over_mean_square / (2.0 * (1.0 - load));
    assert_near(&format!("M/G/1 {name} wait"), figures.queue_mean_ns, wanted_ns);
    assert_near(&format!("M/G/1 {name} mean"), figures.mean_ns, wanted_ns + MEAN_NS);
}

#[test]
fn mg1_lognormal() {
    assert_pollaczek_khinchine("lognormal", 0.6, 1_f64.exp(), "kind = \"lognormal\", mean_ms = 1, sigma = 1");
}

/// Nine of ten requests take 0.5 ms, the tenth 5.5 ms.
#[test]
fn mg1_bimodal() {
    let square = 0.9 * 0.25 + 0.1 * 30.25;
    let demand = "kind = \"bimodal\", short_ms = 0.5, long_ms = 5.5, long_share = 0.1";
    assert_pollaczek_khinchine("bimodal", 0.6, square, demand);
}

/// Waits in M/D/1 have Erlang's distribution.
#[test]
fn one_worker_with_constant_demand_is_md1() {
    let load = 0.6;
    let (figures, waited) = run(model_alone("", load, "kind = \"constant\", mean_ms = 1"));
    assert_near("M/D/1 wait", figures.queue_mean_ns, load * MEAN_NS / (2.0 * (1.0 - load)));
    for percentile in [75.0, 95.0, 99.0] {
        let wanted_ns = MEAN_NS * md1_wait(load, percentile / 100.0);
        assert_near(&format!("M/D/1 wait p{percentile}"), waited.value_at_percentile(percentile) as f64, wanted_ns);
    }
}

/// Returns the wait, in service times, that `share` of requests do not exceed.
fn md1_wait(load: f64, share: f64) -> f64 {
    let within = |t: f64| {
        let term = |k: u32| {
            let x = load * (f64::from(k) - t);
            x.powi(k as i32) / (1..=k).map(f64::from).product::<f64>() * (-x).exp()
        };
        (1.0 - load) * (0..=t.floor() as u32).map(term).sum::<f64>()
    };
    let (mut low, mut high) = (0.0, 20.0);
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if within(middle) < share { low = middle } else { high = middle }
    }
    low
}

/// Unmanaged batch slows every request by the same factor, so the queue is M/M/1 with a slower server. Batch is
/// slowed whenever there is a request.
#[test]
fn unmanaged_batch_is_mm1_with_a_slower_server() {
    let (figures, _) = run(model_with_batch("unmanaged", 0.5));
    let load = 0.5 * 1.25;
    assert_mm1("slowed M/M/1", &figures, MEAN_NS * 1.25, load);
    assert_near("batch work", figures.batch_work_ratio.unwrap(), 1.0 - load + load / 1.6);
    assert_near("overlap", figures.overlap_percent, 100.0);
}

/// Under exclusion, batch does exactly the work for which the service leaves time.
#[test]
fn exclusion_gives_batch_exactly_the_idle_time() {
    let (figures, _) = run(model_with_batch("exclusion", 0.7));
    assert_mm1("M/M/1 beside exclusion", &figures, MEAN_NS, 0.7);
    let idle_ns = figures.elapsed_ns as f64 * (1.0 - figures.lc_utilisation);
    assert!((figures.batch_work_ns - idle_ns).abs() < 1e-9 * idle_ns, "{} {idle_ns}", figures.batch_work_ns);
    assert_eq!(figures.overlap_percent, 0.0);
}

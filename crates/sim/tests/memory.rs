//! Test that memory does not grow with the length of a run.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{experiment, machine};
use sidelane_sim::machine::model::MachineModel as Whole;
use sidelane_sim::machine::sweep;
use sidelane_sim::model::RunEnd;
use sidelane_sim::sweep::run_machine;

/// Allocator that records the peak of allocated memory.
struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all calls are passed to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(held, Ordering::Relaxed);
        // SAFETY: the caller's promises are those that the system's allocator requires.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are those that the system's allocator requires.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns the most memory that a run takes beyond what was held before, in bytes.
fn peak_memory_bytes(run: impl FnOnce()) -> usize {
    let before = HELD.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    run();
    MOST.load(Ordering::Relaxed) - before
}

#[test]
fn a_hundred_times_the_requests_take_no_more_memory() {
    let text = "requests = 1\n[service]\narrivals = { kind = \"poisson\", load_percent = 60 }\n\
                demand = { kind = \"lucene\" }\n[[batch]]\nname = \"loop\"\n[slowdown.service]\nloop = 1.5\n\
                [slo]\nlimit_ms = 100\n[[setting]]\npolicy = \"dynamic-refresh\"\nbudget = \"slo\"\n";
    let model = experiment(text).points[0].runs[0].clone();
    let most_of = |requests: u64| {
        peak_memory_bytes(|| {
            let figures = run_machine(&sidelane_sim::Model { until: RunEnd::Requests(requests), ..model.clone() });
            assert_eq!(figures.requests, requests);
        })
    };
    let (short, long) = (most_of(20_000), most_of(2_000_000));
    println!("{short} bytes for 20 000 requests, {long} for 2 000 000");
    // The margin of a quarter is for a queue that grew longer in the long run, since a queue doubles its memory when it
    // grows.
    assert!(long <= short + short / 4, "{short} {long}");
    assert_memory_of_whole_machines_is_bounded();
}

/// Runs a chain with a fan-out, containers that come and go, and Holmes. It is not a test of its own, because memory
/// is counted for all threads.
fn assert_memory_of_whole_machines_is_bounded() {
    let service = |name: &str, cpus: &str, rest: &str| {
        let demand = "demand = { kind = \"exponential\", mean_ms = 0.1 }";
        format!("[[service]]\nname = \"{name}\"\ncpus = \"{cpus}\"\nworkers = 2\n{demand}\n{rest}\n")
    };
    let arrivals =
        "arrivals = { kind = \"poisson\", load_percent = 40 }\ncalls = [{ service = \"leaf\", fan_out = 2 }]";
    let text = format!(
        "requests = 1\n[machine]\ncores_per_package = 8\n{}{}\
         [[container]]\nname = \"sort\"\ncount = 6\ncpus = 4\nwork = {{ kind = \"exponential\", mean_ms = 5 }}\n\
         [slowdown.front]\nsort = 1.5\n[memory.front]\naccesses_per_us = 20\nstall_share = 0.3\n\
         [memory.sort]\npressure = 0.9\n[[setting]]\npolicy = \"holmes\"\ncalm_time_ms = 1\n",
        service("front", "0-1", arrivals),
        service("leaf", "2-5", ""),
    );
    let model = machine(&text).points[0].runs[0].clone();
    let most_of = |requests: u64| {
        peak_memory_bytes(|| {
            let model = Whole { until: RunEnd::Requests(requests), ..model.clone() };
            let figures = sweep::run_machine(&model, &[]);
            assert!(figures.services[0].whole.count == requests && figures.finished_containers() > requests / 1_000);
        })
    };
    let (short, long) = (most_of(5_000), most_of(500_000));
    println!("{short} bytes for 5 000 requests, {long} for 500 000");
    assert!(long <= short + short / 4, "{short} {long}");
}

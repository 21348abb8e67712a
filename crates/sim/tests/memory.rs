//! Memory does not grow with the length of a run.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use common::experiment;
use sidelane_sim::model::Until;
use sidelane_sim::sweep::run_machine;

/// Records the peak of allocated memory.
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
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_hundred_times_the_requests_take_no_more_memory() {
    let text = "requests = 1\n[service]\narrivals = { kind = \"poisson\", load_percent = 60 }\n\
                demand = { kind = \"lucene\" }\n[[batch]]\nname = \"loop\"\n[slowdown.service]\nloop = 1.5\n\
                [slo]\nlimit_ms = 100\n[[setting]]\npolicy = \"dynamic-refresh\"\nbudget = \"slo\"\n";
    let model = experiment(text).points[0].runs[0].clone();
    let most_of = |requests: u64| {
        let before = HELD.load(Ordering::Relaxed);
        MOST.store(before, Ordering::Relaxed);
        let figures = run_machine(&sidelane_sim::Model { until: Until::Requests(requests), ..model.clone() });
        assert_eq!(figures.requests, requests);
        MOST.load(Ordering::Relaxed) - before
    };
    let (short, long) = (most_of(20_000), most_of(2_000_000));
    println!("{short} bytes for 20 000 requests, {long} for 2 000 000");
    // The long run may have had a longer queue once: a queue doubles its memory when it grows.
    assert!(long <= short + short / 4, "{short} {long}");
}

//! Allocator that counts the bytes that the calling thread has allocated, and their maximum.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Bytes that this thread has allocated and not freed. Bytes that another thread frees are not subtracted.
    static NOW: Cell<usize> = const { Cell::new(0) };
    /// Maximum of `NOW` since counting started.
    static MOST: Cell<usize> = const { Cell::new(0) };
}

struct CountingAllocator;

#[global_allocator]
static COUNTED: CountingAllocator = CountingAllocator;

// SAFETY: every call is passed on to the system's allocator; the counters are thread-local numbers, which need no
// memory.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count_bytes(layout.size(), 0);
        // SAFETY: the caller has promised what the system's allocator requires.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count_bytes(layout.size(), 0);
        // SAFETY: the caller has promised what the system's allocator requires.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count_bytes(0, layout.size());
        // SAFETY: the caller has promised what the system's allocator requires.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count_bytes(size, layout.size());
        // SAFETY: the caller has promised what the system's allocator requires.
        unsafe { System.realloc(at, layout, size) }
    }
}

fn count_bytes(allocated: usize, freed: usize) {
    // The counters of a thread that ends may be destroyed already; the access then fails and is ignored.
    let _ = NOW.try_with(|now| {
        now.set(now.get().saturating_add(allocated).saturating_sub(freed));
        let _ = MOST.try_with(|most| most.set(most.get().max(now.get())));
    });
}

/// Starts to count the most bytes. Returns the bytes that this thread has now.
pub fn start_peak_measurement() -> usize {
    MOST.set(NOW.get());
    NOW.get()
}

/// Returns the most bytes that this thread had since [`start_peak_measurement`].
pub fn peak_bytes() -> usize {
    MOST.get()
}

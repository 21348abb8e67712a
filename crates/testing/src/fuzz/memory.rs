//! The memory that this thread has, and the most that it had: an allocator that counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Bytes that this thread has now. What another thread gives back is not subtracted.
    static NOW: Cell<usize> = const { Cell::new(0) };
    /// The most since the start.
    static MOST: Cell<usize> = const { Cell::new(0) };
}

struct Counted;

#[global_allocator]
static COUNTED: Counted = Counted;

// SAFETY: all is handed on to the system's allocator; counting touches thread-local numbers alone, which need no memory.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(0, layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size, layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.realloc(at, layout, size) }
    }
}

fn count(more: usize, less: usize) {
    // A thread that ends has no numbers any more.
    let _ = NOW.try_with(|now| {
        now.set(now.get().saturating_add(more).saturating_sub(less));
        let _ = MOST.try_with(|most| most.set(most.get().max(now.get())));
    });
}

/// Begins to look for the most. Returns what this thread has now.
pub fn start() -> usize {
    MOST.set(NOW.get());
    NOW.get()
}

/// The most since the start.
pub fn most() -> usize {
    MOST.get()
}

//! Runs a function for each of many inputs on all CPU cores. The order of results does not depend
//! on the threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Calls `each` with 0 to `count` − 1 on `threads` threads, and returns the results in this order.
pub fn map<T: Send>(count: usize, threads: usize, each: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(count)));
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return;
            }
            let answer = each(index);
            done.lock().expect("no other thread has panicked").push((index, answer));
        }
    };
    thread::scope(|scope| {
        (1..threads.min(count)).for_each(|_| {
            scope.spawn(work);
        });
        work();
    });
    let mut done = done.into_inner().expect("no thread has panicked");
    done.sort_unstable_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, answer)| answer).collect()
}

/// Returns the number of threads that this machine runs at once.
pub fn threads() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_index_order_on_any_thread_count() {
        for threads in [0, 1, 2, 9] {
            assert_eq!(map(5, threads, |index| 10 * index), [0, 10, 20, 30, 40]);
        }
        assert!(map(0, 4, |index| index).is_empty());
    }
}

//! Slow path of a check, taken when the check has found the word set.

use std::sync::atomic::{AtomicU64, Ordering};

use sidelane_formats::LaneWord;
use sidelane_policy::Nanos;

use crate::arrays::Arrays;
use crate::clock::Moment;
use crate::decide::Verdict;
use crate::join::arrays;
use crate::lane::{Lane, PassWords, this_cpu};
use crate::rest::{nap_until_allowed, nap_until_idle};
use crate::thread::{Depth, Thread, this_thread};

/// Longest time for which a thread may run beside a busy service without a new decision (pass). A thread that moved to
/// another lane notices that after this time at the latest.
const PASS_MAX_NS: Nanos = 20_000;

/// Function that a check calls when the word is set.
pub type SlowPath = extern "C" fn();

/// Finds out on which lane the calling thread is and whether that lane's service is busy, and naps in place for as long
/// as the policy says. The thread's first call makes its promise to check often.
#[unsafe(no_mangle)]
pub extern "C" fn sidelane_gate_slow_path() {
    let thread = this_thread();
    if thread.has_pass() {
        return;
    }
    let errno = errno::get();
    if let Some(arrays) = arrays() {
        match thread.enter_slow_path() {
            Depth::First => check(arrays, thread),
            Depth::InHandler => check_in_handler(arrays),
            Depth::TooDeep => {}
        }
        thread.leave_slow_path();
    }
    errno::set(errno);
}

fn check(arrays: &'static Arrays, thread: &Thread) {
    let Some((cpu, me)) = this_thread_on(arrays.lanes) else { return };
    // Without a lane to check there is no promise: batch is not on a batch lane, or holders have taken over.
    let Some(lane) = Lane::find(arrays, cpu) else { return };
    // A thread that cannot promise does not nap: the holder is summoned for it.
    if !promise_to_check(arrays, &lane, me) {
        return;
    }
    lane.gate.slow_paths.fetch_add(1, Ordering::Relaxed);
    if !lane.busy() {
        return;
    }
    // The words are read before the decision. A change after the decision then ends the permission to run on.
    let words = lane.pass_words();
    let now = Moment::now();
    add_lent_time(&lane, now.ns());
    match lane.state.decide(lane.limits, now.ns(), &lane.observe()) {
        Some(Verdict::GoOn { until_ns }) => give_pass(&lane, thread, words, now, until_ns),
        _ => nap_until_allowed(&lane, me, arrays.nap),
    }
}

/// Permits the thread to run beside the busy service until `until_ns`, but at most for `PASS_MAX_NS`.
fn give_pass(lane: &Lane, thread: &Thread, words: Option<PassWords>, now: Moment, until_ns: Option<Nanos>) {
    if let Some(lc_ns) = lane.service_total_ns(now.ns()) {
        lane.state.record_pass_start(lc_ns);
    }
    let left_ns = until_ns.map_or(PASS_MAX_NS, |until_ns| until_ns.saturating_sub(now.ns()));
    let counts = lane.arrays_mapped_at().tsc_counts(left_ns.min(PASS_MAX_NS), now);
    if let (Some(words), Some(counts)) = (words, counts) {
        thread.give_pass(now.tsc() + counts, words);
    }
}

/// Adds the time for which threads ran beside the service with permission to the lane's accounting.
fn add_lent_time(lane: &Lane, now_ns: Nanos) {
    if let Some(lc_ns) = lane.service_total_ns(now_ns) {
        let went_on_ns = lane.state.take_shared_time_ns(lc_ns, PASS_MAX_NS);
        lane.gate.lent_lc_ns.fetch_add(went_on_ns, Ordering::Relaxed);
    }
}

fn check_in_handler(arrays: &'static Arrays) {
    if let Some(lane) = Lane::find(arrays, this_cpu()) {
        nap_until_idle(&lane, arrays.nap);
    }
}

/// Sets the bit by which the thread `tid` promises to check often. Returns false if the arrays have no entry for it.
fn promise_to_check(arrays: &Arrays, lane: &Lane, tid: u32) -> bool {
    let Some(bits): Option<&AtomicU64> = arrays.threads.get(tid as usize / 64) else { return false };
    let bit = 1 << (tid % 64);
    if bits.load(Ordering::Relaxed) & bit == 0 {
        bits.fetch_or(bit, Ordering::AcqRel);
        lane.gate.promises.fetch_add(1, Ordering::Relaxed);
    }
    true
}

/// Returns the CPU that the calling thread is on, and the thread's id. The id comes from the CPU's word, which has it
/// as the kernel program knows it, whatever PID namespace this thread is in.
fn this_thread_on(lanes: &[LaneWord]) -> Option<(u32, u32)> {
    loop {
        let cpu = this_cpu();
        let word = lanes.get(cpu as usize)?;
        let switches = word.switches();
        let tid = word.pid.load(Ordering::Acquire);
        // After a context switch the word contains another thread's id.
        if word.switches() == switches && this_cpu() == cpu {
            return Some((cpu, tid));
        }
    }
}

/// Access to the C library's error number, which a check must not change.
mod errno {
    pub(super) fn get() -> i32 {
        // SAFETY: this thread's own variable.
        unsafe { *libc::__errno_location() }
    }

    pub(super) fn set(errno: i32) {
        // SAFETY: this thread's own variable.
        unsafe { *libc::__errno_location() = errno };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The holder would not see a nap under the id 0, so a preempted thread must find its id, too.
    #[test]
    fn preempted_thread_still_learns_its_id() {
        let lanes: Vec<LaneWord> = (0..1024).map(|_| LaneWord::default()).collect();
        lanes.iter().for_each(|word| word.pid.store(7, Ordering::Relaxed));
        std::thread::scope(|scope| {
            let asks = scope.spawn(|| (0..100_000).for_each(|_| assert_eq!(this_thread_on(&lanes).unwrap().1, 7)));
            while !asks.is_finished() {
                lanes.iter().for_each(|word| _ = word.switches.fetch_add(1, Ordering::Relaxed));
            }
        });
        assert_eq!(this_thread_on(&[]), None);
    }
}

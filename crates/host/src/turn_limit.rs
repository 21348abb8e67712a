//! A bound on how long a real-time thread keeps a CPU.
//!
//! The kernel spins when it looks up a file of a control group or process that is being removed, until the task that
//! removes it is done (`shrink_dcache_parent`). If a real-time thread preempted this task on the same CPU, it spins
//! until the task gets another CPU: 745 ms were measured. No lookup is known to be safe. So a second thread of higher
//! priority limits each *turn*, from one call of [`TurnLimit::begin_turn`] to the next. After 5 ms of CPU time it moves the
//! first thread to the ordinary class.

use std::io;
use std::mem::{MaybeUninit, zeroed};
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;

use crate::priority::{ThreadClass, make_only_this_thread_fifo, make_this_thread_fifo};

/// Longest CPU time of a turn, from one [`TurnLimit::begin_turn`] to the next. The work that the agent does in a turn takes
/// up to 2 ms.
const TURN_NS: i64 = 5_000_000;
/// Signal of the timer. It goes to the second thread alone, which waits for it.
const SIGNAL: libc::c_int = libc::SIGXCPU;

/// Limit that keeps its creating thread real-time for turns of 5 ms of CPU time. The timer counts that thread's time
/// alone, so the raw pointer keeps this value from being sent to another thread.
pub struct TurnLimit {
    timer: libc::timer_t,
    priority: i32,
    /// Whether the current turn exceeded the limit, so that the thread was moved to the ordinary class.
    is_over: Arc<AtomicBool>,
}

impl TurnLimit {
    /// Puts the calling thread into SCHED_FIFO, with a limit on its turns. Threads that it starts begin in the
    /// ordinary class.
    ///
    /// # Errors
    /// Without the right to real-time classes, or if the kernel has no timer or thread left.
    pub fn for_this_thread(priority: i32) -> io::Result<Self> {
        make_only_this_thread_fifo(priority)?;
        // SAFETY: plain system call.
        let watched = unsafe { libc::gettid() } as u32;
        let is_over = Arc::new(AtomicBool::new(false));
        let (tell, told) = channel();
        let body = {
            let is_over = Arc::clone(&is_over);
            move || demote_at_signals(watched, priority, &is_over, |ready| drop(tell.send(ready)))
        };
        thread::Builder::new().name("sidelane-turns".into()).spawn(body)?;
        let watcher = told.recv().map_err(io::Error::other)??;
        let limit = Self { timer: create_cpu_time_timer(watcher)?, priority, is_over };
        limit.begin_turn()?;
        Ok(limit)
    }

    /// Begins a turn. A thread whose last turn was too long becomes real-time again.
    ///
    /// # Errors
    /// If the thread has lost the right to real-time classes.
    pub fn begin_turn(&self) -> io::Result<()> {
        if self.is_over.swap(false, Ordering::AcqRel) {
            make_only_this_thread_fifo(self.priority)?;
        }
        // SAFETY: zeroed is a valid itimerspec, which makes a timer expire once.
        let mut turn: libc::itimerspec = unsafe { zeroed() };
        turn.it_value.tv_nsec = TURN_NS;
        // SAFETY: this value owns the timer, and `turn` is valid.
        check(unsafe { libc::timer_settime(self.timer, 0, &turn, null_mut()) })
    }
}

impl Drop for TurnLimit {
    fn drop(&mut self) {
        // SAFETY: this value owns the timer, and does not use it after this call.
        unsafe { libc::timer_delete(self.timer) };
    }
}

/// Creates a timer of the calling thread's CPU time. When it expires, it signals the thread `watcher`.
fn create_cpu_time_timer(watcher_tid: libc::pid_t) -> io::Result<libc::timer_t> {
    // SAFETY: zeroed is a valid sigevent.
    let mut event: libc::sigevent = unsafe { zeroed() };
    (event.sigev_notify, event.sigev_signo, event.sigev_notify_thread_id) =
        (libc::SIGEV_THREAD_ID, SIGNAL, watcher_tid);
    let mut timer = MaybeUninit::uninit();
    // SAFETY: `event` is valid, and the kernel writes `timer` if the call succeeds.
    check(unsafe { libc::timer_create(libc::CLOCK_THREAD_CPUTIME_ID, &mut event, timer.as_mut_ptr()) })?;
    // SAFETY: the call has succeeded.
    Ok(unsafe { timer.assume_init() })
}

/// Moves the thread `watched_tid` to the ordinary class at each signal, for as long as the process lives.
fn demote_at_signals(
    watched_tid: u32,
    priority: i32,
    is_over: &AtomicBool,
    report_ready: impl FnOnce(io::Result<libc::pid_t>),
) {
    // SAFETY: the set is initialised before it is used, and blocked in this thread alone.
    let (set, blocked) = unsafe {
        let mut set = zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, SIGNAL);
        (set, libc::pthread_sigmask(libc::SIG_BLOCK, &set, null_mut()))
    };
    let ready =
        if blocked == 0 { make_this_thread_fifo(priority + 1) } else { Err(io::Error::from_raw_os_error(blocked)) };
    let fails = ready.is_err();
    // SAFETY: plain system call.
    report_ready(ready.map(|()| unsafe { libc::gettid() }));
    if fails {
        return;
    }
    loop {
        // SAFETY: the set is valid, and null requests no details about the signal.
        if unsafe { libc::sigwaitinfo(&set, null::<libc::siginfo_t>().cast_mut()) } == SIGNAL {
            // The flag is set before the class changes, so that a thread that sees its new class becomes real-time
            // again. The flag is set again after the change, for a thread whose turn began in between: that thread
            // becomes real-time again one turn later.
            is_over.store(true, Ordering::Release);
            let _ = ThreadClass::ORDINARY.apply_to_thread(watched_tid);
            is_over.store(true, Ordering::Release);
        }
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn is_real_time() -> bool {
        // SAFETY: plain system call.
        ThreadClass::of_thread(unsafe { libc::gettid() } as u32).is_some_and(|class| class.is_realtime())
    }

    /// Runs a test on a real-time thread, and skips it if this process has no right to real-time classes.
    fn run_on_real_time_thread(test: impl FnOnce(TurnLimit) + Send + 'static) {
        let body = || match TurnLimit::for_this_thread(1) {
            Ok(limit) => test(limit),
            Err(_) => sidelane_testing::skip("needs the right to real-time classes"),
        };
        thread::spawn(body).join().unwrap();
    }

    #[test]
    fn busy_thread_is_real_time_for_one_turn_only() {
        run_on_real_time_thread(|limit| {
            for _ in 0..3 {
                assert!(is_real_time(), "at the begin of a turn");
                let began = Instant::now();
                while is_real_time() {
                    assert!(began.elapsed() < Duration::from_secs(60), "a turn does not end");
                }
                limit.begin_turn().unwrap();
            }
        });
    }

    #[test]
    fn turns_that_begin_in_time_are_real_time() {
        run_on_real_time_thread(|limit| {
            for _ in 0..10_000 {
                limit.begin_turn().unwrap();
            }
            assert!(is_real_time());
        });
    }
}

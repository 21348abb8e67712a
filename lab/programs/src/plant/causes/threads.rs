//! Causes inside the service: a held lock, and a busy thread that is waited for through a pipe or a condition variable.

use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use anyhow::{Context, Result};

use crate::clock::{Nanos, now_ns, sleep_until};
use crate::plant::cause::{PlantArgs, PlantedCause, spin};

/// Interval at which a waiting thread polls for its start signal. If the request woke the thread, the thread would
/// count as working for the request.
const LOOK_EVERY_NS: Nanos = 500_000;

/// Start signal between two threads that needs no system call.
#[derive(Default)]
struct StartSignal {
    wanted: AtomicU64,
    begun: AtomicU64,
}

impl StartSignal {
    /// Sends the start signal, and returns when the other thread has begun.
    fn signal_and_wait_for_begin(&self) {
        let number = self.wanted.fetch_add(1, Ordering::AcqRel) + 1;
        while self.begun.load(Ordering::Acquire) < number {
            thread::yield_now();
        }
    }

    /// Waits for the start signal.
    fn wait(&self) -> Result<()> {
        while self.wanted.load(Ordering::Acquire) == self.begun.load(Ordering::Relaxed) {
            sleep_until(now_ns() + LOOK_EVERY_NS)?;
        }
        Ok(())
    }

    fn confirm_begin(&self) {
        self.begun.fetch_add(1, Ordering::Release);
    }
}

/// Lock that another thread holds while it works.
pub struct HeldLock {
    lock: Arc<Mutex<()>>,
    cue: Arc<StartSignal>,
}

impl HeldLock {
    pub fn prepare(args: &PlantArgs) -> Result<Self> {
        let (lock, cue, length_ns) = (Arc::new(Mutex::new(())), Arc::new(StartSignal::default()), args.delay_ns());
        let (of_holder, its_cue) = (Arc::clone(&lock), Arc::clone(&cue));
        let hold = move || -> Result<()> {
            loop {
                its_cue.wait()?;
                let held = of_holder.lock().expect("no thread panics while it holds the lock");
                its_cue.confirm_begin();
                spin(length_ns);
                drop(held);
            }
        };
        thread::Builder::new().name("lock-holder".to_owned()).spawn(hold).context("cannot start a thread")?;
        Ok(Self { lock, cue })
    }
}

impl PlantedCause for HeldLock {
    fn disturb_request(&mut self) -> Result<()> {
        self.cue.signal_and_wait_for_begin();
        drop(self.lock.lock().expect("no thread panics while it holds the lock"));
        Ok(())
    }
}

/// Worker thread that answers for the request through pipes, and is busy with other work first.
pub struct BusyThreadPool {
    cue: Arc<StartSignal>,
    jobs: PipeWriter,
    answers: PipeReader,
}

impl BusyThreadPool {
    pub fn prepare(args: &PlantArgs) -> Result<Self> {
        let (cue, length_ns) = (Arc::new(StartSignal::default()), args.delay_ns());
        let (mut ear, jobs) = pipe().context("cannot make a pipe")?;
        let (answers, mut mouth) = pipe().context("cannot make a pipe")?;
        let its_cue = Arc::clone(&cue);
        let work = move || -> Result<()> {
            loop {
                its_cue.wait()?;
                its_cue.confirm_begin();
                spin(length_ns);
                ear.read_exact(&mut [0])?;
                mouth.write_all(&[1])?;
            }
        };
        thread::Builder::new().name("pool-worker".to_owned()).spawn(work).context("cannot start a thread")?;
        Ok(Self { cue, jobs, answers })
    }
}

impl PlantedCause for BusyThreadPool {
    fn disturb_request(&mut self) -> Result<()> {
        self.cue.signal_and_wait_for_begin();
        self.jobs.write_all(&[1])?;
        Ok(self.answers.read_exact(&mut [0])?)
    }
}

/// Number of questions that a pool received, and number of answers that it gave.
#[derive(Default)]
struct QuestionCounts {
    asked: u64,
    answered: u64,
}

impl QuestionCounts {
    fn are_all_answered(&mut self) -> bool {
        self.asked == self.answered
    }
}

/// Pool of one busy thread that reports its answer by a condition variable.
pub struct ConditionVariablePool {
    cue: Arc<StartSignal>,
    shared: Arc<(Mutex<QuestionCounts>, Condvar)>,
}

impl ConditionVariablePool {
    pub fn prepare(args: &PlantArgs) -> Result<Self> {
        let (cue, shared, length_ns) =
            (Arc::new(StartSignal::default()), Arc::<(Mutex<_>, Condvar)>::default(), args.delay_ns());
        let (its_cue, its_shared) = (Arc::clone(&cue), Arc::clone(&shared));
        let work = move || -> Result<()> {
            let (questions, changed): &(Mutex<QuestionCounts>, Condvar) = &its_shared;
            loop {
                its_cue.wait()?;
                its_cue.confirm_begin();
                spin(length_ns);
                let questions = questions.lock().expect("no thread panics while it holds the lock");
                let mut questions = changed
                    .wait_while(questions, QuestionCounts::are_all_answered)
                    .expect("no thread panics while it holds the lock");
                questions.answered = questions.asked;
                changed.notify_all();
            }
        };
        thread::Builder::new().name("pool-worker".to_owned()).spawn(work).context("cannot start a thread")?;
        Ok(Self { cue, shared })
    }
}

impl PlantedCause for ConditionVariablePool {
    fn disturb_request(&mut self) -> Result<()> {
        self.cue.signal_and_wait_for_begin();
        let (questions, changed) = &*self.shared;
        let mut questions = questions.lock().expect("no thread panics while it holds the lock");
        questions.asked += 1;
        changed.notify_all();
        let is_waiting = |questions: &mut QuestionCounts| !questions.are_all_answered();
        drop(changed.wait_while(questions, is_waiting).expect("no thread panics while it holds the lock"));
        Ok(())
    }
}

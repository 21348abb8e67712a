//! Causes inside the service: a lock that is held, a thread that is busy.

use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use anyhow::{Context, Result};

use crate::clock::{now_ns, sleep_until};
use crate::plant::{Args, Way};

/// A lock that another thread takes first.
pub struct Lock {
    lock: Arc<Mutex<()>>,
    /// How often the other thread has taken it.
    taken: Arc<AtomicU64>,
    bell: PipeWriter,
    rung: u64,
}

impl Lock {
    pub fn prepare(args: &Args) -> Result<Self> {
        let (lock, taken, length_ns) = (Arc::new(Mutex::new(())), Arc::new(AtomicU64::new(0)), args.delay_ns());
        let (mut ear, bell) = pipe().context("cannot make a pipe")?;
        let (of_holder, count) = (Arc::clone(&lock), Arc::clone(&taken));
        let hold = move || -> Result<()> {
            while heard(&mut ear) {
                let held = of_holder.lock().expect("nobody panics while holding it");
                count.fetch_add(1, Ordering::Release);
                sleep_until(now_ns() + length_ns)?;
                drop(held);
            }
            Ok(())
        };
        thread::Builder::new().name("lock-holder".to_owned()).spawn(hold).context("cannot start a thread")?;
        Ok(Self { lock, taken, bell, rung: 0 })
    }
}

impl Way for Lock {
    fn strike(&mut self) -> Result<()> {
        self.rung += 1;
        self.bell.write_all(&[1])?;
        while self.taken.load(Ordering::Acquire) < self.rung {
            thread::yield_now();
        }
        drop(self.lock.lock().expect("nobody panics while holding it"));
        Ok(())
    }
}

/// A thread that does the work, and has other work to do first.
pub struct Pool {
    jobs: PipeWriter,
    answers: PipeReader,
}

impl Pool {
    pub fn prepare(args: &Args) -> Result<Self> {
        let length_ns = args.delay_ns();
        let (mut ear, jobs) = pipe().context("cannot make a pipe")?;
        let (answers, mut mouth) = pipe().context("cannot make a pipe")?;
        let work = move || -> Result<()> {
            while heard(&mut ear) {
                // What it does for somebody else.
                sleep_until(now_ns() + length_ns)?;
                mouth.write_all(&[1])?;
            }
            Ok(())
        };
        thread::Builder::new().name("pool-worker".to_owned()).spawn(work).context("cannot start a thread")?;
        Ok(Self { jobs, answers })
    }
}

impl Way for Pool {
    fn strike(&mut self) -> Result<()> {
        self.jobs.write_all(&[1])?;
        Ok(self.answers.read_exact(&mut [0])?)
    }
}

fn heard(ear: &mut PipeReader) -> bool {
    ear.read(&mut [0]).is_ok_and(|length| length == 1)
}

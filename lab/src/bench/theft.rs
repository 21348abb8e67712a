//! How exact the accounting is when time is stolen: known theft, and two trackers at once.
//!
//! On each lane a thread above all others plays the hypervisor: it wakes at random times and spins.
//! To the session's own tracker it is an ordinary thread whose turns end those of service and
//! batch, so that tracker's accounting is the truth. A second tracker is told to ignore the thief,
//! and reads from a word how much the thief took, as it would from a hypervisor. The two are
//! compared over the same seconds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use sidelane_host::clock::thread_cpu_ns;
use sidelane_host::priority::{HOLDER_PRIORITY, make_this_thread_fifo, pin_this_thread};
use sidelane_host::service::Service;
use sidelane_host::topology::Lanes;
use sidelane_lanes::session::Session;
use sidelane_report::Row;
use sidelane_tracker::books::{Books, reaction_figures};
use sidelane_tracker::tracker::{Features, LaneMemory};
use sidelane_tracker::tracking::{BatchTracking, LaneUse, ServiceTracking};

/// About 7 % of each lane, in some 65 gaps a second: like a hypervisor that is short of CPUs.
const APART_US: [u64; 2] = [4_000, 24_000];
const GAP_US: [u64; 2] = [50, 2_000];
const LENGTH: Duration = Duration::from_secs(4);

/// The accounting of the seconds in which the thieves ran.
pub(super) struct Compared {
    /// From the tracker that sees the thieves.
    pub(super) truth: Books,
    /// From the tracker that knows only how much they took.
    pub(super) corrected: Books,
}

impl Compared {
    /// A row for each tracker.
    pub(super) fn rows(&self, name: &str, lanes: &Lanes) -> [Row; 2] {
        [("true", &self.truth), ("corrected", &self.corrected)].map(|(which, books)| {
            let mut row = Row::new(format!("theft_{name}_{which}"));
            row.put("lc_cpu_s", Some(books.lc_ns(lanes) as f64 / 1e9));
            row.put("batch_cpu_s", Some(books.batch_ns(lanes) as f64 / 1e9));
            row.put("overlap_percent", books.overlap_percent(lanes));
            for (key, value) in reaction_figures(books.reaction_off(), books.reaction_on()).into_iter().take(2) {
                row.put(key, value);
            }
            row.put("stolen_percent", books.stolen_percent(lanes));
            row.put("stolen_gap_max_us", books.stolen_gap_max_us(lanes));
            row
        })
    }
}

/// Steals from the lanes of a running session whose service is the process `service`.
pub(super) fn measure(session: &Session, service: u32, lanes: &Lanes) -> Result<Compared> {
    let served = Service::of_process(service);
    let tracking =
        ServiceTracking::alone(&served, lanes, LaneUse::default(), Features { thief: true, ..Features::default() })?;
    let told = tracking.tracker();
    let job = BatchTracking::start(told, None)?;
    session.batch_processes().into_iter().for_each(|pid| job.take_in(pid));
    let cpus = lanes.request_lanes.iter().chain(lanes.batch.iter().map(|lane| lane.cpu));
    let thieves: Vec<Thief> = cpus.map(|cpu| Thief::start(cpu, told.memory())).collect();
    told.attach()?;
    // The first turns of a tracker began before the tracker.
    thread::sleep(Duration::from_millis(100));
    let (own, other) = (session.memory(), told.memory());
    for lane in &lanes.batch {
        let holder = own.hold(lane.cpu).holder_pid.load(Ordering::Acquire);
        other.hold(lane.cpu).holder_pid.store(holder, Ordering::Release);
    }
    let before = (own.books(), other.books());
    thread::sleep(LENGTH);
    let compared = Compared { truth: own.books().since(&before.0), corrected: other.books().since(&before.1) };
    thieves.into_iter().try_for_each(Thief::end)?;
    Ok(compared)
}

struct Thief {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<()>>,
}

impl Thief {
    fn start(cpu: u32, memory: Arc<LaneMemory>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            pin_this_thread(&[cpu]).context("cannot join the lane")?;
            make_this_thread_fifo(HOLDER_PRIORITY + 1).context("cannot get above all others")?;
            steal(cpu, &memory, &stopped);
            Ok(())
        });
        Self { stop, thread }
    }

    fn end(self) -> Result<()> {
        self.stop.store(true, Ordering::Release);
        self.thread.join().expect("a thief does not panic")
    }
}

fn steal(cpu: u32, memory: &LaneMemory, stop: &AtomicBool) {
    let word = memory.thief(cpu);
    word.tid.store(rustix::thread::gettid().as_raw_nonzero().get() as u32, Ordering::Release);
    let mut random = u64::from(cpu) + 1;
    while !stop.load(Ordering::Acquire) {
        thread::sleep(Duration::from_micros(draw(&mut random, APART_US)));
        let (began, gap) = (Instant::now(), Duration::from_micros(draw(&mut random, GAP_US)));
        while began.elapsed() < gap {
            std::hint::spin_loop();
        }
        word.stolen_ns.store(thread_cpu_ns(), Ordering::Release);
    }
}

/// A number in a range: Marsaglia's xorshift.
fn draw(random: &mut u64, [from, to]: [u64; 2]) -> u64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    from + *random % (to - from)
}

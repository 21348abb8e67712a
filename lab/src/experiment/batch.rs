//! The batch job of an experiment: one of the lab's kernels, and the count of its finished units of work.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::fixture::Fixture;
use super::sibling::EmulatedSibling;
use crate::interrupt;
use sidelane_host::priority::run_with_this_thread_on;
use sidelane_rollback::own_threads::keep_off_cpus;

/// Returns the command line of `sidelane-lab batch` for `kernel`, which counts its units in the file `counter`.
pub(super) fn batch_command(fixture: &Fixture, kernel: &str, counter: &Path) -> Vec<OsString> {
    let words = [fixture.lab.path(), "batch".as_ref(), kernel.as_ref(), "--counter".as_ref(), counter.as_os_str()];
    let sibling = fixture.sibling.iter().flat_map(EmulatedSibling::options).map(OsString::from);
    words.map(OsString::from).into_iter().chain(sibling).collect()
}

/// Measures the speed of batch, in units of work per second, while it has its lane alone and the service is idle.
pub fn measure_batch_alone_per_s(fixture: &Fixture, kernel: &str, length: Duration, round: u64) -> Result<f64> {
    let counter = fixture.counter_file(&format!("{kernel}-alone-{round}"));
    let command = batch_command(fixture, kernel, &counter);
    let mut pinned = fixture.lab.command(&command[1..]);
    keep_off_cpus(&fixture.placement()?.lanes.request_lanes).context(
        "cannot keep sidelane's own threads off the request \
                                                                 lanes",
    )?;
    let mut child =
        run_with_this_thread_on(&[fixture.place.batch], || pinned.spawn())?.context("cannot start batch")?;
    wait_for_work(&counter)?;
    let (began, done) = (Instant::now(), units_done(&counter));
    thread::sleep(length);
    let work_per_s = (units_done(&counter) - done) as f64 / began.elapsed().as_secs_f64();
    child.kill().and_then(|()| child.wait()).context("cannot end batch")?;
    ensure!(work_per_s > 0.0, "the batch kernel {kernel} did no work");
    Ok(work_per_s)
}

/// Waits until batch has finished its first unit of work, at most 5 s.
pub(super) fn wait_for_work(counter: &Path) -> Result<()> {
    const TIMEOUT: Duration = Duration::from_secs(5);
    let began = Instant::now();
    while units_done(counter) == 0 {
        interrupt::check()?;
        ensure!(began.elapsed() < TIMEOUT, "the batch job did no work for 5 s: is something else busy on its lane?");
        // Sleeps instead of spinning, since batch has the lowest priority on the CPU of this thread.
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Returns the number of units that the batch kernel has finished: the first word of its counter file.
pub(super) fn units_done(counter: &Path) -> u64 {
    let bytes = fs::read(counter).unwrap_or_default();
    bytes.first_chunk().map_or(0, |count| u64::from_ne_bytes(*count))
}

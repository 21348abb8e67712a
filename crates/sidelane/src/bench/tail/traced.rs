//! What a trace told of a service while somebody asked it: recorded, built and named by the parts of `sidelane trace`.

use std::thread;

use anyhow::{Context, Result};

use crate::tale::pauses::Pauses;
use sidelane_host::priority::with_this_thread_on;
use sidelane_host::service::Target;
use sidelane_kernel::tale::{Recorder, TraceOptions};
use sidelane_tale::builder::{Builder, Counts, Settings};
use sidelane_tale::record::{Kinds, Record};
use sidelane_tale::timeline::Timeline;

/// A trace that has ended.
pub(super) struct Traced {
    /// Requests, those with a whole timeline and those without.
    pub(super) timelines: Vec<Timeline>,
    pub(super) counts: Counts,
    /// Records that nobody read in time.
    pub(super) lost: u64,
    /// The kinds of records that there are here.
    pub(super) recorded: Kinds,
}

/// Traces `target` while `load` runs, in a thread of its own. Both are kept on `cpu`, so that neither is in the way of the
/// service.
pub(super) fn while_running<T: Send>(
    target: &Target,
    cpu: u32,
    load: impl FnOnce() -> Result<T> + Send,
) -> Result<(Traced, T)> {
    with_this_thread_on(&[cpu], || trace(target, load)).context("cannot choose a CPU")?
}

fn trace<T: Send>(target: &Target, load: impl FnOnce() -> Result<T> + Send) -> Result<(Traced, T)> {
    let service = target.find()?;
    let mut pauses = Pauses::watch(&service.pids);
    let mut recorder = Recorder::start(&TraceOptions::default(), &[service]).context("cannot trace")?;
    let recorded = pauses.kinds_beside(recorder.recorded());
    let mut builder = Builder::new(Settings { kinds: recorded, ..Settings::default() });
    let (mut timelines, mut records) = (Vec::new(), Vec::new());
    let mut take = |records: &mut Vec<Record>, builder: &mut Builder| {
        records.drain(..).for_each(|record| builder.push(record, &mut |timeline| timelines.push(timeline)));
    };
    let period = recorder.period() / 4;
    let loaded = thread::scope(|scope| {
        let load = scope.spawn(load);
        while !load.is_finished() {
            thread::sleep(period);
            recorder.read(&mut records);
            pauses.merge(&mut records);
            take(&mut records, &mut builder);
        }
        load.join().expect("the load does not panic")
    })?;
    recorder.finish(&mut records);
    pauses.finish(&mut records);
    take(&mut records, &mut builder);
    builder.finish(&mut |timeline| timelines.push(timeline));
    let counts = builder.counts();
    Ok((Traced { timelines, counts, lost: recorder.lost(), recorded }, loaded))
}

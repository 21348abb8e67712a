//! Class changes of lanes, recorded by a kernel program of the laboratory's own beside the tracker's.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use anyhow::{Context, Result};
use libbpf_rs::{Link, MapCore, Object, ObjectBuilder};
use sidelane_tracker::mapped::MappedArray;
use sidelane_tracker::tracker::Tracker;

static PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/changes.bpf.o"));
/// The same number as in `lab/bpf/changes.bpf.c`.
const CHANGES: usize = 16_384;
/// The arrays that the tracker's program writes and this one reads.
const OF_TRACKER: [&str; 2] = ["lane_words", "hold_words"];

/// `struct change` of `lab/bpf/changes.bpf.c`.
#[repr(C)]
struct Record {
    at_ns: AtomicU64,
    cpu: AtomicU32,
    class: AtomicU32,
}

/// From `at_ns` on, `cpu` ran `class`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    pub(super) at_ns: u64,
    pub(super) cpu: u32,
    /// A lane class, or [`Change::HOLDER`].
    pub(super) class: u32,
}

impl Change {
    /// The class of a lane's holder.
    pub(super) const HOLDER: u32 = 4;
}

/// Records the changes of all lanes of a tracker, up to a number, as long as it lives.
pub(super) struct Changes {
    records: MappedArray<Record>,
    _link: Link,
    _object: Object,
}

impl Changes {
    /// Starts to record. The tracker has to be attached before: its program writes what this one reads.
    pub(super) fn record(tracker: &Tracker) -> Result<Self> {
        let mut open = ObjectBuilder::default().open_memory(PROGRAM).context("cannot read the embedded program")?;
        for mut map in open.maps_mut() {
            let name = OF_TRACKER.into_iter().find(|name| map.name() == *name);
            if let Some(name) = name {
                let shared = tracker.share(name).with_context(|| format!("cannot share {name}"))?;
                map.reuse_fd(shared.as_fd()).with_context(|| format!("cannot read {name} from a second program"))?;
            }
        }
        let object = open.load().context("cannot load the program that records class changes")?;
        let map = object.maps().find(|map| map.name() == "changes").expect("the embedded program has it");
        let records = MappedArray::new(map.as_fd(), CHANGES).context("cannot map the recorded changes")?;
        let program = object.progs_mut().next().expect("the embedded program has one");
        let link = program.attach().context("cannot attach the program that records class changes")?;
        Ok(Self { records, _link: link, _object: object })
    }

    /// Returns the recorded changes, up to the first one that is being written.
    pub(super) fn recorded(&self) -> impl Iterator<Item = Change> {
        let whole = self.records.iter().map(|record| (record.at_ns.load(Ordering::Acquire), record));
        whole.take_while(|(at_ns, _)| *at_ns != 0).map(|(at_ns, record)| Change {
            at_ns,
            cpu: record.cpu.load(Ordering::Relaxed),
            class: record.class.load(Ordering::Relaxed),
        })
    }
}

//! Recorder of the class changes of lanes: a kernel program of the lab, attached beside the tracker's program.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use anyhow::{Context, Result};
use libbpf_rs::{Link, MapCore, Object, ObjectBuilder};
use sidelane_host::shared_mapping::{Shared, SharedMapping};
use sidelane_tracker::tracker::Tracker;

static PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/changes.bpf.o"));
/// Capacity of the recording, in changes. The constant `CHANGES` in `lab/bpf/changes.bpf.c` has the same value.
const CHANGES: usize = 16_384;
/// Names of the arrays that the tracker's program writes and the lab's program reads.
const OF_TRACKER: [&str; 2] = ["lane_words", "hold_words"];

/// One recorded change, laid out as `struct change` in `lab/bpf/changes.bpf.c`.
#[repr(C)]
struct Record {
    at_ns: AtomicU64,
    cpu: AtomicU32,
    class: AtomicU32,
}

// SAFETY: atomic integers without padding.
unsafe impl Shared for Record {}

/// Change of a lane's class: `cpu` runs `class` from `at_ns` on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    pub(super) at_ns: u64,
    pub(super) cpu: u32,
    /// Class of the lane in the tracker's numbering, or [`Change::HOLDER`].
    pub(super) class: u32,
}

impl Change {
    /// Class number of a lane's holder, which the tracker's own classes lack.
    pub(super) const HOLDER: u32 = 4;
}

/// Recording of the class changes of all lanes of a tracker, up to [`CHANGES`] of them, until it is dropped.
pub(super) struct ClassChangeRecorder {
    records: SharedMapping<Record>,
    _link: Link,
    _object: Object,
}

impl ClassChangeRecorder {
    /// Starts to record. The tracker must already be attached: its program writes the arrays that the recorder reads.
    pub(super) fn start(tracker: &Tracker) -> Result<Self> {
        let mut open = ObjectBuilder::default().open_memory(PROGRAM).context("cannot read the embedded program")?;
        for mut map in open.maps_mut() {
            let name = OF_TRACKER.into_iter().find(|name| map.name() == *name);
            if let Some(name) = name {
                let shared = tracker.share_array(name).with_context(|| format!("cannot share {name}"))?;
                map.reuse_fd(shared.as_fd()).with_context(|| format!("cannot read {name} from a second program"))?;
            }
        }
        let object = open.load().context("cannot load the program that records class changes")?;
        let map = object.maps().find(|map| map.name() == "changes").expect("the embedded program has it");
        let records = SharedMapping::new(map.as_fd(), CHANGES).context("cannot map the recorded changes")?;
        let program = object.progs_mut().next().expect("the embedded program has one");
        let link = program.attach().context("cannot attach the program that records class changes")?;
        Ok(Self { records, _link: link, _object: object })
    }

    /// Returns the complete recorded changes, up to the first one that the kernel program is still writing.
    pub(super) fn read_changes(&self) -> impl Iterator<Item = Change> {
        let whole = self.records.iter().map(|record| (record.at_ns.load(Ordering::Acquire), record));
        whole.take_while(|(at_ns, _)| *at_ns != 0).map(|(at_ns, record)| Change {
            at_ns,
            cpu: record.cpu.load(Ordering::Relaxed),
            class: record.class.load(Ordering::Relaxed),
        })
    }
}

//! Control of batch's scheduler in the kernel: its start, its orders, and its end.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use libbpf_rs::{Link, MapCore, libbpf_sys};
use sidelane_policy::borrow::LaneState;

use crate::kernel_types::{ExtWord, HoldOrder};
use crate::tracker::error::{TrackerError, bpf_error_in_step};
use crate::tracker::{Tracker, map_array};
use sidelane_host::shared_mapping::SharedMapping;

/// Reason why the kernel has ended the scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ejection(String);

impl std::fmt::Display for Ejection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Handle by which keepers give orders to the kernel program.
#[derive(Clone)]
pub struct HoldOrders {
    word: Arc<SharedMapping<ExtWord>>,
    set_hold: Arc<OwnedFd>,
}

/// Scheduler that is on until it is dropped, or until the kernel ends it.
pub struct Scheduler {
    orders: HoldOrders,
    _link: Link,
}

impl Scheduler {
    /// Switches batch's scheduler on. The tracker must have been loaded with the scheduler
    /// ([`crate::tracker::Extension::Scheduler`]).
    ///
    /// # Errors
    /// When the kernel refuses, for instance because another scheduler is active.
    pub fn start(tracker: &Tracker) -> Result<Self, TrackerError> {
        let word: SharedMapping<ExtWord> = map_array(tracker.maps(), "ext_words", 1)?;
        word[0].cpu_count.store(tracker.memory().cpu_count() as u32, Ordering::Release);
        let set_hold = tracker.program_fd("ext_set_hold")?;
        let mut object = tracker.object.borrow_mut();
        let mut maps = object.maps_mut();
        let mut ops = maps.find(|map| map.name() == "ext_ops").expect("the embedded program has this map");
        let link = ops.attach_struct_ops().map_err(bpf_error_in_step("switch batch's scheduler on (sched_ext)"))?;
        Ok(Self { orders: HoldOrders { word: Arc::new(word), set_hold: Arc::new(set_hold) }, _link: link })
    }

    /// Returns the handle by which keepers give orders.
    pub fn orders(&self) -> HoldOrders {
        self.orders.clone()
    }

    /// Returns whether batch ran in other scheduling classes than the scheduler's since the last call.
    pub fn has_batch_in_other_classes(&self) -> bool {
        self.orders.word[0].outsiders.swap(0, Ordering::Relaxed) > 0
    }

    /// Returns why the kernel has ended the scheduler; `None` if it has not.
    pub fn ejection(&self) -> Option<Ejection> {
        self.orders.ejection()
    }
}

impl HoldOrders {
    /// Changes the hold word of the batch lane `cpu`, and makes the lane act on it at once.
    pub fn set_lane_state(&self, cpu: u32, state: LaneState) -> io::Result<()> {
        let mut order = HoldOrder { lane: cpu, state: state as u32 };
        let mut options = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as _,
            ctx_in: (&raw mut order).cast(),
            ctx_size_in: size_of_val(&order) as _,
            ..Default::default()
        };
        // SAFETY: `options` is valid and points to an order that outlives the call.
        let result = unsafe { libbpf_sys::bpf_prog_test_run_opts(self.set_hold.as_raw_fd(), &mut options) };
        if result == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-result)) }
    }

    /// Returns why the kernel has ended the scheduler; `None` if it has not.
    pub fn ejection(&self) -> Option<Ejection> {
        let word = &self.word[0];
        if word.on.load(Ordering::Acquire) == 1 {
            return None;
        }
        let (reason, message) = (text_until_nul(&word.reason), text_until_nul(&word.message));
        let parts: Vec<&str> = [&*reason, &*message].into_iter().filter(|part| !part.is_empty()).collect();
        Some(Ejection(parts.join(": ")))
    }
}

fn text_until_nul(bytes: &[AtomicU8]) -> String {
    let bytes: Vec<u8> = bytes.iter().map(|byte| byte.load(Ordering::Relaxed)).collect();
    CStr::from_bytes_until_nul(&bytes).unwrap_or_default().to_string_lossy().into_owned()
}

impl Tracker {
    /// Returns the program `name` of the object, for this process to run it by a system call.
    fn program_fd(&self, name: &str) -> Result<OwnedFd, TrackerError> {
        let object = self.object.borrow();
        let program = object.progs().find(|program| program.name() == name);
        let program = program.expect("the embedded program has this part");
        program
            .as_fd()
            .try_clone_to_owned()
            .map_err(|error| bpf_error_in_step("open a part of the kernel program")(error.into()))
    }
}

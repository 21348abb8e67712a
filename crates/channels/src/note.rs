//! Notes of channels.

use sidelane_diagnostics::diagnostics;

diagnostics! {
    /// Note of channels.
    pub enum ChannelNote in Observe;
    degraded {
        LaneInterrupted { lane: u32 = 0 } =>
            "counters of lane {lane} are read by the kernel, which interrupts the lane at each sample",
            "keep --period long";
    }
    told {}
}

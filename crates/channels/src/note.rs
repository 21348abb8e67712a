//! Notes on how a channel is read.

use sidelane_diagnostics::diagnostics;

diagnostics! {
    /// Note of a channel that is read.
    pub enum ChannelNote in Observe;
    degraded {
        LaneInterrupted { lane: u32 = 0 } =>
            "the kernel reads the counters of lane {lane}, and interrupts the lane at each sample",
            "choose a longer --period";
    }
    told {}
}

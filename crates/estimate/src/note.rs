//! Notes about an estimate.

use sidelane_diagnostics::diagnostics;

diagnostics! {
    /// Note of an estimate.
    pub enum EstimateNote in Estimate;
    degraded {
        RecordingCut =>
            "a recording has no end: its recorder was killed, and what follows its last whole second is missing",
            "record it again if that matters";
        RecordingFull { size_mb: u64 = 1000, length: String = "3.2 h".to_owned() } =>
            "the recording has reached {size_mb} MB, so it ended after {length}",
            "record for a shorter time with --for";
        RequestsLost { percent: u64 = 12 } =>
            "{percent} % of the requests were not read in time: the estimate is of the others",
            "give sidelane more CPU time, or record at an hour with fewer requests";
        ReplayDiffers { percent: u64 = 31 } =>
            "the simulator has another p99 than the service had alone, by {percent} %: its percentiles are as wrong",
            "record for longer with --for";
        LanesShared { percent: u64 = 40 } =>
            "other programs and the kernel had {percent} % of the batch lanes' time beside the idle service: the estimate \
             takes as much from batch",
            "move them to other CPUs if batch should have that time";
    }
    told {}
}

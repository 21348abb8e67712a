//! Notes of an observation on what was missing or degraded.

use sidelane_diagnostics::diagnostics;

diagnostics! {
    /// Note of an observation.
    pub enum ObserveNote in Observe;
    degraded {
        LogEndsEarly { log: String = "/tmp/log".to_owned(), error: String = "No space left on device".to_owned() } =>
            "the log {log} ends early: {error}",
            "free some space, or write the log to another disk";
        LogWriterDied =>
            "the thread that writes the log failed, and the log ends there",
            "observe again, and report the message of the panic";
        LogLeftOut { left_out: u64 = 5, all: u64 = 100 } =>
            "{left_out} of {all} samples are not in the log, because the disk was too slow",
            "choose a longer --period";
        TargetOnObserversLane { cpu: u32 = 1 } =>
            "the target may run on the observer's lane {cpu}; nothing is sampled during that time",
            "keep the target off that lane (taskset -cp)";
    }
    told {
        TargetEnded =>
            "the target ended; figures are of the time before";
        LaneOffline { cpu: u32 = 3 } =>
            "CPU {cpu} went offline; figures are of the time before";
        SignalGone { signal: String = "lane".to_owned(), why: String = "its process has ended".to_owned() } =>
            "signal {signal} could not be read any more ({why}); figures are of the time before";
        ClockUncertain =>
            "times may be wrong: neither the processor nor its hypervisor says that the time stamp counter has a \
             constant rate";
        UsualLeftOut { signal: &'static str = "request", why: String = "it listens at no port".to_owned() } =>
            "{signal} is not observed, unless --signal names it: {why}";
    }
}

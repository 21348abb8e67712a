//! Notes of an observation.

use sidelane_diagnostics::diagnostics;

diagnostics! {
    /// Note of an observation.
    pub enum ObserveNote in Observe;
    degraded {
        LogEndsEarly { log: String = "/tmp/log".to_owned(), error: String = "No space left on device".to_owned() } =>
            "the log {log} ends early: {error}",
            "free some space or log elsewhere";
        LogWriterDied =>
            "the thread that writes the log has died, and the log ends there",
            "observe again, and report the message of the panic";
        LogLeftOut { left_out: u64 = 5, all: u64 = 100 } =>
            "log: {left_out} of {all} samples were left out, since the disk did not keep up",
            "choose a longer --period to log them all";
        TargetOnObserversLane { cpu: u32 = 1 } =>
            "the target may run on the observer's lane {cpu}, and while it does, nothing is sampled",
            "keep the target off that lane (taskset -cp)";
    }
    told {
        TargetEnded =>
            "the target ended; what was sampled until then is here";
        LaneOffline { cpu: u32 = 3 } =>
            "CPU {cpu} went offline; what was sampled until then is here";
        SignalGone { signal: String = "lane".to_owned(), why: String = "its process has ended".to_owned() } =>
            "signal {signal} could no longer be read: {why}; what was sampled until then is here";
        ClockUncertain =>
            "the time stamp counter may change its pace: neither the processor nor its hypervisor says that it ticks \
             alike in all states";
        UsualLeftOut { signal: &'static str = "request", why: String = "it listens at no port".to_owned() } =>
            "{signal} not observed, unless named with --signal: {why}";
    }
}

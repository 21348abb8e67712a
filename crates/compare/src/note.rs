//! Notes on a comparison.

use sidelane_diagnostics::diagnostics;

diagnostics! {
    /// Note of a comparison.
    pub enum CompareNote in Compare;
    degraded {
        TrafficChanged { from_per_s: u64 = 800, to_per_s: u64 = 1_400 } =>
            "the traffic changed between rounds, from {from_per_s} to {to_per_s} requests a second; only runs of one \
             round are compared",
            "compare again while the traffic is steady";
        UnequalLoad { setting: &'static str = "unmanaged", percent: u64 = 40 } =>
            "the service got {percent} % fewer requests {setting} than alone, because its clients wait for answers or \
             for a CPU, so latencies were measured at unequal load",
            "compare with clients on CPUs of their own that send at a fixed rate";
        RequestsUnread { events: u64 = 12 } =>
            "{events} events of requests were lost before they were read; figures are of the rest",
            "leave more idle time on CPUs outside the lanes, so that sidelane reads the events in time";
    }
    told {}
}

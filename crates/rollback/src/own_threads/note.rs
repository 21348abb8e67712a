//! Notes on this process's own threads.

use sidelane_diagnostics::diagnostics;

diagnostics! {
    /// Note of Sidelane's own threads.
    pub enum OwnThreadsNote in OwnThreads;
    degraded {
        OnServiceCpus {
            cpus: String = "0".to_owned(),
            percent: String = "1.5".to_owned(),
            why: &'static str = "sidelane's CPU affinity allows no other CPUs",
            advice: &'static str = "start sidelane without taskset"
        } =>
            "sidelane's own threads ran on CPUs of the service ({cpus}) for {percent} % of the time, because {why}",
            "{advice}";
    }
    told {}
}

//! Notes about the mapping of threads to big and little cores.

use sidelane_diagnostics::diagnostics;
use sidelane_host::service::Target;

diagnostics! {
    /// Note about the mapping of threads to big and little cores.
    pub enum HurryNote in Hurry;
    degraded {
        MovedLate { error: String = "Operation not permitted".to_owned() } =>
            "sidelane cannot work in SCHED_FIFO ({error}), so that long requests may move late",
            "run it as root";
        MappedEnded { target: Target = Target::Pid(4711) } =>
            "{target} has ended, so that there are no threads to map",
            "name the service by its port, its name or its group: then it is found when it is started again";
    }
    told {}
}

//! Notes about the mapping of threads to big and little cores.

use sidelane_diagnostics::diagnostics;
use sidelane_host::service::Target;

diagnostics! {
    /// Note of the mapping of threads to big and little cores.
    pub enum HurryNote in Hurry;
    degraded {
        MovedLate { error: String = "Operation not permitted".to_owned() } =>
            "sidelane cannot use SCHED_FIFO ({error}), so long requests may move late",
            "run sidelane as root";
        EqualCores { cores: String = "big CPUs 0 and little CPUs 1 (given)".to_owned() } =>
            "the kernel shows no difference between {cores}: a move between equal cores gains nothing",
            "name cores of which some are faster, or run `sidelane hurry` on a machine with big and little cores";
        MappedEnded { target: Target = Target::Pid(4711) } =>
            "{target} has ended, so `sidelane hurry` has ended, too",
            "name the service by port, name or cgroup, so that it is found again when it restarts";
    }
    told {}
}

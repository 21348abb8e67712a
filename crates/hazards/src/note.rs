//! Notes about hazards.

use sidelane_diagnostics::diagnostics;

diagnostics! {
    /// Note about hazards.
    pub enum HazardNote in Hazards;
    degraded {
        HazardsUnwatched {
            server: String = "10.0.0.7:9001".to_owned(),
            why: String = "it is not on this machine".to_owned()
        } =>
            "hazards of {server} are not watched: {why}",
            "run sidelane on the machine of the servers, in their container if they are in one, or watch no hazards \
             (hazard none)";
        HazardUnseen {
            server: String = "10.0.0.7:9001".to_owned(),
            hazard: String = "jvm-gc".to_owned(),
            why: String = "the JVM 1234 keeps no counters".to_owned()
        } =>
            "cannot watch hazard {hazard} of {server}: {why}",
            "remove the cause, or name only hazards that can be watched (hazard stopped,restart)";
    }
    told {}
}

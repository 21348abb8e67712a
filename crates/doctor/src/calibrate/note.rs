//! Notes on a calibration.

use sidelane_diagnostics::diagnostics;

diagnostics! {
    /// Note of a calibration.
    pub enum CalibrationNote in Calibration;
    degraded {
        InterferenceOfGivenEvents { formula: String = "page-faults / task-clock".to_owned() } =>
            "only the formula of --events was tried: {formula}",
            "leave --events out to try the candidates of this processor";
        CalibratedWithoutSiblings { cpus: String = "0 and 1".to_owned() } =>
            "CPUs {cpus} are no siblings, so they disturb each other only through shared caches and memory",
            "calibrate on a machine with SMT siblings, or name two siblings with --lanes";
        NothingCounted { cpu: u32 = 0, error: String = "No such file or directory".to_owned() } =>
            "no event could be counted on CPU {cpu} ({error})",
            "in a virtual machine, ask its host for a virtual PMU, or name other events with --events";
        ProcessorUnknown =>
            "this processor is not in the table of events",
            "name events with --events, as in --events 'r140014a3 / (r81d0 + r82d0)'";
    }
    told {
        EventsFrom { processors: &'static str = "Zen 4", source: &'static str = "AMD's manual" } =>
            "events of {processors} ({source})";
    }
}

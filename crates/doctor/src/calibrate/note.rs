//! Notes of a calibration.

use sidelane_diagnostics::diagnostics;

diagnostics! {
    /// Note of a calibration.
    pub enum CalibrationNote in Calibration;
    degraded {
        InterferenceOfGivenEvents { formula: String = "page-faults / task-clock".to_owned() } =>
            "interference is {formula}, as it was given: what that tells is up to who gave it",
            "leave the formula out to have the processor's own";
        CalibratedWithoutSiblings { cpus: String = "0 and 1".to_owned() } =>
            "CPUs {cpus} are no siblings: what they do to each other, they do through caches and memory that they share",
            "calibrate where the kernel shows siblings, or name two with --lanes";
        NothingCounted { cpu: u32 = 0, error: String = "No such file or directory".to_owned() } =>
            "no event could be counted on CPU {cpu} ({error}), so none can be compared with latency",
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

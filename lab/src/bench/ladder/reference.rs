//! The numbers of Elfen's paper, for comparison. They were not measured here and are never mixed with measurements.

/// Description of the machine on which the paper's numbers were measured.
pub(super) const PAPER_MACHINE: &str = "measured on a Xeon D-1540 at 2.0 GHz, two lanes of one core, outside any \
                                        virtual machine";

/// Returns the paper's cycles to sleep and to wake (Elfen, Fig. 8) for the mechanism that corresponds to the rung
/// `rung_name`.
pub(super) fn paper_cycles(rung_name: &str) -> Option<(f64, f64)> {
    match rung_name {
        "futex" => Some((11_518.0, 3_968.0)),
        // The paper's number for MWAIT alone, without the system call, corresponds to a user-level wait.
        "UMWAIT" | "MWAITX" => Some((2_443.0, 1_036.0)),
        name if name.starts_with("nanonap") => Some((3_285.0, 1_438.0)),
        _ => None,
    }
}

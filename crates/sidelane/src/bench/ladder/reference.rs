//! The paper's own numbers, to hold ours against. They were not measured here and are never mixed
//! with what was.

/// The machine they are from.
pub(super) const PAPER_MACHINE: &str = "measured on a Xeon D-1540 at 2.0 GHz, two lanes of one core, outside any \
                                        virtual machine";

/// Cycles to sleep and to wake of what corresponds to the rung `name` in Fig. 8 and its text.
pub(super) fn paper(name: &str) -> Option<(f64, f64)> {
    match name {
        "futex" => Some((11_518.0, 3_968.0)),
        // MWAIT alone, without the way into the kernel: what a user-level wait comes to.
        "UMWAIT" | "MWAITX" => Some((2_443.0, 1_036.0)),
        name if name.starts_with("nanonap") => Some((3_285.0, 1_438.0)),
        _ => None,
    }
}

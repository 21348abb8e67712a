//! Gates: mechanisms that get batch off a lane and let it back. The lane holder works always. This module has the gates
//! that some batch programs or kernels allow, gates for comparison, and the choice among them.

pub mod backstop;
mod command;
pub mod instrumented;
mod keeper;
pub mod keepers;
mod library;
pub mod sched_ext;

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use clap::ValueEnum;
use thiserror::Error;

use super::batch::BatchClass;
pub use instrumented::GateDescriptors;
pub use keeper::LaneKeeper;
pub use library::LibraryError;
use sched_ext::Unavailable;
use sidelane_host::corecookie::{CookieError, CoreCookie};

/// Which gate to use, as on the command line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum GateChoice {
    /// The best gate that is known to work for the command
    #[default]
    Auto,
    /// The command checks its lane itself: it was built with -pg, -finstrument-functions or runtime/c/sidelane_gate.h
    Instrumented,
    /// A scheduler for batch refuses it the lane (sched_ext, Linux 6.12 or later)
    SchedExt,
    /// A real-time thread takes the lane away; works for every command
    Holder,
    /// The kernel never runs batch and other threads on one core at once: either may have to wait (for comparison)
    CoreSched,
    /// Batch is frozen while the service runs (for comparison)
    Freezer,
    /// Batch in SCHED_IDLE yields its own lane to other threads, never the lane beside it (for comparison)
    SchedIdle,
}

/// Gate that was chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Gate {
    /// Lane holder alone.
    #[default]
    Holder,
    /// Self-checking batch: it checks its lane itself with this library, and the holder verifies that.
    Instrumented {
        /// Path of `libsidelane_gate.so`.
        library: PathBuf,
    },
    /// Scheduler for batch (sched_ext).
    SchedExt,
    /// Core scheduling: batch has a cookie of its own.
    CoreSched,
    /// Holder that evicts batch at once.
    Freezer,
    /// No keeper: batch in SCHED_IDLE yields its own lane only.
    SchedIdle,
}

/// Reason for the gate of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum GateReason {
    /// The user asked for it.
    #[default]
    Asked,
    /// `auto`: the command's file has checks.
    CommandChecks,
    /// `auto`: no other gate is known to work for batch.
    WorksForAll,
    /// `auto`: holders have taken over from another gate, under which batch overlapped more than the bound.
    TookOver {
        /// Name of the other gate.
        from: &'static str,
        /// Time from the start of the run.
        after_s: u64,
    },
}

impl GateReason {
    /// Returns the reason for a gate at the start of a run.
    pub fn of_choice(choice: GateChoice, gate: &Gate) -> Self {
        match (choice, gate) {
            (GateChoice::Auto, Gate::Instrumented { .. }) => Self::CommandChecks,
            (GateChoice::Auto, _) => Self::WorksForAll,
            _ => Self::Asked,
        }
    }

    /// Returns whether `auto` chose the gate without a measurement, so that holders may take over.
    pub fn is_on_trial(&self) -> bool {
        *self == Self::CommandChecks
    }
}

impl fmt::Display for GateReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked => f.write_str("--gate"),
            Self::CommandChecks => f.write_str("the command checks its lane itself"),
            Self::WorksForAll => f.write_str("works for every program"),
            Self::TookOver { from, after_s } => {
                write!(f, "took over from {from} after {after_s} s, because batch overlapped too much")
            }
        }
    }
}

/// Reason why a gate cannot be used.
#[derive(Debug, Error)]
pub enum GateError {
    /// Library for self-checking programs that was not found.
    #[error(transparent)]
    Instrumented(#[from] LibraryError),
    /// Kernel without sched_ext, or with another active scheduler.
    #[error("cannot use --gate sched-ext: {0}; or use --gate holder")]
    SchedExt(Unavailable),
    /// Kernel without core scheduling.
    #[error("cannot use --gate core-sched: {0}; or use --gate holder")]
    CoreSched(CookieError),
    /// Adopted batch, which must be unchanged when it is given back.
    #[error(
        "cannot use this gate with --adopt: it works only for commands that sidelane starts; use --gate holder, \
             freezer or sched-idle"
    )]
    Adopted,
}

impl Gate {
    /// Returns the gate for a command.
    ///
    /// Whether a command is instrumented is read from its file. For a script that starts instrumented programs this is
    /// unknown. Preloading a library into every program is not harmless: some refuse to run with one (sanitizers, other
    /// C libraries). So in this case the user has to ask for the gate.
    ///
    /// A scheduler for batch is not chosen by default either. Its kick costs the service's CPU an interrupt at each
    /// stop, too; a holder sees the stop by itself. Only measurements on real lanes can tell which costs more.
    ///
    /// # Errors
    /// When the choice cannot be used on this machine.
    pub fn choose(choice: GateChoice, command: &[OsString]) -> Result<Self, GateError> {
        match choice {
            GateChoice::Auto => Ok(Self::choose_automatically(command)),
            GateChoice::Holder => Ok(Self::Holder),
            GateChoice::Instrumented => Ok(Self::Instrumented { library: library::find_gate_library()? }),
            GateChoice::SchedExt => {
                sched_ext::check_sched_ext_available().map(|()| Self::SchedExt).map_err(GateError::SchedExt)
            }
            GateChoice::CoreSched => {
                CoreCookie::check_supported().map(|()| Self::CoreSched).map_err(GateError::CoreSched)
            }
            GateChoice::Freezer => Ok(Self::Freezer),
            GateChoice::SchedIdle => Ok(Self::SchedIdle),
        }
    }

    /// Returns the gate for batch that runs already.
    ///
    /// # Errors
    /// When the choice works only for commands.
    pub fn choose_for_adopted(choice: GateChoice) -> Result<Self, GateError> {
        match choice {
            GateChoice::Auto | GateChoice::Holder => Ok(Self::Holder),
            GateChoice::Freezer => Ok(Self::Freezer),
            GateChoice::SchedIdle => Ok(Self::SchedIdle),
            GateChoice::Instrumented | GateChoice::SchedExt | GateChoice::CoreSched => Err(GateError::Adopted),
        }
    }

    fn choose_automatically(command: &[OsString]) -> Self {
        let checks = command.first().is_some_and(|program| command::is_self_checking(program));
        match library::find_gate_library().ok().filter(|_| checks) {
            Some(library) => Self::Instrumented { library },
            None => Self::Holder,
        }
    }

    /// Returns the scheduling class that batch has to be in with this gate.
    pub fn batch_class(&self) -> BatchClass {
        match self {
            Self::SchedExt => BatchClass::Ext,
            _ => BatchClass::Idle,
        }
    }

    /// Returns the name of the gate in results.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Holder => "holder",
            Self::Instrumented { .. } => "instrumented",
            Self::SchedExt => "sched-ext",
            Self::CoreSched => "core-sched",
            Self::Freezer => "freezer",
            Self::SchedIdle => "sched-idle",
        }
    }

    /// Returns whether batch may check its lane itself.
    pub fn is_instrumented(&self) -> bool {
        matches!(self, Self::Instrumented { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unavailable_gate_error_names_another_gate() {
        let error = GateError::SchedExt(Unavailable::NotInKernel).to_string();
        assert!(error.contains("6.12") && error.contains("--gate holder"), "{error}");
    }

    #[test]
    fn command_without_checks_gets_the_holder_gate() {
        let command = [OsString::from("sh")];
        assert_eq!(Gate::choose(GateChoice::Auto, &command).unwrap(), Gate::Holder);
    }
}

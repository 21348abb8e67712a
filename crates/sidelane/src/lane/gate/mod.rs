//! Gates: how batch gets off a lane. The lane holder is the one that always works; here are those
//! that some batch programs or kernels allow, and the choice between them.

mod backstop;
mod books;
mod command;
pub mod instrumented;
mod library;
pub mod promises;

use std::path::PathBuf;

use clap::ValueEnum;

pub use backstop::Backstop;
pub use books::{GateBooks, settle};
pub use instrumented::Pass;
pub use library::GateError;

/// Which gate to use, as on the command line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum GateChoice {
    /// The best that is known to work for this command
    #[default]
    Auto,
    /// The command checks for itself: it was built with -pg, -finstrument-functions or the header
    Instrumented,
    /// A real-time thread takes the lane away; works for every command
    Holder,
}

/// A gate that was chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Gate {
    /// The lane holder alone.
    #[default]
    Holder,
    /// Batch looks for itself, with this library; the holder looks in.
    Instrumented {
        /// `libsidelane_gate.so`.
        library: PathBuf,
    },
}

impl Gate {
    /// The gate for a command.
    ///
    /// Of a command that is itself instrumented this can be told from its file. It cannot of one
    /// that starts instrumented programs, such as a script; and to preload a library into every
    /// program on the mere chance is not harmless: some refuse to run with one (sanitizers, other
    /// C libraries). So that is the user's word to give.
    ///
    /// # Errors
    /// When the choice cannot be had here.
    pub fn choose(choice: GateChoice, command: &[std::ffi::OsString]) -> Result<Self, GateError> {
        match choice {
            GateChoice::Holder => Ok(Self::Holder),
            GateChoice::Instrumented => Ok(Self::Instrumented { library: library::find()? }),
            GateChoice::Auto => {
                let wanted = command.first().is_some_and(|program| command::checks(program));
                Ok(match library::find().ok().filter(|_| wanted) {
                    Some(library) => Self::Instrumented { library },
                    None => Self::Holder,
                })
            }
        }
    }

    /// Its name in results.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Holder => "holder",
            Self::Instrumented { .. } => "instrumented",
        }
    }

    /// Whether batch may look for itself.
    pub fn is_instrumented(&self) -> bool {
        matches!(self, Self::Instrumented { .. })
    }
}

//! What was asked for.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use sidelane_host::cores::Cores;
use sidelane_host::service::Target;
use sidelane_policy::hurryup::Config;
use thiserror::Error;

/// What `sidelane hurry` was asked to do.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The service.
    pub service: Target,
    /// Which cores are big and which little.
    pub cores: Cores,
    /// How threads are mapped.
    pub config: Config,
    /// Who tells what threads work on.
    pub told: Told,
    /// Where each move is written down.
    pub log: Option<PathBuf>,
}

impl Settings {
    /// What is said when all is ready.
    pub fn opening(&self) -> String {
        let Cores { big, little, source, .. } = &self.cores;
        format!("sidelane: mapping threads of {} to big CPUs {big} and little CPUs {little} ({source})", self.service)
    }
}

/// Who tells what threads work on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Told {
    /// The service itself, if it emits its requests; else the kernel program, from its sockets.
    #[default]
    Found,
    /// The service writes lines to this pipe, as the paper's does.
    Pipe(PathBuf),
}

/// Why threads cannot be mapped.
#[derive(Debug, Error)]
pub enum HurryError {
    /// Not the name of a pipe.
    #[error("`{0}` is no place for statistics: write pipe: and the path of a named pipe, as in pipe:/run/hurry")]
    Syntax(String),
    /// There is something else of this name.
    #[error("{0} is no named pipe: remove it, or choose another name for --stats")]
    NoPipe(PathBuf),
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Found => f.write_str("found"),
            Self::Pipe(path) => write!(f, "pipe:{}", path.display()),
        }
    }
}

impl FromStr for Told {
    type Err = HurryError;

    fn from_str(text: &str) -> Result<Self, HurryError> {
        let path = text.strip_prefix("pipe:").filter(|path| !path.is_empty());
        path.map(|path| Self::Pipe(path.into())).ok_or_else(|| HurryError::Syntax(text.to_owned()))
    }
}

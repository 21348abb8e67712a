//! Why a hazard of a server cannot be seen.

use std::fmt;

/// Why a hazard cannot be seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Lack {
    /// The server is none that could have it.
    NotThere(&'static str),
    /// It may have it, and what would tell cannot be read.
    Unreadable(String),
}

impl Lack {
    /// The same in each life of the server: numbers of processes are left out.
    pub(super) fn kind(&self) -> String {
        self.to_string().replace(|letter: char| letter.is_ascii_digit(), "")
    }
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotThere(what) => f.write_str(what),
            Self::Unreadable(why) => f.write_str(why),
        }
    }
}

//! Selection of the hazards to watch for, as options name it.

use std::fmt;
use std::str::FromStr;

use sidelane_policy::hedge::{Hazard, Hazards};
use thiserror::Error;

/// Error: the text is not a list of hazards.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "`{0}` is not a hazard; write jvm-gc, safepoint, stopped, throttled or restart, with commas between, or all, or none"
)]
pub struct NotAHazard(String);

/// Selection of the hazards to watch for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchedHazards {
    /// All hazards that can be seen. A note names hazards that the server may have and that cannot be seen.
    All,
    /// Hazards that the user named. If one of them cannot be seen, the watcher does not start.
    These(Hazards),
}

impl WatchedHazards {
    /// Returns whether no hazard is watched for.
    pub fn is_none(&self) -> bool {
        *self == Self::These(Hazards::NONE)
    }

    /// Returns whether this hazard is watched for, if it can be seen.
    pub fn contains(&self, hazard: Hazard) -> bool {
        match self {
            Self::All => true,
            Self::These(hazards) => hazards.contains(hazard),
        }
    }
}

impl FromStr for WatchedHazards {
    type Err = NotAHazard;

    fn from_str(text: &str) -> Result<Self, NotAHazard> {
        let is_watchable = |hazard: &Hazard| !matches!(hazard, Hazard::Unreachable | Hazard::Failing);
        let watchable = || Hazard::ALL.into_iter().filter(is_watchable);
        let named = |name: &str| {
            let found = watchable().find(|hazard| hazard.name() == name.trim());
            found.ok_or_else(|| NotAHazard(name.to_owned()))
        };
        match text {
            "all" => Ok(Self::All),
            "none" => Ok(Self::These(Hazards::NONE)),
            _ => Ok(Self::These(text.split(',').map(named).collect::<Result<_, _>>()?)),
        }
    }
}

impl fmt::Display for WatchedHazards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::These(_) if self.is_none() => f.write_str("none"),
            Self::These(hazards) => {
                let names = Hazard::ALL.into_iter().filter(|hazard| hazards.contains(*hazard)).map(Hazard::name);
                f.write_str(&names.collect::<Vec<_>>().join(","))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hazards_are_named_or_all_or_none() {
        let these: Hazards = [Hazard::JvmGc, Hazard::Restart].into_iter().collect();
        assert_eq!("restart,jvm-gc".parse(), Ok(WatchedHazards::These(these)));
        for text in ["all", "none", "jvm-gc,restart"] {
            assert_eq!(text.parse::<WatchedHazards>().unwrap().to_string(), text);
        }
        assert_eq!(
            ("all".parse(), "none".parse::<WatchedHazards>().unwrap().is_none()),
            (Ok(WatchedHazards::All), true)
        );
        for wrong in ["", "gc", "jvm-gc,", "unreachable", "failing"] {
            assert!(wrong.parse::<WatchedHazards>().unwrap_err().to_string().contains("safepoint"), "{wrong}");
        }
    }
}

//! Check whether this kernel can have a scheduler for batch, with advice if not.

use std::fs;
use std::io;
use std::path::Path;

use thiserror::Error;

const ROOT: &str = "/sys/kernel/sched_ext";

/// Reason why batch cannot have a scheduler of its own.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Unavailable {
    /// Kernel before 6.12, or built without sched_ext.
    #[error("this kernel has no sched_ext; boot Linux 6.12 or later with CONFIG_SCHED_CLASS_EXT=y")]
    NotInKernel,
    /// Scheduler that is active already, by its name: the kernel has one at a time.
    #[error("the scheduler `{0}` is loaded, and sched_ext runs one at a time; stop it")]
    Taken(String),
    /// Scheduler that is just starting or ending, by its state.
    #[error("sched_ext is in state `{0}`, not `disabled`; try again in a moment")]
    NotReady(String),
}

/// Checks whether batch can have a scheduler.
///
/// # Errors
/// The reason why batch cannot have one.
pub fn check_sched_ext_available() -> Result<(), Unavailable> {
    let read = |file: &str| fs::read_to_string(Path::new(ROOT).join(file));
    check_sched_ext_state(read("state"), read("root/ops"))
}

fn check_sched_ext_state(state: io::Result<String>, loaded_scheduler: io::Result<String>) -> Result<(), Unavailable> {
    let state = state.map_err(|_| Unavailable::NotInKernel)?;
    match (state.trim(), loaded_scheduler) {
        ("disabled", _) => Ok(()),
        ("enabled", Ok(name)) => Err(Unavailable::Taken(name.trim().to_owned())),
        (other, _) => Err(Unavailable::NotReady(other.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_state_texts(state: Option<&str>, loaded_scheduler: Option<&str>) -> Result<(), Unavailable> {
        let file = |text: Option<&str>| text.map(str::to_owned).ok_or_else(|| io::ErrorKind::NotFound.into());
        check_sched_ext_state(file(state), file(loaded_scheduler))
    }

    #[test]
    fn each_obstacle_has_its_own_workaround() {
        assert_eq!(check_state_texts(Some("disabled\n"), None), Ok(()));
        assert_eq!(check_state_texts(None, None), Err(Unavailable::NotInKernel));
        assert_eq!(check_state_texts(Some("enabled\n"), Some("lavd\n")), Err(Unavailable::Taken("lavd".into())));
        assert_eq!(check_state_texts(Some("disabling\n"), None), Err(Unavailable::NotReady("disabling".into())));
    }

    #[test]
    fn messages_say_what_to_do() {
        assert!(Unavailable::NotInKernel.to_string().contains("CONFIG_SCHED_CLASS_EXT"));
        assert!(Unavailable::Taken("lavd".into()).to_string().contains("`lavd`"));
    }
}

//! Errors that say what this machine lacks, and nothing of whom it is connected to.

use std::io;

use rustix::io::Errno;

fn code(error: &io::Error) -> Option<Errno> {
    error.raw_os_error().map(Errno::from_raw_os_error)
}

/// Whether there are no open files or memory left.
pub(super) fn is_about_files(error: &io::Error) -> bool {
    matches!(code(error), Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM))
}

/// Whether a connection was not made because this machine lacks files, memory or ports, whatever the server does.
pub(super) fn is_own_lack(error: &io::Error) -> bool {
    is_about_files(error) || matches!(code(error), Some(Errno::ADDRNOTAVAIL | Errno::AGAIN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_machine_lacks_is_not_put_down_to_the_server() {
        let is_own = |code: Errno| is_own_lack(&io::Error::from_raw_os_error(code.raw_os_error()));
        assert!([Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::ADDRNOTAVAIL].into_iter().all(is_own));
        assert!(![Errno::CONNREFUSED, Errno::HOSTUNREACH, Errno::TIMEDOUT, Errno::CONNRESET].into_iter().any(is_own));
    }
}

//! `/dev/nanonap`: MONITOR and MWAIT for holders, through the kernel module `kmod/nanonap`.
//!
//! Most Intel servers have no user-level wait, and MWAIT is the kernel's. The optional module lends
//! it to a holder, as Elfen's system call did (§3.1, Fig. 6): the lane sleeps until the watched
//! word's cache line is written, an interrupt comes or the time is over.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Where the module puts its device.
pub const DEVICE: &str = "/dev/nanonap";

/// The longest single nap. It bounds how late is noticed what the watched word does not tell, such
/// as a change on a second request lane. To look and go to sleep anew is expected to take about
/// 1 µs, so that a napping lane is asleep nearly all the time.
const NAP_MAX: Duration = Duration::from_micros(50);

/// `struct nanonap_nap` of `kmod/nanonap/nanonap.h`.
#[repr(C)]
struct Request {
    word: u64,
    expected: u32,
    longest_ns: u32,
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<Request>() == 16);
    assert!(offset_of!(Request, word) == 0);
    assert!(offset_of!(Request, expected) == 8);
    assert!(offset_of!(Request, longest_ns) == 12);
};

/// `NANONAP_NAP`: `_IOW('N', 0x40, struct nanonap_nap)`.
const NANONAP_NAP: libc::Ioctl = {
    const WRITE: u32 = 1;
    ((WRITE << 30) | ((size_of::<Request>() as u32) << 16) | ((b'N' as u32) << 8) | 0x40) as libc::Ioctl
};

/// Why there is no napping through the device.
#[derive(Debug, thiserror::Error)]
pub enum NoNanonap {
    /// The module is not loaded.
    #[error("nanonap: {DEVICE} is not there: build and load kmod/nanonap (README)")]
    Absent,
    /// The device is there and cannot be used.
    #[error("nanonap: {DEVICE} cannot be opened: {0}: run as root")]
    Closed(io::Error),
    /// It is of another version, or something else.
    #[error("nanonap: {DEVICE} refuses to nap: {0}: build and load the kmod/nanonap of this Sidelane")]
    Refuses(io::Error),
}

/// The opened device.
#[derive(Debug)]
pub struct Device(File);

impl Device {
    /// The device, opened and tried the first time it is asked for.
    pub fn get() -> Option<&'static Self> {
        static OPENED: OnceLock<Option<Device>> = OnceLock::new();
        OPENED.get_or_init(|| Self::open(Path::new(DEVICE)).ok()).as_ref()
    }

    /// Opens the device at `path` and takes a nap there.
    ///
    /// # Errors
    /// When there is none, or not one that naps.
    pub fn open(path: &Path) -> Result<Self, NoNanonap> {
        let file = File::options().read(true).write(true).open(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => NoNanonap::Absent,
            _ => NoNanonap::Closed(error),
        })?;
        let device = Self(file);
        let word = AtomicU32::new(0);
        // A word that has changed already: nobody has to wait.
        device.nap(&word, 1, NAP_MAX).map_err(NoNanonap::Refuses)?;
        Ok(device)
    }

    /// Sleeps while `word` is `expected`, but not for longer than `longest`, nor through an
    /// interrupt.
    pub fn nap(&self, word: &AtomicU32, expected: u32, longest: Duration) -> io::Result<()> {
        let longest_ns = longest.min(NAP_MAX).as_nanos().max(1) as u32;
        let request = Request { word: word.as_ptr() as u64, expected, longest_ns };
        // SAFETY: the command reads a `Request` behind the pointer and the word behind the address
        // in it, both of which outlive the call, and writes nothing.
        match unsafe { libc::ioctl(self.0.as_raw_fd(), NANONAP_NAP, &raw const request) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn what_is_missing_is_said_with_what_to_do() {
        let absent = Device::open(Path::new("/dev/no-such-device")).unwrap_err().to_string();
        assert_eq!(absent, "nanonap: /dev/nanonap is not there: build and load kmod/nanonap (README)");
        let other = Device::open(Path::new("/dev/null")).unwrap_err();
        assert!(matches!(other, NoNanonap::Refuses(_)), "{other}");
    }

    #[test]
    fn the_command_is_the_one_of_the_header() {
        // As a C compiler has it.
        assert_eq!(NANONAP_NAP, 0x4010_4e40);
    }

    #[test]
    fn a_nap_ends_by_time_or_by_a_write() {
        let Some(device) = Device::get() else {
            return sidelane_skip::skip(format!("no {DEVICE} here"));
        };
        let word = AtomicU32::new(0);
        device.nap(&word, 0, NAP_MAX).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| word.store(1, Ordering::Release));
            while word.load(Ordering::Acquire) == 0 {
                device.nap(&word, 0, NAP_MAX).unwrap();
            }
        });
    }
}

//! `/dev/nanonap`: MONITOR and MWAIT for lane holders, through the kernel module `kmod/nanonap`.
//!
//! Most Intel servers have no user-level wait instruction, and only the kernel may use MWAIT. The
//! optional module makes it available to a holder, as Elfen's system call did (§3.1, Fig. 6): the
//! lane sleeps until the watched word's cache line is written, an interrupt arrives or the time is
//! over.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Path of the device file of the kernel module nanonap.
pub const DEVICE: &str = "/dev/nanonap";

/// Longest single nap. It bounds the delay in noticing changes that do not write the watched word, such as a change on
/// a second request lane. To wake, check and sleep again is expected to take about 1 µs, so a napping lane sleeps
/// nearly all the time.
const NAP_MAX: Duration = Duration::from_micros(50);

/// Argument of the device's command: `struct nanonap_nap` of `kmod/nanonap/nanonap.h`.
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

/// Number of the device's command `NANONAP_NAP`: `_IOW('N', 0x40, struct nanonap_nap)`.
const NANONAP_NAP: libc::Ioctl = {
    const WRITE: u32 = 1;
    ((WRITE << 30) | ((size_of::<Request>() as u32) << 16) | ((b'N' as u32) << 8) | 0x40) as libc::Ioctl
};

/// Reason why a holder cannot nap through the device.
#[derive(Debug, thiserror::Error)]
pub enum NoNanonap {
    /// The kernel module nanonap is not loaded.
    #[error("cannot use nanonap: there is no {DEVICE}; build and load kmod/nanonap (see its README)")]
    Absent,
    /// The device exists and cannot be opened.
    #[error("cannot open {DEVICE} of nanonap: {0}; run as root")]
    Closed(io::Error),
    /// The device belongs to another version of the module, or to another driver.
    #[error("cannot nap with {DEVICE}: {0}; build and load kmod/nanonap of this version of Sidelane")]
    Refuses(io::Error),
}

/// The opened device `/dev/nanonap`.
#[derive(Debug)]
pub struct Device(File);

impl Device {
    /// Returns the device, which the first call opens and tests; `None` if it cannot be used.
    pub fn get() -> Option<&'static Self> {
        static OPENED: OnceLock<Option<Device>> = OnceLock::new();
        OPENED.get_or_init(|| Self::open(Path::new(DEVICE)).ok()).as_ref()
    }

    /// Opens the device at `path` and takes a test nap.
    ///
    /// # Errors
    ///
    /// If the device does not exist, or refuses the test nap.
    pub fn open(path: &Path) -> Result<Self, NoNanonap> {
        let file = File::options().read(true).write(true).open(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => NoNanonap::Absent,
            _ => NoNanonap::Closed(error),
        })?;
        let device = Self(file);
        let word = AtomicU32::new(0);
        // The word differs from the expected value already, so the nap ends at once.
        device.nap(&word, 1, NAP_MAX).map_err(NoNanonap::Refuses)?;
        Ok(device)
    }

    /// Sleeps while `word` is `expected`, for at most `longest`, and until the next interrupt at
    /// the latest.
    pub fn nap(&self, word: &AtomicU32, expected: u32, longest: Duration) -> io::Result<()> {
        let longest_ns = longest.min(NAP_MAX).as_nanos().max(1) as u32;
        let request = Request { word: word.as_ptr() as u64, expected, longest_ns };
        // SAFETY: the command reads the `Request` that the pointer refers to, and the word at the
        // address in it. Both outlive the call. It writes nothing.
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
    fn missing_nanonap_device_error_says_what_to_do() {
        let absent = Device::open(Path::new("/dev/no-such-device")).unwrap_err().to_string();
        assert_eq!(
            absent,
            "cannot use nanonap: there is no /dev/nanonap; build and load kmod/nanonap (see its README)"
        );
        let other = Device::open(Path::new("/dev/null")).unwrap_err();
        assert!(matches!(other, NoNanonap::Refuses(_)), "{other}");
    }

    #[test]
    fn ioctl_number_equals_that_of_the_c_header() {
        // Value of the C macro `NANONAP_NAP` in `kmod/nanonap/nanonap.h`, computed by a C compiler.
        assert_eq!(NANONAP_NAP, 0x4010_4e40);
    }

    #[test]
    fn nap_ends_at_its_timeout_or_at_a_write() {
        let Some(device) = Device::get() else {
            return sidelane_testing::skip(format!("no {DEVICE} here"));
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

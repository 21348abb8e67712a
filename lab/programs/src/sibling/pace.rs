//! Built-in loss of time: a thread itself emulates the time that it would lose to a busy sibling lane.
//!
//! Problem. On a core whose lanes slow each other, a thread loses a share of its overlap: the time that it ran while
//! the other lane worked. On two separate CPUs it lost nothing, so it has to lose that time itself, by spinning. But it
//! spins on the same lane, and the other lane may work during the spin.
//!
//! Approach. The time to lose is the share times *all* overlap, including overlap during the spin; the time already
//! lost is the time spun. The thread spins until both are equal. For example, the share is 0.4 and the other lane works
//! all the time. Then 66.7 µs of spinning follow 100 µs of work, since 0.4 of 166.7 µs are 66.7 µs. This is exact
//! whatever the other lane does, and needs no timer.
//!
//! Time in which the thread did not run counts neither as overlap nor as spun time. The kernel program stops its
//! stopwatches, and a change of its count of turns reveals the switch.

use std::os::fd::{AsFd, OwnedFd};
use std::str::FromStr;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use rustix::thread::gettid;

use super::core::{Core, Thread};
use crate::clock::{Nanos, now_ns};
use crate::faults::Pages;
use crate::scheduling;

/// Shortest time between two checks whether `sidelane-lab sibling` still runs. A check takes a system call.
const ALIVE_EVERY_NS: Nanos = 50_000_000;

/// Address of the emulated sibling's memory, as `sidelane-lab sibling` prints it: `PID:FD`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiblingAddress {
    pid: i32,
    fd: i32,
}

impl FromStr for SiblingAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts =
            text.split_once(':').and_then(|(pid, fd)| Some(Self { pid: pid.parse().ok()?, fd: fd.parse().ok()? }));
        parts.filter(|at| at.pid > 0).ok_or_else(|| "write PID:FD, as `sidelane-lab sibling` prints them".to_owned())
    }
}

/// Access of a program to the emulated sibling. Each thread of the program takes its [`Pace`] from it.
pub struct Sibling {
    core: Core,
    process: OwnedFd,
}

impl Sibling {
    /// Maps the memory of the process that emulates the sibling.
    pub fn open(address: SiblingAddress) -> Result<Self> {
        let gone = || {
            format!(
                "there is no emulated sibling at {}:{}: `sidelane-lab sibling` prints where it is",
                address.pid, address.fd
            )
        };
        let pid = Pid::from_raw(address.pid).with_context(gone)?;
        let process = pidfd_open(pid, PidfdFlags::empty()).with_context(gone)?;
        let memory = pidfd_getfd(&process, address.fd, PidfdGetfdFlags::empty()).with_context(gone)?;
        Ok(Self { core: Core::map(memory.as_fd())?, process })
    }

    /// Takes a slot for the calling thread and returns its pace.
    pub fn start_pace(&self) -> Result<Pace<'_>> {
        let tid = gettid().as_raw_nonzero().get() as u32;
        let place = self.core.take_thread_slot(tid);
        let place = place.context(
            "cannot emulate the loss of another thread: the emulated sibling supports 16 at a time; use fewer threads, \
             or leave --sibling out",
        )?;
        self.wait_until_observed(&self.core.threads[place])?;
        let (generation, seen_alive_ns) = (self.core.generation(), now_ns());
        let pages = self.core.has_page_fault_stand_in().then(Pages::map).transpose()?;
        Ok(Pace { sibling: self, place, generation, spun_ns: 0, looks: 0, seen_alive_ns, pages })
    }

    /// Sleeps until the kernel program has counted a switch-in of the thread. One short sleep may end before the thread
    /// leaves its CPU, so it sleeps repeatedly.
    fn wait_until_observed(&self, thread: &Thread) -> Result<()> {
        loop {
            scheduling::sleep_for_context_switch()?;
            if thread.turns.load(Ordering::Acquire) > 0 || !self.core.is_sharing_core() || !self.is_alive() {
                return Ok(());
            }
        }
    }

    /// Returns whether the emulating process still runs. A failed poll, as after a POSIX signal, counts as alive.
    fn is_alive(&self) -> bool {
        let mut ended = [PollFd::new(&self.process, PollFlags::IN)];
        let _ = poll(&mut ended, Some(&Timespec::default()));
        !ended[0].revents().contains(PollFlags::IN)
    }
}

/// Emulator of the slowdown of one thread by a sibling lane. The thread should call [`Pace::spin_for_lost_time`] at the end
/// of each piece of work, or every 100 µs.
pub struct Pace<'s> {
    sibling: &'s Sibling,
    place: usize,
    generation: u32,
    spun_ns: Nanos,
    /// Number of checks not yet added to the shared counter.
    looks: u64,
    seen_alive_ns: Nanos,
    /// Pages to touch during the spin, if it must be visible as page faults.
    pages: Option<Pages>,
}

impl Pace<'_> {
    /// Spins for the time that the thread should have lost to the sibling lane since the last call.
    #[inline]
    pub fn spin_for_lost_time(&mut self) {
        let core = &self.sibling.core;
        let generation = core.generation();
        if generation & 1 == 0 {
            return;
        }
        if generation != self.generation {
            (self.generation, self.spun_ns) = (generation, 0);
        }
        let thread = &core.threads[self.place];
        self.looks += 1;
        if self.time_to_lose_ns(thread) > self.spun_ns {
            self.spin_until_time_is_lost(thread);
        }
    }

    /// Returns the time that this thread should have lost so far. It reads lane and overlap again if the thread was
    /// switched in between the two reads, since they must belong together.
    fn time_to_lose_ns(&self, thread: &Thread) -> Nanos {
        loop {
            let turns = thread.turns.load(Ordering::Acquire);
            let lane = thread.lane.load(Ordering::Acquire) as usize & 1;
            let lost_ns = self.sibling.core.lost_time_ns(lane, &thread.overlap);
            if thread.turns.load(Ordering::Acquire) == turns {
                return lost_ns;
            }
        }
    }

    #[cold]
    fn spin_until_time_is_lost(&mut self, thread: &Thread) {
        let before_ns = self.spun_ns;
        let mut turns = thread.turns.load(Ordering::Acquire);
        let mut last_ns = now_ns();
        while self.is_sibling_alive(last_ns) && self.has_time_left_to_lose(thread) {
            // Ignores a failure to make page faults: the thread spins anyway.
            let _ = self.pages.as_mut().map(Pages::fault_all_pages);
            std::hint::spin_loop();
            let now = now_ns();
            let turns_now = thread.turns.load(Ordering::Acquire);
            if turns_now == turns {
                self.spun_ns += now - last_ns;
                last_ns = now;
            } else {
                // Excludes the time since the last reading: the thread was switched out, so it did not spin.
                turns = turns_now;
                last_ns = now_ns();
            }
        }
        self.add_to_lane_counters(thread, self.spun_ns - before_ns);
    }

    fn has_time_left_to_lose(&self, thread: &Thread) -> bool {
        self.time_to_lose_ns(thread) > self.spun_ns && self.sibling.core.generation() == self.generation
    }

    fn add_to_lane_counters(&mut self, thread: &Thread, spun_ns: Nanos) {
        let lane = &self.sibling.core.lanes[thread.lane.load(Ordering::Relaxed) as usize & 1];
        lane.spun_ns.fetch_add(spun_ns, Ordering::Relaxed);
        lane.looks.fetch_add(std::mem::take(&mut self.looks), Ordering::Relaxed);
    }

    /// Returns whether the emulating process still runs, with at most one check per [`ALIVE_EVERY_NS`]. After its end
    /// no kernel program stops the stopwatches, which would run for ever.
    fn is_sibling_alive(&mut self, now: Nanos) -> bool {
        if now - self.seen_alive_ns < ALIVE_EVERY_NS {
            return true;
        }
        self.seen_alive_ns = now;
        let alive = self.sibling.is_alive();
        if !alive {
            self.sibling.core.set_sharing_core(false);
        }
        alive
    }
}

impl Drop for Pace<'_> {
    fn drop(&mut self) {
        self.sibling.core.release_thread_slot(self.place);
    }
}

/// Options of programs that emulate the slowdown by a sibling lane themselves.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct PaceArgs {
    /// Be as slow beside this emulated sibling as beside a real one (see `sibling`), or on this slow CPU (see `slow-cpu`)
    #[arg(long, value_name = "PID:FD")]
    sibling: Option<SiblingAddress>,
}

impl PaceArgs {
    /// Maps the emulated sibling, if the option is given.
    pub fn open_sibling(self) -> Result<Option<Sibling>> {
        self.sibling.map(Sibling::open).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sibling_is_found_at_its_address() {
        assert_eq!("12:3".parse(), Ok(SiblingAddress { pid: 12, fd: 3 }));
        for wrong in ["", "12", "12:", "0:3", "-1:3", "a:b"] {
            assert!(wrong.parse::<SiblingAddress>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn missing_sibling_is_an_error() {
        let wrong = SiblingAddress { pid: std::process::id() as i32, fd: 9_999 };
        assert!(format!("{:#}", Sibling::open(wrong).err().unwrap()).contains("no emulated sibling"));
    }
}

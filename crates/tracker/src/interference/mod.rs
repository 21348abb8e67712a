//! Interference: how much a service is disturbed on each CPU, by a formula over counters (Holmes, HPDC'22, Equation 1).
//!
//! The counters are opened here. The kernel program reads them when the service comes and goes, and at ticks while it
//! runs (`bpf/guard/`). It computes the value of each window, and compares it with a threshold that is set here. The
//! values are in memory that both sides map, so reading them costs no system call. When a value crosses the threshold,
//! the kernel program writes to a ring buffer, which wakes the reader. Neither the kernel program nor this module
//! decides anything.

mod error;
mod word;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sidelane_host::clock::now_ns;
use sidelane_host::cpulist::CpuSet;
use sidelane_host::events::{EVENTS_MAX, Formula};
use sidelane_host::perf;

pub use error::InterferenceError;
pub use word::InterferenceCounts;
use word::{threshold_to_fixed_point, value_from_fixed_point};

use crate::kernel_types::GuardWord;
use crate::summons::SummonsRing;
use crate::tracker::error::bpf_error_in_step;
use crate::tracker::parts::{GUARD_CROSSINGS, GUARD_EVENTS, GUARD_WORDS};
use crate::tracker::{Tracker, map_array};
use sidelane_host::shared_mapping::SharedMapping;

/// Settings of the windows in which counters are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// Run time of the service in a window.
    pub window: Duration,
    /// Longest duration of a window, in which the service may run for less than `window`.
    pub window_max: Duration,
    /// Interval at which the counters are read while the service runs on.
    pub tick: Duration,
    /// Least activity in a window, in events. If numerator and denominator of the formula both have fewer events, the
    /// window has no activity. If only the denominator has fewer, it counts as this number.
    pub activity_min: u64,
}

impl Windows {
    /// Returns the windows for a formula. If it counts events of the kernel, which are rare, a single event is
    /// activity. Events of the processor come by the thousands in a window, unless the service stands still.
    pub fn for_formula(formula: &Formula) -> Self {
        Self { activity_min: if formula.needs_processor() { 100 } else { 1 }, ..Self::default() }
    }
}

impl Default for Windows {
    /// Returns windows with the lengths of the paper (§6.5).
    fn default() -> Self {
        Self {
            window: Duration::from_micros(50),
            window_max: Duration::from_millis(10),
            // If the host emulates timers, a shorter tick costs a service that never sleeps 15 % of its CPU time; this
            // tick costs half of that.
            tick: Duration::from_micros(100),
            activity_min: 1,
        }
    }
}

/// Interference in one window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// Value of the formula.
    pub value: f64,
    /// End of the window, in ns.
    pub at_ns: u64,
}

/// Crossing of a CPU's threshold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Crossing {
    /// Number of the CPU.
    pub cpu: u32,
    /// Whether the value has reached the threshold; otherwise it is below the threshold.
    pub above: bool,
    /// Time of the crossing, in ns.
    pub at_ns: u64,
    /// Present value of the CPU.
    pub value: f64,
    /// Number of crossings since the last report, this one included.
    pub times: u64,
}

/// Open counters on some CPUs. Dropping this value closes them.
pub struct Interference {
    formula: Formula,
    windows: Windows,
    cpus: CpuSet,
    /// Number of crossings that were reported, by CPU.
    told: Vec<(u32, u64)>,
    words: SharedMapping<GuardWord>,
    crossings: SummonsRing,
    events: MapHandle,
    /// Open counters by CPU. The kernel counts until they are closed.
    counters: BTreeMap<u32, Vec<OwnedFd>>,
}

impl Interference {
    /// Opens the formula's counters on these CPUs, on all or on none. Gives them to the kernel program of `tracker`,
    /// which must be loaded for interference ([`crate::tracker::Purpose::Share`]). There is no threshold yet.
    ///
    /// # Panics
    /// If the tracker was loaded without interference.
    pub fn open(formula: &Formula, cpus: &CpuSet, tracker: &Tracker) -> Result<Self, InterferenceError> {
        Self::open_with_windows(formula, Windows::for_formula(formula), cpus, tracker)
    }

    /// Opens the formula's counters with windows of other lengths.
    pub fn open_with_windows(
        formula: &Formula,
        windows: Windows,
        cpus: &CpuSet,
        tracker: &Tracker,
    ) -> Result<Self, InterferenceError> {
        let words = map_array(tracker.maps(), GUARD_WORDS, tracker.memory().cpu_count())?;
        let keep = |map: &str| {
            MapHandle::try_from(tracker.map_handle(map)).map_err(bpf_error_in_step("open the maps of the counters"))
        };
        let crossings = keep(GUARD_CROSSINGS)?.as_fd().try_clone_to_owned().map_err(InterferenceError::Crossings)?;
        let mut new = Self {
            formula: formula.clone(),
            windows,
            cpus: cpus.clone(),
            told: cpus.iter().map(|cpu| (cpu, 0)).collect(),
            words,
            crossings: SummonsRing::new(crossings).map_err(InterferenceError::Crossings)?,
            events: keep(GUARD_EVENTS)?,
            counters: BTreeMap::new(),
        };
        for cpu in cpus.iter() {
            new.open_counters_on(cpu)?;
        }
        // Counting begins only when all counters are open.
        cpus.iter().for_each(|cpu| new.start_counting_on(cpu));
        Ok(new)
    }

    /// Counts on a CPU that has come online. Counters that were open there when the CPU went offline no longer count.
    pub fn reopen_cpu(&mut self, cpu: u32) -> Result<(), InterferenceError> {
        self.words[cpu as usize].event_count.store(0, Ordering::Release);
        self.open_counters_on(cpu)?;
        if !self.cpus.contains(cpu) {
            self.cpus = self.cpus.iter().chain([cpu]).collect();
            self.told.push((cpu, 0));
        }
        self.start_counting_on(cpu);
        Ok(())
    }

    fn open_counters_on(&mut self, cpu: u32) -> Result<(), InterferenceError> {
        let name = |place: usize| self.formula.names()[place].clone();
        let opened = perf::open_counter_group(self.formula.events(), cpu)
            .map_err(|(place, source)| InterferenceError::Event { name: name(place), cpu, source })?;
        for (place, counter) in opened.iter().enumerate() {
            let fd = counter.as_raw_fd().to_ne_bytes();
            let given = self.events.update(&event_map_key(cpu, place), &fd, MapFlags::ANY);
            given.map_err(bpf_error_in_step("hand a counter to the kernel"))?;
        }
        self.counters.insert(cpu, opened.into_iter().collect());
        Ok(())
    }

    /// Begins to count on this CPU.
    fn start_counting_on(&self, cpu: u32) {
        let word = &self.words[cpu as usize];
        let ns = |time: Duration| time.as_nanos() as u64;
        word.threshold.store(threshold_to_fixed_point(None), Ordering::Relaxed);
        word.window_ns.store(ns(self.windows.window), Ordering::Relaxed);
        word.window_max_ns.store(ns(self.windows.window_max), Ordering::Relaxed);
        word.activity_min.store(self.windows.activity_min, Ordering::Relaxed);
        word.numerator.store(self.formula.numerator_bits(), Ordering::Relaxed);
        word.denominator.store(self.formula.denominator_bits(), Ordering::Relaxed);
        word.read_ns.store(0, Ordering::Relaxed);
        // Allow one tick: the length of the service's turns on this CPU is unknown, and is assumed to be long.
        word.paid_ticks.store(1, Ordering::Relaxed);
        self.set_tick(cpu, Some(self.windows.tick));
        word.event_count.store(self.formula.events().len() as u32, Ordering::Release);
    }

    /// Returns the formula of the counters.
    pub fn formula(&self) -> &Formula {
        &self.formula
    }

    /// Returns the CPUs on which counters are open.
    pub fn cpus(&self) -> &CpuSet {
        &self.cpus
    }

    /// Sets the value of this CPU from which a crossing is reported; `None`: no crossing is reported.
    pub fn set_threshold(&self, cpu: u32, value: Option<f64>) {
        self.words[cpu as usize].threshold.store(threshold_to_fixed_point(value), Ordering::Release);
    }

    /// Sets when the counters of this CPU are read: when the service comes and goes, and once a `tick` while it runs
    /// on. Without a tick, one turn per millisecond is counted while turns are shorter than a window. Reading takes the
    /// service's own time. So a tick is set only if batch can disturb the service on this CPU.
    pub fn set_tick(&self, cpu: u32, tick: Option<Duration>) {
        let tick_ns = tick.map_or(0, |tick| tick.as_nanos() as u64);
        self.words[cpu as usize].tick_ns.store(tick_ns, Ordering::Release);
    }

    /// Returns the present value of this CPU; `None` if no service was active there in the last
    /// [`Windows::window_max`].
    pub fn current_value(&self, cpu: u32) -> Option<f64> {
        let fresh_ns = now_ns().saturating_sub(self.windows.window_max.as_nanos() as u64);
        self.last_reading(cpu).filter(|reading| reading.at_ns >= fresh_ns).map(|reading| reading.value)
    }

    /// Returns the last value of this CPU, of any age.
    pub fn last_reading(&self, cpu: u32) -> Option<Reading> {
        let word = &self.words[cpu as usize];
        loop {
            let at_ns = word.value_ns.load(Ordering::Acquire);
            let value = value_from_fixed_point(word.value.load(Ordering::Acquire));
            if at_ns == word.value_ns.load(Ordering::Acquire) {
                return (at_ns > 0).then_some(Reading { value, at_ns });
            }
        }
    }

    /// Returns the highest value of this CPU since the last call; `None` if there was none. So a caller that calls this
    /// function rarely misses no peak.
    pub fn take_peak(&self, cpu: u32) -> Option<f64> {
        let peak = self.words[cpu as usize].peak.swap(0, Ordering::AcqRel);
        peak.checked_sub(1).map(value_from_fixed_point)
    }

    /// Returns the counts of this CPU since its counters were opened.
    pub fn counts(&self, cpu: u32) -> InterferenceCounts {
        self.words[cpu as usize].counts()
    }

    /// Returns the descriptor of the ring of crossings, to poll for input.
    pub fn event_fd(&self) -> BorrowedFd<'_> {
        self.crossings.fd()
    }

    /// Returns whether a value has crossed its threshold since the last call of [`Interference::report_crossings`].
    /// Costs no system call.
    pub fn has_pending_crossing(&self) -> bool {
        self.cpus.iter().any(|cpu| self.words[cpu as usize].rung.load(Ordering::Acquire) == 1)
    }

    /// Takes the wakeup: reports each CPU whose value has crossed its threshold since the last call.
    pub fn report_crossings(&mut self, mut report: impl FnMut(Crossing)) {
        // Every CPU is checked, since the wakeup does not say which one crossed.
        let _ = self.crossings.take();
        for (cpu, told) in &mut self.told {
            let word = &self.words[*cpu as usize];
            // The swap is a full barrier: a later crossing wakes the reader again, and an earlier crossing is read
            // below.
            if word.rung.load(Ordering::Acquire) == 1 {
                word.rung.swap(0, Ordering::SeqCst);
            }
            let (crossings, above, at_ns) = word.crossing_state();
            if crossings != *told {
                let value = value_from_fixed_point(word.value.load(Ordering::Acquire));
                report(Crossing { cpu: *cpu, above, at_ns, value, times: crossings - *told });
                *told = crossings;
            }
        }
    }

    /// Waits for a wakeup, and takes it. Returns whether it came in time.
    pub fn wait_for_crossing(&mut self, timeout: Duration, report: impl FnMut(Crossing)) -> io::Result<bool> {
        let timeout = Timespec { tv_sec: timeout.as_secs() as _, tv_nsec: timeout.subsec_nanos().into() };
        let crossings = self.event_fd();
        let rang = poll(&mut [PollFd::new(&crossings, PollFlags::IN)], Some(&timeout))? > 0;
        if rang {
            self.report_crossings(report);
        }
        Ok(rang)
    }
}

impl Drop for Interference {
    fn drop(&mut self) {
        for cpu in self.cpus.iter() {
            self.words[cpu as usize].event_count.store(0, Ordering::Release);
            (0..EVENTS_MAX).for_each(|place| drop(self.events.delete(&event_map_key(cpu, place))));
        }
    }
}

/// Returns the index of one event of a CPU in the map of all events.
fn event_map_key(cpu: u32, event_index: usize) -> [u8; 4] {
    (cpu * EVENTS_MAX as u32 + event_index as u32).to_ne_bytes()
}

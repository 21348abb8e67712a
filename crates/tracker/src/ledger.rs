//! The ledger of batch lanes: all of their time, by what had the lane, beside the idle service and beside the busy one.
//!
//! The kernel program keeps one for each batch lane, at its context switches (`bpf/lane/ledger.h`). Interrupt time is
//! read from the kernel's own statistics of the CPU. Most kernels keep them to the nanosecond
//! (`CONFIG_IRQ_TIME_ACCOUNTING`). Others charge a whole timer tick to an interrupt that the tick meets.

use std::array;
use std::collections::BTreeMap;
use std::fmt;
use std::iter::Sum;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::time::Duration;

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Var;

use sidelane_formats::{LaneClass, LaneWord};
use sidelane_host::procfs::printable_name;

use crate::kernel_types::{LaneLedger, LanePrograms, LaneStats};
use crate::stolen::offset_from_run_queue;

/// Offset of `cpustat[CPUTIME_SOFTIRQ]` in a CPU's `kernel_cpustat`, in bytes; `cpustat[CPUTIME_IRQ]` follows.
const SOFTIRQ_OFFSET: i64 = 3 * 8;

/// Number of places for kinds of turns, as in `bpf/lanes.h`.
const KINDS: usize = 16;

/// Reads of a ledger that a context switch changes, without a pause and in all. A host may halt the CPU that writes, for
/// milliseconds; the last reads wait for it.
const SPINS: usize = 8;
const READS_MAX: usize = SPINS + 100;
const PAUSE: Duration = Duration::from_micros(100);

/// Kind of a turn on a batch lane: `enum sidelane_turn_kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum TurnKind {
    /// Batch, on a lane that is not lent.
    Batch,
    /// Batch, on a lent lane.
    Lent,
    /// The lane's holder.
    Holder,
    /// No thread.
    Empty,
    /// No thread, from an eviction of batch until its next turn.
    Away,
    /// The service.
    Service,
    /// A `kworker` thread.
    Worker,
    /// `ksoftirqd`, or the thread of an interrupt.
    Interrupt,
    /// Another kernel thread.
    Kernel,
    /// A program that is neither the service's nor batch's.
    Program,
    /// No thread, because batch is kept off whatever the service does.
    Apart,
}

impl LaneLedger {
    /// Begins the ledger and its first turn, of the lane `word` at `now_ns`, just before the lane becomes a batch lane. `busy_clock_ns`
    /// is the time that the service has needed the partner lanes. The turn's interrupts are not known.
    pub(crate) fn begin(&self, now_ns: u64, word: &LaneWord, stats: &LaneStats, busy_clock_ns: u64) {
        let turn = match word.class() {
            Ok(LaneClass::Lc) => TurnKind::Service,
            Ok(LaneClass::Batch) => TurnKind::Batch,
            Ok(LaneClass::Other) => TurnKind::Program,
            Ok(LaneClass::Idle) | Err(_) => TurnKind::Empty,
        };
        self.since_ns.store(0, Ordering::Release);
        self.away.store(0, Ordering::Release);
        let times = self.idle_ns.iter().chain(&self.busy_ns).chain(&self.interrupts_ns).chain(&self.stolen_ns);
        times.for_each(|ns| ns.store(0, Ordering::Release));
        self.busy_mark_ns.store(busy_clock_ns, Ordering::Release);
        self.stolen_mark_ns.store(stats.stolen_seen_ns.load(Ordering::Acquire), Ordering::Release);
        self.interrupts_mark_ns.store(u64::MAX, Ordering::Release);
        self.turn.store(turn as u32, Ordering::Release);
        self.since_ns.store(now_ns, Ordering::Release);
    }

    /// Returns the times until now, with the present turn. `clocks` returns the present time, and the time that the
    /// service has needed the partner lanes until then. It is asked after the turn has been read: a reader that loses its
    /// CPU in between would count the turns that ended after its time.
    pub(crate) fn read(&self, clocks: impl Fn() -> (u64, u64)) -> LedgerTimes {
        for read in 0..READS_MAX {
            if let Some(times) = self.read_once(&clocks) {
                return times;
            }
            match read < SPINS {
                true => std::hint::spin_loop(),
                false => std::thread::sleep(PAUSE),
            }
        }
        self.ended_turns(clocks().0)
    }

    /// Reads the ledger once; `None` if a context switch changed it during the read.
    fn read_once(&self, clocks: impl Fn() -> (u64, u64)) -> Option<LedgerTimes> {
        let since_ns = self.since_ns.load(Ordering::Acquire);
        let kind = self.turn.load(Ordering::Acquire) as usize % KINDS;
        let busy_mark_ns = self.busy_mark_ns.load(Ordering::Acquire);
        let (now_ns, busy_clock_ns) = clocks();
        let mut times = self.ended_turns(now_ns);
        if since_ns != self.since_ns.load(Ordering::Acquire) {
            return None;
        }
        if since_ns == 0 {
            // Either there was no switch yet, or the ledger is being written.
            return (times.all_ns() == 0).then_some(times);
        }
        let turn_ns = now_ns.saturating_sub(since_ns);
        let busy_ns = busy_clock_ns.saturating_sub(busy_mark_ns).min(turn_ns);
        times.idle_ns[kind] += turn_ns - busy_ns;
        times.busy_ns[kind] += busy_ns;
        Some(times)
    }

    fn ended_turns(&self, wall_ns: u64) -> LedgerTimes {
        LedgerTimes {
            wall_ns,
            idle_ns: self.idle_ns.each_ref().map(|ns| ns.load(Ordering::Acquire)),
            busy_ns: self.busy_ns.each_ref().map(|ns| ns.load(Ordering::Acquire)),
            interrupts_ns: self.interrupts_ns.each_ref().map(|ns| ns.load(Ordering::Acquire)),
            stolen_ns: self.stolen_ns.each_ref().map(|ns| ns.load(Ordering::Acquire)),
        }
    }
}

impl LanePrograms {
    /// Forgets all programs, just before the lane becomes a batch lane.
    pub(crate) fn begin(&self) {
        for slot in &self.slots {
            slot.name.iter().chain([&slot.idle_ns]).for_each(|part| part.store(0, Ordering::Release));
        }
    }

    /// Returns the times of other programs beside the idle service, by name.
    pub(crate) fn read(&self) -> BTreeMap<String, u64> {
        let slots = self.slots.iter().filter(|slot| slot.name[0].load(Ordering::Acquire) != 0);
        let named = slots.map(|slot| {
            let name: Vec<u8> = slot.name.iter().flat_map(|part| part.load(Ordering::Relaxed).to_ne_bytes()).collect();
            let length = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
            (printable_name(&name[..length]), slot.idle_ns.load(Ordering::Relaxed))
        });
        named.collect()
    }
}

/// Times of one or several batch lanes, by kind of turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LedgerTimes {
    /// Time up to which the lane was read; time that has passed, for a time span and for several lanes.
    wall_ns: u64,
    idle_ns: [u64; KINDS],
    busy_ns: [u64; KINDS],
    /// Time of interrupts and softirqs, beside the idle and the busy service.
    interrupts_ns: [u64; 2],
    /// Steal time, beside the idle and the busy service.
    stolen_ns: [u64; 2],
}

impl LedgerTimes {
    /// Returns the time of turns of `kind` beside the idle service.
    pub fn idle_ns(&self, kind: TurnKind) -> u64 {
        self.idle_ns[kind as usize]
    }

    /// Returns the time of turns of `kind` beside the busy service.
    pub fn busy_ns(&self, kind: TurnKind) -> u64 {
        self.busy_ns[kind as usize]
    }

    /// Returns the time of the kernel's threads beside the idle service.
    fn idle_kernel_ns(&self) -> u64 {
        [TurnKind::Worker, TurnKind::Interrupt, TurnKind::Kernel].map(|kind| self.idle_ns(kind)).iter().sum()
    }

    /// Returns the time of the kernel's threads beside the busy service.
    pub fn busy_kernel_ns(&self) -> u64 {
        [TurnKind::Worker, TurnKind::Interrupt, TurnKind::Kernel].map(|kind| self.busy_ns(kind)).iter().sum()
    }

    /// Returns the time of interrupts and softirqs beside the busy service.
    pub fn busy_interrupts_ns(&self) -> u64 {
        self.interrupts_ns[1]
    }

    /// Returns the steal time beside the idle service.
    fn idle_stolen_ns(&self) -> u64 {
        self.stolen_ns[0]
    }

    /// Returns the time in which batch could run with permission: the lane was neither the service's nor held for it.
    /// Other programs there compete with batch.
    pub fn open_ns(&self) -> u64 {
        let closed = [TurnKind::Holder, TurnKind::Away, TurnKind::Apart, TurnKind::Service];
        let closed_ns: u64 = closed.map(|kind| self.idle_ns(kind)).iter().sum();
        let idle_ns = self.all_idle_ns().saturating_sub(closed_ns + self.idle_stolen_ns());
        idle_ns + self.busy_ns(TurnKind::Lent)
    }

    /// Returns all time in the accounts.
    pub fn all_ns(&self) -> u64 {
        self.all_idle_ns() + self.all_busy_ns()
    }

    /// Returns all steal time.
    pub fn stolen_ns(&self) -> u64 {
        self.stolen_ns.iter().sum()
    }

    /// Returns all time beside the idle service.
    pub fn all_idle_ns(&self) -> u64 {
        self.idle_ns.iter().sum::<u64>() + self.interrupts_ns[0] + self.stolen_ns[0]
    }

    /// Returns all time beside the busy service.
    pub fn all_busy_ns(&self) -> u64 {
        self.busy_ns.iter().sum::<u64>() + self.interrupts_ns[1] + self.stolen_ns[1]
    }

    /// Returns the times since `earlier`. They add up to the time that has passed.
    ///
    /// The turn that was present at `earlier` was read as if nothing were taken from it. At its end the kernel program
    /// entered a part of it under steal time or interrupts. If the turn's account has shrunk by this, as much of the
    /// other accounts is from before `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut times = self.combine(earlier, u64::saturating_sub);
        let take = |account: &mut u64, early_ns: &mut u64| {
            let taken_ns = (*account).min(*early_ns);
            *account -= taken_ns;
            *early_ns -= taken_ns;
        };
        for kind in 0..KINDS {
            let idle_ns = earlier.idle_ns[kind].saturating_sub(self.idle_ns[kind]);
            let busy_ns = earlier.busy_ns[kind].saturating_sub(self.busy_ns[kind]);
            for (mut early_ns, beside) in [(idle_ns, [0, 1]), (busy_ns, [1, 0])] {
                for beside in beside {
                    take(&mut times.stolen_ns[beside], &mut early_ns);
                    take(&mut times.interrupts_ns[beside], &mut early_ns);
                }
                // The service was busy for longer, or for less, than was read.
                take(&mut times.idle_ns[kind], &mut early_ns);
                take(&mut times.busy_ns[kind], &mut early_ns);
            }
        }
        times
    }

    fn combine(&self, other: &Self, operation: impl Fn(u64, u64) -> u64) -> Self {
        fn each<const N: usize>(a: &[u64; N], b: &[u64; N], operation: impl Fn(u64, u64) -> u64) -> [u64; N] {
            array::from_fn(|index| operation(a[index], b[index]))
        }
        Self {
            wall_ns: operation(self.wall_ns, other.wall_ns),
            idle_ns: each(&self.idle_ns, &other.idle_ns, &operation),
            busy_ns: each(&self.busy_ns, &other.busy_ns, &operation),
            interrupts_ns: each(&self.interrupts_ns, &other.interrupts_ns, &operation),
            stolen_ns: each(&self.stolen_ns, &other.stolen_ns, &operation),
        }
    }
}

/// What had a batch lane while the service was idle.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum IdleUse {
    /// Batch.
    Batch,
    /// No thread: batch had nothing to run.
    NoBatch,
    /// The holder, until the service had been idle for long enough.
    Threshold,
    /// The holder, from its decision until batch runs, and after a summons that came too late.
    Switching,
    /// No thread: batch was evicted, and was not back yet.
    Evicted,
    /// The holder or no thread: batch was kept off, to compare requests with and without it.
    Comparing,
    /// The program with this thread name.
    Program(String),
    /// Other programs, of which the kernel program keeps no name.
    OtherPrograms,
    /// Threads of the kernel.
    Kernel,
    /// Interrupts and softirqs.
    Interrupts,
    /// Threads of the service.
    Service,
    /// Another guest of the hypervisor (steal time).
    Stolen,
}

impl fmt::Display for IdleUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Batch => "batch",
            Self::NoBatch => "batch had nothing to run",
            Self::Threshold => "waiting for a longer pause",
            Self::Switching => "switching to batch",
            Self::Evicted => "batch evicted or coming back",
            Self::Comparing => "comparing without batch",
            Self::Program(name) => name,
            Self::OtherPrograms => "other programs",
            Self::Kernel => "kernel threads",
            Self::Interrupts => "interrupts",
            Self::Service => "the service",
            Self::Stolen => "stolen by the host",
        })
    }
}

/// Account of all time of some batch lanes. Every moment is in one of its parts.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// Times of all lanes together, as the kernel program has entered them.
    pub times: LedgerTimes,
    /// Times of other programs beside the idle service, by the name of the thread.
    pub programs: BTreeMap<String, u64>,
    /// Time for which holders waited beside the idle service for the end of the idle threshold.
    pub threshold_ns: u64,
    /// Time for which holders kept batch off beside the idle service, to compare requests.
    pub comparing_ns: u64,
}

impl Ledger {
    /// Returns what had the lanes beside the idle service, with the time of each use. The times add up to all of it.
    pub fn idle_uses(&self) -> Vec<(IdleUse, u64)> {
        let idle = |kind| self.times.idle_ns(kind);
        let holder_ns = idle(TurnKind::Holder);
        let threshold_ns = self.threshold_ns.min(holder_ns);
        let comparing_ns = self.comparing_ns.min(holder_ns - threshold_ns);
        let named_ns: u64 = self.programs.values().sum();
        let uses = [
            (IdleUse::Batch, idle(TurnKind::Batch) + idle(TurnKind::Lent)),
            (IdleUse::NoBatch, idle(TurnKind::Empty)),
            (IdleUse::Threshold, threshold_ns),
            (IdleUse::Switching, holder_ns - threshold_ns - comparing_ns),
            (IdleUse::Evicted, idle(TurnKind::Away)),
            (IdleUse::Comparing, comparing_ns + idle(TurnKind::Apart)),
            (IdleUse::OtherPrograms, idle(TurnKind::Program).saturating_sub(named_ns)),
            (IdleUse::Kernel, self.times.idle_kernel_ns()),
            (IdleUse::Interrupts, self.times.interrupts_ns[0]),
            (IdleUse::Service, idle(TurnKind::Service)),
            (IdleUse::Stolen, self.times.stolen_ns[0]),
        ];
        let programs = self.programs.iter().map(|(name, ns)| (IdleUse::Program(name.clone()), *ns));
        uses.into_iter().chain(programs).filter(|(_, ns)| *ns > 0).collect()
    }

    /// Returns the share of the service's idle time, without steal time, that batch or another program, a kernel thread
    /// or an interrupt used, in percent. The rest is what Sidelane left unused.
    pub fn used_percent(&self) -> Option<f64> {
        let unused = [IdleUse::NoBatch, IdleUse::Threshold, IdleUse::Switching, IdleUse::Evicted, IdleUse::Comparing];
        let idle_ns = self.times.all_idle_ns() - self.times.idle_stolen_ns();
        let unused_ns: u64 = self.idle_uses().iter().filter(|(name, _)| unused.contains(name)).map(|(_, ns)| ns).sum();
        percent(idle_ns.saturating_sub(unused_ns), idle_ns)
    }

    /// Returns the ledger of all time since the lanes became batch lanes; `self` is of the time up to now.
    pub fn since_begin(mut self) -> Self {
        self.times.wall_ns = self.times.all_ns();
        self
    }

    /// Returns the share of the time in which the service was idle, in percent.
    pub fn idle_percent(&self) -> Option<f64> {
        percent(self.times.all_idle_ns(), self.times.wall_ns)
    }

    /// Returns the share of the service's idle time, without steal time, that batch used, in percent.
    pub fn batch_percent(&self) -> Option<f64> {
        let batch_ns = self.times.idle_ns(TurnKind::Batch) + self.times.idle_ns(TurnKind::Lent);
        percent(batch_ns, self.times.all_idle_ns() - self.times.idle_stolen_ns())
    }

    /// Returns all accounts. Their times add up to all time of the lanes.
    pub fn accounts(&self) -> [Account; 19] {
        let uses = self.idle_uses();
        let idle = |kind, key, is_meant: fn(&IdleUse) -> bool| {
            let ns = uses.iter().filter(|(name, _)| is_meant(name)).map(|(_, ns)| ns).sum();
            Account { beside: "idle", kind, key, ns }
        };
        let busy = |kind, key, ns| Account { beside: "busy", kind, key, ns };
        let turns = |kinds: &[TurnKind]| kinds.iter().map(|kind| self.times.busy_ns(*kind)).sum::<u64>();
        let held_ns = turns(&[TurnKind::Holder, TurnKind::Empty, TurnKind::Away, TurnKind::Apart]);
        let is_program = |name: &IdleUse| matches!(name, IdleUse::Program(_) | IdleUse::OtherPrograms);
        [
            idle("batch", "idle_batch_percent", |name| *name == IdleUse::Batch),
            idle("no_batch", "idle_no_batch_percent", |name| *name == IdleUse::NoBatch),
            idle("threshold", "idle_threshold_percent", |name| *name == IdleUse::Threshold),
            idle("switching", "idle_switching_percent", |name| *name == IdleUse::Switching),
            idle("evicted", "idle_evicted_percent", |name| *name == IdleUse::Evicted),
            idle("comparing", "idle_comparing_percent", |name| *name == IdleUse::Comparing),
            idle("programs", "idle_programs_percent", is_program),
            idle("kernel", "idle_kernel_percent", |name| *name == IdleUse::Kernel),
            idle("interrupts", "idle_interrupts_percent", |name| *name == IdleUse::Interrupts),
            idle("service", "idle_service_percent", |name| *name == IdleUse::Service),
            idle("stolen", "idle_stolen_percent", |name| *name == IdleUse::Stolen),
            busy("held", "busy_held_percent", held_ns),
            busy("batch", "busy_batch_percent", turns(&[TurnKind::Batch])),
            busy("lent", "busy_lent_percent", turns(&[TurnKind::Lent])),
            busy("programs", "busy_programs_percent", turns(&[TurnKind::Program])),
            busy("kernel", "busy_kernel_percent", self.times.busy_kernel_ns()),
            busy("interrupts", "busy_interrupts_percent", self.times.busy_interrupts_ns()),
            busy("service", "busy_service_percent", turns(&[TurnKind::Service])),
            busy("stolen", "busy_stolen_percent", self.times.stolen_ns[1]),
        ]
    }

    /// Returns the accounts under their names in results, in percent: those beside the idle service of its idle time,
    /// those beside the busy service of its busy time. The last figure is the sum of all accounts, of the time that has
    /// passed.
    pub fn figures(&self) -> impl Iterator<Item = (&'static str, Option<f64>)> {
        let (idle_ns, busy_ns) = (self.times.all_idle_ns(), self.times.all_busy_ns());
        let whole = [
            ("idle_percent", self.idle_percent()),
            ("idle_used_percent", self.used_percent()),
            ("ledger_percent", percent(idle_ns + busy_ns, self.times.wall_ns)),
        ];
        let share = move |account: Account| {
            let whole_ns = if account.beside == "idle" { idle_ns } else { busy_ns };
            (account.key, percent(account.ns, whole_ns))
        };
        self.accounts().into_iter().map(share).chain(whole)
    }
}

impl Sum for Ledger {
    /// Returns the accounts of several lanes, or of several times, in one ledger.
    fn sum<I: Iterator<Item = Self>>(ledgers: I) -> Self {
        ledgers.fold(Self::default(), |mut sum, one| {
            sum.times = sum.times.combine(&one.times, u64::saturating_add);
            sum.threshold_ns += one.threshold_ns;
            sum.comparing_ns += one.comparing_ns;
            for (name, ns) in one.programs {
                *sum.programs.entry(name).or_default() += ns;
            }
            sum
        })
    }
}

/// One account of a ledger.
#[derive(Clone, Copy, Debug)]
pub struct Account {
    /// What the service was: "idle" or "busy".
    pub beside: &'static str,
    /// What had the lane.
    pub kind: &'static str,
    /// Name of the account's share in results.
    pub key: &'static str,
    /// Time in the account.
    pub ns: u64,
}

/// Share of the idle time below which a use is not named, in percent.
const NAMED_PERCENT: f64 = 0.1;
/// Number of uses that a text names; the others are one sum.
const NAMED_MAX: usize = 6;

impl fmt::Display for Ledger {
    /// Writes the share of idle time and its uses, the longest first.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let idle_ns = self.times.all_idle_ns();
        let Some(idle_percent) = self.idle_percent().filter(|_| idle_ns > 0) else {
            return f.write_str("the service was never idle");
        };
        let mut uses = self.idle_uses();
        uses.sort_by_key(|(name, ns)| (*name != IdleUse::Batch, std::cmp::Reverse(*ns)));
        let shares = uses.iter().filter_map(|(name, ns)| Some((name, percent(*ns, idle_ns)?)));
        let shares: Vec<_> = shares.filter(|(_, share)| *share >= NAMED_PERCENT).collect();
        // One that is left could as well be named.
        let (named, others) = shares.split_at(if shares.len() > NAMED_MAX + 1 { NAMED_MAX } else { shares.len() });
        let mut named: Vec<String> = named.iter().map(|(name, share)| format!("{name} {share:.1} %")).collect();
        if !others.is_empty() {
            let share: f64 = others.iter().map(|(_, share)| share).sum();
            named.push(format!("{} others {share:.1} %", others.len()));
        }
        write!(f, "the service was idle for {idle_percent:.0} % of the time: {}", named.join(", "))
    }
}

fn percent(part_ns: u64, whole_ns: u64) -> Option<f64> {
    (whole_ns > 0).then(|| part_ns as f64 * 100.0 / whole_ns as f64)
}

/// Source of interrupt time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InterruptTimeSource {
    /// No source: the kernel's type information does not contain the place of its statistics.
    #[default]
    Unseen,
    /// Exact statistics, at this distance in bytes from the run queue.
    Exact(i64),
    /// Statistics that the timer tick samples, at this distance in bytes from the run queue.
    Ticks(i64),
}

impl InterruptTimeSource {
    /// Returns the source of interrupt time that this kernel has. The search takes place once.
    pub fn find() -> Self {
        static FOUND: OnceLock<InterruptTimeSource> = OnceLock::new();
        *FOUND.get_or_init(|| Self::find_in_btf().unwrap_or_default())
    }

    fn find_in_btf() -> Option<Self> {
        let kernel = Btf::from_vmlinux().ok()?;
        let offset = offset_from_run_queue(&kernel, "kernel_cpustat")? + SOFTIRQ_OFFSET;
        let is_exact = kernel.type_by_name::<Var<'_>>("cpu_irqtime").is_some();
        Some(if is_exact { Self::Exact(offset) } else { Self::Ticks(offset) })
    }

    /// Returns the distance in bytes from a CPU's run queue to its times in softirqs and interrupts; 0 if unknown.
    pub(crate) fn run_queue_offset(self) -> i64 {
        match self {
            Self::Unseen => 0,
            Self::Exact(offset) | Self::Ticks(offset) => offset,
        }
    }
}

impl fmt::Display for InterruptTimeSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unseen => "not seen by the kernel program",
            Self::Exact(_) => "exact",
            Self::Ticks(_) => "sampled by the timer tick (the kernel lacks CONFIG_IRQ_TIME_ACCOUNTING)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(idle: &[(TurnKind, u64)], busy: &[(TurnKind, u64)]) -> Ledger {
        let mut times = LedgerTimes::default();
        idle.iter().for_each(|(kind, ns)| times.idle_ns[*kind as usize] += ns);
        busy.iter().for_each(|(kind, ns)| times.busy_ns[*kind as usize] += ns);
        times.wall_ns = times.all_ns();
        Ledger { times, ..Ledger::default() }
    }

    #[test]
    fn uses_add_up_to_the_idle_time() {
        let mut ledger = ledger(
            &[
                (TurnKind::Batch, 900),
                (TurnKind::Lent, 10),
                (TurnKind::Holder, 50),
                (TurnKind::Program, 30),
                (TurnKind::Kernel, 7),
                (TurnKind::Apart, 3),
            ],
            &[(TurnKind::Holder, 1000)],
        );
        ledger.threshold_ns = 20;
        ledger.comparing_ns = 1_000;
        ledger.programs.insert("client".to_owned(), 25);
        let uses = ledger.idle_uses();
        assert_eq!(uses.iter().map(|(_, ns)| ns).sum::<u64>(), 1000);
        let find = |wanted: IdleUse| uses.iter().find(|(name, _)| *name == wanted).map(|(_, ns)| *ns);
        assert_eq!(find(IdleUse::Batch), Some(910));
        assert_eq!(find(IdleUse::Threshold), Some(20));
        assert_eq!(find(IdleUse::Comparing), Some(33), "the rest of the holder's time, and the empty lane");
        assert_eq!(find(IdleUse::Switching), None);
        assert_eq!(find(IdleUse::OtherPrograms), Some(5));
    }

    #[test]
    fn the_text_names_batch_first_and_then_the_longest_use() {
        let mut ledger = ledger(
            &[(TurnKind::Batch, 40), (TurnKind::Program, 50), (TurnKind::Empty, 10)],
            &[(TurnKind::Holder, 100)],
        );
        ledger.programs.insert("client".to_owned(), 50);
        assert_eq!(
            ledger.to_string(),
            "the service was idle for 50 % of the time: batch 40.0 %, client 50.0 %, batch had nothing to run 10.0 %"
        );
        assert_eq!(Ledger::default().to_string(), "the service was never idle");
    }

    #[test]
    fn a_present_turn_is_split_by_the_busy_clock() {
        let kernel = crate::kernel_types::zeroed::<LaneLedger>();
        kernel.turn.store(TurnKind::Holder as u32, Ordering::Relaxed);
        kernel.busy_mark_ns.store(300, Ordering::Relaxed);
        assert_eq!(kernel.read(|| (5_000, 400)).all_ns(), 0, "no switch yet");
        kernel.since_ns.store(1_000, Ordering::Relaxed);
        let times = kernel.read(|| (5_000, 1_300));
        assert_eq!((times.idle_ns(TurnKind::Holder), times.busy_ns(TurnKind::Holder)), (3_000, 1_000));
        let times = kernel.read(|| (5_000, 9_999));
        assert_eq!((times.idle_ns(TurnKind::Holder), times.busy_ns(TurnKind::Holder)), (0, 4_000));
    }

    #[test]
    fn a_turn_that_ends_during_the_read_is_read_again() {
        let kernel = crate::kernel_types::zeroed::<LaneLedger>();
        kernel.turn.store(TurnKind::Batch as u32, Ordering::Relaxed);
        kernel.since_ns.store(1_000, Ordering::Relaxed);
        let clocks = || {
            // At 4,000 the lane became empty.
            kernel.idle_ns[TurnKind::Batch as usize].store(3_000, Ordering::Relaxed);
            kernel.turn.store(TurnKind::Empty as u32, Ordering::Relaxed);
            kernel.since_ns.store(4_000, Ordering::Relaxed);
            (5_000, 0)
        };
        let times = kernel.read(clocks);
        assert_eq!((times.idle_ns(TurnKind::Batch), times.idle_ns(TurnKind::Empty)), (3_000, 1_000));
        assert_eq!((times.wall_ns, times.all_ns()), (5_000, 4_000), "the lane began at 1,000");
    }

    #[test]
    fn steal_time_from_before_a_time_span_is_not_in_it() {
        let kernel = crate::kernel_types::zeroed::<LaneLedger>();
        kernel.since_ns.store(1_000, Ordering::Relaxed);
        kernel.turn.store(TurnKind::Program as u32, Ordering::Relaxed);
        let earlier = kernel.read(|| (5_000, 0));
        assert_eq!(earlier.idle_ns(TurnKind::Program), 4_000);
        // The turn ended at 6,000: the host had 1,500 of it, interrupts 200. Then batch ran.
        kernel.idle_ns[TurnKind::Program as usize].store(3_300, Ordering::Relaxed);
        kernel.stolen_ns[0].store(1_500, Ordering::Relaxed);
        kernel.interrupts_ns[0].store(200, Ordering::Relaxed);
        kernel.turn.store(TurnKind::Batch as u32, Ordering::Relaxed);
        kernel.since_ns.store(6_000, Ordering::Relaxed);
        let times = kernel.read(|| (9_000, 0)).since(&earlier);
        assert_eq!((times.wall_ns, times.all_ns()), (4_000, 4_000));
        assert_eq!((times.idle_ns(TurnKind::Program), times.idle_ns(TurnKind::Batch)), (0, 3_000));
        assert_eq!((times.idle_stolen_ns(), times.interrupts_ns[0]), (800, 200));
        // The turn was beside the busy service, as it turned out.
        kernel.idle_ns[TurnKind::Program as usize].store(0, Ordering::Relaxed);
        kernel.busy_ns[TurnKind::Program as usize].store(5_000, Ordering::Relaxed);
        kernel.stolen_ns[0].store(0, Ordering::Relaxed);
        kernel.interrupts_ns[0].store(0, Ordering::Relaxed);
        let times = kernel.read(|| (9_000, 0)).since(&earlier);
        assert_eq!((times.all_ns(), times.busy_ns(TurnKind::Program)), (4_000, 1_000));
    }

    #[test]
    fn a_switch_whose_cpu_the_host_halts_is_waited_for() {
        let kernel = crate::kernel_types::zeroed::<LaneLedger>();
        // The turn before is entered, and the present one is yet to begin.
        kernel.idle_ns[TurnKind::Batch as usize].store(3_000, Ordering::Relaxed);
        let reads = std::cell::Cell::new(0);
        let clocks = || {
            reads.set(reads.get() + 1);
            if reads.get() == 2 * SPINS {
                kernel.turn.store(TurnKind::Empty as u32, Ordering::Relaxed);
                kernel.since_ns.store(4_000, Ordering::Relaxed);
            }
            (5_000, 0)
        };
        let times = kernel.read(clocks);
        assert_eq!((times.idle_ns(TurnKind::Batch), times.idle_ns(TurnKind::Empty)), (3_000, 1_000));
    }
}

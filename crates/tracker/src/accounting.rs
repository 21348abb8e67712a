//! The kernel program's accounting: run times on each lane, overlap, reactions.
//!
//! The kernel program keeps it for each lane ([`LaneStats`]). An [`Accounting`] is a copy of all lanes at one moment,
//! including the turns that still last. The difference of two copies is the accounting of the time in between.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use sidelane_formats::{GateWord, HoldState, HoldWord, LaneWord};

use crate::gate_accounting::{GateAccounting, apply_gate_claims};
use crate::histogram::{BUCKETS, Histogram};
use crate::kernel_types::{LaneLedger, LanePrograms, LaneStats};
use crate::ledger::{Ledger, LedgerTimes};
use crate::stolen::StealTimeSource;
use sidelane_host::clock::now_ns;
use sidelane_host::cpulist::CpuSet;
use sidelane_host::topology::Lanes;
use sidelane_policy::borrow::promise::Overlap;

/// Limit of the reads of a lane's statistics until two in a row agree. A context switch is much shorter than a read.
const LOOKS_MAX: usize = 8;

/// Duration from which a reaction that still lasts is counted; equals the constant in `bpf/lane/alarm.h`.
const UNANSWERED_NS: u64 = 2_000_000;

/// Accounting of one lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneAccounting {
    /// Number of context switches.
    pub switches: u64,
    /// Number of context switches to a thread of the service.
    pub lc_switches: u64,
    /// Time that threads of the service ran, without steal time.
    pub lc_ns: u64,
    /// Time that batch ran, without steal time.
    pub batch_ns: u64,
    /// Time that the hypervisor took from the lane (steal time).
    pub stolen_ns: u64,
    /// Time that the hypervisor took from threads of the service.
    pub stolen_lc_ns: u64,
    /// Time that the hypervisor took from batch.
    pub stolen_batch_ns: u64,
    /// Longest time that the hypervisor took between two looks of the kernel program, since tracking began.
    pub stolen_gap_max_ns: u64,
    /// Time that batch ran without permission, while a thread of the service ran on a partner lane.
    pub overlap_ns: u64,
    /// Time that batch ran on the budget of a request, while a thread of the service ran on a partner lane.
    pub lent_overlap_ns: u64,
    /// Number of times that batch was switched in although the lane was held.
    pub leaks: u64,
    /// Number of times that batch was switched in on a lane that is not a batch lane.
    pub batch_strays: u64,
    /// Number of times that the service was switched in on a lane that is not a request lane.
    pub lc_strays: u64,
    /// Number of switches that the kernel did not report. The time of the new thread is then counted for the thread
    /// before.
    pub untold: u64,
    /// Time of the kernel program itself in the sampled switches.
    pub cost_ns: u64,
    /// Number of switches in which the kernel program's own time was sampled.
    pub cost_samples: u64,
    /// Number of summonses sent to the lane's holder.
    pub summons: u64,
    /// Number of summonses that a request lane sent, at its own cost.
    pub lc_summons: u64,
    /// Accounting of self-checking batch; the times above are corrected by it.
    pub gate: GateAccounting,
    /// All time of a batch lane, by what had it.
    pub ledger: LedgerTimes,
    /// Time for which the holder waited until the service had been idle for long enough.
    pub threshold_ns: u64,
    /// Time of the holder beside the idle service while batch was kept off.
    pub comparing_ns: u64,
    /// Naps and permitted time that batch claims beyond its own run time. If there are any, no time above is corrected
    /// by batch's claims.
    pub unbelieved_ns: u64,
}

/// Accounting of all lanes at one moment, or (after [`Accounting::since`]) of a time span.
#[derive(Clone, Debug)]
pub struct Accounting {
    /// Time of the copy, or length of the time span.
    pub at_ns: u64,
    lanes: Vec<LaneAccounting>,
    /// Times of other programs on each lane beside the idle service, by the name of the thread.
    programs: Vec<BTreeMap<String, u64>>,
    stolen_from: StealTimeSource,
    /// Reactions from the service's start to batch off its lane, as recorded by the kernel program.
    ended_off: Histogram,
    /// Recorded reactions, with the reactions that still last.
    off: Histogram,
    on: Histogram,
}

impl Accounting {
    /// Reads the accounting of all lanes. `partners(cpu)` are the request lanes of the batch lane `cpu`.
    pub fn read<'a>(
        words: &'a [LaneWord],
        holds: impl Iterator<Item = &'a HoldWord> + Clone,
        gates: &'a [GateWord],
        (stats, ledgers, programs): (&'a [LaneStats], &'a [LaneLedger], &'a [LanePrograms]),
        stolen_from: StealTimeSource,
        partners: impl Fn(usize) -> &'a [u32],
    ) -> Self {
        let at_ns = now_ns();
        let (mut clocks_ns, mut busy_since_ns) = (Vec::new(), Vec::new());
        for word in words {
            clocks_ns.push(word.snapshot().map_or(0, |seen| seen.service_time_ns(at_ns)));
            busy_since_ns.push(word.busy().then(|| word.busy_since_ns.load(Ordering::Acquire)));
        }
        let busy_clock_ns = |cpu: usize, at_ns| stats[cpu].busy_clock_ns(&words[cpu], at_ns);
        let holds_again = holds.clone();
        let beside_ns = |cpu| partners(cpu).iter().map(|request| clocks_ns[*request as usize]).sum();
        let lanes = stats.iter().zip(holds).enumerate();
        let lanes = lanes.map(|(cpu, (stats, hold))| {
            let seen = stats.read(&gates[cpu], at_ns, clocks_ns[cpu], beside_ns(cpu));
            let [summons, lc_summons, threshold_ns, comparing_ns] =
                [&hold.summons, &hold.lc_summons, &hold.threshold_ns, &hold.comparing_ns]
                    .map(|value| value.load(Ordering::Relaxed));
            let ledger = ledgers[cpu].read(|| {
                let at_ns = now_ns();
                (at_ns, partners(cpu).iter().map(|request| busy_clock_ns(*request as usize, at_ns)).sum())
            });
            LaneAccounting { summons, lc_summons, ledger, threshold_ns, comparing_ns, ..seen }
        });
        let mut lasting = Histogram::default();
        for (cpu, (stats, hold)) in stats.iter().zip(holds_again).enumerate() {
            let partners = partners(cpu).iter().map(|request| busy_since_ns[*request as usize]);
            stats.unfinished_reactions_ns(hold, partners, at_ns).for_each(|ns| lasting.record(ns));
        }
        let (ended_off, off, on) = Default::default();
        let programs = programs.iter().map(LanePrograms::read).collect();
        let mut accounting = Self { at_ns, lanes: lanes.collect(), programs, stolen_from, ended_off, off, on };
        for stats in stats {
            accounting.ended_off.add(&histogram(&stats.off_hist));
            accounting.on.add(&histogram(&stats.on_hist));
        }
        for gate in gates {
            accounting.ended_off.add(&histogram(&gate.off_hist));
            accounting.on.add(&histogram(&gate.on_hist));
        }
        accounting.off = accounting.ended_off.clone();
        accounting.off.add(&lasting);
        accounting
    }

    /// Returns the accounting of the time since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        let lanes = self.lanes.iter().zip(&earlier.lanes);
        Self {
            at_ns: self.at_ns - earlier.at_ns,
            lanes: lanes.map(|(now, then)| now.since(then)).collect(),
            programs: self.programs.iter().zip(&earlier.programs).map(|(now, then)| times_since(now, then)).collect(),
            stolen_from: self.stolen_from,
            off: self.off.since(&earlier.ended_off),
            ended_off: self.ended_off.since(&earlier.ended_off),
            on: self.on.since(&earlier.on),
        }
    }

    /// Adds overlap on the batch lane `cpu` that the kernel program could not see.
    pub fn count_lent_as_overlap(&mut self, cpu: u32, overlap_ns: u64) {
        if let Some(lane) = self.lanes.get_mut(cpu as usize) {
            let late_ns = overlap_ns.min(lane.lent_overlap_ns);
            lane.lent_overlap_ns -= late_ns;
            lane.overlap_ns += late_ns;
        }
    }

    /// Returns the accounting of one lane.
    pub fn lane(&self, cpu: u32) -> LaneAccounting {
        self.lanes.get(cpu as usize).copied().unwrap_or_default()
    }

    /// Returns the accounting of self-checking batch, lane by lane.
    pub fn gates(&self) -> impl Iterator<Item = GateAccounting> + '_ {
        self.lanes.iter().map(|lane| lane.gate)
    }

    /// Returns the ledger of some batch lanes.
    pub fn ledger(&self, batch_lanes: &CpuSet) -> Ledger {
        let of_lane = |cpu: u32| {
            let LaneAccounting { ledger: times, threshold_ns, comparing_ns, .. } = self.lane(cpu);
            let programs = self.programs.get(cpu as usize).cloned().unwrap_or_default();
            Ledger { times, programs, threshold_ns, comparing_ns }
        };
        batch_lanes.iter().map(of_lane).sum()
    }

    /// Returns one figure summed over all CPUs. Batch can make some figures as large as it likes, so the sum saturates.
    pub fn sum(&self, figure: impl Fn(&LaneAccounting) -> u64) -> u64 {
        self.lanes.iter().map(figure).fold(0, u64::saturating_add)
    }

    fn sum_over_lanes(&self, lanes: &Lanes, figure: impl Fn(&LaneAccounting) -> u64) -> u64 {
        lane_cpus(lanes).iter().map(|cpu| figure(&self.lane(*cpu))).sum()
    }

    /// Returns the reactions from the service's start on a request lane to batch off its batch lane.
    pub fn batch_off_latencies(&self) -> &Histogram {
        &self.off
    }

    /// Returns the reactions from the service's stop to batch back on a lane that was held for it.
    pub fn batch_on_latencies(&self) -> &Histogram {
        &self.on
    }

    /// Returns the time that the service ran on the request lanes.
    pub fn service_ns(&self, lanes: &Lanes) -> u64 {
        lanes.request_lanes.iter().map(|cpu| self.lane(cpu).lc_ns).sum()
    }

    /// Returns the time that batch ran on the batch lanes.
    pub fn batch_ns(&self, lanes: &Lanes) -> u64 {
        lanes.batch.iter().map(|lane| self.lane(lane.cpu).batch_ns).sum()
    }

    /// Returns the time that batch ran beside the service on a request's budget, in percent of the service's time.
    pub fn lent_overlap_percent(&self, lanes: &Lanes) -> Option<f64> {
        percent(self.sum_over_lanes(lanes, |lane| lane.lent_overlap_ns), self.service_ns(lanes))
    }

    /// Returns the figures by which the overlap promise of these lanes is judged.
    pub fn overlap(&self, lanes: &Lanes) -> Overlap {
        Overlap {
            service_ns: self.service_ns(lanes),
            overlap_ns: self.sum_over_lanes(lanes, |lane| lane.overlap_ns),
            turns: lanes.request_lanes.iter().map(|cpu| self.lane(cpu).lc_switches).sum(),
        }
    }

    /// Returns the time that batch ran beside the service without permission, in percent of the service's time.
    pub fn overlap_percent(&self, lanes: &Lanes) -> Option<f64> {
        percent(self.sum_over_lanes(lanes, |lane| lane.overlap_ns), self.service_ns(lanes))
    }

    /// Returns the time that the hypervisor took from the lanes, in percent of their time. `None` without a source of
    /// steal time.
    pub fn stolen_percent(&self, lanes: &Lanes) -> Option<f64> {
        let all = lane_cpus(lanes);
        let stolen_ns = all.iter().map(|cpu| self.lane(*cpu).stolen_ns).sum();
        percent(stolen_ns, self.at_ns * all.len() as u64).filter(|_| self.stolen_from != StealTimeSource::Unseen)
    }

    /// Returns the longest time that the hypervisor took from a lane at once, in µs. `None` without a source of steal
    /// time.
    pub fn stolen_gap_max_us(&self, lanes: &Lanes) -> Option<f64> {
        let longest_ns = lane_cpus(lanes).iter().map(|cpu| self.lane(*cpu).stolen_gap_max_ns).max();
        longest_ns.filter(|_| self.stolen_from != StealTimeSource::Unseen).map(|ns| ns as f64 / 1e3)
    }

    /// Returns the source of steal time.
    pub fn steal_time_source(&self) -> StealTimeSource {
        self.stolen_from
    }

    /// Returns the share of the service's idle time, without steal time, in which batch ran on its lanes, in percent.
    pub fn batch_share_of_idle_percent(&self, lanes: &Lanes) -> Option<f64> {
        self.ledger(&lanes.batch_cpus()).batch_percent()
    }

    /// Returns the mean time of the kernel program in a context switch, from sampled switches; `None` without a sample.
    pub fn cost_per_switch_ns(&self) -> Option<f64> {
        let samples = self.sum(|lane| lane.cost_samples);
        (samples > 0).then(|| self.sum(|lane| lane.cost_ns) as f64 / samples as f64)
    }
}

/// Returns the percentiles of both reaction histograms, under their names in results.
pub fn reaction_percentiles(batch_off: &Histogram, batch_on: &Histogram) -> [(&'static str, Option<f64>); 4] {
    let percentile = |histogram: &Histogram, p| histogram.percentile_ns(p).map(|ns| ns as f64);
    [
        ("reaction_off_p50_ns", percentile(batch_off, 50.0)),
        ("reaction_off_p99_ns", percentile(batch_off, 99.0)),
        ("reaction_on_p50_ns", percentile(batch_on, 50.0)),
        ("reaction_on_p99_ns", percentile(batch_on, 99.0)),
    ]
}

/// Returns the longest reaction and the number of reactions, under their names in results.
pub fn reaction_max_and_count(batch_off: &Histogram) -> [(&'static str, Option<f64>); 2] {
    [
        ("reaction_off_max_ns", batch_off.percentile_ns(100.0).map(|ns| ns as f64)),
        ("reactions_off_count", Some(batch_off.count() as f64)),
    ]
}

fn times_since(now: &BTreeMap<String, u64>, then: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let since = now.iter().map(|(name, ns)| (name.clone(), ns.saturating_sub(then.get(name).copied().unwrap_or(0))));
    since.filter(|(_, ns)| *ns > 0).collect()
}

fn lane_cpus(lanes: &Lanes) -> Vec<u32> {
    lanes.request_lanes.iter().chain(lanes.batch.iter().map(|lane| lane.cpu)).collect()
}

fn percent(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 * 100.0 / whole as f64)
}

fn histogram(counts: &[AtomicU32; BUCKETS]) -> Histogram {
    counts.iter().map(|count| u64::from(count.load(Ordering::Relaxed))).collect()
}

impl LaneStats {
    /// Returns the time that the service has needed the request lane `word` until `now_ns`.
    pub(crate) fn busy_clock_ns(&self, word: &LaneWord, now_ns: u64) -> u64 {
        let present_ns = match word.busy() {
            true => now_ns.saturating_sub(word.busy_since_ns.load(Ordering::Acquire)),
            false => 0,
        };
        self.busy_ns.load(Ordering::Acquire) + present_ns
    }

    pub fn batch_switches_outside_lanes(&self) -> u64 {
        self.batch_strays.load(Ordering::Acquire)
    }

    /// Returns the time that batch ran, up to the end of its last turn.
    pub fn batch_ns(&self) -> u64 {
        self.batch_ns.load(Ordering::Acquire)
    }

    /// Returns the start of batch's present turn; 0 if batch does not run.
    pub fn batch_running_since_ns(&self) -> u64 {
        self.batch_since_ns.load(Ordering::Acquire)
    }

    /// Returns how long batch has stayed beside each busy partner although it has to leave the lane. Only reactions
    /// that still last, and have lasted for at least [`UNANSWERED_NS`], are returned: the kernel program records those
    /// that end.
    fn unfinished_reactions_ns(
        &self,
        hold: &HoldWord,
        partners_busy_since_ns: impl Iterator<Item = Option<u64>>,
        now_ns: u64,
    ) -> impl Iterator<Item = u64> {
        let began_ns = self.batch_running_since_ns();
        let leaves = hold.state().is_ok_and(HoldState::keeps_batch_off);
        let lasts = began_ns > 0 && leaves && self.turn_is_lent.load(Ordering::Acquire) == 0;
        let since_ns = partners_busy_since_ns.flatten().filter(move |_| lasts);
        let lasting = since_ns.map(move |since_ns| now_ns.saturating_sub(since_ns.max(began_ns)));
        lasting.filter(|ns| *ns >= UNANSWERED_NS)
    }

    /// Returns the time that batch ran beside the service without permission, up to the end of its last turn.
    pub fn overlap_ns(&self) -> u64 {
        self.overlap_ns.load(Ordering::Acquire)
    }

    /// Returns the time of naps that a context switch cut short and no thread has counted. The second value is the part
    /// in which the service surely ran.
    pub fn cut_naps_ns(&self) -> (u64, u64) {
        (self.cut_naps_ns.load(Ordering::Acquire), self.cut_naps_lc_ns.load(Ordering::Acquire))
    }

    /// Returns the longest time that the hypervisor took from the lane between two looks.
    pub fn stolen_gap_max_ns(&self) -> u64 {
        self.stolen_gap_max_ns.load(Ordering::Acquire)
    }

    /// Returns the lane's accounting at `at_ns`, by the service clocks of the lane itself and of its partners.
    pub(crate) fn read(
        &self,
        gate: &GateWord,
        at_ns: u64,
        service_clock_ns: u64,
        partners_clock_ns: u64,
    ) -> LaneAccounting {
        let seen = self.read_until_stable(at_ns, partners_clock_ns);
        let kernels = LaneAccounting { lc_ns: service_clock_ns.saturating_sub(seen.stolen_lc_ns), ..seen };
        apply_gate_claims(kernels, GateAccounting::read(gate, self))
    }

    /// Returns the figures of one moment between two context switches.
    fn read_until_stable(&self, now_ns: u64, partners_clock_ns: u64) -> LaneAccounting {
        let mut seen = self.read_once(now_ns, partners_clock_ns);
        for _ in 0..LOOKS_MAX {
            let again = self.read_once(now_ns, partners_clock_ns);
            if again == seen {
                break;
            }
            seen = again;
        }
        seen
    }

    /// Reads the figures once. `beside_ns` is the service clock of the lane's partners: it gives the overlap of a turn
    /// of batch that still lasts.
    fn read_once(&self, now_ns: u64, partners_clock_ns: u64) -> LaneAccounting {
        let get = |counter: &AtomicU64| counter.load(Ordering::Acquire);
        let (turn_ns, both_ns) = match get(&self.batch_since_ns) {
            0 => (0, 0),
            since_ns => (now_ns.saturating_sub(since_ns), partners_clock_ns.saturating_sub(get(&self.overlap_mark_ns))),
        };
        let (overlap_ns, lent_ns) = if get(&self.turn_is_lent) == 0 { (both_ns, 0) } else { (0, both_ns) };
        let [from_idle_ns, stolen_lc_ns, stolen_batch_ns, from_others_ns] = self.stolen_ns.each_ref().map(get);
        LaneAccounting {
            switches: get(&self.switches),
            lc_switches: get(&self.lc_switches),
            batch_ns: (get(&self.batch_ns) + turn_ns).saturating_sub(stolen_batch_ns),
            stolen_ns: from_idle_ns + stolen_lc_ns + stolen_batch_ns + from_others_ns,
            stolen_lc_ns,
            stolen_batch_ns,
            stolen_gap_max_ns: get(&self.stolen_gap_max_ns),
            overlap_ns: get(&self.overlap_ns) + overlap_ns,
            lent_overlap_ns: get(&self.lent_overlap_ns) + lent_ns,
            leaks: get(&self.leaks),
            batch_strays: get(&self.batch_strays),
            lc_strays: get(&self.lc_strays),
            untold: get(&self.untold),
            cost_ns: get(&self.cost_ns),
            cost_samples: get(&self.cost_samples),
            ..LaneAccounting::default()
        }
    }
}

impl LaneAccounting {
    fn since(&self, earlier: &Self) -> Self {
        Self {
            switches: self.switches - earlier.switches,
            lc_switches: self.lc_switches - earlier.lc_switches,
            lc_ns: self.lc_ns.saturating_sub(earlier.lc_ns),
            batch_ns: self.batch_ns.saturating_sub(earlier.batch_ns),
            stolen_ns: self.stolen_ns.saturating_sub(earlier.stolen_ns),
            stolen_lc_ns: self.stolen_lc_ns.saturating_sub(earlier.stolen_lc_ns),
            stolen_batch_ns: self.stolen_batch_ns.saturating_sub(earlier.stolen_batch_ns),
            // A maximum cannot be split into an earlier and a later part.
            stolen_gap_max_ns: self.stolen_gap_max_ns,
            overlap_ns: self.overlap_ns.saturating_sub(earlier.overlap_ns),
            lent_overlap_ns: self.lent_overlap_ns.saturating_sub(earlier.lent_overlap_ns),
            leaks: self.leaks - earlier.leaks,
            batch_strays: self.batch_strays - earlier.batch_strays,
            lc_strays: self.lc_strays - earlier.lc_strays,
            untold: self.untold - earlier.untold,
            cost_ns: self.cost_ns - earlier.cost_ns,
            cost_samples: self.cost_samples - earlier.cost_samples,
            summons: self.summons - earlier.summons,
            lc_summons: self.lc_summons - earlier.lc_summons,
            gate: self.gate.since(&earlier.gate),
            ledger: self.ledger.since(&earlier.ledger),
            threshold_ns: self.threshold_ns.saturating_sub(earlier.threshold_ns),
            comparing_ns: self.comparing_ns.saturating_sub(earlier.comparing_ns),
            unbelieved_ns: self.unbelieved_ns.saturating_sub(earlier.unbelieved_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel_types::zeroed;
    use sidelane_policy::borrow::LaneState;

    #[test]
    fn a_reaction_that_lasts_counts_while_batch_has_to_leave() {
        const MS: u64 = 1_000_000;
        let hold = HoldWord::default();
        let stats = zeroed::<LaneStats>();
        let lasting = |state: u32, began_ns, partners: &[Option<u64>]| {
            hold.state.store(state, Ordering::Relaxed);
            stats.batch_since_ns.store(began_ns, Ordering::Relaxed);
            stats.unfinished_reactions_ns(&hold, partners.iter().copied(), 100 * MS).collect::<Vec<_>>()
        };
        for state in [HoldState::SUMMONED, LaneState::Held as u32, LaneState::Evicted as u32] {
            assert_eq!(lasting(state, 10 * MS, &[Some(40 * MS), None, Some(5 * MS)]), [60 * MS, 90 * MS]);
            assert!(lasting(state, 0, &[Some(40 * MS)]).is_empty());
            assert!(lasting(state, 10 * MS, &[None]).is_empty());
            // Batch has had less than the minimum time to leave, so there is no lasting reaction yet.
            assert!(lasting(state, 10 * MS, &[Some(99 * MS)]).is_empty());
        }
        assert!(lasting(LaneState::Released as u32, 10 * MS, &[Some(40 * MS)]).is_empty());
        assert!(lasting(LaneState::Lent as u32, 10 * MS, &[Some(40 * MS)]).is_empty());
    }
}

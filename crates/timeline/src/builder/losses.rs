//! Missing records of a trace, found as gaps in the sequence numbers of each CPU's records.

use std::collections::VecDeque;

/// Largest number of CPUs of a machine.
pub const CPUS_MAX: u32 = 4096;
/// The most losses that are stored separately. When there are more, the two oldest are merged into one.
const LOSSES_MAX: usize = 256;
/// Largest number of early records whose sequence numbers are stored. An early record comes before records of its CPU
/// with lower numbers.
const EARLY_MAX: usize = 4096;

#[derive(Debug, Clone, Copy, Default)]
struct CpuSequence {
    /// The sequence number of the CPU's next record; 0 for a CPU without records so far.
    next: u32,
    /// Time before which all records of this CPU were received or are counted as lost.
    seen_ns: u64,
}

/// Missing records of one CPU, which the kernel wrote between `from_ns` and `to_ns`.
#[derive(Debug, Clone, Copy)]
struct Loss {
    cpu: u32,
    first: u32,
    missing: u32,
    from_ns: u64,
    to_ns: u64,
}

/// Time after which a missing record counts as lost. Interrupts delay the records of a CPU by less.
const LATE_AT_MOST_NS: u64 = 1_000_000;

/// Missing records of all CPUs, and the time up to which all losses are known.
#[derive(Debug, Default)]
pub struct LossTracker {
    cpus: Vec<CpuSequence>,
    losses: VecDeque<Loss>,
    /// Gaps in the sequence numbers that late records may still fill.
    gaps: Vec<Loss>,
    /// CPU and sequence number of each early record, which came before records of its CPU with lower numbers.
    early: Vec<(u32, u32)>,
    /// Whether a gap counts as lost already because there were too many gaps.
    has_too_many_gaps: bool,
    pub lost: u64,
}

impl LossTracker {
    fn cpu_sequence(&mut self, cpu: u32) -> &mut CpuSequence {
        let index = cpu as usize;
        if index >= self.cpus.len() {
            self.cpus.resize(index + 1, CpuSequence::default());
        }
        &mut self.cpus[index]
    }

    /// Records the sequence number `seq` of a record of `cpu`; `seq` is 0 if the record belongs to no CPU. Records of a
    /// CPU may come a little out of order. Returns whether a missing record counts as lost from now on.
    pub fn record_sequence_number(&mut self, cpu: u32, seq: u32, at_ns: u64) -> bool {
        if seq == 0 {
            return false;
        }
        let numbers = self.cpu_sequence(cpu);
        let (before, is_first) = (*numbers, numbers.next == 0);
        let ahead = if is_first { seq.wrapping_sub(1) as i32 } else { seq.wrapping_sub(before.next) as i32 };
        numbers.seen_ns = before.seen_ns.max(at_ns);
        if ahead >= 0 || is_first {
            numbers.next = seq.wrapping_add(1).max(1);
        }
        if is_first && ahead != 0 {
            self.add_gap(Loss { cpu, first: 1, missing: seq.wrapping_sub(1), from_ns: 0, to_ns: at_ns });
        } else if ahead > 0 {
            let missing = ahead as u32;
            self.add_gap(Loss { cpu, first: before.next, missing, from_ns: before.seen_ns, to_ns: at_ns });
        } else if ahead < 0 {
            self.fill_gap(cpu, seq);
        }
        self.count_old_gaps_as_lost(cpu, at_ns)
    }

    /// Notes an early record: record `seq` of `cpu` comes before records with lower numbers. The numbers in between do
    /// not count as missing. Returns false if `seq` is not ahead, or if too many early records are noted.
    pub fn note_early_record(&mut self, cpu: u32, seq: u32) -> bool {
        let next = self.cpu_sequence(cpu).next.max(1);
        let is_ahead = seq != 0 && seq.wrapping_sub(next) as i32 > 0;
        let is_kept = is_ahead && self.early.len() < EARLY_MAX;
        if is_kept {
            self.early.push((cpu, seq));
        }
        is_kept
    }

    /// Turns the gaps of `cpu` that late records can no longer fill into losses, which last until `now_ns`. Returns
    /// whether there were any.
    fn count_old_gaps_as_lost(&mut self, cpu: u32, now_ns: u64) -> bool {
        if self.gaps.is_empty() {
            return false;
        }
        let is_old = |gap: &mut Loss| gap.cpu == cpu && now_ns.saturating_sub(gap.to_ns) >= LATE_AT_MOST_NS;
        let old: Vec<Loss> = self.gaps.extract_if(.., is_old).collect();
        for gap in &old {
            self.add_loss(Loss { to_ns: gap.to_ns.max(now_ns), ..*gap });
        }
        !old.is_empty() || std::mem::take(&mut self.has_too_many_gaps)
    }

    /// Sets the sequence number of the last record that `cpu` wrote before the trace began.
    pub fn set_seq_before_trace(&mut self, cpu: u32, seq: u32) {
        self.cpu_sequence(cpu).next = seq.wrapping_add(1).max(1);
    }

    /// Ends the trace: all records that are missing now count as lost. Returns whether there were any.
    pub fn count_all_gaps_as_lost(&mut self, now_ns: u64) -> bool {
        let gaps = std::mem::take(&mut self.gaps);
        gaps.iter().for_each(|gap| self.add_loss(Loss { to_ns: gap.to_ns.max(now_ns), ..*gap }));
        !gaps.is_empty()
    }

    fn add_gap(&mut self, gap: Loss) {
        self.lost += u64::from(gap.missing);
        if self.gaps.len() == LOSSES_MAX {
            let oldest = self.gaps.remove(0);
            self.add_loss(oldest);
            self.has_too_many_gaps = true;
        }
        self.gaps.push(gap);
        let is_in_it = |(cpu, seq): &(u32, u32)| *cpu == gap.cpu && seq.wrapping_sub(gap.first) < gap.missing;
        while let Some(index) = self.early.iter().position(is_in_it) {
            let (cpu, seq) = self.early.swap_remove(index);
            self.fill_gap(cpu, seq);
        }
    }

    fn add_loss(&mut self, loss: Loss) {
        if self.losses.len() == LOSSES_MAX
            && let (Some(oldest), Some(next)) = (self.losses.pop_front(), self.losses.front_mut())
        {
            next.from_ns = next.from_ns.min(oldest.from_ns);
            next.to_ns = next.to_ns.max(oldest.to_ns);
        }
        self.losses.push_back(loss);
    }

    fn fill_gap(&mut self, cpu: u32, seq: u32) {
        let is_here = |gap: &Loss| gap.cpu == cpu && seq.wrapping_sub(gap.first) < gap.missing;
        let Some(index) = self.gaps.iter().rposition(is_here) else { return };
        self.lost -= 1;
        let gap = self.gaps.swap_remove(index);
        let before = seq.wrapping_sub(gap.first);
        let parts = [(gap.first, before), (seq.wrapping_add(1), gap.missing - before - 1)];
        let left = parts.into_iter().filter(|(_, missing)| *missing > 0);
        self.gaps.extend(left.map(|(first, missing)| Loss { first, missing, ..gap }));
    }

    /// Returns whether a record from between `from_ns` and `to_ns` may be missing.
    pub fn has_loss_between(&self, from_ns: u64, to_ns: u64) -> bool {
        self.losses.iter().chain(&self.gaps).any(|loss| loss.from_ns <= to_ns && from_ns <= loss.to_ns)
    }

    /// Returns the time up to which the losses of all CPUs are known.
    pub fn complete_until_ns(&self) -> u64 {
        self.cpus.iter().filter(|numbers| numbers.seen_ns != 0).map(|numbers| numbers.seen_ns).min().unwrap_or(0)
    }

    /// Removes the losses from before `floor_ns`.
    pub fn remove_ended_before(&mut self, floor_ns: u64) {
        self.losses.retain(|loss| loss.to_ns >= floor_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gap_in_sequence_numbers_is_a_loss_of_records() {
        let mut losses = LossTracker::default();
        losses.record_sequence_number(0, 1, 100);
        losses.record_sequence_number(0, 2, 200);
        losses.record_sequence_number(0, 5, 300);
        assert_eq!(losses.lost, 2);
        assert!(
            losses.has_loss_between(250, 260) && losses.has_loss_between(0, 200) && losses.has_loss_between(300, 400)
        );
        assert!(!losses.has_loss_between(0, 199) && !losses.has_loss_between(301, 400));
        assert!(losses.record_sequence_number(0, 6, 2_000_000) && losses.has_loss_between(1_000_000, 1_000_001));
    }

    #[test]
    fn late_record_fills_only_its_own_gap() {
        let mut losses = LossTracker::default();
        for (cpu, seq, at_ns) in [(0, 1, 100), (0, 3, 200), (1, 1, 500), (1, 3, 600), (1, 2, 610), (1, 3, 620)] {
            losses.record_sequence_number(cpu, seq, at_ns);
        }
        assert_eq!(losses.lost, 1);
        assert!(losses.has_loss_between(150, 160) && !losses.has_loss_between(550, 560));
        for (seq, at_ns) in [(7, 700), (5, 710), (6, 720), (4, 730)] {
            losses.record_sequence_number(1, seq, at_ns);
        }
        assert!(losses.lost == 1 && !losses.has_loss_between(610, 740), "a gap is filled from its middle, too");
    }

    #[test]
    fn early_record_of_another_cpu_fills_no_gap() {
        let mut losses = LossTracker::default();
        assert!(losses.note_early_record(1, 3));
        for (cpu, seq, at_ns) in [(0, 1, 100), (0, 4, 200), (1, 1, 300), (1, 4, 400)] {
            losses.record_sequence_number(cpu, seq, at_ns);
        }
        assert_eq!(losses.lost, 3, "numbers 2 and 3 of CPU 0, number 2 of CPU 1");
    }

    #[test]
    fn oldest_of_many_losses_merge_and_old_ones_are_forgotten() {
        const MS: u64 = 1_000_000;
        let mut losses = LossTracker::default();
        let count = LOSSES_MAX as u64 + 44;
        (0..count).for_each(|index| {
            losses.record_sequence_number(0, 2 * index as u32 + 1, 10 * index * MS + 1);
            losses.record_sequence_number(0, 2 * index as u32 + 1, 10 * index * MS + 5 * MS);
        });
        assert!(losses.lost == count - 1 && losses.losses.len() == LOSSES_MAX);
        let is_lost = |losses: &LossTracker, ms: u64| losses.has_loss_between(ms * MS, ms * MS + 1);
        assert!((1..count).all(|index| is_lost(&losses, 10 * index)), "each loss is still one");
        assert!(is_lost(&losses, 107) && !is_lost(&losses, 10 * count - 3), "between the first losses, and the last");
        losses.remove_ended_before(1_000 * MS);
        assert!(!is_lost(&losses, 990) && is_lost(&losses, 1_000));
    }

    #[test]
    fn late_record_was_not_lost() {
        let mut losses = LossTracker::default();
        for (seq, at_ns) in [(1, 100), (3, 110), (4, 120), (2, 130)] {
            losses.record_sequence_number(7, seq, at_ns);
        }
        assert!(losses.lost == 0 && !losses.has_loss_between(0, 1_000));
    }

    #[test]
    fn early_record_and_records_before_it_are_not_lost() {
        let mut losses = LossTracker::default();
        losses.record_sequence_number(0, 1, 100);
        assert!(losses.note_early_record(0, 4) && losses.note_early_record(0, 5) && !losses.note_early_record(0, 2));
        for (seq, at_ns) in [(2, 3_000_000), (3, 6_000_000), (6, 9_000_000), (8, 9_000_100)] {
            losses.record_sequence_number(0, seq, at_ns);
        }
        assert_eq!(losses.lost, 1, "number 7");
        assert!(!losses.has_loss_between(0, 8_999_999) && losses.has_loss_between(9_000_000, 9_000_100));
    }

    #[test]
    fn first_record_of_a_cpu_may_come_early() {
        let mut losses = LossTracker::default();
        assert!(losses.note_early_record(3, 2) && !losses.note_early_record(3, 1));
        losses.record_sequence_number(3, 1, 100);
        losses.record_sequence_number(3, 3, 9_000_000);
        assert!(losses.lost == 0 && !losses.has_loss_between(0, 9_000_000));
    }

    #[test]
    fn records_before_the_first_of_a_cpu_are_lost_unless_it_is_1() {
        let mut losses = LossTracker::default();
        losses.record_sequence_number(0, 1, 100);
        assert!(!losses.has_loss_between(0, 1_000));
        losses.record_sequence_number(1, 9, 500);
        assert!(losses.has_loss_between(0, 10) && !losses.has_loss_between(501, 600));
    }

    #[test]
    fn only_records_missing_after_the_begin_are_lost() {
        let mut losses = LossTracker::default();
        losses.set_seq_before_trace(1, 999);
        losses.record_sequence_number(1, 1_000, 500);
        assert!(losses.lost == 0 && !losses.has_loss_between(0, 1_000));
        losses.set_seq_before_trace(2, 41);
        assert_eq!(losses.complete_until_ns(), 500, "no reader waits for a CPU that writes nothing");
        losses.record_sequence_number(2, 43, 600);
        assert!(losses.lost == 1 && losses.has_loss_between(0, 10) && !losses.has_loss_between(601, 700));
    }

    #[test]
    fn missing_records_are_lost_at_the_end_of_the_trace() {
        let mut losses = LossTracker::default();
        losses.record_sequence_number(0, 1, 100);
        assert!(!losses.count_all_gaps_as_lost(150));
        losses.record_sequence_number(0, 3, 200);
        assert!(
            losses.count_all_gaps_as_lost(300)
                && losses.has_loss_between(299, 300)
                && !losses.count_all_gaps_as_lost(400)
        );
    }

    #[test]
    fn records_without_a_number_belong_to_no_cpu() {
        let mut losses = LossTracker::default();
        losses.record_sequence_number(0, 0, 50);
        losses.record_sequence_number(0, 1, 100);
        losses.record_sequence_number(0, 0, 150);
        losses.record_sequence_number(0, 2, 200);
        assert!(losses.lost == 0 && !losses.has_loss_between(0, 1_000));
    }

    #[test]
    fn record_numbers_wrap() {
        let mut losses = LossTracker::default();
        losses.record_sequence_number(0, u32::MAX, 100);
        let lost = losses.lost;
        losses.record_sequence_number(0, 1, 110);
        losses.record_sequence_number(0, 2, 120);
        assert_eq!(losses.lost, lost);
    }
}

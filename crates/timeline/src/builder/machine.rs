//! Facts of each CPU and of each process, such as interrupts, idle states and pauses.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::builder::fact::{Fact, Track};
use crate::cause::Cause;
use crate::record::{Kind, Record, Task, pause};

/// The most TCP segments of a CPU that are remembered until they reach their sockets.
const SEGMENTS: usize = 32;
/// Longest time in which a TCP segment reaches its socket. A later arrival at the socket belongs to another segment.
const SEGMENT_AT_MOST_NS: u64 = 10_000_000;

/// The shortest turn of a thread on a CPU that matters to a thread that waits for that CPU.
const LONG_TURN_NS: u64 = 100_000;
/// The most turns of other threads that are examined in one wait for a CPU.
const TURNS_MAX: usize = 256;

/// History of one CPU: interrupts, idle states, steal time and turns of threads.
#[derive(Debug, Default)]
pub struct Cpu {
    /// Interrupts and softirqs on this CPU.
    pub interrupts: Track,
    /// Idle states of this CPU.
    pub idle: Track,
    /// Steal time of this CPU.
    pub stolen: Track,
    /// Time in which threads of the tracer had this CPU while a thread of a service waited for it.
    pub tracer: Track,
    /// Turns of recorded threads on this CPU that were longer than `LONG_TURN_NS`.
    turns: Track,
    /// Time of the last recorded context switch on this CPU. All switches are recorded while a thread of a service
    /// waits.
    switched_ns: u64,
    segments: VecDeque<(u64, u32)>,
}

impl Cpu {
    /// Adds to `track` the fact that a record reports: the record has the fact's end and length.
    fn push_ended_fact(track: &mut Track, cause: Cause, record: &Record) {
        let from_ns = record.at_ns.saturating_sub(record.value);
        track.push_between_facts(Fact::new(cause, from_ns, record.at_ns, u64::from(record.detail)));
    }

    /// Adds a record about this CPU to the CPU's history.
    pub fn add_record(&mut self, record: &Record) {
        match record.kind {
            Kind::Interrupt => Self::push_ended_fact(&mut self.interrupts, Cause::Interrupt, record),
            // The flag distinguishes a softirq's vector from an interrupt's number.
            Kind::Softirq => {
                let vector = Record { detail: record.detail | SOFTIRQ, ..*record };
                Self::push_ended_fact(&mut self.interrupts, Cause::Interrupt, &vector);
            }
            Kind::IdleLeft => Self::push_ended_fact(&mut self.idle, Cause::IdleExit, record),
            Kind::Stolen => Self::push_ended_fact(&mut self.stolen, Cause::Stolen, record),
            Kind::Segment => self.add_segment(record.at_ns, record.detail),
            _ => (),
        }
    }

    /// Records a context switch: another thread has this CPU now.
    pub fn record_context_switch(&mut self, record: &Record, tracer_pid: u32) {
        let turn = |cause| Fact { by: record.task, ..Fact::new(cause, self.switched_ns, record.at_ns, 0) };
        if tracer_pid != 0 && record.task.pid == tracer_pid {
            self.tracer.push(turn(Cause::Tracer));
        }
        if record.task.tid != 0 && self.switched_ns != 0 && record.at_ns >= self.switched_ns + LONG_TURN_NS {
            self.turns.push(turn(Cause::RunQueue));
        }
        self.switched_ns = record.at_ns;
    }

    /// Returns the thread that had this CPU for most of the time between `from_ns` and `to_ns`, together with its
    /// process. Only long turns count.
    pub fn occupant(&self, from_ns: u64, to_ns: u64) -> Option<Task> {
        let first = self.turns.first_index_ending_after(from_ns);
        let turns = (first..first + TURNS_MAX).map_while(|index| self.turns.get(index));
        let mut sums: Vec<(Task, u64)> = Vec::new();
        for turn in turns.take_while(|turn| turn.from_ns < to_ns) {
            let length_ns = turn.to_ns.min(to_ns) - turn.from_ns.max(from_ns);
            match sums.iter_mut().find(|(task, _)| task.pid == turn.by.pid) {
                Some((_, sum_ns)) => *sum_ns += length_ns,
                None => sums.push((turn.by, length_ns)),
            }
        }
        sums.into_iter().max_by_key(|(_, sum_ns)| *sum_ns).map(|(task, _)| task)
    }

    fn add_segment(&mut self, at_ns: u64, end_seq: u32) {
        if self.segments.len() == SEGMENTS {
            self.segments.pop_front();
        }
        self.segments.push_back((at_ns, end_seq));
    }

    /// Returns the time at which a TCP segment reached this CPU. Its data ends at `end_seq`, and reached the socket at
    /// `at_ns`.
    pub fn take_segment_arrival_ns(&mut self, end_seq: u32, at_ns: u64) -> Option<u64> {
        let is_it = |(_, end): &(u64, u32)| *end == end_seq;
        let index = self.segments.iter().rposition(is_it)?;
        let (came_ns, _) = self.segments[index];
        self.segments.drain(..=index);
        (came_ns <= at_ns && at_ns - came_ns <= SEGMENT_AT_MOST_NS).then_some(came_ns)
    }

    /// Returns the number of facts in this CPU's history.
    pub fn fact_count(&self) -> usize {
        self.interrupts.len() + self.idle.len() + self.stolen.len() + self.tracer.len() + self.turns.len()
    }

    /// Returns the heap memory of this CPU's history, in bytes.
    pub fn heap_bytes(&self) -> usize {
        self.interrupts.heap_bytes()
            + self.idle.heap_bytes()
            + self.stolen.heap_bytes()
            + self.tracer.heap_bytes()
            + self.turns.heap_bytes()
            + self.segments.capacity() * size_of::<(u64, u32)>()
    }

    /// Removes the facts of this CPU that ended before `floor_ns`.
    pub fn remove_ended_before(&mut self, floor_ns: u64) {
        self.interrupts.remove_ended_before(floor_ns);
        self.idle.remove_ended_before(floor_ns);
        self.stolen.remove_ended_before(floor_ns);
        self.tracer.remove_ended_before(floor_ns);
        self.turns.remove_ended_before(floor_ns);
    }
}

/// Flag in the detail of an interrupt: it is a softirq, and the other bits are its vector.
pub const SOFTIRQ: u32 = 1 << 31;

/// A condition that begins and ends, such as a pause of a process, and may still last.
#[derive(Debug, Default)]
pub struct OngoingCondition {
    pub track: Track,
    since_ns: u64,
    cause: Option<Cause>,
    detail: u64,
}

impl OngoingCondition {
    fn begin(&mut self, at_ns: u64, cause: Cause, detail: u32) {
        if self.cause.is_none() {
            (self.since_ns, self.cause, self.detail) = (at_ns, Some(cause), u64::from(detail));
        }
    }

    /// Ends the condition at `at_ns`, if it lasts.
    pub fn end(&mut self, at_ns: u64) {
        if let Some(cause) = self.cause.take() {
            self.track.push(Fact::new(cause, self.since_ns, at_ns, self.detail));
        }
    }

    /// Begins or ends the condition at the time of `record`.
    pub fn begin_or_end(&mut self, begins: bool, record: &Record, cause: Cause) {
        if begins { self.begin(record.at_ns, cause, record.detail) } else { self.end(record.at_ns) }
    }

    /// Discards the begin of the condition, when it is unknown whether the condition still lasts.
    pub fn forget_begin(&mut self) {
        self.cause = None;
    }

    /// Returns the condition that still lasts, as a fact that ends at `now_ns`.
    pub fn ongoing_fact(&self, now_ns: u64) -> Option<Fact> {
        let cause = self.cause.filter(|_| self.since_ns < now_ns)?;
        Some(Fact::new(cause, self.since_ns, now_ns, self.detail))
    }
}

/// History of one process: its pauses, and the times in which it was frozen or throttled.
#[derive(Debug, Default)]
pub struct Process {
    pub frozen: OngoingCondition,
    pub throttled: OngoingCondition,
    pub pauses: OngoingCondition,
    touched_ns: u64,
}

impl Process {
    fn add_record(&mut self, record: &Record) {
        self.touched_ns = self.touched_ns.max(record.at_ns);
        match record.kind {
            Kind::Frozen => self.frozen.begin_or_end(record.detail != 0, record, Cause::Frozen),
            Kind::Throttled => self.throttled.begin_or_end(record.detail != 0, record, Cause::Throttled),
            Kind::PauseBegan => self.pauses.begin(record.at_ns, cause_of_pause(record.detail), record.detail),
            Kind::PauseEnded => self.pauses.end(record.at_ns),
            _ => (),
        }
    }

    fn tracks(&mut self) -> [&mut Track; 3] {
        [&mut self.frozen.track, &mut self.throttled.track, &mut self.pauses.track]
    }

    fn has_ongoing_condition(&self) -> bool {
        [&self.frozen, &self.throttled, &self.pauses].iter().any(|spell| spell.cause.is_some())
    }

    fn fact_count(&self) -> usize {
        self.frozen.track.len() + self.throttled.track.len() + self.pauses.track.len()
    }

    fn heap_bytes(&self) -> usize {
        self.frozen.track.heap_bytes() + self.throttled.track.heap_bytes() + self.pauses.track.heap_bytes()
    }
}

fn cause_of_pause(detail: u32) -> Cause {
    match detail {
        pause::YOUNG_COLLECTION | pause::FULL_COLLECTION => Cause::Collection,
        _ => Cause::Safepoint,
    }
}

/// The most processes whose history is kept.
const PROCESSES_MAX: usize = 4096;

/// Histories of all CPUs and processes.
#[derive(Debug, Default)]
pub struct Machine {
    cpus: Vec<Cpu>,
    /// Histories of processes by process id. Facts that hold for all processes are under id 0.
    processes: FxHashMap<u32, Process>,
}

impl Machine {
    /// Returns the history of the CPU with this number.
    pub fn cpu_mut(&mut self, number: u32) -> &mut Cpu {
        let index = number as usize;
        if index >= self.cpus.len() {
            self.cpus.resize_with(index + 1, Cpu::default);
        }
        &mut self.cpus[index]
    }

    /// Returns the history of the CPU with this number; `None` if there is no record of that CPU.
    pub fn cpu(&self, number: u32) -> Option<&Cpu> {
        self.cpus.get(number as usize)
    }

    /// Adds a record about a process to the process's history. Returns false if there are too many processes.
    pub fn add_process_record(&mut self, record: &Record) -> bool {
        if self.processes.len() >= PROCESSES_MAX && !self.processes.contains_key(&record.task.pid) {
            return false;
        }
        self.processes.entry(record.task.pid).or_default().add_record(record);
        true
    }

    /// Returns the history of the process with this id; `None` if there are no facts of that process.
    pub fn process(&self, pid: u32) -> Option<&Process> {
        if self.processes.is_empty() { None } else { self.processes.get(&pid) }
    }

    /// Removes the facts of all CPUs and processes that ended before `floor_ns`.
    pub fn remove_ended_before(&mut self, floor_ns: u64) {
        self.cpus.iter_mut().for_each(|cpu| cpu.remove_ended_before(floor_ns));
        self.processes.retain(|_, process| {
            process.tracks().into_iter().for_each(|track| track.remove_ended_before(floor_ns));
            process.touched_ns >= floor_ns || process.has_ongoing_condition()
        });
    }

    /// Returns the number of facts of all CPUs and processes.
    pub fn fact_count(&self) -> usize {
        self.cpus.iter().map(Cpu::fact_count).sum::<usize>()
            + self.processes.values().map(Process::fact_count).sum::<usize>()
    }

    /// Returns the heap memory of all histories, in bytes.
    pub fn heap_bytes(&self) -> usize {
        self.cpus.capacity() * size_of::<Cpu>()
            + self.cpus.iter().map(Cpu::heap_bytes).sum::<usize>()
            + self.processes.capacity() * size_of::<(u32, Process)>()
            + self.processes.values().map(Process::heap_bytes).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn record(at_ns: u64, kind: Kind, pid: u32, detail: u32) -> Record {
        let task = Task { tid: pid, pid };
        let other = Task::default();
        Record { at_ns, kind, seq: 0, task, cpu: 0, detail, other, socket: 0, request: 0, value: 10 }
    }

    /// Returns the record of a context switch from one process to another; 0 is the idle thread.
    fn switch(at_ns: u64, from_pid: u32, to_pid: u32) -> Record {
        Record { other: Task { tid: to_pid, pid: to_pid }, ..record(at_ns, Kind::Switched, from_pid, 0) }
    }

    fn fact_intervals(track: &Track) -> Vec<(u64, u64)> {
        (0..track.len()).filter_map(|at| track.get(at)).map(|fact| (fact.from_ns, fact.to_ns)).collect()
    }

    #[test]
    fn tracer_has_the_cpu_between_its_context_switches() {
        const TRACER: u32 = 9;
        let switches = [switch(1_000, 5, TRACER), switch(4_000, TRACER, 6), switch(9_000, 6, 0), switch(9_500, 0, 5)];
        let mut cpu = Cpu::default();
        switches.iter().for_each(|record| cpu.record_context_switch(record, TRACER));
        assert_eq!(fact_intervals(&cpu.tracer), [(1_000, 4_000)]);
        let mut unknown = Cpu::default();
        switches.iter().for_each(|record| unknown.record_context_switch(record, 0));
        assert_eq!(fact_intervals(&unknown.tracer), [], "no process has number 0");
    }

    #[test]
    fn occupant_has_most_of_the_time_in_long_turns() {
        let mut cpu = Cpu::default();
        for (at_us, from, to) in
            [(1_000, 5, 6), (1_099, 6, 7), (1_300, 7, 8), (1_400, 8, 0), (2_000, 0, 7), (2_200, 7, 8), (2_500, 8, 5)]
        {
            cpu.record_context_switch(&switch(at_us * 1_000, from, to), 0);
        }
        // Process 6 had the CPU for 99 µs, a short turn, and process 8 for 100 µs, a long turn. The begin of process
        // 5's turn is unknown.
        assert_eq!(fact_intervals(&cpu.turns).len(), 4);
        let occupant_of =
            |cpu: &Cpu, from_us: u64, to_us: u64| cpu.occupant(from_us * 1_000, to_us * 1_000).map(|task| task.pid);
        let occupant = |from_us, to_us| occupant_of(&cpu, from_us, to_us);
        assert_eq!(occupant(0, 1_099), None);
        assert_eq!((occupant(1_000, 1_400), occupant(1_250, 1_400)), (Some(7), Some(8)), "the part in that time");
        assert_eq!(occupant(1_400, 2_000), None, "it idled");
        assert_eq!(occupant(1_000, 2_500), Some(7), "201 and 200 µs in two turns, against 400 µs of 8");
        for (at_us, from, to) in [(4_000, 5, 6), (4_100, 6, 7), (4_400, 7, 6), (4_500, 6, 5)] {
            cpu.record_context_switch(&switch(at_us * 1_000, from, to), 0);
        }
        assert_eq!(occupant_of(&cpu, 4_000, 4_500), Some(7), "300 µs, against 100 and 100 µs of 6");
    }

    #[test]
    fn softirq_is_told_from_the_interrupt_with_its_number() {
        let mut cpu = Cpu::default();
        cpu.add_record(&record(100, Kind::Interrupt, 0, 3));
        cpu.add_record(&record(200, Kind::Softirq, 0, 3));
        let details = [0, 1].map(|index| cpu.interrupts.get(index).map(|fact| fact.detail));
        assert_eq!(details, [Some(3), Some(u64::from(SOFTIRQ) + 3)]);
    }

    #[test]
    fn segment_is_found_by_the_end_of_its_data_if_recent() {
        let mut cpu = Cpu::default();
        for (at_ns, end_seq) in [(MS, 100), (2 * MS, 200), (3 * MS, 300), (20 * MS, 400)] {
            cpu.add_record(&record(at_ns, Kind::Segment, 0, end_seq));
        }
        assert_eq!(cpu.take_segment_arrival_ns(150, 4 * MS), None);
        assert_eq!(cpu.take_segment_arrival_ns(200, 4 * MS), Some(2 * MS));
        assert_eq!(cpu.take_segment_arrival_ns(100, 4 * MS), None, "earlier ones came to their sockets before");
        assert_eq!(cpu.take_segment_arrival_ns(300, 3 * MS + SEGMENT_AT_MOST_NS), Some(3 * MS));
        assert_eq!(cpu.take_segment_arrival_ns(400, 19 * MS), None, "it had not come");
    }

    #[test]
    fn switches_and_segments_of_a_cpu_take_memory() {
        let cpu_after = |switches: &[Record], tracer_pid| {
            let mut cpu = Cpu::default();
            switches.iter().for_each(|record| cpu.record_context_switch(record, tracer_pid));
            cpu
        };
        let tracer = [switch(1_000, 5, 9), switch(4_000, 9, 6)];
        let long_turn = [switch(MS, 5, 6), switch(2 * MS, 6, 7)];
        for mut cpu in [cpu_after(&tracer, 9), cpu_after(&long_turn, 0)] {
            assert_eq!((cpu.fact_count(), cpu.heap_bytes() >= size_of::<Fact>()), (1, true));
            cpu.remove_ended_before(3 * MS);
            assert_eq!(cpu.fact_count(), 0);
        }
        let mut cpu = Cpu::default();
        (1..=SEGMENTS as u32).for_each(|seq| cpu.add_record(&record(MS, Kind::Segment, 0, seq)));
        assert!(cpu.heap_bytes() >= SEGMENTS * size_of::<(u64, u32)>());
    }

    #[test]
    fn memory_of_the_machine_is_that_of_its_cpus_and_processes() {
        let mut machine = Machine::default();
        machine.cpu_mut(3);
        let with_cpus = machine.heap_bytes();
        assert!(with_cpus >= 4 * size_of::<Cpu>());
        machine.cpu_mut(3).add_record(&record(100, Kind::Stolen, 0, 1));
        assert_eq!((machine.fact_count(), machine.heap_bytes()), (1, with_cpus + machine.cpu_mut(3).heap_bytes()));
        let with_facts = machine.heap_bytes();
        (1..=100).for_each(|pid| assert!(machine.add_process_record(&record(200, Kind::PauseEnded, pid, 0))));
        assert!(machine.heap_bytes() >= with_facts + 100 * size_of::<(u32, Process)>());
        let with_processes = machine.heap_bytes();
        machine.add_process_record(&record(300, Kind::Frozen, 7, 1));
        machine.add_process_record(&record(400, Kind::Frozen, 7, 0));
        assert_eq!(machine.fact_count(), 2);
        assert_eq!(machine.heap_bytes(), with_processes + machine.process(7).map_or(0, Process::heap_bytes));
    }

    #[test]
    fn facts_of_too_many_processes_are_refused() {
        let mut machine = Machine::default();
        let mut adds = |pid| machine.add_process_record(&record(200, Kind::Frozen, pid, 1));
        assert!((1..=PROCESSES_MAX as u32).all(&mut adds));
        assert_eq!([adds(PROCESSES_MAX as u32 + 1), adds(1)], [false, true], "a new process, and a known one");
    }

    #[test]
    fn late_pause_removes_no_later_fact_of_its_process() {
        let mut machine = Machine::default();
        for (at_ns, kind, detail) in [
            (1_000, Kind::Frozen, 1),
            (2_000, Kind::Frozen, 0),
            (500, Kind::PauseBegan, pause::SAFEPOINT),
            (600, Kind::PauseEnded, 0),
        ] {
            machine.add_process_record(&record(at_ns, kind, 7, detail));
        }
        machine.remove_ended_before(1_500);
        assert_eq!(machine.fact_count(), 1);
    }

    #[test]
    fn each_fact_of_cpus_and_processes_counts_and_takes_memory() {
        for kind in [Kind::Interrupt, Kind::Softirq, Kind::IdleLeft, Kind::Stolen] {
            let mut cpu = Cpu::default();
            cpu.add_record(&record(100, kind, 0, 1));
            assert_eq!((cpu.fact_count(), cpu.heap_bytes() >= size_of::<Fact>()), (1, true), "{kind:?}");
            cpu.remove_ended_before(1_000);
            assert_eq!(cpu.fact_count(), 0, "{kind:?}");
        }
        let pause = pause::YOUNG_COLLECTION;
        for (begins, ends, detail, cause) in [
            (Kind::Frozen, Kind::Frozen, 1, Cause::Frozen),
            (Kind::Throttled, Kind::Throttled, 1, Cause::Throttled),
            (Kind::PauseBegan, Kind::PauseEnded, pause, Cause::Collection),
        ] {
            let mut machine = Machine::default();
            assert!(machine.add_process_record(&record(100, begins, 7, detail)));
            machine.remove_ended_before(1_000);
            let process = machine.process(7).expect("what lasts is not forgotten");
            let spells = [&process.frozen, &process.throttled, &process.pauses];
            assert!(spells.iter().filter_map(|spell| spell.ongoing_fact(900)).map(|fact| fact.cause).eq([cause]));
            machine.add_process_record(&record(2_000, ends, 7, 0));
            let process = machine.process(7).expect("it is known");
            assert_eq!((machine.fact_count(), process.heap_bytes() >= size_of::<Fact>()), (1, true), "{cause:?}");
            machine.remove_ended_before(3_000);
            assert!(machine.process(7).is_none(), "{cause:?}");
        }
    }
}

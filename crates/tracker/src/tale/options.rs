//! How a trace is recorded.

use std::time::Duration;

/// Records of all CPUs together: 64 MiB.
const RECORDS_MAX: u32 = 1 << 20;
/// Records of one CPU: 65 ms of a million a second, of which nobody has seen more than half.
const RECORDS_A_CPU: u32 = 1 << 16;

/// Where the kernel program puts records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Carrier {
    /// A ring for each CPU: nothing is lost that is read in time, and what is lost is counted.
    #[default]
    Rings,
    /// Two slots for each CPU, each of which holds the last record alone (`abi/slot.h`): for an observer that reads
    /// without a pause on a CPU of its own, as in the thesis (Figure 4.4). Of Sidelane itself
    /// only tests use it.
    Slots,
}

/// How a trace is recorded.
#[derive(Clone, Copy, Debug)]
pub struct TraceOptions {
    /// Without softirqs and incoming segments.
    pub light: bool,
    /// Where the records go.
    pub carrier: Carrier,
    /// Places in the ring of each CPU, a power of two; as many as memory allows if none is given.
    pub records: Option<u32>,
    /// Interrupts and softirqs that took as long are recorded.
    pub long: Duration,
    /// Tracepoints that the kernel shall be taken to lack.
    pub missing: &'static [&'static str],
}

impl Default for TraceOptions {
    fn default() -> Self {
        Self { light: false, carrier: Carrier::Rings, records: None, long: Duration::from_micros(5), missing: &[] }
    }
}

impl TraceOptions {
    /// Places in the ring of each of so many CPUs.
    pub(crate) fn records_a_cpu(&self, cpus: usize) -> u32 {
        if self.carrier == Carrier::Slots {
            return 1;
        }
        let share = (RECORDS_MAX / cpus as u32).max(1);
        let share = 1 << share.ilog2();
        self.records.map_or(share.min(RECORDS_A_CPU), u32::next_power_of_two)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_are_powers_of_two_and_bounded_on_any_machine() {
        for cpus in [1, 2, 3, 16, 100, 1000] {
            let records = TraceOptions::default().records_a_cpu(cpus);
            assert!(records.is_power_of_two() && records * cpus as u32 <= RECORDS_MAX, "{cpus} CPUs: {records}");
        }
        let small = TraceOptions { records: Some(100), ..TraceOptions::default() };
        assert_eq!(small.records_a_cpu(2), 128);
    }
}

//! Options of a trace.

use std::time::Duration;

/// Limit of the records of all CPUs together: 64 MiB.
const RECORDS_MAX: u32 = 1 << 20;
/// Limit of the records of one CPU: 65 ms at a million records a second. The highest rate seen so far is half of that.
const RECORDS_A_CPU: u32 = 1 << 16;

/// Options of a trace.
#[derive(Clone, Copy, Debug)]
pub struct TraceOptions {
    /// Whether softirqs and incoming segments are left out.
    pub light: bool,
    /// Number of slots in the ring of each CPU, a power of two. `None`: as many as the memory limit allows.
    pub records: Option<u32>,
    /// Shortest duration of interrupts and softirqs that are recorded.
    pub long: Duration,
    /// Tracepoints that the kernel is assumed to lack, for tests.
    pub missing: &'static [&'static str],
}

impl Default for TraceOptions {
    fn default() -> Self {
        Self { light: false, records: None, long: Duration::from_micros(5), missing: &[] }
    }
}

impl TraceOptions {
    /// Returns the number of slots in the ring of each CPU, on a machine with this number of CPUs.
    pub(crate) fn records_per_cpu(&self, cpus: usize) -> u32 {
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
            let records = TraceOptions::default().records_per_cpu(cpus);
            assert!(records.is_power_of_two() && records * cpus as u32 <= RECORDS_MAX, "{cpus} CPUs: {records}");
        }
        let small = TraceOptions { records: Some(100), ..TraceOptions::default() };
        assert_eq!(small.records_per_cpu(2), 128);
    }
}

//! Other load: whether the lanes to be measured are idle.

use std::fs;
use std::thread;
use std::time::Duration;

use super::finding::Finding;
use crate::reaction::pair::TestPair;

/// Length of the observation. The kernel counts in steps of 10 ms, so the result is exact to 5 %.
const WATCH: Duration = Duration::from_millis(200);
/// Share of busy time, in percent, from which other load on a lane changes the measured figures.
const BUSY_PERCENT: u64 = 20;

/// Time that a CPU has spent, in the kernel's ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct CpuTicks {
    busy: u64,
    all: u64,
}

impl CpuTicks {
    /// Parses the text of /proc/stat: `cpuN user nice system idle iowait irq softirq steal …`.
    fn parse(stat: &str, cpu: u32) -> Option<Self> {
        const IDLE_AND_IOWAIT: [usize; 2] = [3, 4];
        const FIELDS: usize = 8;
        let line = stat.lines().find_map(|line| line.strip_prefix(&format!("cpu{cpu} ")))?;
        let fields: Vec<u64> = line.split_whitespace().take(FIELDS).filter_map(|field| field.parse().ok()).collect();
        let idle: u64 = IDLE_AND_IOWAIT.iter().filter_map(|at| fields.get(*at)).sum();
        let all = fields.iter().sum();
        Some(Self { busy: all - idle, all })
    }

    fn busy_percent_since(self, earlier: Self) -> u64 {
        (self.busy.saturating_sub(earlier.busy) * 100).checked_div(self.all.saturating_sub(earlier.all)).unwrap_or(0)
    }
}

/// Observes the lanes of `pair` for a time in which no thread of this program runs there.
pub fn check_other_load(pair: &TestPair) -> Finding {
    let before = read_cpu_times(pair);
    thread::sleep(WATCH);
    let after = read_cpu_times(pair);
    let [request, batch] = [0, 1].map(|lane| after[lane].busy_percent_since(before[lane]));
    load_finding(pair, request, batch)
}

fn read_cpu_times(pair: &TestPair) -> [CpuTicks; 2] {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    [pair.request, pair.batch].map(|cpu| CpuTicks::parse(&stat, cpu).unwrap_or_default())
}

fn load_finding(pair: &TestPair, request_percent: u64, batch_percent: u64) -> Finding {
    const NAME: &str = "other load";
    let (request, batch) = (pair.request, pair.batch);
    let shares = format!("CPU {request} is {request_percent} % and CPU {batch} {batch_percent} % busy");
    match request_percent.max(batch_percent) >= BUSY_PERCENT {
        true => Finding::optional(NAME, format!("{shares}: all figures below include waits for that work"))
            .with_fix("measure again on a quiet machine"),
        false => Finding::works(NAME, shares),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::State;
    use super::*;
    use sidelane_host::topology::PairKind;

    const STAT: &str = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu1 10 5 5 70 10 0 0 0 0 0\ncpu11 1 0 0 0 0 0 0 0 0 0\n";

    #[test]
    fn load_of_a_cpu_is_read_from_its_own_line() {
        assert_eq!(CpuTicks::parse(STAT, 1), Some(CpuTicks { busy: 20, all: 100 }));
        assert_eq!(CpuTicks::parse(STAT, 11), Some(CpuTicks { busy: 1, all: 1 }));
        assert_eq!(CpuTicks::parse(STAT, 2), None);
    }

    #[test]
    fn busy_share_is_of_the_time_between_two_reads() {
        let earlier = CpuTicks { busy: 20, all: 100 };
        assert_eq!(CpuTicks { busy: 25, all: 120 }.busy_percent_since(earlier), 25);
        assert_eq!(earlier.busy_percent_since(earlier), 0);
    }

    #[test]
    fn busy_lane_is_reported() {
        let pair = TestPair { request: 0, batch: 1, kind: PairKind::Declared };
        assert_eq!(load_finding(&pair, 0, 10).state, State::Works);
        let busy = load_finding(&pair, 0, 95);
        assert!(busy.detail.starts_with("CPU 0 is 0 % and CPU 1 95 % busy: "), "{}", busy.detail);
    }
}

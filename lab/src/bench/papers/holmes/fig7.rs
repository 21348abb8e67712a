//! Holmes' Figs. 7 to 10: the latency of four stores.

use sidelane_report::Unit;

use super::evidence::{HolmesEvidence, INSENSITIVE, ServiceFigureSelector, mean_ns, p99_ns};
use crate::bench::papers::evidence::largest;
use crate::bench::papers::statement::PaperBound::{AtLeast, AtMost};
use crate::bench::papers::statement::{READ, Statement};

/// Makes the paper's two statements on a workload, "Compared to PerfIso, Holmes reduces the average (99th percentile)
/// latency by" `$mean` (`$p99`) percent. The workload's memory share in the model is fitted to the average.
macro_rules! reduces {
    ($figure:literal, $workload:literal, $mean:literal, $p99:literal) => {
        [
            Statement {
                source: concat!("Holmes §6.2, Fig. ", $figure),
                says: concat!("mean latency of ", $workload, " less than under PerfIso by ", $mean, " % (fitted)"),
                wanted: AtLeast($mean * (1.0 - READ)),
                unit: Unit::Percent,
                measured: |seen| Some(100.0 * (1.0 - seen.ratio($workload, ("holmes", "perfiso"), mean_ns)?)),
            },
            Statement {
                source: concat!("Holmes §6.2, Fig. ", $figure),
                says: concat!("p99 of ", $workload, " less than under PerfIso by ", $p99, " %"),
                wanted: AtLeast($p99 * (1.0 - READ)),
                unit: Unit::Percent,
                measured: |seen| Some(100.0 * (1.0 - seen.ratio($workload, ("holmes", "perfiso"), p99_ns)?)),
            },
        ]
    };
}

pub(super) static REDUCED: [[Statement<HolmesEvidence>; 2]; 10] = [
    reduces!("7", "redis-a", 49.0, 35.2),
    reduces!("7", "redis-b", 40.7, 11.7),
    reduces!("7", "redis-e", 28.1, 49.3),
    reduces!("8", "rocksdb-a", 44.2, 28.9),
    reduces!("8", "rocksdb-b", 18.9, 28.7),
    reduces!("8", "rocksdb-e", 25.0, 18.8),
    reduces!("9", "wiredtiger-a", 21.6, 30.1),
    reduces!("9", "wiredtiger-b", 19.4, 21.7),
    reduces!("10", "memcached-a", 16.9, 52.3),
    reduces!("10", "memcached-b", 9.5, 39.2),
];

pub(super) const ALIKE: [Statement<HolmesEvidence>; 3] = [
    Statement {
        source: "Holmes §6.2, Figs. 8 to 10",
        says: "RocksDB, WiredTiger and Memcached have almost the mean latency of alone (most)",
        wanted: AtMost(1.0 + READ),
        unit: Unit::OverAlone,
        measured: |seen| worst_ratio_except_redis(seen, mean_ns),
    },
    Statement {
        source: "Holmes §6.2, Figs. 8 to 10",
        says: "and almost its p99 (most)",
        wanted: AtMost(1.0 + READ),
        unit: Unit::OverAlone,
        measured: |seen| worst_ratio_except_redis(seen, p99_ns),
    },
    Statement {
        source: "Holmes §6.2, Fig. 9",
        says: "wiredtiger-e has almost the same latency under all settings (mean under PerfIso)",
        wanted: AtMost(1.0 + READ),
        unit: Unit::OverAlone,
        measured: |seen| seen.ratio(INSENSITIVE, ("perfiso", "alone"), mean_ns),
    },
];

/// Returns the largest ratio of a number under Holmes to the same number alone, over all stores but Redis.
fn worst_ratio_except_redis(seen: &HolmesEvidence, number: ServiceFigureSelector) -> Option<f64> {
    let ratios = seen.ratios(("holmes", "alone"), number)?;
    largest(ratios.into_iter().filter(|(workload, _)| !workload.starts_with("redis")).map(|(_, ratio)| ratio))
}

#[cfg(test)]
mod tests {
    use super::super::evidence::tests::run;
    use super::*;
    use crate::bench::papers::statement::failing_statements;

    /// Returns runs of a store under Holmes and PerfIso, with these ratios of the latency to the latency alone.
    fn runs_of_store(workload: &str, holmes: f64, perfiso: f64) -> HolmesEvidence {
        let runs = [("alone", 1.0), ("holmes", holmes), ("perfiso", perfiso)];
        HolmesEvidence { outcomes: runs.map(|(setting, times)| run(workload, setting, times)).to_vec() }
    }

    #[test]
    fn smaller_gain_than_in_the_paper_fails() {
        let says = |holmes, perfiso| failing_statements(&REDUCED[0], &runs_of_store("redis-a", holmes, perfiso));
        assert_eq!(says(1.0, 2.0), [""; 0]);
        assert_eq!(says(1.0, 1.6), [REDUCED[0][0].says]);
        assert_eq!(says(1.4, 2.0), [REDUCED[0][0].says, REDUCED[0][1].says]);
        assert_eq!(failing_statements(&REDUCED[1], &runs_of_store("redis-a", 1.0, 2.0)).len(), 2, "another workload");
    }

    #[test]
    fn slower_stores_except_redis_fail() {
        assert_eq!(failing_statements(&ALIKE, &runs_of_store("wiredtiger-e", 1.0, 1.02)), [""; 0]);
        assert_eq!(failing_statements(&ALIKE, &runs_of_store("wiredtiger-e", 1.06, 1.1)).len(), 3);
        let mut seen = runs_of_store("wiredtiger-e", 1.0, 1.0);
        seen.outcomes.extend(runs_of_store("redis-b", 1.5, 2.0).outcomes);
        assert_eq!(failing_statements(&ALIKE, &seen), [""; 0]);
    }
}

//! Holmes' Figs. 12 and 13, Tables 3 and 4: utilisation, VPI (Holmes' measure of interference), finished jobs, and how
//! soon batch leaves.

use sidelane_report::Unit;
use sidelane_sim::machine::figures::{MachineFigures, ServiceFigures};

use super::evidence::{HolmesEvidence, STORES, median};
use crate::bench::papers::evidence::{largest, smallest};
use crate::bench::papers::statement::PaperBound::{AtLeast, AtMost};
use crate::bench::papers::statement::{READ, Statement};

/// Workload of the paper's Table 3.
const COUNTED: &str = "redis-a";
/// Mean work of a job, and the simulated time that stands for an hour, both from the scenario.
const JOB_NS: f64 = 21e9;
const HOUR_NS: f64 = 60e9;

pub(super) const STATEMENTS: [Statement<HolmesEvidence>; 13] = [
    Statement {
        source: "Holmes §6.3, Fig. 12",
        says: "utilisation under Holmes is 72.4 % or more (least)",
        wanted: AtLeast(72.4 * (1.0 - READ)),
        unit: Unit::Percent,
        measured: |seen| smallest(utilisations(seen, "holmes")),
    },
    Statement {
        source: "Holmes §6.3, Fig. 12",
        says: "and 85.8 % or less (most)",
        wanted: AtMost(85.8 * (1.0 + READ)),
        unit: Unit::Percent,
        measured: |seen| largest(utilisations(seen, "holmes")),
    },
    Statement {
        source: "Holmes §6.3, Fig. 12",
        says: "under PerfIso it is 83.4 % or more (least)",
        wanted: AtLeast(83.4 * (1.0 - READ)),
        unit: Unit::Percent,
        measured: |seen| smallest(utilisations(seen, "perfiso")),
    },
    Statement {
        source: "Holmes §6.3, Fig. 12",
        says: "and 88.5 % or less (most)",
        wanted: AtMost(88.5 * (1.0 + READ)),
        unit: Unit::Percent,
        measured: |seen| largest(utilisations(seen, "perfiso")),
    },
    Statement {
        source: "Holmes §6.3, Fig. 12",
        says: "PerfIso slightly outperforms Holmes in that (÷ Holmes, least)",
        wanted: AtLeast(1.0),
        unit: Unit::Ratio,
        measured: perfiso_utilisation_over_holmes,
    },
    Statement {
        source: "Holmes §6.3, Fig. 12",
        says: "there is no significant difference between the workloads of a store (most ÷ least)",
        wanted: AtMost(1.0 + READ),
        unit: Unit::Ratio,
        measured: |seen| {
            largest(STORES.iter().map(|store| utilisation_spread(seen, store)).collect::<Option<Vec<f64>>>()?)
        },
    },
    Statement {
        source: "Holmes §6.3, Fig. 13",
        says: "PerfIso renders the highest VPI (of rocksdb-a, ÷ Holmes)",
        wanted: AtLeast(1.0 + READ),
        unit: Unit::Ratio,
        measured: |seen| seen.ratio("rocksdb-a", ("perfiso", "holmes"), vpi),
    },
    Statement {
        source: "Holmes §6.3, Table 3",
        says: "with PerfIso 78 jobs are done in an hour",
        wanted: AtLeast(78.0 * (1.0 - READ)),
        unit: Unit::Count,
        measured: |seen| seen.find_run(COUNTED, "perfiso").map(jobs_per_hour),
    },
    Statement {
        source: "Holmes §6.3, Table 3",
        says: "with Holmes 73 jobs",
        wanted: AtLeast(73.0 * (1.0 - READ)),
        unit: Unit::Count,
        measured: |seen| seen.find_run(COUNTED, "holmes").map(jobs_per_hour),
    },
    Statement {
        source: "Holmes §6.3, Table 3",
        says: "with PerfIso the CPUs are used to 84.6 %",
        wanted: AtLeast(84.6 * (1.0 - READ)),
        unit: Unit::Percent,
        measured: |seen| seen.find_run(COUNTED, "perfiso").map(utilisation_percent),
    },
    Statement {
        source: "Holmes §6.3, Table 3",
        says: "with Holmes to 75.0 %",
        wanted: AtLeast(75.0 * (1.0 - READ)),
        unit: Unit::Percent,
        measured: |seen| seen.find_run(COUNTED, "holmes").map(utilisation_percent),
    },
    Statement {
        source: "Holmes §6.3, Table 3",
        says: "alone to 1.1 % (fitted)",
        wanted: AtMost(1.1 * (1.0 + READ)),
        unit: Unit::Percent,
        measured: |seen| seen.find_run(COUNTED, "alone").map(utilisation_percent),
    },
    Statement {
        source: "Holmes §6.5, Table 4",
        says: "Holmes has converged after 50 to 100 µs (onset until batch has left, median of the workloads' p99)",
        wanted: AtMost(100.0 * (1.0 + READ)),
        unit: Unit::Us,
        measured: |seen| {
            let p99_us =
                |figures: &MachineFigures| Some(figures.onset.filter(|onset| onset.count > 0)?.p99_ns as f64 / 1e3);
            median(seen.runs_of_setting("holmes").filter_map(|(_, figures)| p99_us(figures)).collect())
        },
    },
];

fn utilisation_percent(figures: &MachineFigures) -> f64 {
    100.0 * figures.utilisation
}

fn utilisations(seen: &HolmesEvidence, setting: &str) -> Vec<f64> {
    seen.runs_of_setting(setting).map(|(_, figures)| utilisation_percent(figures)).collect()
}

fn perfiso_utilisation_over_holmes(seen: &HolmesEvidence) -> Option<f64> {
    let ratio = |(workload, holmes)| {
        Some(utilisation_percent(seen.find_run(workload, "perfiso")?) / utilisation_percent(holmes))
    };
    smallest(seen.runs_of_setting("holmes").map(ratio).collect::<Option<Vec<f64>>>()?)
}

/// Returns the highest utilisation under Holmes of the workloads of a store, divided by the lowest.
fn utilisation_spread(seen: &HolmesEvidence, store: &str) -> Option<f64> {
    let of_store = || seen.runs_of_setting("holmes").filter(|(workload, _)| workload.starts_with(store));
    Some(
        largest(of_store().map(|(_, figures)| utilisation_percent(figures)))?
            / smallest(of_store().map(|(_, figures)| utilisation_percent(figures)))?,
    )
}

/// Returns the service's VPI, Holmes' measure of interference in cycles per memory access; NaN without accesses, since
/// then nothing was measured.
fn vpi(service: &ServiceFigures) -> f64 {
    service.vpi.unwrap_or(f64::NAN)
}

/// Returns the jobs per hour by the amount of work, since a run is too short to count whole jobs.
fn jobs_per_hour(figures: &MachineFigures) -> f64 {
    figures.batch_work_ns / JOB_NS * HOUR_NS / figures.elapsed_ns as f64
}

#[cfg(test)]
mod tests {
    use sidelane_sim::machine::figures::LatencyFigures;

    use super::super::evidence::tests::run;
    use super::*;
    use crate::bench::papers::statement::failing_statements;

    /// Returns the statements that fail for runs with this utilisation and number of jobs per hour under Holmes and
    /// PerfIso. `onset_us` is the time from the onset of interference until batch has left.
    fn failing_with_utilisations(holmes: (f64, f64), perfiso: (f64, f64), onset_us: u64) -> Vec<&'static str> {
        let mut outcomes = Vec::new();
        for workload in ["redis-a", "rocksdb-a", "wiredtiger-a", "memcached-a"] {
            for (setting, times, (utilisation, jobs)) in
                [("alone", 1.0, (0.011, 0.0)), ("holmes", 1.0, holmes), ("perfiso", 1.9, perfiso)]
            {
                let mut run = run(workload, setting, times);
                run.figures.utilisation = utilisation;
                run.figures.elapsed_ns = HOUR_NS as u64;
                run.figures.batch_work_ns = jobs * JOB_NS;
                run.figures.onset = Some(LatencyFigures { count: 5, p99_ns: onset_us * 1000, ..Default::default() });
                outcomes.push(run);
            }
        }
        failing_statements(&STATEMENTS, &HolmesEvidence { outcomes })
    }

    #[test]
    fn figures_of_the_paper_pass_and_weaker_ones_fail() {
        let all = STATEMENTS.map(|statement| statement.says);
        assert_eq!(failing_with_utilisations((0.75, 73.0), (0.846, 78.0), 90), [""; 0]);
        assert_eq!(failing_with_utilisations((0.68, 73.0), (0.846, 78.0), 90), [all[0], all[10]]);
        assert_eq!(failing_with_utilisations((0.75, 60.0), (0.846, 78.0), 90), [all[8]]);
        assert_eq!(failing_with_utilisations((0.85, 73.0), (0.846, 78.0), 90), [all[4]]);
        assert_eq!(failing_with_utilisations((0.75, 73.0), (0.75, 60.0), 90), [all[2], all[7], all[9]]);
        assert_eq!(failing_with_utilisations((0.75, 73.0), (0.95, 78.0), 200), [all[3], all[12]]);
    }
}

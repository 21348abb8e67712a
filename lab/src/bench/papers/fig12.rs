//! Elfen's Fig. 12: borrow idle costs batch time, but no further instructions and no efficiency.

use sidelane_sim::Figures;

use super::evidence::{Evidence, largest, smallest};
use super::statement::PaperBound::{AtLeast, AtMost};
use super::statement::{READ, Statement};
use sidelane_report::Unit;

/// Names of batch jobs in the scenario: one that never waits, and the two jobs that the paper names.
const BUSY: &str = "busy";
const SLOWEST: &str = "pmd";
const FASTEST: &str = "fop";
const AVERAGE: &str = "average";

pub(super) const STATEMENTS: [Statement; 6] = [
    Statement {
        source: "Elfen §5, Fig. 12",
        says: "programs take 49 % longer on average",
        wanted: AtMost(1.49 * (1.0 + READ)),
        unit: Unit::OverAlone,
        measured: |seen| job_figure(seen, AVERAGE, time_over_alone),
    },
    Statement {
        source: "Elfen §5, Fig. 12",
        says: "pmd, with the largest slowdown, has its utilisation reduced by 36 %",
        wanted: AtMost(0.36 * (1.0 + READ)),
        unit: Unit::Ratio,
        measured: |seen| Some(1.0 - job_figure(seen, SLOWEST, utilisation_over_alone)?),
    },
    Statement {
        source: "Elfen §5, Fig. 12",
        says: "the more a program waits, the less it is slowed: fop is slowed least (÷ the least of all)",
        wanted: AtMost(1.0),
        unit: Unit::Ratio,
        measured: |seen| {
            Some(job_figure(seen, FASTEST, time_over_alone)? / smallest(all_job_figures(seen, time_over_alone)?)?)
        },
    },
    Statement {
        source: "Elfen §5, Fig. 12",
        says: "and keeps most of its utilisation (÷ the most of all)",
        wanted: AtLeast(1.0),
        unit: Unit::Ratio,
        measured: |seen| {
            Some(
                job_figure(seen, FASTEST, utilisation_over_alone)?
                    / largest(all_job_figures(seen, utilisation_over_alone)?)?,
            )
        },
    },
    Statement {
        source: "Elfen §5, Fig. 12",
        says: "execution time follows from utilisation: of a job that never waits, time × idle time of the service",
        wanted: AtMost(1.0 + READ),
        unit: Unit::Ratio,
        measured: |seen| job_figure(seen, BUSY, |run| time_over_alone(run) * (1.0 - run.lc_utilisation)),
    },
    Statement {
        source: "Elfen §5, Fig. 12",
        says: "while it runs a program is at most 1 % less efficient (IPC; here work for each unit of CPU time)",
        wanted: AtLeast(0.99),
        unit: Unit::OverAlone,
        measured: |seen| smallest(all_job_figures(seen, efficiency)?),
    },
];

fn job_figure(seen: &Evidence, batch: &str, number: fn(&Figures) -> f64) -> Option<f64> {
    seen.runs_of_setting("borrow-idle").beside_batch(batch).only_number(number)
}

fn all_job_figures(seen: &Evidence, number: fn(&Figures) -> f64) -> Option<Vec<f64>> {
    [BUSY, SLOWEST, AVERAGE, FASTEST].into_iter().map(|batch| job_figure(seen, batch, number)).collect()
}

/// Returns the program's time beside the service divided by its time alone. NaN if the program did not run, since then
/// there is no measurement.
fn time_over_alone(run: &Figures) -> f64 {
    1.0 / run.batch_work_ratio.unwrap_or(f64::NAN)
}

/// Returns the program's CPU utilisation beside the service, divided by its utilisation without the service.
fn utilisation_over_alone(run: &Figures) -> f64 {
    let work_alone_ns = run.batch_work_ns / run.batch_work_ratio.unwrap_or(f64::NAN);
    run.batch_utilisation * run.elapsed_ns as f64 / work_alone_ns
}

fn efficiency(run: &Figures) -> f64 {
    run.batch_work_ns / (run.batch_utilisation * run.elapsed_ns as f64)
}

#[cfg(test)]
mod tests {
    use sidelane_sim::Outcome;

    use super::super::evidence::tests::{evidence, run};
    use super::super::statement::failing_statements;
    use super::*;

    const ELAPSED_NS: u64 = 1_000_000_000;

    /// Returns a job that needs its lane for the share `utilisation_alone` of its time. The job takes `time_factor`
    /// times as long beside a service that is busy half of the time.
    fn run_of_job(batch: &str, utilisation_alone: f64, time_factor: f64, efficiency: f64) -> Outcome {
        let mut run = run("borrow-idle", batch, 80.0, 60.0, (0.5, utilisation_alone / time_factor / efficiency));
        run.figures.elapsed_ns = ELAPSED_NS;
        run.figures.batch_work_ratio = Some(1.0 / time_factor);
        run.figures.batch_work_ns = utilisation_alone / time_factor * ELAPSED_NS as f64;
        run
    }

    fn failing_with_job_times(busy: f64, pmd: f64, average: f64, fop: f64, efficiency: f64) -> Vec<&'static str> {
        let job = |batch, alone, time| run_of_job(batch, alone, time, efficiency);
        let jobs =
            vec![job(BUSY, 1.0, busy), job(SLOWEST, 0.6, pmd), job(AVERAGE, 0.5, average), job(FASTEST, 0.4, fop)];
        failing_statements(&STATEMENTS, &evidence(jobs))
    }

    #[test]
    fn slowdown_of_batch_other_than_by_holds_fails() {
        assert_eq!(failing_with_job_times(2.0, 1.59, 1.49, 1.47, 1.0), [""; 0]);
        assert_eq!(failing_with_job_times(2.0, 1.59, 1.6, 1.47, 1.0), [STATEMENTS[0].says]);
        assert_eq!(failing_with_job_times(2.0, 1.7, 1.49, 1.47, 1.0), [STATEMENTS[1].says]);
        assert_eq!(failing_with_job_times(2.0, 1.59, 1.46, 1.47, 1.0), [STATEMENTS[2].says, STATEMENTS[3].says]);
        assert_eq!(failing_with_job_times(2.3, 1.59, 1.49, 1.47, 1.0), [STATEMENTS[4].says]);
        assert_eq!(failing_with_job_times(2.0, 1.59, 1.49, 1.47, 0.9), [STATEMENTS[5].says]);
    }
}

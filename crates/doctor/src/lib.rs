//! `sidelane doctor`: what this machine can do, what it lacks and how to get it, and how fast batch leaves a lane here.
//!
//! Nothing is assumed: the doctor loads programs, creates cgroups, changes scheduling classes and tests gates on a
//! small scale, and undoes all of it. As in a run, a guardian process removes the rest if the doctor is killed. Lanes
//! that another Sidelane lends are not touched.
//!
//! The exit code answers one question: would `sidelane run` work here?
//!
//! # Invariants
//!
//! - The doctor has just tried each property that it reports as working: *not guarded*.
//! - The doctor leaves nothing behind, guarded for sched_ext alone (`tests/smt/sched_ext.sh`: `test_ext_doctor`).
//! - Calibration: samples that do not fit lead to no conclusion (`src/calibrate/analysis.rs`:
//!   `samples_without_a_fit_are_refused`; `crates/sidelane/tests/calibrate.rs`:
//!   `calibration_without_counters_reports_latencies_only`).
//! - Calibration: a threshold is above what the service shows alone (`src/calibrate/analysis.rs`:
//!   `threshold_is_above_the_values_without_batch`).

#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use sidelane_host::topology::Topology;
use sidelane_report::ResultFile;
use sidelane_report::grid::Ink;
use sidelane_report::terminal;
use sidelane_rollback::change::undos_of_own_groups;
use sidelane_rollback::claim::Claim;
use sidelane_rollback::guardian::{CANNOT_START, Guardian};

pub mod calibrate;
mod container;
mod cookie;
mod finding;
pub mod gates;
mod groups;
mod hardware;
mod interrupts;
mod kernel;
mod load;
mod print;
mod privileges;
pub mod reaction;
mod siblings;
mod summary;
mod tracking;

use crate::reaction::latency::ReactionPlan;
use crate::reaction::pair::TestPair;
use finding::{Finding, Group};
use gates::Gate;
use print::Printer;
use sidelane_host::procfs::own_cpus;
use summary::Summary;

/// Last line without the details.
const MORE: &str = "All findings and times of gates: sidelane doctor -v\n";

/// Options of `sidelane doctor`.
#[derive(Clone, Debug, Default)]
pub struct DoctorOptions {
    /// Lanes of the option `--lanes`, if given.
    pub lanes: Option<String>,
    /// Whether there are fewer rounds, so that the doctor ends within 8 s.
    pub quick: bool,
    /// Whether all findings and figures are printed after the verdict.
    pub verbose: bool,
    /// File for findings and figures as JSON.
    pub json: Option<PathBuf>,
}

/// Tests everything, passes the result to `keep` and prints the verdict, with the problems or all findings. Returns the
/// exit code: 0 if `sidelane run` would work.
pub fn run(options: DoctorOptions, keep: impl FnOnce(&ResultFile) -> Result<()>) -> Result<u8> {
    let topology = Topology::read(Path::new("/sys"))?;
    let pair = TestPair::choose(&topology, &own_cpus(), options.lanes.as_deref())?;
    let effort = if options.quick { ReactionPlan::QUICK } else { ReactionPlan::FULL };
    // The instrumented gate comes first, since its test runs a session, which claims the lane itself.
    let checked = pair.as_ref().map(|pair| gates::measure_instrumented_gate(pair, &effort));
    let (claim, claimed) = pair.as_ref().map(privileges::claim_batch_lane).unzip();
    let name = format!("sidelane-doctor-{}", std::process::id());
    let guardian = start_guardian(&name, claim.as_ref().and_then(Option::as_ref))?;
    let doctor = Doctor {
        topology,
        // A lane that another Sidelane lends must not be disturbed.
        idle: pair.as_ref().filter(|_| !claimed.as_ref().is_some_and(privileges::is_claimed_elsewhere)),
        pair: pair.as_ref(),
        claimed,
        name,
        checked,
        effort,
    };
    terminal::eprint_fitted(&format!(
        "sidelane: doctor: testing this machine, for about {}",
        if options.quick { "8 s" } else { "half a minute" }
    ));
    let examined = doctor.check_all();
    guardian
        .undo_all_and_end()
        .context("cannot undo all changes to the machine; look for cgroups named sidelane-doctor-*")?;
    let summary = examined?;
    let result = summary.to_result(pair.as_ref(), options.quick);
    options.json.as_deref().map_or(Ok(()), |path| result.write_json(path))?;
    keep(&result)?;
    let printer = printer();
    terminal::print(&printer.format_verdict(&summary, pair.as_ref()))?;
    let details = if options.verbose { printer.format_details(&summary, pair.as_ref()) } else { MORE.to_owned() };
    terminal::print(&details)?;
    Ok(summary.exit_code())
}

/// Starts the process that removes the cgroups `name` if this process is killed.
pub fn start_guardian(name: &str, claim: Option<&Claim>) -> Result<Guardian> {
    let lock = claim.map(Claim::duplicate_lock).transpose()?;
    let mut guardian = Guardian::start(lock.as_slice(), None).context(CANNOT_START)?;
    let changes = claim.map(Claim::undo).into_iter().chain(undos_of_own_groups(name));
    guardian.add(changes)?;
    claim.map_or(Ok(()), Claim::announce)?;
    Ok(guardian)
}

fn printer() -> Printer {
    Printer { width: terminal::stdout_width(), ink: Ink { color: terminal::should_use_color() } }
}

/// State of one run of the doctor.
struct Doctor<'pair> {
    topology: Topology,
    /// Pair of lanes to test; `None` with fewer than two CPUs.
    pair: Option<&'pair TestPair>,
    /// Pair of lanes, if no other Sidelane uses it.
    idle: Option<&'pair TestPair>,
    claimed: Option<Finding>,
    /// Result of the instrumented gate, which was tested first.
    checked: Option<Gate>,
    name: String,
    effort: ReactionPlan,
}

impl Doctor<'_> {
    /// Tests one property after the other.
    fn check_all(&self) -> Result<Summary> {
        let slowdown_percent = self.idle.and_then(|pair| self.slowdown_percent(pair));
        let mut summary = Summary { slowdown_percent, ..Summary::default() };
        for examine in [Self::check_machine, Self::check_kernel, Self::check_privileges] {
            let group = examine(self, &summary);
            summary.groups.push(group);
        }
        if let Some(pair) = self.idle {
            summary.gates = self.checked.clone().into_iter().collect();
            summary.gates.extend(gates::measure_all(pair, &self.name, summary.allows_run(), &self.effort));
        }
        Ok(summary)
    }

    fn slowdown_percent(&self, pair: &TestPair) -> Option<f64> {
        siblings::slowdown_percent(pair, self.effort.sibling_pairs).ok().flatten()
    }

    fn check_machine(&self, summary: &Summary) -> Group {
        let mut findings = hardware::check_hardware(&self.topology);
        findings.extend(self.pair.map(load::check_other_load));
        findings.extend(self.pair.map(interrupts::check_interrupts));
        let measured = self.pair.zip(summary.slowdown_percent);
        findings.extend(measured.map(|(pair, percent)| siblings::sibling_finding(pair, percent)));
        Group { title: "Machine", findings }
    }

    fn check_kernel(&self, _: &Summary) -> Group {
        let mut findings = kernel::check_kernel();
        findings.push(cookie::check_core_scheduling(self.idle));
        findings.extend(self.pair.map(tracking::check_tracker));
        findings.extend(groups::check_cgroups(&self.name));
        Group { title: "Kernel", findings }
    }

    fn check_privileges(&self, _: &Summary) -> Group {
        let mut findings = privileges::check_privileges();
        findings.extend(container::check_namespaces());
        findings.extend(self.claimed.clone());
        Group { title: "Privileges", findings }
    }
}

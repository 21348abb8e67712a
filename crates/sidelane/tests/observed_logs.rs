//! Tests on recorded logs of real programs: `sidelane report` names the remarkable facts in its first ten lines.
//!
//! `tests/fixtures/observed/README.md` says how each log was recorded. Beside each log is its expected report.

use std::path::PathBuf;
use std::process::Command;

const SIDELANE: &str = env!("CARGO_BIN_EXE_sidelane");

/// Number of first lines of a report that have to contain the remarkable facts.
const LINES: usize = 10;

fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/observed")
}

/// Returns the report of a log, on a terminal of `columns` columns.
fn report(log: &str, columns: usize, args: &[&str]) -> String {
    let mut report = Command::new(SIDELANE);
    report.current_dir(fixtures()).args(["report", log]).args(args).env("COLUMNS", columns.to_string());
    let output = report.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn finding_lines(said: &str) -> String {
    said.lines().take(LINES).map(|line| format!("{line}\n")).collect()
}

/// Checks that the first lines are those in the file beside the log, and contain each text of `finding`, regardless of
/// line breaks.
fn check_report_begins_with(name: &str, finding: &[&str]) {
    let said = finding_lines(&report(&format!("{name}.log"), 100, &[]));
    let wanted = std::fs::read_to_string(fixtures().join(format!("{name}.txt"))).unwrap();
    assert_eq!(said, wanted, "\n{said}");
    let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in finding {
        assert!(words.contains(part), "no `{part}` in\n{said}");
    }
}

#[test]
fn log_of_a_jvm_names_its_gc_pauses() {
    check_report_begins_with(
        "jvm",
        &["jvm:sun.gc.cause is", "G1 Evacuation Pause for", "jvm:sun.gc.collector.0.invocations: "],
    );
}

#[test]
fn log_of_a_go_program_names_its_gc_phases() {
    check_report_begins_with("go", &["tag:mem:runtime.gcphase is 1 for", "counter:mem:runtime.memstats.numgc: "]);
}

#[test]
fn log_of_redis_names_its_requests() {
    check_report_begins_with("redis", &["request.finished: ", "events a second", "request.state is one runs for"]);
}

#[test]
fn report_fits_any_width_and_begins_with_its_finding() {
    for name in ["jvm", "go", "redis"] {
        for columns in [60, 80, 100, 140] {
            for args in [&[][..], &["-v"], &["-q"]] {
                let said = report(&format!("{name}.log"), columns, args);
                let widest = said.lines().map(|line| line.chars().count()).max().unwrap();
                assert!(widest <= columns, "{widest} of {columns} columns:\n{said}");
                let first = finding_lines(&said);
                assert!(first.contains("The cost of observing"), "{columns} columns, {args:?}:\n{first}");
            }
        }
    }
}

#[test]
fn quiet_is_the_finding_alone_and_verbose_has_the_histograms() {
    let [quiet, usual, verbose] = [&["-q"][..], &[], &["-v"]].map(|args| report("jvm.log", 100, args));
    assert!(quiet.contains("The cost of observing") && !quiet.contains('─'), "{quiet}");
    assert!(usual.contains('─') && !usual.contains('█'), "{usual}");
    assert!(verbose.contains('█') && verbose.contains("rate of jvm:sun.rt.safepoints"), "{verbose}");
    assert!(!usual.contains("rate of jvm:sun.rt.safepoints"), "events have no rate: {usual}");
}

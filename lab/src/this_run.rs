//! The run of this process, for results: the command, the date and the commit of the sources.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::time::SystemTime;

use sidelane_host::wall_clock::format_utc;
use sidelane_report::Run;

use crate::programs::find_sidelane;

/// Options that name files. They do not affect the measurement.
const OF_FILES: [&str; 5] = ["--json", "--csv", "--page", "--out", "--cache"];

static AT_START: OnceLock<Run> = OnceLock::new();

/// Records the command, the date and the commit. Called once, when a command that measures starts.
pub fn record_run() {
    AT_START
        .get_or_init(|| run_from_arguments(std::env::args().skip(1), format_utc(SystemTime::now()), source_commit()));
}

/// Returns this run; `None` in a process that no command started.
pub fn current_run() -> Option<Run> {
    AT_START.get().cloned()
}

/// Describes the run of these arguments. `at` is the time with a fraction of a second, which is left out.
fn run_from_arguments(arguments: impl Iterator<Item = String>, at: String, commit: Option<String>) -> Run {
    let arguments = drop_file_options(arguments);
    let words = if arguments.first().is_some_and(|first| first == "bench") { 2 } else { 1 };
    Run {
        name: arguments.iter().take(words).cloned().collect::<Vec<_>>().join(" "),
        command: format!("sidelane-lab {}", arguments.join(" ")),
        date: at.split_once('.').map_or(at.clone(), |(seconds, _)| format!("{seconds}Z")),
        commit,
    }
}

fn drop_file_options(mut arguments: impl Iterator<Item = String>) -> Vec<String> {
    let mut kept = Vec::new();
    while let Some(argument) = arguments.next() {
        match argument.split_once('=').map_or(argument.as_str(), |(option, _)| option) {
            option if !OF_FILES.contains(&option) => kept.push(argument),
            option if option == argument => drop(arguments.next()),
            _ => {}
        }
    }
    kept
}

/// Returns the commit of the sources. `None` if the programs are older than their sources, or are not in cargo's build
/// folder.
fn source_commit() -> Option<String> {
    let own = std::env::current_exe().ok()?;
    let programs = [Some(own.clone()), find_sidelane().ok()];
    if !programs.iter().flatten().all(|program| is_up_to_date(program)) {
        return None;
    }
    let source = source_files(&own)?.into_iter().find(|file| file.ends_with("src/main.rs"))?;
    let git = |arguments: &[&str]| {
        let output = Command::new("git").arg("-C").arg(Path::new(&source).parent()?).args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let paths = [":(top)", ":(top,exclude)docs", ":(top,exclude)results"];
    let changes = git(&[&["status", "--porcelain", "--untracked-files=no", "--"], &paths[..]].concat())?;
    let changed = if changes.is_empty() { "" } else { "-dirty" };
    Some(git(&["rev-parse", "HEAD"])? + changed)
}

/// Returns the source files and folders of a program. Cargo lists them in a file beside the program, as `PROGRAM: FILE
/// FILE …`.
fn source_files(program: &Path) -> Option<Vec<String>> {
    let list = fs::read_to_string(program.with_extension("d")).ok()?;
    Some(list.split_whitespace().skip(1).map(str::to_owned).collect())
}

/// Returns whether a program is newer than all its sources.
fn is_up_to_date(program: &Path) -> bool {
    let (Some(built_at), Some(sources)) = (modified_at(program), source_files(program)) else { return false };
    sources.iter().all(|source| modified_at(Path::new(source)).is_some_and(|changed_at| changed_at <= built_at))
}

/// Returns the modification time of a file; for a folder the latest time of its files.
fn modified_at(path: &Path) -> Option<SystemTime> {
    let metadata = fs::metadata(path).ok()?;
    if metadata.is_file() {
        return metadata.modified().ok();
    }
    fs::read_dir(path).ok()?.flatten().filter_map(|entry| modified_at(&entry.path())).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_of_command_line(line: &str) -> Run {
        run_from_arguments(line.split(' ').map(str::to_owned), "2026-03-01T14:02:11.000042Z".to_owned(), None)
    }

    #[test]
    fn run_has_bench_name_and_command_without_files() {
        let hold = run_of_command_line("bench hold --quick --json /tmp/hold.json --lanes 0:1 --csv=/tmp/hold.csv");
        assert_eq!(hold.name, "bench hold");
        assert_eq!(hold.command, "sidelane-lab bench hold --quick --lanes 0:1");
        assert_eq!(hold.date, "2026-03-01T14:02:11Z");
        let demo = run_of_command_line("demo --out out/demo --batch zstd");
        assert_eq!((demo.name.as_str(), demo.command.as_str()), ("demo", "sidelane-lab demo --batch zstd"));
    }

    #[test]
    fn program_is_outdated_once_a_source_changes() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str, seconds: u64| {
            let path = folder.path().join(name);
            fs::write(&path, "").unwrap();
            let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
            fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
            path
        };
        let (program, source) = (at("lab", 2_000), at("lab.rs", 1_000));
        assert!(!is_up_to_date(&program), "its sources are not known");
        fs::write(program.with_extension("d"), format!("{}: {}\n", program.display(), source.display())).unwrap();
        assert!(is_up_to_date(&program));
        at("lab.rs", 3_000);
        assert!(!is_up_to_date(&program));
    }
}

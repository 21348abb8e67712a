//! A `sidelane run` in tests: its arguments, the running process, and its result.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use serde_json::Value;
use sidelane_report::{ResultFile, Row};
use sidelane_rollback::guardian;
use tempfile::TempDir;

use super::deadline::holds_within;
use super::lanes::LANES;
use super::{process, wait_until};

/// Path of the `sidelane` binary under test.
pub const SIDELANE: &str = env!("CARGO_BIN_EXE_sidelane");
/// Time after which a run counts as stuck.
const END_TIMEOUT: Duration = Duration::from_secs(120);

/// A `sidelane run` that is to be started.
pub struct Run {
    wrapper: Vec<OsString>,
    binary: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    dir: TempDir,
    work_dir: Option<PathBuf>,
    limits: Vec<(Limit, u64)>,
}

/// Resource limit, by the kernel's number.
pub type Limit = libc::__rlimit_resource_t;

impl Run {
    /// Creates a run beside this service, on the lanes of the tests, with result file and audit log.
    pub fn beside_service(target: impl AsRef<OsStr>) -> Self {
        let run = Self::with_arguments(&["run", "--lanes", LANES, "--service"]).with_more_arguments(&[target.as_ref()]);
        let (result, audit) = (run.dir.path().join("result.json"), run.dir.path().join("audit.jsonl"));
        run.with_more_arguments(&[OsStr::new("--json"), result.as_ref(), OsStr::new("--audit"), audit.as_ref()])
    }

    /// Creates a run with only these arguments.
    pub fn with_arguments(arguments: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let run = Self {
            wrapper: vec![],
            binary: SIDELANE.into(),
            arguments: vec![],
            environment: vec![],
            dir,
            work_dir: None,
            limits: vec![],
        };
        run.with_more_arguments(arguments)
    }

    /// Returns the path of the run's audit log.
    pub fn audit_path(&self) -> PathBuf {
        self.dir.path().join("audit.jsonl")
    }

    /// Returns whether the run has any arguments yet.
    pub fn has_arguments(&self) -> bool {
        !self.arguments.is_empty()
    }

    /// Adds arguments.
    pub fn with_more_arguments(mut self, arguments: &[impl AsRef<OsStr>]) -> Self {
        self.arguments.extend(arguments.iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    /// Adds an environment variable.
    pub fn with_variable(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Sets the working directory of the run.
    pub fn in_dir(mut self, dir: &Path) -> Self {
        self.work_dir = Some(dir.to_owned());
        self
    }

    /// Starts the run through another command, which executes the command in its arguments.
    pub fn through_wrapper(mut self, wrapper: &[impl AsRef<OsStr>]) -> Self {
        self.wrapper = wrapper.iter().map(|word| word.as_ref().to_owned()).collect();
        self
    }

    /// Starts the run with these resource limits.
    pub fn with_limits(mut self, limits: &[(Limit, u64)]) -> Self {
        self.limits.extend(limits);
        self
    }

    /// Uses another copy of the `sidelane` binary.
    pub fn with_binary(mut self, binary: &Path) -> Self {
        self.binary = binary.to_owned();
        self
    }

    /// Starts the run with this batch command.
    pub fn start(self, batch: &[&str]) -> Running {
        self.with_more_arguments(&["--"]).with_more_arguments(batch).start_without_batch()
    }

    /// Starts the run with a shell script as the batch command.
    pub fn start_script(self, script: &str) -> Running {
        self.start(&["sh", "-c", script])
    }

    /// Starts the run with this batch command and waits for the end.
    pub fn run_to_end(self, batch: &[&str]) -> Finished {
        self.start(batch).wait_for_end()
    }

    /// Starts the run without further arguments.
    pub fn start_without_batch(self) -> Running {
        let mut words = self.wrapper.iter().map(OsString::as_os_str).chain([self.binary.as_os_str()]);
        let mut command = Command::new(words.next().expect("the binary at least"));
        command
            .args(words)
            .args(&self.arguments)
            .envs(self.environment)
            .env(process::MARK, process::mark_of_this_test());
        command.stdin(Stdio::piped());
        command.stdout(file_in(&self.dir, "stdout")).stderr(file_in(&self.dir, "stderr"));
        if let Some(dir) = &self.work_dir {
            command.current_dir(dir);
        }
        process::limit(&mut command, self.limits);
        // Tests that run in a shell's background inherit an ignored SIGINT, which no shell can
        // trap. SAFETY: between fork and exec the closure makes one async-signal-safe call.
        unsafe {
            command.pre_exec(|| {
                libc::signal(libc::SIGINT, libc::SIG_DFL);
                Ok(())
            })
        };
        Running { child: command.spawn().expect("sidelane starts"), dir: self.dir }
    }
}

fn file_in(dir: &TempDir, name: &str) -> File {
    File::create(dir.path().join(name)).expect("a file can be made in a temporary directory")
}

/// A running `sidelane run`. Dropping it kills it; the guardian then cleans up.
pub struct Running {
    child: Child,
    dir: TempDir,
}

impl Running {
    /// Returns the process id of `sidelane run`.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the path of the run's audit log.
    pub fn audit_path(&self) -> PathBuf {
        self.dir.path().join("audit.jsonl")
    }

    /// Returns the input of the batch command. Dropping it ends the input.
    pub fn input(&mut self) -> std::process::ChildStdin {
        self.child.stdin.take().expect("the input is taken once")
    }

    /// Sends `sidelane run` a POSIX signal.
    pub fn signal(&self, signal: i32) {
        // SAFETY: plain system call; the child is not reaped yet.
        let sent = unsafe { libc::kill(self.pid() as libc::pid_t, signal) };
        assert_eq!(sent, 0, "sidelane had ended already:\n{}", self.errors());
    }

    /// Kills `sidelane run` and waits for its end.
    pub fn kill(&mut self) {
        self.signal(libc::SIGKILL);
        self.child.wait().expect("a killed child can be waited for");
    }

    /// Kills `sidelane run`, unless it has ended.
    pub fn kill_if_there(&mut self) {
        if !self.has_ended() {
            self.kill();
        }
    }

    /// Waits until the batch command has printed a line, and returns the first line.
    #[track_caller]
    pub fn first_line(&mut self) -> String {
        self.wait_until("batch printed a line", |run| run.output().contains('\n'));
        self.output().lines().next().expect("there is a line").to_owned()
    }

    /// Waits until the batch command has printed its process id as its first line.
    #[track_caller]
    pub fn batch_pid(&mut self) -> u32 {
        let line = self.first_line();
        line.parse().unwrap_or_else(|_| panic!("`{line}` is not a process id"))
    }

    /// Waits until the lane's holder holds the lane.
    #[track_caller]
    pub fn wait_until_lane_is_held(&mut self) {
        self.wait_until("the lane is held", |run| process::has_running_thread(run.pid(), "holder-1"));
    }

    /// Returns the entries of the audit log up to now.
    pub fn audit(&self) -> Vec<Value> {
        audit_in(&self.dir)
    }

    /// Waits until the audit log has an entry with this `action` at or after `since_ns`.
    #[track_caller]
    pub fn wait_until_audited(&mut self, action: &str, since_ns: u64) {
        self.wait_until(&format!("the audit log had a later {action}"), |run| run.has_audited(action, since_ns));
    }

    /// Returns whether the audit log has an entry with this `action` at or after `since_ns`.
    pub fn has_audited(&self, action: &str, since_ns: u64) -> bool {
        let mut entries = audit_in(&self.dir).into_iter();
        entries.any(|entry| entry["action"] == action && entry["at_ns"].as_u64() >= Some(since_ns))
    }

    /// Waits for a guardian process other than `known`.
    #[track_caller]
    pub fn wait_for_guardian_other_than(&mut self, known: Option<u32>) -> u32 {
        let found = || guardians().into_iter().find(|pid| Some(*pid) != known);
        self.wait_until("a guardian was there", |_| found().is_some());
        found().expect("it was there a moment ago")
    }

    /// Waits until `condition` holds; fails at once if the run ends first.
    #[track_caller]
    pub fn wait_until(&mut self, what: &str, condition: impl Fn(&Self) -> bool) {
        wait_until(what, || {
            let holds = condition(self);
            let ended = !holds && self.has_ended() && !condition(self);
            assert!(!ended, "sidelane ended before {what}:\n{}", self.errors());
            holds
        });
    }

    /// Waits for the end of the run.
    #[track_caller]
    pub fn wait_for_end(mut self) -> Finished {
        drop(self.child.stdin.take());
        let ended = holds_within(END_TIMEOUT, || self.has_ended());
        assert!(ended, "sidelane has not ended within {END_TIMEOUT:?}:\n{}", self.errors());
        let status = self.child.wait().expect("an ended child can be waited for");
        let dir = std::mem::replace(&mut self.dir, tempfile::tempdir().expect("another directory"));
        let (stdout, stderr) = (text(&dir, "stdout"), text(&dir, "stderr"));
        let ended = Finished { code: status.code(), status, stdout, stderr, dir };
        ended.check_ledger();
        ended
    }

    /// Returns the output of the batch command up to now.
    pub fn output(&self) -> String {
        text(&self.dir, "stdout")
    }

    /// Returns the output on standard error up to now.
    pub fn errors(&self) -> String {
        text(&self.dir, "stderr")
    }

    /// Returns whether the run has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child can be waited for").is_some()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill_if_there();
    }
}

/// A `sidelane run` that has ended.
pub struct Finished {
    /// Exit code of the run; `None` if a POSIX signal ended it.
    pub code: Option<i32>,
    status: ExitStatus,
    /// Text on standard output.
    pub stdout: String,
    /// Text on standard error.
    pub stderr: String,
    dir: TempDir,
}

impl Finished {
    /// Returns the result in the result file.
    #[track_caller]
    pub fn result(&self) -> ResultFile {
        let json = text(&self.dir, "result.json");
        serde_json::from_str(&json).unwrap_or_else(|error| panic!("not a result file: {error}: `{json}`\n{self}"))
    }

    /// Fails if the accounts of the batch lanes do not add up to the time that passed, if the run has any result.
    #[track_caller]
    fn check_ledger(&self) {
        let Ok(result) = serde_json::from_str::<ResultFile>(&text(&self.dir, "result.json")) else { return };
        let Some(percent) = result.rows.first().and_then(|row| row.get("ledger_percent")) else { return };
        assert!((99.9..=100.1).contains(&percent), "the ledger adds up to {percent} % of the time:\n{self}");
    }

    /// Returns the row of figures of the run.
    #[track_caller]
    pub fn figures(&self) -> Row {
        self.result().rows.into_iter().next().expect("a run has one row")
    }

    /// Returns one figure of the run.
    #[track_caller]
    pub fn figure(&self, key: &str) -> f64 {
        let figures = self.figures();
        figures.get(key).unwrap_or_else(|| panic!("no figure {key} in {figures:?}"))
    }

    /// Returns the entries of the audit log.
    #[track_caller]
    pub fn audit(&self) -> Vec<Value> {
        audit_in(&self.dir)
    }

    /// Fails unless the run ended with this exit code.
    #[track_caller]
    pub fn expect_exit_code(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self}");
        self
    }

    /// Fails unless standard error contains each of these texts.
    #[track_caller]
    pub fn expect_stderr_contains(self, words: &[&str]) -> Self {
        words.iter().for_each(|word| assert!(self.stderr.contains(word), "no `{word}` in: {self}"));
        self
    }
}

impl fmt::Display for Finished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\nstdout: {}\nstderr: {}", self.status, self.stdout, self.stderr)
    }
}

/// Returns the process ids of batch.
pub fn batch_processes() -> Vec<u32> {
    let is_batch = |pid: &u32| process::program(*pid).is_some_and(|program| program != Path::new(SIDELANE));
    process::marked_pids().into_iter().filter(is_batch).collect()
}

/// Returns the process ids of all guardians of runs that this test has started.
pub fn guardians() -> Vec<u32> {
    let is_guardian = |pid: &u32| process::command_line(*pid).iter().any(|word| word == guardian::VERB);
    process::marked_pids().into_iter().filter(is_guardian).collect()
}

/// Returns the entries of the log's complete lines. The log may be written during the read.
fn audit_in(dir: &TempDir) -> Vec<Value> {
    let log = text(dir, "audit.jsonl");
    let whole = log.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let parse = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("`{line}` is not JSON: {error}"));
    whole.lines().map(parse).collect()
}

fn text(dir: &TempDir, name: &str) -> String {
    fs::read_to_string(dir.path().join(name)).unwrap_or_default()
}

//! Starter of the programs of experiments: services, load and batch work of `sidelane-lab`, and `sidelane` itself. They
//! communicate through pipes, and die with this process.

use std::env;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::interrupt;

const NAME: &str = "sidelane-lab";
const SIDELANE: &str = "sidelane";
/// Interval of checks whether a program has ended. It prints less than a pipe holds.
const CHECK_EVERY: Duration = Duration::from_millis(20);

/// Folders of programs for administrators, which the PATH may lack.
const SYSTEM_DIRS: [&str; 2] = ["/usr/sbin", "/usr/local/sbin"];

/// Returns the path of the program `name`: beside this binary, on the PATH, or among those for administrators.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let beside = env::current_exe().ok().map(|own| own.with_file_name(name));
    let on_path = env::var_os("PATH").unwrap_or_default();
    let dirs = env::split_paths(&on_path).chain(SYSTEM_DIRS.map(PathBuf::from));
    let in_dirs = dirs.map(|dir| dir.join(name)).collect::<Vec<_>>();
    beside.into_iter().chain(in_dirs).find(|path| path.is_file())
}

/// Returns the path of a program of another package.
///
/// # Errors
/// Fails if it is not installed.
pub fn require_program(name: &str) -> Result<PathBuf> {
    find_program(name).with_context(|| format!("{name} is not installed; apt-get install {name}"))
}

/// Returns the path of `sidelane`, the program that is measured.
///
/// # Errors
/// Fails if `sidelane` is not built.
pub fn find_sidelane() -> Result<PathBuf> {
    find_program(SIDELANE).context(
        "sidelane, which is measured, is neither beside sidelane-lab nor on the PATH: build it with `make lab`",
    )
}

/// Path of the lab's binary.
#[derive(Clone, Debug)]
pub struct LabBinary {
    path: PathBuf,
}

impl LabBinary {
    /// Finds the lab's binary beside this one, or on the PATH.
    pub fn find() -> Result<Self> {
        let path = find_program(NAME).context(
            "sidelane-lab, which brings the services and the load, is neither beside sidelane nor on the PATH: \
             build it with `make lab`",
        )?;
        Ok(Self { path })
    }

    /// Returns a lab whose binary is at a known path.
    pub fn with_path(path: PathBuf) -> Self {
        Self { path }
    }

    /// Returns the path of the lab's binary.
    pub fn path(&self) -> &OsStr {
        self.path.as_os_str()
    }

    /// Returns a command of the lab that dies with this process.
    pub fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(&self.path);
        command.args(args);
        kill_with_parent(command)
    }

    /// Runs a command of the lab and waits for its end.
    pub fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Result<()> {
        let mut command = self.command(args);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot run {command:?}"))?;
        while child.try_wait()?.is_none() {
            if let Err(interrupted) = interrupt::check() {
                child.kill().and_then(|()| child.wait())?;
                return Err(interrupted);
            }
            thread::sleep(CHECK_EVERY);
        }
        let output = child.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{command:?} failed ({}): {}", output.status, said.trim());
        Ok(())
    }

    /// Starts a command of the lab that prints a line `ready …` when it can serve.
    pub fn start<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Result<LabProcess> {
        LabProcess::start(self.command(args))
    }
}

/// Makes `command` die with this process.
pub fn kill_with_parent(command: Command) -> Command {
    signal_on_parent_exit(command, Signal::KILL)
}

/// Makes `command` get the signal when this process ends.
pub fn signal_on_parent_exit(mut command: Command, signal: Signal) -> Command {
    // SAFETY: one async-signal-safe system call between fork and exec.
    unsafe { command.pre_exec(move || Ok(set_parent_process_death_signal(Some(signal))?)) };
    command
}

/// Running command of the lab, which is killed when this is dropped.
pub struct LabProcess {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    ready: String,
}

impl LabProcess {
    /// Starts a command that prints a line `ready …` when it can serve.
    pub fn start(mut command: Command) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        let input = child.stdin.take().context("no standard input")?;
        let output = BufReader::new(child.stdout.take().context("no standard output")?);
        let mut service = LabProcess { child, input, output, ready: String::new() };
        service.ready = service.read_line().with_context(|| format!("{command:?} ended before it was ready"))?;
        ensure!(service.ready.starts_with("ready"), "{command:?} said `{}` where `ready` was expected", service.ready);
        Ok(service)
    }

    /// Returns the process id of the command.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns a number from the command's `ready` line, such as `port`.
    pub fn ready_number(&self, key: &str) -> Result<u32> {
        let value = self.ready.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
        let value = value.with_context(|| format!("no {key}= in `{}`", self.ready))?;
        value.parse().with_context(|| format!("{key}={value} is not a number"))
    }

    /// Sends a line to the command and returns the line of its answer.
    pub fn query(&mut self, question: &str) -> Result<String> {
        self.send_line(question)?;
        self.read_line()
    }

    /// Sends a line to the command.
    pub fn send_line(&mut self, line: &str) -> Result<()> {
        // Sends the line in one write, so that the program wakes up once.
        Ok(self.input.write_all(format!("{line}\n").as_bytes())?)
    }

    /// Waits for the next line of the command's output.
    pub fn read_line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            bail!("it closed its standard output");
        }
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for LabProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

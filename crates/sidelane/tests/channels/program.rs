//! Real program whose signals are read.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use sidelane_channels::signal::{Signal, Source};
use sidelane_channels::{Channel, ChannelEnd, Reader, file, hsperf, memory};
use tempfile::TempDir;

/// Running program, ended when dropped.
pub struct Program {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    /// First line of the program's output.
    pub first: String,
    _dir: TempDir,
}

impl Program {
    pub fn start(command: &mut Command, dir: TempDir) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut program = Self { child, input, output, first: String::new(), _dir: dir };
        program.first = program.line();
        program
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert!(line.ends_with('\n'), "the program has ended");
        line.trim_end().to_owned()
    }

    /// Sends a command to the program, and waits until it is done.
    pub fn send_command(&mut self, what: &str) {
        writeln!(self.input.as_mut().unwrap(), "{what}").unwrap();
        assert!(self.line().starts_with("done"));
    }

    pub fn close_input_and_wait(&mut self) {
        self.input = None;
        self.child.wait().unwrap();
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Opens the channels of a signal, given as a user writes it.
    pub fn channels(&self, signal: &str) -> Result<Vec<Channel>, String> {
        let signal: Signal = signal.parse().unwrap_or_else(|error| panic!("{error}"));
        let pids = BTreeSet::from([self.pid()]);
        match &signal.source {
            Source::Memory { pid, place, width } => {
                memory::channels(&signal, *pid, place, *width, &pids).map_err(|error| error.to_string())
            }
            Source::Jvm(name) => hsperf::channels(&signal, name.as_deref(), &pids).map_err(|error| error.to_string()),
            Source::File { path, field } => {
                file::channel(&signal, path, field.as_deref()).map(|channel| vec![channel]).map_err(|e| e.to_string())
            }
            _ => panic!("not one of these channels"),
        }
    }

    #[track_caller]
    pub fn channel(&self, signal: &str) -> Channel {
        self.channels(signal).unwrap_or_else(|error| panic!("{signal}: {error}")).remove(0)
    }

    /// Returns the present value of a variable.
    #[track_caller]
    pub fn value(&self, variable: &str) -> u64 {
        read(&mut self.channel(&format!("tag:mem:{variable}"))).unwrap()
    }

    /// Returns the reason why a variable cannot be observed.
    #[track_caller]
    pub fn variable_error(&self, variable: &str) -> String {
        self.channels(&format!("tag:mem:{variable}")).expect_err(variable)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn read(channel: &mut Channel) -> Result<u64, ChannelEnd> {
    match &mut channel.reader {
        Reader::Word(word) => Ok(word.read()),
        Reader::Call(call) => call.read(),
        Reader::Pmc(pmc) => Ok(pmc.read()),
    }
}

pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../channels/tests/fixtures/channels").join(name)
}

/// Runs a tool on files. If it is not installed, prints a message and returns `None`.
pub fn run_tool_if_installed<S: AsRef<OsStr>>(tool: &str, arguments: &[S]) -> Option<()> {
    let Ok(status) = Command::new(tool).args(arguments).status() else {
        sidelane_testing::skip(format!("there is no {tool} here"));
        return None;
    };
    assert!(status.success(), "{tool}: {status}");
    Some(())
}

pub fn compile(compiler: &str, sources: &[&str], flags: &[&str]) -> Option<(TempDir, PathBuf)> {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("program");
    let warnings = ["-O1", "-Wall", "-Werror"].map(OsStr::new).into_iter();
    let mut arguments: Vec<&OsStr> = warnings.chain(flags.iter().map(OsStr::new)).collect();
    let sources: Vec<PathBuf> = sources.iter().map(|name| fixture(name)).collect();
    arguments.extend([OsStr::new("-o"), program.as_os_str()]);
    arguments.extend(sources.iter().map(|source| source.as_os_str()));
    run_tool_if_installed(compiler, &arguments)?;
    Some((dir, program))
}

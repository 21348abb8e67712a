//! Running agent in tests, and its configuration file.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::common::{Finished, Run, Running};

/// Content of the agent's configuration file.
#[derive(Clone, Debug, Default)]
pub struct File(String);

impl File {
    /// Creates a file with the policy Holmes and CPU 0 reserved, for a machine of one core with two lanes.
    pub fn with_holmes_policy() -> Self {
        Self(
            "[policy]\nkind = \"holmes\"\nreserved = \"0\"\nsiblings = [\"0,1\"]\n\n[metric]\nsource = \"latency\"\n"
                .to_owned(),
        )
    }

    /// Creates a file like [`File::with_holmes_policy`], with a service and a batch that never start.
    pub fn with_absent_targets() -> Self {
        Self::with_holmes_policy().with_service("comm = \"nobody\"").with_batch("/nobody")
    }

    /// Creates a file without a policy for CPUs, for a machine of one core with two lanes.
    pub fn without_cpu_policy() -> Self {
        Self("[policy]\nkind = \"unmanaged\"\nsiblings = [\"0,1\"]\n".to_owned())
    }

    /// Adds a service; `table` says how it is found.
    pub fn with_service(self, table: &str) -> Self {
        Self(format!("{}\n[[service]]\nname = \"the service\"\n{table}\n", self.0))
    }

    /// Adds batch below this cgroup.
    pub fn with_batch(self, path: &str) -> Self {
        Self(format!("{}\n[[batch]]\ncgroup = \"{path}\"\n", self.0))
    }

    /// Adds lines to the file.
    pub fn with_lines(self, lines: &str) -> Self {
        Self(format!("{}\n{lines}\n", self.0))
    }

    /// Returns a file with one part of the text replaced.
    pub fn replace(&self, from: &str, to: &str) -> Self {
        assert!(self.0.contains(from), "no `{from}` in {}", self.0);
        Self(self.0.replace(from, to))
    }

    fn write(&self, path: &Path) {
        std::fs::write(path, &self.0).expect("a file can be written in a temporary directory");
    }
}

/// Running agent, with its configuration file.
pub struct Daemon {
    pub run: Running,
    config: PathBuf,
    _dir: tempfile::TempDir,
}

impl Daemon {
    /// Starts the agent, and waits until it manages these numbers of services and containers.
    #[track_caller]
    pub fn start(file: &File, services: usize, containers: usize) -> Self {
        let mut daemon = Self::launch(file, Run::with_arguments(&[]));
        daemon.wait_for_managed_counts(services, containers);
        daemon
    }

    /// Starts the agent with the settings of `run`.
    pub fn launch(file: &File, run: Run) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let config = dir.path().join("sidelane.toml");
        let audit = run.audit_path();
        Self::launch_in(dir, config, file, run, &audit)
    }

    /// Starts the agent with this audit log.
    pub fn launch_auditing(file: &File, audit: &Path) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let config = dir.path().join("sidelane.toml");
        Self::launch_in(dir, config, file, Run::with_arguments(&[]), audit)
    }

    fn launch_in(dir: tempfile::TempDir, config: PathBuf, file: &File, run: Run, audit: &Path) -> Self {
        let run = if run.has_arguments() { run } else { run.with_more_arguments(&["agent"]) };
        let run = run.with_more_arguments(&[OsStr::new("--config"), config.as_os_str()]);
        file.clone().with_lines(&format!("[audit]\nfile = \"{}\"", audit.display())).write(&config);
        Self { run: run.start_without_batch(), config, _dir: dir }
    }

    /// Waits until the agent manages these numbers of services and containers.
    #[track_caller]
    pub fn wait_for_managed_counts(&mut self, services: usize, containers: usize) {
        let count = |status: &Value, what: &str| status[what].as_array().map(Vec::len);
        self.run.wait_until(&format!("it looked after {services} services and {containers} containers"), |_| {
            let status = status();
            count(&status, "services") == Some(services) && count(&status, "containers") == Some(containers)
        });
    }

    /// Makes the agent read the file `file` instead of its present one.
    pub fn reload(&self, file: &File) {
        let audit = self.run.audit_path();
        file.clone().with_lines(&format!("[audit]\nfile = \"{}\"", audit.display())).write(&self.config);
        self.run.signal(libc::SIGHUP);
    }

    /// Ends the agent, and returns its output.
    #[track_caller]
    pub fn end(self) -> Finished {
        self.run.signal(libc::SIGTERM);
        self.run.wait_for_end().expect_exit_code(0)
    }
}

/// Returns the status of the running agent; null if no agent runs.
pub fn status() -> Value {
    let asked = Run::with_arguments(&["status", "--json"]).start_without_batch().wait_for_end();
    serde_json::from_str(&asked.stdout).unwrap_or_default()
}

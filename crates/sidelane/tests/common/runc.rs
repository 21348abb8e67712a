//! Containers of a real runtime, runc(8). Their files are this machine's own programs.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::{Value, json};
use sidelane_host::cgroup::Hierarchy;
use tempfile::TempDir;

use super::{process, wait_until};

/// Directories of this machine that a container sees.
const PROGRAMS: [&str; 6] = ["/bin", "/sbin", "/lib", "/lib64", "/usr", "/etc"];
/// Directories that a privileged container sees in addition, and may change.
const MACHINE: [&str; 3] = ["/sys", "/run", "/tmp"];

/// Running container. Dropping it removes it.
pub struct Container {
    name: String,
    runtime: Child,
    pid: u32,
    dir: TempDir,
}

impl Container {
    /// Starts a container with its own namespaces, on these CPUs. If that is impossible here, prints a message and
    /// returns `None`.
    pub fn start(name: &str, cpus: &str, program: &[&str]) -> Option<Self> {
        Self::start_with_config(name, program, |config| config["linux"]["resources"]["cpu"] = json!({ "cpus": cpus }))
    }

    /// Starts a container that shares with the host what docs/guides/containers.md says for Sidelane, and sees the
    /// directory `mounted_dir`. Its program only sleeps.
    pub fn start_privileged(name: &str, mounted_dir: &Path) -> Option<Self> {
        let Some(all) = own_capabilities() else {
            sidelane_testing::skip("needs capsh");
            return None;
        };
        Self::start_with_config(name, &["sleep", "1000"], |config| {
            let shared: Vec<&str> = MACHINE.into_iter().chain(mounted_dir.to_str()).collect();
            // A /sys of the container's own would hide the machine's.
            let mounts = config["mounts"].as_array_mut().unwrap();
            mounts.retain(|mount| !mount["destination"].as_str().is_some_and(|at| at.starts_with("/sys")));
            mounts.extend(shared.into_iter().map(|path| mount(path, "rw")));
            let namespaces = config["linux"]["namespaces"].as_array_mut().unwrap();
            namespaces.retain(|namespace| namespace["type"] != "pid" && namespace["type"] != "cgroup");
            for kept_back in ["maskedPaths", "readonlyPaths"] {
                config["linux"][kept_back] = json!([]);
            }
            config["linux"]["resources"]["devices"] = json!([{ "allow": true, "access": "rwm" }]);
            if has_rt_group_scheduling() {
                config["linux"]["resources"]["cpu"] =
                    json!({ "realtimeRuntime": 500_000, "realtimePeriod": 1_000_000 });
            }
            config["process"]["capabilities"] = json!({ "bounding": all, "effective": all, "permitted": all });
            config["process"]["noNewPrivileges"] = json!(false);
        })
    }

    fn start_with_config(name: &str, program: &[&str], edit_config: impl FnOnce(&mut Value)) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let made = Command::new("runc").args(["spec", "--bundle"]).arg(dir.path()).output();
        if !made.is_ok_and(|made| made.status.success()) {
            sidelane_testing::skip("needs runc");
            return None;
        }
        let name = format!("sidelane-test-{}-{name}", std::process::id());
        let file = dir.path().join("config.json");
        let mut config = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        configure(&mut config, &name, program);
        edit_config(&mut config);
        fs::write(&file, config.to_string()).unwrap();
        fs::create_dir(dir.path().join("rootfs")).unwrap();
        let mut command = runc(dir.path());
        command.arg("run").arg("--bundle").arg(dir.path()).arg(&name);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let runtime = process::kill_with_test(&mut command).spawn().unwrap();
        let mut container = Self { name, runtime, pid: 0, dir };
        container.has_started().then_some(container)
    }

    fn has_started(&mut self) -> bool {
        wait_until("the container ran, or could not be made", || {
            self.pid = self.running().unwrap_or_default();
            self.pid > 0 || self.runtime.try_wait().unwrap().is_some()
        });
        if self.pid == 0 {
            let mut why = String::new();
            self.runtime.stderr.take().unwrap().read_to_string(&mut why).unwrap();
            sidelane_testing::skip(format!("needs runc to make containers here: {why}"));
        }
        self.pid > 0
    }

    fn running(&self) -> Option<u32> {
        let state: Value = serde_json::from_slice(&self.runc(&["state", &self.name]).stdout).ok()?;
        (state["status"] == "running").then(|| state["pid"].as_u64())?.map(|pid| pid as u32)
    }

    fn runc(&self, arguments: &[&str]) -> Output {
        runc(self.dir.path()).args(arguments).output().unwrap()
    }

    /// Returns the process id, on this machine, of the container's first process.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns the path of the container's cgroups, as Sidelane expects it.
    pub fn group(&self) -> String {
        format!("/{}", self.name)
    }

    /// Returns the command that runs a command in the container.
    pub fn exec_command(&self) -> Vec<String> {
        let (state, mark) = (self.dir.path().join("state"), process::mark_of_this_test());
        let mark = format!("{}={mark}", process::MARK);
        ["runc", "--root", state.to_str().unwrap(), "exec", "--env", &mark, &self.name].map(str::to_owned).to_vec()
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        self.runc(&["delete", "--force", &self.name]);
        let _ = self.runtime.wait();
    }
}

/// Returns a command of the runtime, with a separate list of containers.
fn runc(dir: &Path) -> Command {
    let mut command = Command::new("runc");
    command.arg("--root").arg(dir.join("state"));
    command
}

fn configure(config: &mut Value, name: &str, program: &[&str]) {
    config["process"]["terminal"] = json!(false);
    config["process"]["args"] = json!(program);
    let mark = format!("{}={}", process::MARK, process::mark_of_this_test());
    config["process"]["env"].as_array_mut().unwrap().push(json!(mark));
    config["linux"]["cgroupsPath"] = json!(format!("/{name}"));
    let mounts = config["mounts"].as_array_mut().unwrap();
    mounts.extend(PROGRAMS.into_iter().filter(|path| Path::new(path).exists()).map(|path| mount(path, "ro")));
}

fn mount(path: &str, mode: &str) -> Value {
    let source = fs::canonicalize(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    json!({ "destination": path, "type": "bind", "source": source, "options": ["rbind", mode] })
}

/// Returns whether cgroups have no real-time time unless it is given to them (version 1 with CONFIG_RT_GROUP_SCHED).
fn has_rt_group_scheduling() -> bool {
    let cpu = Hierarchy::all().into_iter().find(|found| found.has_controller("cpu"));
    cpu.is_some_and(|found| found.mount.join("cpu.rt_runtime_us").exists())
}

/// Returns the capabilities of this process: a container can get no others.
fn own_capabilities() -> Option<Vec<String>> {
    let shown = fs::read_to_string("/proc/self/status").ok()?;
    let set = shown.lines().find_map(|line| line.strip_prefix("CapEff:"))?.trim();
    let named = Command::new("capsh").arg(format!("--decode={set}")).output().ok()?;
    let named = String::from_utf8(named.stdout).ok()?;
    Some(named.trim().split_once('=')?.1.split(',').map(str::to_uppercase).collect())
}

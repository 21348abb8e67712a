//! Batch that runs already: a tree of processes that come and go, in its own cgroups or in none.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use sidelane_host::cgroup::{BatchGroup, Hierarchy, processes_in_tree};
use sidelane_host::procfs::{is_alive, threads, with_descendants};
use sidelane_host::thread::Thread;
use tempfile::TempDir;

use super::{SPIN, process, wait_until};

/// Script that starts a long-lived process for each file named $NEWCOMER, and short-lived processes all the time. A
/// file named $END ends all of them.
const CHURN: &str = "while [ ! -e $END ]; do sh -c :; (sh -c : &); \
                     if [ -e $NEWCOMER ]; then rm $NEWCOMER; sleep 2000 & fi; sleep 0.01; done; kill 0";
/// Prefixes of the commands that run from the start to the end of the job, each with another CPU affinity, class or
/// nice value.
const STEADY: [&str; 6] =
    ["taskset -c 0 sh -c", "chrt --batch 0 sh -c", "nice -n 5", "chrt --rr 1", "chrt --idle 0", "taskset -c 1"];

/// Settings that have to be restored, by process id: CPUs, class, priority and nice value of each thread, and the
/// process's cgroups.
pub type SettingsByPid = BTreeMap<u32, String>;

/// Prefix of the names of the job's cgroups; the id of the test's process follows.
const NAME: &str = "adoptee-";
/// Script that waits for the end of its input, thaws the cgroups, kills the process group until it is empty, and
/// removes the cgroups. After 1000 tries it gives up: zombies without a parent that reaps them stay members.
const UNDERTAKER: &str = r#"
read -r _
root=$1; shift; tries=1000
for group; do
    [ ! -e "$group/cgroup.freeze" ] || echo 0 >"$group/cgroup.freeze"
    [ ! -e "$group/freezer.state" ] || echo THAWED >"$group/freezer.state"
done
while [ $((tries -= 1)) -gt 0 ] && kill -s KILL -- "-$root"; do sleep 0.01; done
for group; do
    while [ $((tries -= 1)) -gt 0 ] && ! rmdir "$group" && [ -e "$group" ]; do
        kill -s KILL $(cat "$group/cgroup.procs")
        sleep 0.01
    done
done
"#;

/// Running batch job. Dropping it ends it; so does any end of the test.
pub struct Job {
    root: Child,
    undertaker: Child,
    leaves: Vec<BatchGroup>,
    dir: TempDir,
}

impl Job {
    /// Starts a job without a cgroup of its own.
    pub fn start_without_cgroup() -> Self {
        Self::start(Vec::new())
    }

    /// Starts a job in a cgroup of each of these hierarchies; `None` if there is none.
    pub fn start_in_cgroups(is_wanted: impl Fn(&Hierarchy) -> bool) -> Option<Self> {
        let name = format!("{NAME}{}-{:?}", std::process::id(), std::thread::current().id());
        let name = name.replace(['(', ')'], "");
        let hierarchies = Hierarchy::all().into_iter().filter(is_wanted);
        let leaves: Vec<BatchGroup> =
            hierarchies.filter_map(|hierarchy| BatchGroup::create(&hierarchy, &name).ok()).collect();
        leaves.iter().filter_map(|leaf| leaf.dir.parent()).for_each(remove_stale_cgroups);
        if leaves.is_empty() {
            sidelane_testing::skip("needs a control group of its own, which cannot be made here".to_owned());
            return None;
        }
        Some(Self::start(leaves))
    }

    fn start(leaves: Vec<BatchGroup>) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let steady = STEADY.map(|prefix| match prefix.ends_with("sh -c") {
            true => format!("{prefix} '{SPIN}' &"),
            false => format!("{prefix} sleep 1000 &"),
        });
        let enter: Vec<String> =
            leaves.iter().map(|leaf| format!("echo $$ >{}/cgroup.procs;", leaf.dir.display())).collect();
        let script = format!("{} {} {CHURN}", enter.concat(), steady.concat());
        let mut command = Command::new("sh");
        let command = process::kill_with_test(&mut command).args(["-c", &script]).process_group(0);
        command.env("END", dir.path().join("end")).env("NEWCOMER", dir.path().join("newcomer"));
        let root = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("the job starts");
        let job = Self { undertaker: start_cleanup_process(root.id(), &leaves), root, leaves, dir };
        wait_until("the job was all there", || job.long_lived_pids().len() == STEADY.len() + 1);
        job
    }

    /// Returns the process id of the job's first process.
    pub fn pid(&self) -> u32 {
        self.root.id()
    }

    /// Returns the job's name for `--adopt`.
    pub fn target(&self) -> String {
        match self.leaves.first() {
            None => format!("pid:{}", self.pid()),
            Some(leaf) => format!("cgroup:{}", self.path(leaf)),
        }
    }

    fn path(&self, leaf: &BatchGroup) -> String {
        let mount = Hierarchy::all().into_iter().map(|found| found.mount).find(|mount| leaf.dir.starts_with(mount));
        let below = leaf.dir.strip_prefix(mount.expect("the leaf is in a hierarchy")).expect("it starts with it");
        format!("/{}", below.display())
    }

    /// Returns the job's cgroup in the first of its hierarchies.
    pub fn group(&self) -> &BatchGroup {
        &self.leaves[0]
    }

    /// Moves another process into the job's cgroups.
    pub fn move_process_in(&self, pid: u32) {
        self.leaves
            .iter()
            .for_each(|leaf| leaf.move_process_in(pid).expect("a process can be moved into the job's group"));
    }

    /// Returns the process ids of the whole job.
    pub fn members(&self) -> Vec<u32> {
        let found = match self.leaves.first() {
            None => with_descendants(&[self.pid()].into()).into_iter().collect(),
            Some(leaf) => processes_in_tree(&leaf.dir),
        };
        found.into_iter().filter(|pid| is_alive(*pid)).collect()
    }

    /// Returns the processes that run from the start to the end of the job.
    pub fn long_lived_pids(&self) -> Vec<u32> {
        let stays = |pid: &u32| {
            let words = process::command_line(*pid);
            *pid == self.pid() || words == ["sh", "-c", SPIN, ""] || words == ["sleep", "1000", ""]
        };
        self.members().into_iter().filter(stays).collect()
    }

    /// Returns the settings of the processes that run from the start to the end of the job.
    pub fn settings_by_pid(&self) -> SettingsByPid {
        self.long_lived_pids().into_iter().map(|pid| (pid, process_settings(pid))).collect()
    }

    /// Makes the first process create a long-lived process, and returns the id of the created process.
    #[track_caller]
    pub fn fork_long_lived_process(&self) -> u32 {
        let newcomers = || {
            let is_one = |pid: &u32| process::command_line(*pid) == ["sleep", "2000", ""];
            self.members().into_iter().filter(is_one).collect::<Vec<_>>()
        };
        let before = newcomers();
        File::create(self.dir.path().join("newcomer")).expect("a file can be made in a temporary directory");
        let mut found = None;
        wait_until("a newcomer was there", || {
            found = newcomers().into_iter().find(|pid| !before.contains(pid));
            found.is_some()
        });
        found.expect("it was there a moment ago")
    }

    /// Returns whether all processes of the job are on this lane and in SCHED_IDLE.
    pub fn is_on_lane(&self, lane: &str) -> bool {
        self.members().into_iter().all(|pid| !is_alive(pid) || is_held_on_lane(pid, lane))
    }

    /// Returns whether the job's cgroups are frozen, their lists of CPUs, and the cgroups below them.
    pub fn cgroup_settings(&self) -> Vec<String> {
        let files = ["cgroup.freeze", "freezer.self_freezing", "cpuset.cpus"];
        let said = self.leaves.iter().flat_map(|leaf| files.map(|file| leaf.read(file).unwrap_or_default()));
        let below = self.leaves.iter().flat_map(|leaf| fs::read_dir(&leaf.dir).into_iter().flatten().flatten());
        let below = below.filter(|entry| entry.path().is_dir()).map(|entry| entry.path().display().to_string());
        said.chain(below).collect()
    }

    /// Fails unless the job runs: its processes come and go.
    #[track_caller]
    pub fn check_is_running(&self) {
        let spinner =
            self.long_lived_pids().into_iter().find(|pid| process::command_line(*pid).iter().any(|word| word == SPIN));
        let spinner = spinner.expect("it is there");
        let before = process::cpu_ticks(spinner);
        wait_until("the job went on", || process::cpu_ticks(spinner) > before);
        process::kill(self.fork_long_lived_process());
    }

    /// Makes the job end by itself.
    #[track_caller]
    pub fn end(&mut self) {
        File::create(self.dir.path().join("end")).expect("a file can be made in a temporary directory");
        wait_until("the job had ended", || self.root.try_wait().expect("a child can be waited for").is_some());
    }
}

/// Returns whether a process is on this lane and in SCHED_IDLE.
pub fn is_held_on_lane(pid: u32, lane: &str) -> bool {
    const SCHED_IDLE: &str = "5";
    process::allowed_cpus(pid).as_deref() == Some(lane) && process::scheduling_class(pid).as_deref() == Some(SCHED_IDLE)
}

/// Returns the settings of a process as text.
pub fn process_settings(pid: u32) -> String {
    let of_thread = |tid: u32| {
        let thread = Thread::with_tid(tid);
        format!("{thread:?} {:?} {:?}", process::allowed_cpus(tid), process::class_priority_and_nice(tid))
    };
    let mut threads: Vec<String> = threads(pid).into_iter().map(of_thread).collect();
    threads.sort();
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    format!("{threads:?} {groups}")
}

impl Drop for Job {
    fn drop(&mut self) {
        // The cleanup process waits for the end of its standard input.
        drop(self.undertaker.stdin.take());
        let _ = self.root.kill();
        let _ = self.root.wait();
        let _ = self.undertaker.wait();
    }
}

/// Starts the cleanup process that ends the process group of `root` and removes its cgroups. It acts when this test has
/// dropped its end of the pipe, or has died in any way.
fn start_cleanup_process(root: u32, leaves: &[BatchGroup]) -> Child {
    let mut command = Command::new("sh");
    let command = command.args(["-c", UNDERTAKER, "sh", &root.to_string()]).args(leaves.iter().map(|leaf| &leaf.dir));
    // The process has its own process group, so that a POSIX signal to the test's group does not reach it.
    let command = command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("a shell can be started")
}

/// Removes cgroups of jobs whose test has died together with its cleanup process.
fn remove_stale_cgroups(above: &Path) {
    for entry in fs::read_dir(above).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let test = name.strip_prefix(NAME).and_then(|rest| rest.split('-').next()?.parse().ok());
        if test.is_some_and(|test| !is_alive(test)) {
            let dir = entry.path();
            thaw(&dir);
            processes_in_tree(&dir).into_iter().for_each(process::kill);
            wait_until("a job of a test that has died was gone", || processes_in_tree(&dir).is_empty());
            let _ = fs::remove_dir(&dir);
        }
    }
}

fn thaw(dir: &Path) {
    let leaf = BatchGroup { dir: dir.to_owned() };
    for (file, thawed) in [("cgroup.freeze", "0"), ("freezer.state", "THAWED")] {
        let _ = leaf.has_control_file(file).then(|| leaf.write(file, thawed));
    }
}

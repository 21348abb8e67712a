//! Test machine made of files, from a listing: its hierarchies, cgroups, processes, and the logs of its pods.
//!
//! A line of the listing is `hierarchy v2` or `hierarchy` with the controllers of version 1; `pod NAMESPACE_NAME_UID`;
//! `group PATH PID:COMM...`, made in every hierarchy; or `file PATH NAME VALUE`. Tests may add to the machine and
//! remove from it.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};

use sidelane_host::cgroup::Hierarchy;
use tempfile::TempDir;

use super::super::{Changes, Finder, Machine};
use crate::config::Config;

/// Time that is longer than any interval, so that each scan is a full one.
const LATER_NS: u64 = 10_000_000_000;

pub(super) struct TestMachine {
    dir: TempDir,
    hierarchies: Vec<Hierarchy>,
    /// Number of cgroups that were removed.
    removed: Cell<usize>,
}

impl TestMachine {
    pub(super) fn from_listing(listing: &str) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut files = Self { dir, hierarchies: Vec::new(), removed: Cell::new(0) };
        for line in listing.lines().filter(|line| !line.starts_with('#')) {
            let (kind, rest) = line.split_once(' ').expect("a kind and what it is");
            match kind {
                "hierarchy" => files.add_hierarchy(rest),
                "pod" => fs::create_dir_all(files.dir.path().join("pods").join(rest)).expect("a directory"),
                "group" => files.add_group(rest),
                "file" => files.add_file(rest),
                other => panic!("{other} in a listing"),
            }
        }
        files
    }

    fn add_hierarchy(&mut self, controllers: &str) {
        let mount = self.dir.path().join("cgroup").join(controllers);
        fs::create_dir_all(&mount).expect("a directory");
        let controllers =
            if controllers == "v2" { Vec::new() } else { controllers.split(',').map(str::to_owned).collect() };
        self.hierarchies.push(Hierarchy { mount, root: "/".into(), controllers });
    }

    /// Makes a cgroup from a line `PATH PID:COMM...`.
    pub(super) fn add_group(&self, line: &str) {
        let mut words = line.split(' ');
        let path = words.next().expect("a path");
        let processes: Vec<(&str, &str)> = words.map(|word| word.split_once(':').expect("a process")).collect();
        for (pid, comm) in &processes {
            let dir = self.dir.path().join("proc").join(pid);
            fs::create_dir_all(&dir).expect("a directory");
            fs::write(dir.join("comm"), format!("{comm}\n")).expect("a file");
        }
        let pids: String = processes.iter().map(|(pid, _)| format!("{pid}\n")).collect();
        for dir in self.dirs(path) {
            fs::create_dir_all(&dir).expect("a directory");
            fs::write(dir.join("cgroup.procs"), &pids).expect("a file");
        }
    }

    fn add_file(&self, line: &str) {
        let [path, name, value] = line.splitn(3, ' ').collect::<Vec<_>>()[..] else { panic!("{line} in a listing") };
        self.dirs(path).for_each(|dir| fs::write(dir.join(name), format!("{value}\n")).expect("a file"));
    }

    /// Removes a cgroup with all cgroups below it, if it exists. It is moved elsewhere, because a file system would
    /// reuse its inode, which the kernel does not do for cgroups.
    pub(super) fn remove_group(&self, path: &str) {
        for dir in self.dirs(path).filter(|dir| dir.exists()) {
            self.removed.set(self.removed.get() + 1);
            let elsewhere = self.dir.path().join(format!("removed-{}", self.removed.get()));
            fs::rename(dir, elsewhere).expect("it is there");
        }
    }

    fn dirs<'a>(&'a self, path: &'a str) -> impl Iterator<Item = PathBuf> + 'a {
        self.hierarchies.iter().map(move |hierarchy| hierarchy.dir(path))
    }

    /// Makes a finder for this test machine, with a clock that begins at 0.
    pub(super) fn finder(&self, file: &str) -> TestFinder {
        let config = Config::parse("a.toml", file).unwrap_or_else(|problems| panic!("{problems}"));
        let machine = Machine {
            hierarchies: Some(self.hierarchies.clone()),
            proc: self.dir.path().join("proc"),
            pod_logs: self.dir.path().join("pods"),
            pod_file: self.pod_file(),
        };
        TestFinder { finder: Finder::for_machine(&config, machine), now: 0 }
    }

    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the path of the file with reports on pods.
    pub(super) fn pod_file(&self) -> PathBuf {
        self.dir.path().join("pods.json")
    }
}

/// Finder with the test's clock.
pub(super) struct TestFinder {
    pub(super) finder: Finder,
    now: u64,
}

impl TestFinder {
    /// Returns the changes found by a scan after a time in which everything is due.
    pub(super) fn scan_later(&mut self) -> Changes {
        self.now += LATER_NS;
        self.finder.scan(self.now)
    }

    /// Returns the names of all services.
    pub(super) fn services(&self) -> Vec<String> {
        let mut names: Vec<String> = self.finder.services().map(|service| service.name.clone()).collect();
        names.sort();
        names
    }

    /// Returns the names of all containers, with the number of CPUs that they want.
    pub(super) fn containers(&self) -> Vec<(String, u32)> {
        let mut names: Vec<(String, u32)> =
            self.finder.containers().map(|container| (container.name.clone(), container.cpu_demand.cpus)).collect();
        names.sort();
        names
    }

    /// Returns the problems of discovery as text.
    pub(super) fn problems(&self) -> Vec<String> {
        self.finder.problems().iter().map(ToString::to_string).collect()
    }
}

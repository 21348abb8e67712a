//! Batch containers in tests: cgroups with busy processes in them, like those of a container runtime.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use sidelane_host::cgroup::{BatchGroup, Hierarchy};
use sidelane_host::freezer::Freezer;

use crate::common::{SPIN, process, wait_until};

/// Hierarchies in which a tree of cgroups is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Hierarchies whose cgroups have lists of CPUs.
    Lists,
    /// Hierarchies whose cgroups have lists of CPUs, and cannot be frozen.
    ListsAlone,
    /// Hierarchies whose cgroups have no lists of CPUs, and can be frozen.
    NoLists,
}

impl Place {
    fn hierarchies(self) -> Vec<Hierarchy> {
        let all = Hierarchy::all().into_iter();
        let has_lists = |found: &Hierarchy| {
            found.has_controller("cpuset")
                || (found.is_v2() && found.own_dir().is_some_and(|dir| dir.join("cpuset.cpus").exists()))
        };
        all.filter(|found| match self {
            Self::Lists => has_lists(found) || found.has_controller("freezer"),
            Self::ListsAlone => has_lists(found) && !found.is_v2() && !found.has_controller("freezer"),
            Self::NoLists => found.is_v2() && !has_lists(found),
        })
        .collect()
    }
}

/// Tree of cgroups with the same name, in each of its hierarchies. Dropping it removes it.
pub struct Tree {
    path: String,
    leaves: Vec<BatchGroup>,
    joined: Vec<Child>,
}

impl Tree {
    /// Creates a tree. If that is impossible here, prints a message and returns `None`.
    pub fn make(place: Place) -> Option<Self> {
        let name = format!("batch-test-{}-{:?}", std::process::id(), std::thread::current().id());
        let name = name.replace(['(', ')'], "");
        let dirs: Vec<PathBuf> =
            place.hierarchies().iter().filter_map(|found| Some(found.own_dir()?.join(&name))).collect();
        let leaves: Vec<BatchGroup> = dirs.into_iter().filter_map(|dir| create_cgroup(&dir)).collect();
        if leaves.is_empty() {
            sidelane_testing::skip(format!("needs groups ({place:?}), which cannot be made here"));
            return None;
        }
        Some(Self { path: format!("/{name}"), leaves, joined: Vec::new() })
    }

    /// Creates a tree below this one, in the same hierarchies.
    pub fn subtree(&self, name: &str) -> Self {
        let leaves: Vec<BatchGroup> =
            self.leaves.iter().filter_map(|leaf| create_cgroup(&leaf.dir.join(name))).collect();
        assert_eq!(leaves.len(), self.leaves.len(), "a group can be made below another");
        Self { path: format!("{}/{name}", self.path), leaves, joined: Default::default() }
    }

    /// Moves a container into a cgroup of its name that can be frozen. Returns false if there is no such cgroup.
    pub fn move_to_freezable_cgroup(&mut self, container: &mut Container, name: &str) -> bool {
        let hierarchies = Hierarchy::all().into_iter();
        let mut can_freeze = hierarchies.filter(|found| found.is_v2() || found.has_controller("freezer"));
        let Some(own) = can_freeze.find_map(|found| found.own_dir()) else { return false };
        let Some(tree) = create_cgroup(&own.join(self.path.trim_start_matches('/'))) else { return false };
        let leaf = create_cgroup(&tree.dir.join(name)).expect("a group can be made below another");
        leaf.move_process_in(container.pid()).expect("its process can be moved");
        self.leaves.push(tree);
        container.leaves.push(leaf);
        true
    }

    /// Returns the path of the tree, as in the agent's file.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the tree's list of CPUs.
    pub fn cpu_list(&self) -> String {
        cpu_list_of(&self.leaves)
    }

    /// Writes the tree's list of CPUs, as the user who owns the tree is allowed to do.
    pub fn set_cpu_list(&self, cpus: &str) {
        write_cpu_list(&self.leaves, cpus);
    }

    /// Starts a shell with a script in the tree's top cgroups, and returns its process id. The process ends with the
    /// tree.
    pub fn start_in_tree(&mut self, script: &str) -> u32 {
        let child = start_in(&self.leaves, script, 0);
        let pid = child.id();
        self.joined.push(child);
        pid
    }

    /// Ends the processes in the tree's top cgroups.
    pub fn end_processes_started_in_tree(&mut self) {
        self.joined.drain(..).for_each(end);
    }

    /// Creates a cgroup below the tree, without processes. The cgroup is removed with the tree.
    pub fn create_cgroup_below(&self, path: &str) {
        let made = self.leaves.iter().filter_map(|leaf| create_cgroup(&leaf.dir.join(path))).count();
        assert_eq!(made, self.leaves.len(), "a group can be made below another");
    }

    /// Makes the tree's top cgroup, or an empty cgroup below it, a threaded one. If that is impossible here, prints a
    /// message and returns false.
    pub fn make_threaded(&self, path: &str) -> bool {
        let made =
            groups_at_path_below(&self.leaves, path).iter().try_for_each(|leaf| leaf.write("cgroup.type", "threaded"));
        made.inspect_err(|error| sidelane_testing::skip(format!("needs threaded groups: {error}"))).is_ok()
    }

    /// Moves a process into a cgroup below the tree.
    pub fn move_process_below(&self, pid: u32, path: &str) {
        groups_at_path_below(&self.leaves, path)
            .iter()
            .for_each(|leaf| leaf.move_process_in(pid).expect("a process can be moved"));
    }

    /// Returns the list of CPUs of a cgroup below the tree.
    pub fn cpu_list_below(&self, path: &str) -> String {
        cpu_list_of(&groups_at_path_below(&self.leaves, path))
    }

    /// Creates a container with a busy process.
    pub fn container(&self, name: &str) -> Container {
        self.start_container_with_script(name, SPIN)
    }

    /// Creates a container in which a shell runs a script.
    pub fn start_container_with_script(&self, name: &str, script: &str) -> Container {
        let leaves: Vec<BatchGroup> =
            self.leaves.iter().filter_map(|leaf| create_cgroup(&leaf.dir.join(name))).collect();
        assert_eq!(leaves.len(), self.leaves.len(), "a group can be made below another");
        let enter: Vec<String> =
            leaves.iter().map(|leaf| format!("echo $$ >{}/cgroup.procs;", leaf.dir.display())).collect();
        let mut command = Command::new("sh");
        let command = process::kill_with_test(&mut command);
        let command = command.args(["-c", &format!("{} {script}", enter.concat())]).process_group(0);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("a shell starts");
        let pid = child.id().to_string();
        let is_in =
            |leaf: &BatchGroup| leaf.read("cgroup.procs").is_ok_and(|pids| pids.lines().any(|line| line == pid));
        wait_until("the container was in its groups", || leaves.iter().all(is_in));
        Container { child, joined: Vec::new(), leaves }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.end_processes_started_in_tree();
        self.leaves.iter().for_each(|leaf| drop(leaf.remove()));
    }
}

/// Batch container. Dropping it ends it.
pub struct Container {
    child: Child,
    joined: Vec<Child>,
    leaves: Vec<BatchGroup>,
}

impl Container {
    /// Returns the process id of the container's first process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the CPUs on which the container's first process may run.
    pub fn cpus(&self) -> String {
        process::allowed_cpus(self.pid()).unwrap_or_default()
    }

    /// Returns the container's list of CPUs, if it has one.
    pub fn cpu_list(&self) -> String {
        cpu_list_of(&self.leaves)
    }

    /// Writes the container's list of CPUs, as the user who owns the container is allowed to do.
    pub fn set_cpu_list(&self, cpus: &str) {
        write_cpu_list(&self.leaves, cpus);
    }

    /// Starts a shell with a script in the container's cgroups, and returns its process id. The process ends with the
    /// container.
    pub fn start_process(&mut self, script: &str) -> u32 {
        let child = start_in(&self.leaves, script, self.pid() as i32);
        let pid = child.id();
        self.joined.push(child);
        pid
    }

    /// Moves a process into the container's cgroups. Returns false if the kernel refuses it.
    pub fn move_process_in(&self, pid: u32) -> bool {
        self.leaves.iter().all(|leaf| leaf.move_process_in(pid).is_ok())
    }

    /// Moves one of the container's processes into the cgroups of the test.
    pub fn move_process_out(&self, pid: u32) {
        let own = self.leaves.iter().map(|leaf| BatchGroup { dir: leaf.dir.ancestors().nth(2).unwrap().to_owned() });
        own.for_each(|leaf| leaf.move_process_in(pid).expect("a process can be moved"));
    }

    /// Ends the container's processes except the first.
    pub fn end_processes_except_first(&mut self) {
        self.joined.drain(..).for_each(end);
    }

    /// Returns the number of hierarchies in which the container has cgroups.
    pub fn hierarchy_count(&self) -> usize {
        self.leaves.len()
    }

    /// Creates a cgroup below the container, in all its hierarchies or in one.
    pub fn create_cgroup_below(&self, path: &str, hierarchy: Option<usize>) {
        let leaves = self.leaves.iter().enumerate().filter(|(number, _)| hierarchy.is_none_or(|only| only == *number));
        leaves.for_each(|(_, leaf)| {
            drop(create_cgroup(&leaf.dir.join(path)).expect("a group can be made below another"))
        });
    }

    /// Moves a process into a cgroup below the container, in each hierarchy that has this cgroup.
    pub fn move_process_below(&self, pid: u32, path: &str) {
        let there = groups_at_path_below(&self.leaves, path).into_iter().filter(|leaf| leaf.dir.exists());
        there.for_each(|leaf| leaf.move_process_in(pid).expect("a process can be moved"));
    }

    /// Returns the list of CPUs of a cgroup below the container.
    pub fn cpu_list_below(&self, path: &str) -> String {
        cpu_list_of(&groups_at_path_below(&self.leaves, path))
    }

    /// Returns the content of a file of a cgroup below the container.
    pub fn read_file_below(&self, path: &str, file: &str) -> String {
        groups_at_path_below(&self.leaves, path).iter().find_map(|leaf| leaf.read(file).ok()).unwrap_or_default()
    }

    /// Ends only the container's first process.
    pub fn end_first_process(&mut self) {
        self.child.kill().expect("its first process is there");
        self.child.wait().expect("a killed child can be waited for");
    }

    /// Freezes or thaws the container, as the user who owns the container is allowed to do.
    pub fn freeze(&self, frozen: bool) {
        let freezers = self.leaves.iter().filter_map(|leaf| Freezer::find_in_group(&leaf.dir));
        freezers.for_each(|freezer| freezer.set_frozen(frozen).expect("it can be frozen"));
    }

    /// Returns the freezer of the container.
    pub fn freezer(&self) -> Freezer {
        self.leaves.iter().find_map(|leaf| Freezer::find_in_group(&leaf.dir)).expect("it can be frozen")
    }

    /// Returns whether the container is frozen.
    pub fn is_frozen(&self) -> bool {
        let says =
            |file: &str, word: &str| self.leaves.iter().any(|leaf| leaf.read(file).is_ok_and(|text| text == word));
        says("freezer.self_freezing", "1") || says("cgroup.freeze", "1")
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        for leaf in &self.leaves {
            let _ = leaf.write("freezer.state", "THAWED");
        }
        // SAFETY: plain system call; the child is not reaped yet, so the group is its own.
        unsafe { libc::killpg(self.pid() as libc::pid_t, libc::SIGKILL) };
        for child in self.joined.iter_mut().chain([&mut self.child]) {
            let _ = child.wait();
        }
        self.leaves.iter().for_each(|leaf| drop(leaf.remove()));
    }
}

/// Starts a shell that runs a script, in these cgroups.
fn start_in(leaves: &[BatchGroup], script: &str, process_group: i32) -> Child {
    let enter: Vec<String> =
        leaves.iter().map(|leaf| format!("echo $$ >{}/cgroup.procs;", leaf.dir.display())).collect();
    let mut command = Command::new("sh");
    let command = command.args(["-c", &format!("{} {script}", enter.concat())]);
    let command = process::kill_with_test(command).process_group(process_group);
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("a shell starts");
    let pid = child.id();
    let is_in = |leaf: &BatchGroup| {
        leaf.read("cgroup.procs").is_ok_and(|pids| pids.lines().any(|line| line == pid.to_string()))
    };
    wait_until("the process was in the groups", || leaves.iter().all(is_in));
    child
}

fn end(mut child: Child) {
    let _ = child.kill();
    let _ = child.wait();
}

fn groups_at_path_below(leaves: &[BatchGroup], path: &str) -> Vec<BatchGroup> {
    leaves.iter().map(|leaf| BatchGroup { dir: leaf.dir.join(path) }).collect()
}

/// Creates a cgroup as a runtime does: its list of CPUs is that of its parent.
fn create_cgroup(dir: &Path) -> Option<BatchGroup> {
    fs::create_dir(dir).ok()?;
    if dir.join("cpuset.mems").exists() && !dir.join("cgroup.controllers").exists() {
        let above = dir.parent()?;
        for file in ["cpuset.mems", "cpuset.cpus"] {
            fs::write(dir.join(file), fs::read(above.join(file)).ok()?).ok()?;
        }
    }
    Some(BatchGroup { dir: dir.to_owned() })
}

fn cpu_list_of(leaves: &[BatchGroup]) -> String {
    leaves.iter().find_map(|leaf| leaf.read("cpuset.cpus").ok()).unwrap_or_default()
}

fn write_cpu_list(leaves: &[BatchGroup], cpus: &str) {
    let leaf = leaves.iter().find(|leaf| leaf.has_control_file("cpuset.cpus")).expect("it has a list");
    leaf.write("cpuset.cpus", cpus).expect("the list can be written");
}

//! Control groups, versions 2 and 1: finds the hierarchies, and makes a leaf group in each.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use crate::cpulist::CpuSet;
use crate::procfs::{has_uninterruptible_thread, is_exiting, process_of, text_of, thread_name};

/// Longest wait until a group can be removed. The kernel removes a group only after its last task has ended. After a
/// kill this takes seconds if a thread in SCHED_IDLE waits for its CPU.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(10);

/// A mounted cgroup hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    /// Directory at which the hierarchy is mounted.
    pub mount: PathBuf,
    /// Path of the mounted part within the hierarchy: a container sees only its own part.
    pub root: PathBuf,
    /// Names of the hierarchy's version 1 controllers; empty for version 2.
    pub controllers: Vec<String>,
}

impl Hierarchy {
    /// Returns all hierarchies that are mounted for this process.
    pub fn all() -> Vec<Self> {
        MOUNTS.with_borrow_mut(|mounts| {
            let known = mounts.take().filter(Mounts::are_unchanged);
            *mounts = known.or_else(Mounts::read);
            mounts.as_ref().map_or_else(Vec::new, |mounts| mounts.hierarchies.clone())
        })
    }

    /// Whether the hierarchy is of cgroup version 2.
    pub fn is_v2(&self) -> bool {
        self.controllers.is_empty()
    }

    /// Returns the directory of a group of this hierarchy. `group` is the kernel's path of the group.
    pub fn dir(&self, group: &str) -> PathBuf {
        let below = Path::new(group).strip_prefix(&self.root).unwrap_or(Path::new(group));
        self.mount.join(below.strip_prefix("/").unwrap_or(below))
    }

    /// Whether the hierarchy has this v1 controller.
    pub fn has_controller(&self, controller: &str) -> bool {
        self.controllers.iter().any(|name| name == controller)
    }

    /// Whether groups of the hierarchy can be frozen, or restricted to CPUs.
    pub fn can_freeze_or_confine(&self) -> bool {
        self.is_v2() || self.has_controller("freezer") || self.has_controller("cpuset")
    }

    /// Returns the directory of the group that this process is in.
    pub fn own_dir(&self) -> Option<PathBuf> {
        self.dir_of(std::process::id())
    }

    /// Returns the directory of the group that a process is in. `None` if the group has no directory here. `None` for
    /// an exiting process, too: version 1 then reports the root group, whichever group the process was in.
    pub fn dir_of(&self, pid: u32) -> Option<PathBuf> {
        self.dir_from_memberships(&read_memberships(pid)?)
    }

    /// Returns the directory of the group that `memberships` (the text of a `/proc/PID/cgroup`) names, if it is
    /// mounted.
    pub fn dir_from_memberships(&self, memberships: &str) -> Option<PathBuf> {
        self.visible_dir(memberships.lines().find_map(|line| self.parse_group_path(line))?)
    }

    /// Returns the directory of a group, if the group lies in the mounted part. A cgroup namespace names groups outside
    /// of it with `..`. If the mount was made outside the namespace, its root has such a name; the names of groups
    /// below that root are unknown.
    fn visible_dir(&self, group_path: &str) -> Option<PathBuf> {
        let below = Path::new(group_path).strip_prefix(&self.root).ok()?;
        (!below.starts_with("..")).then(|| self.mount.join(below))
    }

    /// Returns the hierarchy's number in /proc/PID/cgroup; 0 for version 2.
    pub fn number(&self) -> Option<u32> {
        let memberships = text_of("/proc/self/cgroup")?;
        let line = memberships.lines().find(|line| self.parse_group_path(line).is_some())?;
        line.split(':').next()?.parse().ok()
    }

    /// Returns the path in a line of /proc/PID/cgroup (`id:controllers:path`), if the line is about this hierarchy.
    fn parse_group_path<'line>(&self, line: &'line str) -> Option<&'line str> {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let ours =
            if self.is_v2() { controllers.is_empty() } else { controllers.split(',').any(|c| self.has_controller(c)) };
        ours.then_some(path)
    }
}

/// Returns the text of a process's `/proc/PID/cgroup`; `None` if the process is exiting.
pub fn read_memberships(pid: u32) -> Option<String> {
    // The exit check comes last: a process that is not exiting now was not exiting when its groups were read.
    text_of(&format!("/proc/{pid}/cgroup")).filter(|_| !is_exiting(pid))
}

thread_local! {
    /// Cache of the mounted hierarchies, read again only when the kernel reports a change of mounts.
    static MOUNTS: RefCell<Option<Mounts>> = const { RefCell::new(None) };
}

/// Mounted hierarchies, with the open mountinfo file. A `poll` of the file reports changes since it was read.
struct Mounts {
    file: File,
    /// Process that opened the file. A forked child shares the file, and the kernel reports each change only once.
    pid: u32,
    hierarchies: Vec<Hierarchy>,
}

impl Mounts {
    fn read() -> Option<Self> {
        let (mut file, mut bytes) = (File::open("/proc/self/mountinfo").ok()?, Vec::new());
        file.read_to_end(&mut bytes).ok()?;
        let hierarchies = parse_mounts(&String::from_utf8_lossy(&bytes));
        Some(Self { file, pid: std::process::id(), hierarchies })
    }

    fn are_unchanged(&self) -> bool {
        let changed = poll(&mut [PollFd::new(&self.file, PollFlags::PRI)], Some(&Timespec::default()));
        self.pid == std::process::id() && changed == Ok(0)
    }
}

fn parse_mounts(mountinfo: &str) -> Vec<Hierarchy> {
    mountinfo.lines().filter_map(parse_mount).collect()
}

/// Parses a line of mountinfo: `id parent dev root mount options [tags] - type source superoptions`.
fn parse_mount(line: &str) -> Option<Hierarchy> {
    const NOT_CONTROLLERS: [&str; 6] = ["rw", "ro", "xattr", "noprefix", "clone_children", "cpuset_v2_mode"];
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ').skip(3);
    let (root, mount) = (before.next()?.into(), before.next()?.into());
    let mut after = after.split(' ');
    let controllers = match after.next()? {
        "cgroup2" => Vec::new(),
        "cgroup" => {
            let options = after.nth(1)?.split(',');
            let named = |option: &&str| !NOT_CONTROLLERS.contains(option) && !option.contains("agent=");
            options.filter(named).map(str::to_owned).collect()
        }
        _ => return None,
    };
    Some(Hierarchy { mount, root, controllers })
}

/// A control group, with the numbers by which the kernel identifies it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Inode number of the group's directory.
    pub id: u64,
    /// Number of the group's hierarchy, as in /proc/PID/cgroup; 0 is cgroup v2.
    pub hierarchy: u32,
    /// Directory of the group.
    pub dir: PathBuf,
}

impl Group {
    /// Finds the group with the kernel path `group_path`, in the first hierarchy in which that group has processes.
    pub fn find_with_processes(group_path: &str) -> Option<Self> {
        Hierarchy::all().into_iter().find_map(|hierarchy| {
            let dir = hierarchy.dir(group_path);
            let id = fs::metadata(&dir).ok()?.ino();
            if processes_in_tree(&dir).is_empty() {
                return None;
            }
            Some(Self { id, hierarchy: hierarchy.number()?, dir })
        })
    }

    /// Returns the ancestor of this group that has the kernel path `ancestor_path`. The kernel path of this group is
    /// `own_path`.
    pub fn ancestor(&self, own_path: &str, ancestor_path: &str) -> Option<Self> {
        let depth = |path: &str| path.split('/').filter(|part| !part.is_empty()).count();
        let dir = self.dir.ancestors().nth(depth(own_path).checked_sub(depth(ancestor_path))?)?.to_owned();
        Some(Self { id: fs::metadata(&dir).ok()?.ino(), hierarchy: self.hierarchy, dir })
    }

    /// Returns the processes in the group and in all groups below it.
    pub fn processes(&self) -> Vec<u32> {
        processes_in_tree(&self.dir)
    }
}

/// Returns the processes in the group `dir` and in all groups below it.
pub fn processes_in_tree(dir: &Path) -> Vec<u32> {
    let mut found = processes_in_group(dir);
    groups_below(dir).iter().for_each(|below| found.extend(processes_in_tree(below)));
    found
}

/// Returns the processes in the group `dir` itself. The kernel lists no processes of a threaded group of version 2;
/// for such a group this returns the processes of its threads.
pub fn processes_in_group(dir: &Path) -> Vec<u32> {
    match fs::read_to_string(dir.join("cgroup.procs")) {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
            let owners = threads_in_group(dir).into_iter().filter_map(process_of);
            owners.collect::<BTreeSet<u32>>().into_iter().collect()
        }
        text => parse_pids(&text.unwrap_or_default()),
    }
}

/// Returns the threads in the group `dir` and in all groups below it.
pub fn threads_in_tree(dir: &Path) -> Vec<u32> {
    let mut found = threads_in_group(dir);
    groups_below(dir).iter().for_each(|below| found.extend(threads_in_tree(below)));
    found
}

/// Returns the threads in the group `dir` itself, of version 1 or 2.
fn threads_in_group(dir: &Path) -> Vec<u32> {
    let read = |file: &str| fs::read_to_string(dir.join(file));
    parse_pids(&read("tasks").or_else(|_| read("cgroup.threads")).unwrap_or_default())
}

/// Returns the child groups of the group `dir`.
pub fn groups_below(dir: &Path) -> Vec<PathBuf> {
    let children = fs::read_dir(dir).into_iter().flatten().flatten();
    let groups = children.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    groups.map(|entry| entry.path()).collect()
}

fn parse_pids(text: &str) -> Vec<u32> {
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// A leaf group for batch in one hierarchy, below the group of this process. Every limit on this process thus applies
/// to batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchGroup {
    /// Directory of the leaf group.
    pub dir: PathBuf,
}

impl BatchGroup {
    /// Creates the leaf `name` in `hierarchy`. A name with a slash creates it below a group that an earlier call
    /// created.
    pub fn create(hierarchy: &Hierarchy, name: &str) -> io::Result<Self> {
        let own = hierarchy.own_dir().ok_or(io::ErrorKind::NotFound)?;
        let leaf = Self { dir: own.join(name) };
        fs::create_dir(&leaf.dir)?;
        if !hierarchy.has_controller("cpuset") {
            return Ok(leaf);
        }
        // A v1 cpuset accepts no task before its CPUs and memory nodes are set.
        let above = leaf.dir.parent().unwrap_or(&own);
        match leaf
            .copy_control_file_from(above, "cpuset.mems")
            .and_then(|()| leaf.copy_control_file_from(above, "cpuset.cpus"))
        {
            Ok(()) => Ok(leaf),
            Err(error) => leaf.remove().and(Err(error)),
        }
    }

    fn copy_control_file_from(&self, source_dir: &Path, file: &str) -> io::Result<()> {
        fs::write(self.dir.join(file), fs::read(source_dir.join(file))?)
    }

    /// Whether the kernel offers the control file `file` in this group.
    pub fn has_control_file(&self, file: &str) -> bool {
        self.dir.join(file).exists()
    }

    /// Reads a control file of the group, without the line end at its end.
    pub fn read(&self, file: &str) -> io::Result<String> {
        Ok(fs::read_to_string(self.dir.join(file))?.trim_end().to_owned())
    }

    /// Writes `value` to a control file of the group.
    pub fn write(&self, file: &str, value: &str) -> io::Result<()> {
        fs::write(self.dir.join(file), value)
    }

    /// Moves a process, with all its threads, into the group.
    pub fn move_process_in(&self, pid: u32) -> io::Result<()> {
        self.write("cgroup.procs", &pid.to_string())
    }

    /// Restricts the group to `cpus`. In version 1 the groups below are restricted, too, since a group cannot lose a
    /// CPU that a group below it has.
    pub fn set_cpus(&self, cpus: &CpuSet) -> io::Result<()> {
        let list = cpus.to_string();
        let written = self.write("cpuset.cpus", &list);
        if self.has_control_file("cgroup.controllers") {
            return written;
        }
        groups_below(&self.dir).into_iter().try_for_each(|dir| Self { dir }.set_cpus(cpus))?;
        written.or_else(|_| self.write("cpuset.cpus", &list))
    }

    /// Removes the group, and the groups below it that other processes created. The tasks of all these groups must be
    /// dead, or about to die.
    pub fn remove(&self) -> io::Result<()> {
        groups_below(&self.dir).into_iter().try_for_each(|dir| Self { dir }.remove())?;
        let deadline = Instant::now() + REMOVE_TIMEOUT;
        loop {
            match fs::remove_dir(&self.dir) {
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) && Instant::now() < deadline => {
                    // The kernel does not report when a group becomes removable.
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(self.explain_remove_error(error)),
                _ => return Ok(()),
            }
        }
    }

    /// Returns the error with the name of the process that keeps the group from being removed.
    fn explain_remove_error(&self, error: io::Error) -> io::Error {
        let members = processes_in_tree(&self.dir);
        let stuck = members.iter().find(|pid| has_uninterruptible_thread(**pid));
        let Some(pid) = stuck.or(members.first()) else { return error };
        let why = if stuck.is_some() { "is in a system call that no signal interrupts" } else { "does not end" };
        let (name, dir) = (thread_name(*pid, *pid), self.dir.display());
        let text = format!(
            "cannot remove the cgroup {dir}: process {name} {why}; see where it hangs with `cat /proc/{pid}/stack`, \
             and remove the group with rmdir when it has ended"
        );
        io::Error::new(error.kind(), text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
24 1 0:21 / /sys rw - sysfs sysfs rw
31 24 0:27 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
32 24 0:28 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
33 24 0:29 /docker/abc /sys/fs/cgroup/unified rw,relatime shared:4 - cgroup2 cgroup2 rw
";

    #[test]
    fn a_group_that_cannot_be_removed_names_the_process_in_it() {
        let name = format!("sidelane-test-busy-{}", std::process::id());
        let hierarchies = Hierarchy::all();
        let Some(leaf) = hierarchies.iter().find_map(|found| BatchGroup::create(found, &name).ok()) else {
            return sidelane_testing::skip("needs the right to make a control group");
        };
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        leaf.move_process_in(child.id()).unwrap();
        let told = leaf.explain_remove_error(fs::remove_dir(&leaf.dir).unwrap_err()).to_string();
        child.kill().and_then(|()| child.wait()).unwrap();
        leaf.remove().unwrap();
        let wanted = format!("cannot remove the cgroup {}: process ", leaf.dir.display());
        assert!(told.starts_with(&wanted) && told.contains(&format!("({}) does not end; see", child.id())), "{told}");
    }

    #[test]
    fn hierarchies_of_both_versions_are_found() {
        let found = parse_mounts(MOUNTS);
        assert_eq!(found.len(), 3);
        assert_eq!(found[0].controllers, ["cpuset"]);
        assert_eq!(found[1].controllers, ["name=systemd"]);
        assert!(found[2].is_v2());
    }

    #[test]
    fn group_path_of_a_container_is_relative_to_its_mount_root() {
        let unified = &parse_mounts(MOUNTS)[2];
        assert_eq!(unified.dir("/docker/abc/job"), Path::new("/sys/fs/cgroup/unified/job"));
        assert_eq!(unified.dir("/docker/abc"), Path::new("/sys/fs/cgroup/unified"));
    }

    #[test]
    fn exiting_process_has_no_group_directory() {
        let mut ended = std::process::Command::new("true").spawn().expect("true starts");
        while !is_exiting(ended.id()) {
            std::thread::yield_now();
        }
        for hierarchy in Hierarchy::all() {
            assert_eq!(hierarchy.dir_of(ended.id()), None, "{hierarchy:?}");
        }
        ended.wait().unwrap();
    }

    #[test]
    fn a_group_outside_of_the_namespace_has_no_directory_here() {
        let mounted = |root: &str| Hierarchy { mount: "/cg".into(), root: root.into(), controllers: vec![] };
        let dir = |root, group| mounted(root).visible_dir(group);
        assert_eq!(dir("/", "/job/..x"), Some("/cg/job/..x".into()));
        assert_eq!(dir("/docker/abc", "/docker/abc/job"), Some("/cg/job".into()));
        assert_eq!((dir("/", "/.."), dir("/", "/../other.slice"), dir("/docker/abc", "/other")), (None, None, None));
        // The mount was made outside the cgroup namespace, whose root group is two levels below.
        assert_eq!(dir("/../..", "/../../other.slice"), Some("/cg/other.slice".into()));
        assert_eq!((dir("/../..", "/"), dir("/../..", "/../../..")), (None, None));
    }

    #[test]
    fn a_membership_line_names_its_hierarchy() {
        let found = parse_mounts(MOUNTS);
        assert_eq!(found[0].parse_group_path("4:cpuset:/a:b"), Some("/a:b"));
        assert_eq!(found[0].parse_group_path("0::/a"), None);
        assert_eq!(found[2].parse_group_path("0::/a"), Some("/a"));
    }

    #[test]
    fn fuzzed_mounts_and_memberships_are_read_or_left_out() {
        let known = parse_mounts(MOUNTS);
        sidelane_testing::fuzz("mounts", |bytes| {
            let text = String::from_utf8_lossy(bytes);
            let found = parse_mounts(&text);
            for hierarchy in found.iter().chain(&known) {
                let groups = text.lines().filter_map(|line| hierarchy.parse_group_path(line));
                groups.for_each(|group| drop((hierarchy.dir(group), hierarchy.visible_dir(group))));
            }
        });
    }
}

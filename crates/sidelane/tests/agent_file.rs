//! Tests of `sidelane agent check`, `show` and `example`, and their results on real cgroups.

mod common;

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use sidelane_agent::config::Config;
use sidelane_agent::discover::{Changes, Finder};
use sidelane_host::cgroup::{BatchGroup, Hierarchy};
use sidelane_host::clock::now_ns;

fn run_agent_verb(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sidelane")).arg("agent").args(arguments).output().expect("sidelane starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Writes the agent's file, and returns its path.
fn write_agent_file(dir: &Path, content: &str) -> String {
    let path = dir.join("sidelane.toml");
    fs::write(&path, content).expect("a file can be written");
    path.display().to_string()
}

#[test]
fn the_example_passes_the_check() {
    let dir = tempfile::tempdir().unwrap();
    let file = write_agent_file(dir.path(), &text(&run_agent_verb(&["example"]).stdout));
    let check = run_agent_verb(&["check", &file]);
    let said = format!("{file}: 1 service, 1 tree of batch, policy holmes; nothing is wrong\n");
    assert_eq!((check.status.code(), text(&check.stdout), text(&check.stderr)), (Some(0), said, String::new()));
}

#[test]
fn all_problems_of_a_file_are_printed() {
    let dir = tempfile::tempdir().unwrap();
    let file = write_agent_file(
        dir.path(),
        "[[service]]\nname = \"a\"\nport = 0\n[[batch]]\ncgroup = \"/b\"\n[policy]\ncalm_time = 1\n",
    );
    let said = format!(
        "{file}:3: `service.port` is 0; write a whole number from 1 to 65535\n\
         {file}:7: `policy.calm_time` is 1, which has no unit; write a number and its unit, one of ns, us, ms, s, m, h, as in \"8us\" \
         or \"1.5s\"\n"
    );
    for (verb, code) in [(&["check", &file][..], 1), (&["show", "--config", &file], 125)] {
        let wrong = run_agent_verb(verb);
        assert_eq!(
            (wrong.status.code(), text(&wrong.stdout), text(&wrong.stderr)),
            (Some(code), String::new(), said.clone())
        );
    }
}

#[test]
fn file_that_does_not_fit_the_machine_is_shown_with_advice() {
    let dir = tempfile::tempdir().unwrap();
    let file = write_agent_file(
        dir.path(),
        "[[service]]\nname = \"a\"\ncomm = \"no-such-service\"\n[[batch]]\ncgroup = \"/no-such-group\"\n\
         [policy]\nreserved = \"7000\"\n",
    );
    let shown = run_agent_verb(&["show", "--config", &file]);
    let said = text(&shown.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(shown.status.code(), Some(1), "{said}");
    assert!(said.contains("service a: no process is found by comm no-such-service; it is added"), "{said}");
    assert!(said.contains("batch /no-such-group: there is no such group;"), "{said}");
    assert!(said.contains("policy.reserved names CPUs 7000, but this machine has CPUs 0"), "{said}");
    assert!(said.contains("policy.reserved \"7000\" line 7"), "{said}");
    assert!(said.contains("policy.reserved_busy \"80%\" default"), "{said}");
}

/// Tree of cgroups in the hierarchies by which batch can be recognised.
struct Tree {
    leaves: Vec<BatchGroup>,
    processes: Vec<Child>,
}

impl Tree {
    fn make() -> Option<Self> {
        let name = format!("containers-{}-{:?}", std::process::id(), std::thread::current().id());
        let name = name.replace(['(', ')'], "");
        let wanted =
            |found: &Hierarchy| found.is_v2() || found.has_controller("cpuset") || found.has_controller("freezer");
        let hierarchies = Hierarchy::all().into_iter().filter(wanted);
        let leaves: Vec<BatchGroup> = hierarchies.filter_map(|found| BatchGroup::create(&found, &name).ok()).collect();
        if leaves.is_empty() {
            sidelane_testing::skip("needs control groups of its own, which cannot be made here".to_owned());
            return None;
        }
        Some(Self { leaves, processes: Vec::new() })
    }

    /// Returns the path of the tree, as in the agent's file.
    fn path(&self) -> String {
        let mounts = Hierarchy::all().into_iter().map(|found| found.mount);
        let below = mounts.filter_map(|mount| Some(self.leaves[0].dir.strip_prefix(mount).ok()?.to_owned()));
        format!("/{}", below.min_by_key(|path| path.as_os_str().len()).expect("it is in a hierarchy").display())
    }

    fn cgroup_dirs(&self, name: &str) -> Vec<PathBuf> {
        self.leaves.iter().map(|leaf| leaf.dir.join(name)).collect()
    }

    /// Creates a container with one process, and returns the process id.
    fn start_container(&mut self, name: &str) -> u32 {
        let sleeper = Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().expect("sleep starts");
        let pid = sleeper.id();
        for dir in self.cgroup_dirs(name) {
            fs::create_dir(&dir).expect("a group can be made");
            for file in ["cpuset.mems", "cpuset.cpus"].iter().filter(|file| dir.join(file).exists()) {
                let above = fs::read(dir.parent().expect("it has one").join(file)).expect("it can be read");
                // In cgroup version 2 the parent's list may be empty, so an error of the copy is ignored.
                let _ = fs::write(dir.join(file), above);
            }
            fs::write(dir.join("cgroup.procs"), pid.to_string()).expect("the group takes a process");
        }
        self.processes.push(sleeper);
        pid
    }

    fn stop_containers(&mut self, name: &str) {
        self.processes.drain(..).for_each(|mut child| {
            let _ = child.kill();
            let _ = child.wait();
        });
        self.cgroup_dirs(name).iter().for_each(|dir| drop(BatchGroup { dir: dir.clone() }.remove()));
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        ["a", "b"].into_iter().for_each(|name| self.stop_containers(name));
        self.leaves.iter().for_each(|leaf| drop(leaf.remove()));
    }
}

fn added_and_removed_names(changes: &Changes) -> (Vec<&str>, Vec<&str>) {
    let came = changes.containers_came.iter().map(|container| container.name.as_str());
    (came.collect(), changes.containers_gone.iter().map(|id| id.path.as_str()).collect())
}

#[test]
fn new_and_ended_containers_are_found() {
    let Some(mut tree) = Tree::make() else { return };
    let path = tree.path();
    let file = format!("[[service]]\nname = \"x\"\ncgroup = \"/no-such-group\"\n[[batch]]\ncgroup = \"{path}\"\n");
    let mut finder = Finder::new(&Config::parse("a.toml", &file).unwrap());
    assert_eq!(finder.scan(now_ns()), Changes::default());

    let (a, b) = (format!("{path}/a"), format!("{path}/b"));
    let pid = tree.start_container("a");
    let changes = finder.scan(now_ns());
    assert_eq!(added_and_removed_names(&changes), (vec![a.as_str()], vec![]));
    let first = changes.containers_came[0].id.clone();
    assert_eq!(finder.processes(&first), [pid]);
    assert_eq!(finder.scan(now_ns()), Changes::default());

    tree.stop_containers("a");
    tree.start_container("a");
    let changes = finder.scan(now_ns());
    assert_eq!(added_and_removed_names(&changes), (vec![a.as_str()], vec![a.as_str()]), "it was made again");
    assert_ne!(changes.containers_came[0].id, first);

    tree.start_container("b");
    assert_eq!(added_and_removed_names(&finder.scan(now_ns())), (vec![b.as_str()], vec![]));
    tree.stop_containers("a");
    assert_eq!(added_and_removed_names(&finder.scan(now_ns())), (vec![], vec![a.as_str()]));
    assert_eq!(finder.scan(now_ns()), Changes::default());
}

/// Process with a unique name, until it is dropped.
struct NamedSleeper(Child);

impl NamedSleeper {
    fn start(dir: &Path, name: &str) -> Self {
        common::process::copy_program("/bin/sleep", &dir.join(name));
        let named = Self(Command::new(dir.join(name)).arg("1000").stdin(Stdio::null()).spawn().expect("it starts"));
        let comm = || fs::read_to_string(format!("/proc/{}/comm", named.0.id())).unwrap_or_default();
        common::wait_until("it had its name", || comm().trim_end() == name);
        named
    }
}

impl Drop for NamedSleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_service_and_a_container_are_shown_to_people_and_programs() {
    let Some(mut tree) = Tree::make() else { return };
    tree.start_container("a");
    let dir = tempfile::tempdir().unwrap();
    let name = format!("sl-{}", std::process::id());
    let service = NamedSleeper::start(dir.path(), &name);
    let content = format!(
        "[[service]]\nname = \"here\"\ncomm = \"{name}\"\nslo = \"p99=5ms\"\n\
         [[batch]]\ncgroup = \"{}\"\ncpus = 1\n[policy]\nkind = \"unmanaged\"\n",
        tree.path()
    );
    let file = write_agent_file(dir.path(), &content);
    let json = dir.path().join("shown.json");
    let shown = run_agent_verb(&["show", "--config", &file, "--json", &json.display().to_string()]);
    assert!(shown.status.success(), "{}", text(&shown.stderr));
    assert!(text(&shown.stdout).contains("1 (the file)"), "{}", text(&shown.stdout));
    let shown: serde_json::Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(shown["services"][0]["name"], "here");
    assert_eq!(shown["services"][0]["slo"], "p99=5ms");
    assert_eq!(shown["services"][0]["pids"], serde_json::json!([service.0.id()]));
    assert_eq!(shown["containers"][0]["group"], format!("{}/a", tree.path()));
    assert_eq!(shown["containers"][0]["processes"], 1);
    assert_eq!(shown["missing"], serde_json::json!([]));
}

/// The service is found by the test's own port. So all processes started by the test belong to it, except those in a
/// cgroup of batch.
#[test]
fn a_container_that_a_service_has_started_is_batch() {
    let Some(mut tree) = Tree::make() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let file = format!("[[service]]\nname = \"x\"\nport = {port}\n[[batch]]\ncgroup = \"{}\"\n", tree.path());
    let mut finder = Finder::new(&Config::parse("a.toml", &file).unwrap());
    let pid = tree.start_container("a");
    let changes = finder.scan(now_ns());
    assert_eq!((changes.services_came.len(), changes.containers_came.len()), (1, 1));
    let found = &changes.services_came[0];
    assert!(found.service.pids.contains(&std::process::id()) && !found.service.pids.contains(&pid), "{found:?}");
    assert_eq!(finder.problems(), []);
    drop(listener);
    // Each scan is 10 s after the previous one, longer than all scan intervals. A process that another test has just
    // forked keeps the port open until it executes its program.
    let (mut at_ns, mut gone) = (now_ns(), Vec::new());
    common::wait_until("the service was gone", || {
        at_ns += 10_000_000_000;
        gone.extend(finder.scan(at_ns).services_gone);
        !gone.is_empty()
    });
    assert_eq!(gone, [found.id]);
    assert_eq!(finder.containers().count(), 1);
}

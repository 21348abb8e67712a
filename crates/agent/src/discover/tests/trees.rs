//! Tests of trees of batch and cgroups of services, as they come and go.

use std::collections::BTreeSet;
use std::path::Path;

use proptest::prelude::*;

use super::super::ContainerId;
use super::machine::TestMachine;
use crate::config::Config;

const BATCH: &str =
    "[[service]]\nname = \"web\"\ncgroup = \"/web\"\n[[batch]]\ncgroup = \"/batch\"\ncpus = 2\npriority = 7\n";
const BOTH: [&str; 2] = ["hierarchy v2", "hierarchy cpuset\nhierarchy freezer"];

fn container_names(files: &TestMachine, file: &str) -> Vec<String> {
    let mut look = files.finder(file);
    look.scan_later();
    look.containers().into_iter().map(|(name, _)| name).collect()
}

#[test]
fn leaf_groups_are_containers_with_the_files_settings() {
    for hierarchies in BOTH {
        let files = TestMachine::from_listing(&format!(
            "{hierarchies}\ngroup /batch\ngroup /batch/a\ngroup /batch/b/c 1:x\ngroup /batch/b-d"
        ));
        let mut look = files.finder(BATCH);
        look.scan_later();
        assert_eq!(look.containers(), [("/batch/a".into(), 2), ("/batch/b-d".into(), 2), ("/batch/b/c".into(), 2)]);
        assert!(look.finder.containers().all(|container| container.priority == 7 && container.top == "/batch"));
    }
}

/// The uppermost cgroup of a tree is a container if it has processes of its own: all cgroups below are part of it.
#[test]
fn tree_with_processes_in_its_root_is_one_container() {
    assert_eq!(container_names(&TestMachine::from_listing("hierarchy v2\ngroup /batch"), BATCH), Vec::<String>::new());
    assert_eq!(container_names(&TestMachine::from_listing("hierarchy v2\ngroup /batch 5:make"), BATCH), ["/batch"]);
    assert_eq!(
        container_names(&TestMachine::from_listing("hierarchy v2\ngroup /batch 5:make\ngroup /batch/a"), BATCH),
        ["/batch"]
    );
}

#[test]
fn trees_made_later_are_found() {
    for hierarchies in BOTH {
        let files = TestMachine::from_listing(hierarchies);
        let mut look = files.finder(BATCH);
        assert!(look.scan_later().is_empty());
        assert_eq!(look.problems().len(), 2);
        files.add_group("/batch");
        files.add_group("/batch/a");
        let came = look.scan_later().containers_came;
        assert_eq!(came.iter().map(|container| container.name.as_str()).collect::<Vec<_>>(), ["/batch/a"]);
        files.add_group("/batch/a/deeper");
        let changes = look.scan_later();
        assert_eq!(
            (changes.containers_came[0].name.as_str(), changes.containers_gone[0].path.as_str()),
            ("/batch/a/deeper", "/batch/a")
        );
        files.remove_group("/batch");
        assert_eq!(look.scan_later().containers_gone.len(), 1);
        assert!(look.scan_later().is_empty());
    }
}

/// The kernel gives a cgroup that is made again another inode.
#[test]
fn recreated_group_has_a_new_identity() {
    for hierarchies in BOTH {
        let files = TestMachine::from_listing(&format!("{hierarchies}\ngroup /batch/a\ngroup /web 9:nginx"));
        let mut look = files.finder(BATCH);
        let before = look.scan_later();
        files.remove_group("/batch/a");
        files.remove_group("/web");
        files.add_group("/batch/a");
        files.add_group("/web 10:nginx");
        let after = look.scan_later();
        assert_eq!(after.containers_gone, [before.containers_came[0].id.clone()]);
        assert_eq!(after.services_gone, [before.services_came[0].id]);
        assert_eq!((after.containers_came.len(), after.services_came[0].service.pids.len()), (1, 1));
        assert!(look.scan_later().is_empty());
    }
}

#[test]
fn service_is_found_with_its_first_process() {
    let files = TestMachine::from_listing("hierarchy v2\ngroup /web");
    let mut look = files.finder(BATCH);
    assert!(look.scan_later().is_empty());
    files.add_group("/web/worker 12:nginx");
    assert_eq!(look.scan_later().services_came[0].service.pids, [12].into());
}

#[test]
fn each_group_of_a_pattern_is_a_service_of_its_own() {
    let file =
        "[[service]]\nname = \"redis\"\ncgroup = \"/*.slice/redis@*.service\"\n[[batch]]\ncgroup = \"/batch/*/jobs\"\n";
    let files = TestMachine::from_listing(
        "hierarchy v2\ngroup /a.slice/redis@1.service 1:redis\ngroup /a.slice/redis@2.service 2:redis\n\
         group /b.slice/redis@1.service 3:redis\ngroup /batch/x/jobs/1\ngroup /batch/x/other/1\ngroup /batch/y/jobs/1",
    );
    let mut look = files.finder(file);
    look.scan_later();
    assert_eq!(
        look.services(),
        ["redis:redis@1.service", "redis:redis@1.service /b.slice/redis@1.service", "redis:redis@2.service"]
    );
    assert_eq!(
        look.containers().into_iter().map(|(name, _)| name).collect::<Vec<_>>(),
        ["/batch/x/jobs/1", "/batch/y/jobs/1"]
    );
    assert!(look.scan_later().is_empty());
    files.add_group("/a.slice/redis@3.service 4:redis");
    look.scan_later();
    assert_eq!(look.services()[1], "redis:redis@1.service /b.slice/redis@1.service");
    assert_eq!(look.services().len(), 4);
}

#[test]
fn processes_beside_containers_are_reported() {
    let files = TestMachine::from_listing("hierarchy v2\ngroup /web 1:a\ngroup /batch 5:make 6:cc\ngroup /batch/a 7:x");
    let mut look = files.finder(BATCH);
    look.scan_later();
    assert_eq!(look.containers().len(), 1);
    assert_eq!(
        look.problems(),
        ["group /batch: it has 2 processes of its own, so it is one container with all groups below it; to have \
             several containers, move these processes to a group below it"]
    );
    files.add_group("/batch");
    look.scan_later();
    assert_eq!(look.problems(), Vec::<String>::new());
}

#[test]
fn groups_made_below_a_container_belong_to_it() {
    for hierarchies in BOTH {
        let files = TestMachine::from_listing(&format!("{hierarchies}\ngroup /web 1:a\ngroup /batch/a 7:x"));
        let mut look = files.finder(BATCH);
        look.scan_later();
        files.add_group("/batch/a/x");
        assert!(look.scan_later().is_empty(), "an empty group below it");
        files.add_group("/batch/a/x 7:x");
        files.add_group("/batch/a");
        assert!(look.scan_later().is_empty(), "its processes went there");
        files.add_group("/batch/a/x/y 8:x");
        files.add_group("/batch/a/z 9:x");
        assert!(look.scan_later().is_empty(), "more groups, at any depth");
        files.remove_group("/batch/a/x");
        files.remove_group("/batch/a/z");
        assert!(look.scan_later().is_empty(), "all of them are removed");
        files.remove_group("/batch/a");
        assert_eq!(look.scan_later().containers_gone.len(), 1);
    }
}

#[test]
fn container_made_above_others_replaces_them() {
    let files = TestMachine::from_listing(
        "hierarchy v2\ngroup /web 1:a\ngroup /batch/a 7:x\ngroup /batch/b/c 8:x\ngroup /batch/d 9:x",
    );
    let mut look = files.finder(BATCH);
    assert_eq!(look.scan_later().containers_came.len(), 3);
    // No cgroup is made, only processes move. The kernel does not report that processes move from one cgroup to
    // another.
    files.add_group("/batch/b 10:x");
    let changes = look.scan_later();
    let paths = |changes: &[ContainerId]| changes.iter().map(|id| id.path.clone()).collect::<Vec<_>>();
    assert_eq!(
        (changes.containers_came[0].name.as_str(), paths(&changes.containers_gone)),
        ("/batch/b", vec!["/batch/b/c".to_owned()])
    );
    files.add_group("/batch 11:x");
    let changes = look.scan_later();
    assert_eq!((changes.containers_came[0].name.as_str(), changes.containers_gone.len()), ("/batch", 3));
    assert_eq!(look.containers(), [("/batch".to_owned(), 2)]);
}

#[test]
fn reload_keeps_services_and_containers_of_both_files() {
    let files = TestMachine::from_listing("hierarchy v2\ngroup /web 1:a\ngroup /batch/a\ngroup /more/b");
    let mut look = files.finder(BATCH);
    let first = look.scan_later();
    let file = BATCH.replace("name = \"web\"", "name = \"site\"").replace("priority = 7", "priority = 8");
    look.finder.reload(&Config::parse("a.toml", &format!("{file}\n[[batch]]\ncgroup = \"/more\"\n")).unwrap());
    let changes = look.scan_later();
    assert_eq!(
        changes.containers_came.iter().map(|container| container.name.as_str()).collect::<Vec<_>>(),
        ["/more/b"]
    );
    assert!(changes.services_came.is_empty() && changes.services_gone.is_empty() && changes.containers_gone.is_empty());
    assert_eq!(look.finder.service(first.services_came[0].id).unwrap().name, "site");
    assert_eq!(look.finder.container(&first.containers_came[0].id).unwrap().priority, 8);
    look.finder.reload(
        &Config::parse("a.toml", "[[service]]\nname = \"web\"\nport = 1\n[[batch]]\ncgroup = \"/more\"\n").unwrap(),
    );
    let changes = look.scan_later();
    assert_eq!((changes.services_gone.len(), changes.containers_gone.len()), (1, 1));
}

/// File system mounted in the place of a hierarchy, until it is dropped.
struct Mount(std::path::PathBuf);

impl Mount {
    fn mount_over(dir: &std::path::Path) -> Option<Self> {
        let mounted = std::process::Command::new("mount").args(["-t", "tmpfs", "none"]).arg(dir).output();
        mounted.is_ok_and(|output| output.status.success()).then(|| Self(dir.to_owned()))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn remounted_hierarchy_is_read_again() {
    let files = TestMachine::from_listing("hierarchy v2");
    let dir = files.path().join("cgroup/v2");
    let Some(first) = Mount::mount_over(&dir) else {
        return sidelane_testing::skip("needs to mount a file system, which is not allowed here".to_owned());
    };
    files.add_group("/batch/a");
    let mut look = files.finder(BATCH);
    assert_eq!(look.scan_later().containers_came.len(), 1);
    drop(first);
    let _second = Mount::mount_over(&dir);
    files.add_group("/batch/b");
    let changes = look.scan_later();
    assert_eq!(
        (changes.containers_came[0].id.path.as_str(), changes.containers_gone[0].path.as_str()),
        ("/batch/b", "/batch/a")
    );
    files.add_group("/batch/c");
    assert_eq!(look.scan_later().containers_came.len(), 1);
}

#[derive(Clone, Copy, Debug)]
enum GroupAction {
    Make(&'static str),
    Remove(&'static str),
    Scan,
}

fn any_actions() -> impl Strategy<Value = Vec<GroupAction>> {
    let paths = || prop::sample::select(vec!["/batch", "/batch/a", "/batch/a/b", "/batch/a-b", "/batch/c", "/web"]);
    let deed = prop_oneof![3 => paths().prop_map(GroupAction::Make), 2 => paths().prop_map(GroupAction::Remove), 2 => Just(GroupAction::Scan)];
    prop::collection::vec(deed, 0..20)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(50))]

    /// A finder that follows all changes has the same state as a new finder, and reports each change once.
    #[test]
    fn finder_that_follows_changes_agrees_with_a_new_one(deeds in any_actions(), version in 0_usize..2) {
        let files = TestMachine::from_listing(BOTH[version]);
        let mut look = files.finder(BATCH);
        let (mut containers, mut services) = (BTreeSet::new(), BTreeSet::new());
        for deed in deeds.into_iter().chain([GroupAction::Scan]) {
            match deed {
                GroupAction::Make(path) => files.add_group(&format!("{path} 7:work")),
                GroupAction::Remove(path) => files.remove_group(path),
                GroupAction::Scan => {
                    let changes = look.scan_later();
                    changes.containers_gone.iter().for_each(|id| assert!(containers.remove(id), "{id:?} was not there"));
                    changes.containers_came.iter().for_each(|came| assert!(containers.insert(came.id.clone())));
                    changes.services_gone.iter().for_each(|id| assert!(services.remove(id), "{id:?} was not there"));
                    changes.services_came.iter().for_each(|came| assert!(services.insert(came.id)));
                }
            }
        }
        let mut fresh = files.finder(BATCH);
        fresh.scan_later();
        prop_assert_eq!((look.containers(), look.services()), (fresh.containers(), fresh.services()));
        let told: BTreeSet<_> = look.finder.containers().map(|container| container.id.clone()).collect();
        prop_assert_eq!((containers, services.len()), (told, look.services().len()));
        prop_assert!(look.scan_later().is_empty());
    }

    /// Each process of a tree is in exactly one container, whatever cgroup of the tree it is in.
    #[test]
    fn each_process_of_a_tree_is_in_one_container(deeds in any_moves(), version in 0_usize..2) {
        let files = TestMachine::from_listing(BOTH[version]);
        let mut look = files.finder(BATCH);
        let mut inhabited: BTreeSet<&str> = BTreeSet::new();
        for (path, has_processes) in deeds {
            files.add_group(&if has_processes { format!("{path} 7:work") } else { path.to_owned() });
            if has_processes { inhabited.insert(path) } else { inhabited.remove(path) };
            look.scan_later();
            let containers: Vec<String> = look.containers().into_iter().map(|(name, _)| name).collect();
            for path in &inhabited {
                let holders = containers.iter().filter(|container| Path::new(path).starts_with(container));
                prop_assert_eq!(holders.count(), 1, "{} in {:?}", path, containers);
            }
        }
    }
}

fn any_moves() -> impl Strategy<Value = Vec<(&'static str, bool)>> {
    let paths = vec!["/batch", "/batch/a", "/batch/a/b", "/batch/a/b/c", "/batch/a-b", "/batch/d"];
    prop::collection::vec((prop::sample::select(paths), any::<bool>()), 0..20)
}

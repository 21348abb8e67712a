//! Tests with pods of a Kubernetes node: cgroups as a kubelet creates them, and the directories of their logs.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{Footprint, lock_lanes, wait_until};
use crate::daemon::{Daemon, File, status};
use crate::groups::{Place, Tree};

const LOGS: &str = "/var/log/pods";

/// Directory of a pod's logs, from which the agent reads the pod's name. Dropping it removes it, and the directories
/// created above it.
struct PodLogDir {
    dir: PathBuf,
    made_above: bool,
}

impl PodLogDir {
    fn create(name: &str, uid: &str) -> Self {
        let made_above = !Path::new(LOGS).exists();
        let dir = Path::new(LOGS).join(format!("{name}_{uid}"));
        fs::create_dir_all(&dir).expect("a directory for logs can be made");
        Self { dir, made_above }
    }
}

impl Drop for PodLogDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.dir);
        if self.made_above {
            let _ = fs::remove_dir(LOGS);
        }
    }
}

fn kubernetes_agent_file(tree: &Tree) -> File {
    let kubernetes = format!("[kubernetes]\ncgroup = \"{}/kubepods\"\n", tree.path());
    File::with_holmes_policy().with_service("comm = \"nobody\"").with_lines(&kubernetes)
}

#[test]
fn new_besteffort_pod_starts_confined() {
    let Some(_turn) = lock_lanes() else { return };
    let before = Footprint::capture();
    let Some(tree) = Tree::make(Place::Lists) else { return };
    tree.create_cgroup_below("kubepods");
    tree.create_cgroup_below("kubepods/besteffort");
    let mut daemon = Daemon::start(&kubernetes_agent_file(&tree), 0, 0);
    wait_until("new pods start on the CPUs that batch may have", || tree.cpu_list_below("kubepods/besteffort") == "1");
    assert_eq!(tree.cpu_list_below("kubepods"), "0-1");
    let uid = format!("{}-1", std::process::id());
    let pod = format!("kubepods/besteffort/pod{uid}");
    let logs = PodLogDir::create("batch_job", &uid);
    tree.create_cgroup_below(&pod);
    let job = tree.container(&format!("{pod}/job"));
    assert_eq!(job.cpus(), "1", "before the agent has seen it");
    daemon.wait_for_managed_counts(0, 1);
    drop(job);
    daemon.wait_for_managed_counts(0, 0);
    assert_eq!(tree.cpu_list_below("kubepods/besteffort"), "1");
    // A system pod has all CPUs. While it exists, each new pod has all CPUs, too.
    let system = (format!("{uid}-2"), PodLogDir::create("kube-system_proxy", &format!("{uid}-2")));
    let proxy_pod = format!("kubepods/besteffort/pod{}", system.0);
    tree.create_cgroup_below(&proxy_pod);
    let proxy = tree.container(&format!("{proxy_pod}/proxy"));
    daemon.run.wait_until("the system's pod had all CPUs", |_| proxy.cpus() == "0-1");
    assert_eq!(tree.cpu_list_below("kubepods/besteffort"), "0-1");
    let notes = status()["notes"].to_string();
    assert!(notes.contains("new batch in") && notes.contains("it also holds pods that are not batch"), "{notes}");
    daemon.end();
    let lists = ["kubepods", "kubepods/besteffort", &pod, &proxy_pod].map(|path| tree.cpu_list_below(path));
    assert_eq!((lists, proxy.cpus().as_str()), (["0-1"; 4].map(str::to_owned), "0-1"));
    drop((proxy, tree, system, logs));
    before.wait_until_restored();
}

#[test]
fn a_killed_agent_gives_the_group_of_new_pods_its_list_back() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(tree) = Tree::make(Place::Lists) else { return };
    tree.create_cgroup_below("kubepods");
    tree.create_cgroup_below("kubepods/besteffort");
    let mut daemon = Daemon::start(&kubernetes_agent_file(&tree), 0, 0);
    wait_until("new pods start on the CPUs that batch may have", || tree.cpu_list_below("kubepods/besteffort") == "1");
    daemon.run.kill();
    wait_until("the list was given back", || tree.cpu_list_below("kubepods/besteffort") == "0-1");
}

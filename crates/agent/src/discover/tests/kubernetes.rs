//! Tests of Kubernetes nodes, by their cgroups: the same pods under each driver, runtime and version.

use super::machine::{TestFinder, TestMachine};
use crate::pod_file::{Pod, PodFile};

const NODES: [(&str, &str); 7] = [
    ("v2 systemd containerd", include_str!("../../../tests/fixtures/kubernetes/v2-systemd-containerd.txt")),
    ("v2 cgroupfs containerd", include_str!("../../../tests/fixtures/kubernetes/v2-cgroupfs-containerd.txt")),
    ("v1 cgroupfs docker", include_str!("../../../tests/fixtures/kubernetes/v1-cgroupfs-docker.txt")),
    ("v1 systemd docker", include_str!("../../../tests/fixtures/kubernetes/v1-systemd-docker.txt")),
    ("v2 systemd cri-o", include_str!("../../../tests/fixtures/kubernetes/v2-systemd-crio.txt")),
    ("v2 systemd kind", include_str!("../../../tests/fixtures/kubernetes/v2-systemd-kind.txt")),
    ("v1 cgroupfs kind", include_str!("../../../tests/fixtures/kubernetes/v1-cgroupfs-kind.txt")),
];

/// Makes the first of the Kubernetes nodes, for tests of properties that all nodes share.
fn kubernetes_node() -> TestMachine {
    TestMachine::from_listing(NODES[0].1)
}

#[test]
fn guaranteed_and_burstable_pods_are_services_others_batch() {
    for (name, listing) in NODES {
        let node = TestMachine::from_listing(listing);
        let mut look = node.finder("kubernetes = true");
        let changes = look.scan_later();
        assert_eq!(look.services(), ["default/redis-0", "default/web-5d9c7b", "kube-system/etcd-node1"], "{name}");
        // The pod batch/zip-2 has two containers, and the pod batch/crunch-1 has one.
        let containers = look.containers();
        let names: Vec<&str> = containers.iter().map(|(name, _)| name.split(':').next().unwrap()).collect();
        assert_eq!(names, ["batch/crunch-1", "batch/zip-2", "batch/zip-2"], "{name}");
        assert_eq!((changes.services_came.len(), changes.containers_came.len()), (3, 3), "{name}");
        assert_eq!(look.problems(), Vec::<String>::new(), "{name}");
        assert!(look.scan_later().is_empty(), "{name}");
    }
}

#[test]
fn pod_has_the_processes_of_all_its_containers() {
    for (name, listing) in NODES {
        let node = TestMachine::from_listing(listing);
        let mut look = node.finder("kubernetes = true");
        look.scan_later();
        let web = look.finder.services().find(|service| service.name == "default/web-5d9c7b").unwrap();
        assert!([2401, 2402].iter().all(|pid| web.service.pids.contains(pid)), "{name}: {:?}", web.service.pids);
        assert!(!web.service.pids.contains(&2301), "{name}");
    }
}

#[test]
fn pods_can_be_excluded_and_named_as_services() {
    let node = kubernetes_node();
    let mut look = node.finder(
        "[kubernetes]\nexclude = [\"kube-system/*\", \"batch/zip-*\"]\nslo = \"p99=50ms\"\n\
         [[service]]\nname = \"redis\"\npod = \"default/redis-*\"\nslo = \"p99=5ms\"\nmay_be_placed = true\n\
         [[service]]\nname = \"crunch\"\npod = \"batch/crunch-1\"\n",
    );
    look.scan_later();
    assert_eq!(look.services(), ["crunch", "default/web-5d9c7b", "redis:redis-0"]);
    assert_eq!(look.containers(), []);
    let limits =
        look.finder.services().map(|service| (service.name.as_str(), service.settings.slo.map(|slo| slo.limit_ns)));
    let mut limits: Vec<_> = limits.collect();
    limits.sort_unstable();
    assert_eq!(
        limits,
        [("crunch", None), ("default/web-5d9c7b", Some(50_000_000)), ("redis:redis-0", Some(5_000_000))]
    );
}

#[test]
fn group_of_new_pods_names_the_pods_that_are_no_batch() {
    for (name, listing) in NODES {
        let node = TestMachine::from_listing(listing);
        let mut look = node.finder("[kubernetes]\nexclude = [\"batch/zip-*\"]");
        look.scan_later();
        let [place] = look.finder.new_batch_groups() else { panic!("{name}: {:?}", look.finder.new_batch_groups()) };
        assert!(place.path.ends_with("besteffort") || place.path.ends_with("-besteffort.slice"), "{name}: {place:?}");
        let mut spared: Vec<&str> = place.spared.iter().map(String::as_str).collect();
        spared.sort_unstable();
        // The excluded pod and the pod of the system are spared.
        assert_eq!(spared.len(), 2, "{name}: {spared:?}");
        assert!(look.finder.containers().all(|container| container.tree == place.path), "{name}");
    }
    // A pod without a name and processes is not spared yet.
    const POD: &str = "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod11_22.slice";
    let node = kubernetes_node();
    let mut look = node.finder("kubernetes = true");
    look.scan_later();
    let spared = look.finder.new_batch_groups()[0].spared.len();
    node.add_group(POD);
    look.scan_later();
    assert_eq!(look.finder.new_batch_groups()[0].spared.len(), spared);
    node.add_group(&format!("{POD}/cri-containerd-aa.scope 3001:proxy"));
    look.scan_later();
    assert_eq!(look.finder.new_batch_groups()[0].spared.len(), spared + 1);
    std::fs::create_dir(node.path().join("pods/batch_late_11-22")).unwrap();
    look.scan_later();
    assert_eq!(look.finder.new_batch_groups()[0].spared.len(), spared);
}

#[test]
fn a_pod_without_a_name_is_never_batch() {
    let node = kubernetes_node();
    std::fs::remove_dir_all(node.path().join("pods")).unwrap();
    let mut look = node.finder("kubernetes = true");
    look.scan_later();
    assert_eq!((look.services().len(), look.containers().len()), (3, 0));
    assert!(look.services().contains(&"pod 0b6a5a0c-6f0e-4c43-8f6b-0d6c1f8c2a11".to_owned()), "{:?}", look.services());
    let lacks = look.problems();
    assert!(lacks[0].starts_with("kubernetes: 6 pods have no name in ") && lacks.len() == 1, "{lacks:?}");
}

#[test]
fn pod_container_is_found_when_its_program_starts() {
    const POD: &str = "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod11_22.slice";
    let node = kubernetes_node();
    let mut look = node.finder("kubernetes = true");
    look.scan_later();
    node.add_group(POD);
    assert!(look.scan_later().is_empty());
    std::fs::create_dir(node.path().join("pods/batch_late_11-22")).unwrap();
    let (pause, work) = (format!("{POD}/cri-containerd-aa.scope"), format!("{POD}/cri-containerd-bb.scope"));
    node.add_group(&format!("{pause} 3001:runc:[2:INIT]"));
    assert!(look.scan_later().is_empty());
    node.add_group(&format!("{pause} 3001:pause"));
    node.add_group(&work);
    assert!(look.scan_later().is_empty());
    node.add_group(&format!("{work} 3002:make"));
    let came = look.scan_later().containers_came;
    assert_eq!(came.iter().map(|container| container.name.as_str()).collect::<Vec<_>>(), ["batch/late:bb"]);
    assert_eq!((came[0].id.path.as_str(), came[0].top.as_str()), (work.as_str(), POD));
    node.remove_group(POD);
    let gone = look.scan_later().containers_gone;
    assert_eq!(gone.iter().map(|id| id.path.as_str()).collect::<Vec<_>>(), [work.as_str()]);
}

#[test]
fn node_without_pods_is_reported() {
    let mut look = TestMachine::from_listing("hierarchy v2").finder("kubernetes = true");
    assert!(look.scan_later().is_empty());
    assert_eq!(
        look.problems(),
        ["kubernetes: no cgroup of pods was found; start the kubelet, or name its group as cgroup of [kubernetes]"]
    );
}

/// Reports that a pod has lanes, or an objective.
fn report(node: &TestMachine, pods: &[(&str, &[u32], Option<&str>)]) {
    let pod = |(name, lanes, slo): &(&str, &[u32], Option<&str>)| Pod {
        name: (*name).to_owned(),
        lanes: lanes.to_vec(),
        slo: slo.map(str::to_owned),
    };
    PodFile { pods: pods.iter().map(pod).collect() }.write(&node.pod_file()).unwrap();
}

#[test]
fn pod_with_lanes_is_batch_whatever_its_class() {
    for (name, listing) in NODES {
        let node = TestMachine::from_listing(listing);
        let mut look = node.finder("kubernetes = true");
        look.scan_later();
        report(&node, &[("default/web-5d9c7b", &[3], None), ("batch/crunch-1", &[5, 7], None)]);
        let changes = look.scan_later();
        assert_eq!(look.services(), ["default/redis-0", "kube-system/etcd-node1"], "{name}");
        assert_eq!(changes.services_gone.len(), 1, "{name}");
        let lanes = |look: &TestFinder, pod: &str| {
            let container = look.finder.containers().find(|one| one.name.starts_with(pod)).expect("a container");
            (
                container.lanes.as_ref().map(ToString::to_string),
                container.cpu_demand.cpus,
                container.tree == container.top,
            )
        };
        // The group above a Burstable pod is not batch.
        assert_eq!(lanes(&look, "default/web-5d9c7b"), (Some("3".into()), 1, true), "{name}");
        assert_eq!(lanes(&look, "batch/crunch-1"), (Some("5,7".into()), 2, false), "{name}");
        assert_eq!(lanes(&look, "batch/zip-2").0, None, "{name}");
        assert_eq!(changes.containers_changed.len(), 1, "{name}: crunch-1 was batch before");
        assert!(look.scan_later().is_empty(), "{name}");
        report(&node, &[]);
        look.scan_later();
        assert_eq!(look.services().len(), 3, "{name}");
        assert_eq!(lanes(&look, "batch/crunch-1").0, None, "{name}");
    }
}

#[test]
fn rule_for_pods_makes_no_service_of_a_pod_with_lanes() {
    let node = kubernetes_node();
    report(&node, &[("default/redis-0", &[3], None)]);
    let mut look = node.finder("kubernetes = true\n[[service]]\nname = \"redis\"\npod = \"default/*\"\n");
    look.scan_later();
    assert_eq!(look.services(), ["kube-system/etcd-node1", "redis:web-5d9c7b"]);
}

#[test]
fn objective_by_annotation_goes_before_that_of_all_pods() {
    let node = kubernetes_node();
    let mut look = node.finder("[kubernetes]\nslo = \"p99=50ms\"");
    look.scan_later();
    report(&node, &[("default/redis-0", &[], Some("p99=10ms")), ("default/web-5d9c7b", &[], Some("fast"))]);
    let changes = look.scan_later();
    let limits = changes.services_grew.iter().map(|service| service.settings.slo.map(|slo| slo.limit_ns));
    assert_eq!(limits.collect::<Vec<_>>(), [Some(10_000_000)]);
    let problems = look.problems();
    assert!(problems.len() == 1 && problems[0].starts_with("pod default/web-5d9c7b: its annotation"), "{problems:?}");
    assert!(look.scan_later().is_empty());
}

#[test]
fn unreadable_reports_change_nothing_and_are_noted() {
    let node = kubernetes_node();
    report(&node, &[("default/web-5d9c7b", &[3], None)]);
    let mut look = node.finder("kubernetes = true");
    look.scan_later();
    std::fs::write(node.pod_file(), "{").unwrap();
    assert!(look.scan_later().is_empty());
    let problems = look.problems();
    assert!(problems.len() == 1 && problems[0].contains("pods.json"), "{problems:?}");
    report(&node, &[("default/web-5d9c7b", &[3], None)]);
    look.scan_later();
    assert_eq!(look.problems(), Vec::<String>::new());
}

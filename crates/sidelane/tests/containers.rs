//! Tests of batch containers in experiments, with real cgroups and real commands.

mod common;

use std::collections::BTreeSet;
use std::time::Duration;

use common::{Footprint, lab_binary_path, lock_lanes, wait_until};
use sidelane_host::cgroup::{Group, processes_in_tree};
use sidelane_host::cpulist::CpuSet;
use sidelane_host::procfs::allowed_cpus;
use sidelane_lab::experiment::containers::{Churn, ContainerSchedule, Containers, Work, WorkFiles};
use sidelane_lab::programs::LabBinary;

const STAYS: [ContainerSchedule; 2] = [
    ContainerSchedule { name: "always", work: Work::Kernel("matrix"), from: 0.0, to: 2.0 },
    ContainerSchedule { name: "visitor", work: Work::Compress, from: 0.5, to: 0.9 },
];
/// Length of the experiment; the times in [`STAYS`] are fractions of it. The test jumps to these times, and does not
/// wait for them.
const LENGTH: Duration = Duration::from_secs(10);

fn test_cgroup_name() -> String {
    format!("sidelane-test-containers-{}", std::process::id())
}

#[test]
fn containers_work_on_their_cpus_and_leave_nothing_behind() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(lab) = lab_binary_path() else { return };
    let before = Footprint::capture();
    let folder = tempfile::tempdir().unwrap();
    let workshop = WorkFiles::make(&LabBinary::with_path(lab), None, folder.path()).unwrap();
    let cpus: CpuSet = "1".parse().unwrap();
    let containers = Containers::make(&test_cgroup_name(), &cpus, None).unwrap();
    let path = containers.cgroup_path().unwrap();
    let mut churn = Churn::start(&STAYS, LENGTH, containers, &workshop).unwrap();
    let done = |churn: &Churn<'_>, work| churn.work_done().get(work).copied().unwrap_or(0);
    wait_until("the kernel works", || done(&churn, "matrix") > 100);
    let group = Group::find_with_processes(&format!("{path}/always")).expect("the container's cgroup");
    let found: BTreeSet<u32> = processes_in_tree(&group.dir).into_iter().collect();
    assert_eq!((found.len(), allowed_cpus(&found)), (1, cpus));

    churn.apply_schedule(Duration::ZERO, LENGTH.mul_f64(0.6)).unwrap();
    wait_until("files are compressed", || done(&churn, "zstd") >= 2);
    churn.apply_schedule(LENGTH.mul_f64(0.6), LENGTH).unwrap();
    assert!(Group::find_with_processes(&format!("{path}/visitor")).is_none(), "the visitor has gone");
    assert!(done(&churn, "zstd") >= 2, "{:?}", churn.work_done());
    churn.finish().unwrap();
    before.wait_until_restored();
}

/// A container whose command fails has done no work.
#[test]
fn container_with_a_failing_command_is_an_error() {
    let Some(_turn) = lock_lanes() else { return };
    let folder = tempfile::tempdir().unwrap();
    let workshop = WorkFiles::make(&LabBinary::with_path("/nonexistent/lab".into()), None, folder.path()).unwrap();
    let mut containers = Containers::make(&test_cgroup_name(), &"1".parse().unwrap(), None).unwrap();
    containers.start("broken", &Work::Kernel("matrix"), &workshop).unwrap();
    wait_until("the command has failed", || containers.has_failed("broken"));
    let said = format!("{:#}", containers.stop("broken").unwrap_err());
    assert!(said.contains("container broken") && said.contains("/nonexistent/lab"), "{said}");
    containers.finish().unwrap();
}

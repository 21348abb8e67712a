//! Tests of several services on one tracker: each service has its own words in shared memory. Counts and identities are
//! checked, not times.

mod common;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::Arc;

use common::{SPIN, can_observe_requests, lab_binary_path, lock_lanes, process, wait_until};
use sidelane_diagnostics::audit::Audit;
use sidelane_host::cgroup::{Group, Hierarchy};
use sidelane_host::priority::pin_this_thread;
use sidelane_host::service::{Service, Target};
use sidelane_host::topology::{Lanes, Topology};
use sidelane_lab::bench::workload::{RealServer, RealServerKind, ServiceCpus};
use sidelane_lab::programs::LabBinary;
use sidelane_lanes::holder::{Evictor, Holder};
use sidelane_policy::borrow::{BorrowConfig, PolicyKind};
use sidelane_requests::{Request, Requests};
use sidelane_tracker::identities::Identity;
use sidelane_tracker::tracker::{LaneLending, Purpose, Tracker, TrackerError};
use sidelane_tracker::tracking::{BatchTracking, LaneUse, ServiceTracking};

fn tracker(requests: bool, lent: LaneLending) -> Rc<Tracker> {
    Rc::new(Tracker::load(Purpose::Lend { requests, lent }, true).unwrap())
}

fn lanes_with_request_lane_only(cpu: u32) -> Lanes {
    Lanes::without_batch_lanes([cpu].into_iter().collect())
}

/// Sends `count` requests to the server, one after the other.
fn send_requests(server: &RealServer, count: usize) {
    let (mut stream, question, answer) = server.open_connection().unwrap();
    for _ in 0..count {
        stream.write_all(question).unwrap();
        stream.read_exact(&mut vec![0; answer.len()]).unwrap();
    }
}

#[test]
fn requests_of_two_services_are_counted_apart() {
    let Some(_turn) = lock_lanes() else { return };
    if !can_observe_requests() {
        return;
    }
    if let Some(missing) =
        [RealServerKind::Redis, RealServerKind::Memcached].into_iter().find(|kind| !kind.is_installed())
    {
        return sidelane_testing::skip(format!("needs {}", missing.program()));
    }
    let tracker = tracker(true, LaneLending::default());
    let start = |kind, server_cpu, client_cpu| RealServer::start(kind, ServiceCpus { server_cpu, client_cpu }).unwrap();
    let servers = [start(RealServerKind::Redis, 0, 1), start(RealServerKind::Memcached, 1, 0)];
    let services: Vec<(ServiceTracking, Requests)> = servers
        .iter()
        .zip([0, 1])
        .map(|(server, cpu)| {
            let service = Target::Pid(server.pid()).find().unwrap();
            let tracking =
                ServiceTracking::start(&tracker, &service, &lanes_with_request_lane_only(cpu), LaneUse::default())
                    .unwrap();
            let requests = Requests::track(&tracking, "this test", &service.pids).unwrap();
            (tracking, requests)
        })
        .collect();
    tracker.attach().unwrap();
    let counts = [300, 200];
    std::thread::scope(|scope| {
        servers.iter().zip(counts).for_each(|(server, count)| drop(scope.spawn(move || send_requests(server, count))));
    });
    tracker.detach();
    for (((tracking, mut requests), count), cpu) in services.into_iter().zip(counts).zip([0, 1]) {
        let mut seen: Vec<Request> = Vec::new();
        requests.finish(|request| seen.push(*request)).unwrap();
        assert_eq!(seen.len(), count, "of service {}", tracking.number());
        assert!(seen.iter().all(|request| request.lane == cpu), "{seen:?}");
        let numbers: BTreeSet<u64> = seen.iter().map(|request| request.number).collect();
        assert_eq!((numbers.first(), numbers.len()), (Some(&1), count), "numbers are each service's own");
        assert_eq!(requests.take_window().counts.unasked, 0);
    }
}

/// Busy process, ended when dropped.
struct Spinner(Child);

impl Spinner {
    fn start_on(cpu: u32) -> Self {
        let mut command = Command::new("taskset");
        command.args(["-c", &cpu.to_string(), "chrt", "--idle", "0", "sh", "-c", SPIN]);
        Self(process::kill_with_test(&mut command).spawn().unwrap())
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct NeverEvicts;

impl Evictor for NeverEvicts {
    fn evict(&self, _cpu: u32) -> std::io::Result<()> {
        Err(std::io::ErrorKind::Unsupported.into())
    }

    fn restore(&self, _cpu: u32) -> std::io::Result<()> {
        Ok(())
    }
}

fn declared_lanes(lanes: &str) -> Lanes {
    Topology::read(Path::new("/sys")).unwrap().declared_pairs(lanes).unwrap()
}

fn start_holder(lanes: &Lanes, tracker: &Tracker) -> Holder {
    let lane = lanes.batch[0].clone();
    let ring = tracker.summons_ring(lane.cpu).unwrap();
    let policy = PolicyKind::BorrowIdle.policy(BorrowConfig { min_idle_ns: 0, ..BorrowConfig::default() });
    Holder::start(lane, tracker.memory(), ring, policy, Arc::new(NeverEvicts), Audit::default()).unwrap()
}

/// Lends `lanes` beside a pulsing service until a lane was held often enough, on a tracker that other services use
/// before and after.
fn lend_until_held(lab: &LabBinary, tracker: &Rc<Tracker>, lanes: &str) {
    const HOLDS: u64 = 50;
    let lanes = declared_lanes(lanes);
    let (lane, request) = (lanes.batch[0].clone(), lanes.request_lanes.iter().next().unwrap());
    let cpu = request.to_string();
    let options = ["--cpu", &cpu, "--busy-us", "300", "--idle-us", "1500", "--count", "1000000"];
    let pulse = lab.start(["pulse"].into_iter().chain(options)).unwrap();
    let batch = Spinner::start_on(lane.cpu);
    let service =
        ServiceTracking::start(tracker, &Service::of_process(pulse.pid()), &lanes, LaneUse::default()).unwrap();
    let job = BatchTracking::start(tracker, None).unwrap();
    job.add_process(batch.0.id());
    tracker.attach().unwrap();
    let memory = tracker.memory();
    let before = memory.accounting();
    let holder = start_holder(&lanes, tracker);
    let spent = || memory.accounting().since(&before);
    // On a busy machine batch has its lane only now and then.
    let is_enough = || spent().batch_off_latencies().count() >= HOLDS && spent().lane(lane.cpu).batch_ns > 0;
    wait_until("the lane was held often, and batch ran there", is_enough);
    drop(holder);
    let accounting = spent();
    let (beside, lent) = (accounting.lane(request), accounting.lane(lane.cpu));
    assert!(beside.lc_ns > 0 && lent.batch_ns > 0 && lent.batch_ns <= accounting.at_ns, "{beside:?} {lent:?}");
    assert_eq!(beside.batch_ns, 0, "of batch, nothing ran on the request lane");
    assert_eq!(accounting.lane(lane.cpu).lc_ns, 0, "of the service, nothing ran on the batch lane");
    assert_eq!(accounting.sum(|lane| lane.lc_strays), 0);
    assert!(lent.summons > 0, "{lent:?}");
    assert!(service.processes().contains(&pulse.pid()) && job.processes().contains(&batch.0.id()));
}

#[test]
fn successive_services_on_one_tracker_count_separately() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(lab) = lab_binary_path().map(LabBinary::with_path) else { return };
    let tracker = tracker(false, LaneLending { single_places: true, ..LaneLending::default() });
    lend_until_held(&lab, &tracker, "0:1");
    lend_until_held(&lab, &tracker, "1:0");
    lend_until_held(&lab, &tracker, "0:1");
}

/// The summons is sent before the kernel has chosen a CPU for the thread, so the waker's CPU sends it. That also holds
/// on a tracker whose services are not known in advance, as in an agent.
#[test]
fn waker_of_a_pinned_thread_sends_the_summons() {
    const REQUESTS: usize = 300;
    let Some(_turn) = lock_lanes() else { return };
    if !RealServerKind::Redis.is_installed() {
        return sidelane_testing::skip(format!("needs {}", RealServerKind::Redis.program()));
    }
    let (tracker, lanes) = (tracker(false, LaneLending::default()), declared_lanes("0:1"));
    let server = RealServer::start(RealServerKind::Redis, ServiceCpus { server_cpu: 0, client_cpu: 1 }).unwrap();
    let service = Target::Pid(server.pid()).find().unwrap();
    let _service = ServiceTracking::start(&tracker, &service, &lanes, LaneUse::default()).unwrap();
    let batch = Spinner::start_on(1);
    let job = BatchTracking::start(&tracker, None).unwrap();
    job.add_process(batch.0.id());
    tracker.attach().unwrap();
    let holder = start_holder(&lanes, &tracker);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin_this_thread(&[1]).unwrap();
            send_requests(&server, REQUESTS);
        });
    });
    drop(holder);
    let lent = tracker.memory().accounting().lane(1);
    // Some turns of the service start without a client's wakeup: it is still running, or its own timer wakes it.
    assert!(lent.summons > 0 && lent.lc_summons * 2 < lent.summons, "{lent:?}");
}

/// Cgroup created by the test, with everything below it, removed when dropped.
struct OwnGroup(PathBuf);

impl OwnGroup {
    fn make() -> Option<(Self, Hierarchy)> {
        let hierarchy = Hierarchy::all().into_iter().find(Hierarchy::is_v2)?;
        let dir = hierarchy.own_dir()?.join(format!("sidelane-test-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("deep/deeper")).ok()?;
        Some((Self(dir), hierarchy))
    }

    fn move_process_below(&self, below: &str, pid: u32) {
        std::fs::write(self.0.join(below).join("cgroup.procs"), pid.to_string()).unwrap();
    }
}

impl Drop for OwnGroup {
    fn drop(&mut self) {
        for below in ["deep/deeper", "deep", ""] {
            wait_until("the group is empty", || std::fs::remove_dir(self.0.join(below)).is_ok());
        }
    }
}

/// Starts a shell that creates a child for each line on its input, and prints the child's id.
fn start_forking_shell() -> Child {
    let script = "while read -r _; do sleep 100 & echo $!; done; kill 0";
    let mut command = Command::new("sh");
    command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
    process::kill_with_test(&mut command).spawn().unwrap()
}

fn fork_child_of(forker: &mut Child) -> u32 {
    writeln!(forker.stdin.as_mut().unwrap(), "fork").unwrap();
    let mut line = String::new();
    let mut out = std::io::BufReader::with_capacity(1, forker.stdout.as_mut().unwrap());
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    line.trim().parse().unwrap()
}

#[test]
fn process_belongs_to_service_while_in_its_cgroup() {
    let Some(_turn) = lock_lanes() else { return };
    let Some((own, hierarchy)) = OwnGroup::make() else {
        return sidelane_testing::skip("needs a cgroup v2 that this process may make groups in");
    };
    let (mut early, mut late) = (start_forking_shell(), start_forking_shell());
    own.move_process_below("deep", early.id());
    let outside = hierarchy.own_dir().unwrap().join("cgroup.procs");
    let name = own.0.strip_prefix(&hierarchy.mount).unwrap();
    let group = Group::find_with_processes(&Path::new("/").join(name).display().to_string()).expect("it has a process");
    let tracker = tracker(false, LaneLending::default());
    tracker.attach().unwrap();
    let service = Service { pids: group.processes().into_iter().collect(), group: Some(group), ..Service::default() };
    let tracking =
        ServiceTracking::start(&tracker, &service, &lanes_with_request_lane_only(0), LaneUse::default()).unwrap();
    let (identities, ours) = (tracker.identities(), Some(Identity::Service(tracking.number())));
    assert_eq!(identities.identity_of(early.id()), ours, "it was there before");
    assert_eq!(identities.identity_of(fork_child_of(&mut early)), ours, "its child");
    assert_eq!(identities.identity_of(late.id()), None);
    own.move_process_below("deep/deeper", late.id());
    assert_eq!(identities.identity_of(late.id()), ours, "it joined, two levels below");
    let child = fork_child_of(&mut late);
    assert_eq!(identities.identity_of(child), ours);
    std::fs::write(&outside, late.id().to_string()).unwrap();
    assert_eq!(identities.identity_of(late.id()), None, "it left");
    assert_eq!(identities.identity_of(child), ours, "its child did not");
    assert_eq!(identities.identity_of(fork_child_of(&mut late)), None);
    drop(tracking);
    assert_eq!(identities.identity_of(early.id()), None, "no thread is tracked any more");
    for mut shell in [early, late] {
        drop(shell.stdin.take());
        let _ = shell.wait();
    }
}

#[test]
fn sixty_three_services_fit_and_the_next_is_refused() {
    let Some(_turn) = lock_lanes() else { return };
    let tracker = tracker(false, LaneLending::default());
    let add =
        || ServiceTracking::start(&tracker, &Service::default(), &lanes_with_request_lane_only(0), LaneUse::default());
    let mut services: Vec<ServiceTracking> = (0..63).map(|_| add().unwrap()).collect();
    let numbers: BTreeSet<_> = services.iter().map(ServiceTracking::number).collect();
    assert_eq!(numbers.len(), 63);
    assert!(matches!(add(), Err(TrackerError::TooMany)));
    services.pop();
    assert!(add().is_ok());
}

/// A server may fork its workers after it is found, and before it is tracked.
#[test]
fn child_forked_before_tracking_belongs_to_the_service() {
    let Some(_turn) = lock_lanes() else { return };
    let mut command = Command::new("sh");
    let command = process::kill_with_test(&mut command).args(["-c", "sleep 1000 & wait"]).process_group(0);
    let mut parent = command.spawn().unwrap();
    let family = || sidelane_host::procfs::with_descendants(&BTreeSet::from([parent.id()]));
    wait_until("the worker was forked", || family().len() == 2);
    let tracker = tracker(false, LaneLending::default());
    let service = Service::of_process(parent.id());
    let tracking =
        ServiceTracking::start(&tracker, &service, &lanes_with_request_lane_only(0), LaneUse::default()).unwrap();
    assert_eq!(tracking.processes().into_iter().collect::<BTreeSet<_>>(), family());
    drop(tracking);
    // SAFETY: plain system call; the child is not reaped yet, so the group is its own.
    unsafe { libc::killpg(parent.id() as libc::pid_t, libc::SIGKILL) };
    parent.wait().unwrap();
}

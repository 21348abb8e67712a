//! Tests with containers of a real runtime: a service in one, batch in another, and Sidelane on the host or in a third.

mod common;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::agent::SIDELANE;
use common::lanes::{BATCH_LANE, REQUEST_LANE};
use common::runc::Container;
use common::{Footprint, Run, SPIN, can_observe_requests, lock_lanes, process, wait_until};
use sidelane_host::clock::now_ns;

const PORT: &str = "6379";
const BOTH_LANES: &str = "0-1";
const PONG: &[u8] = b"PONG\n";

/// Redis and batch, each in a container.
struct Scene {
    service: Container,
    batch: Container,
}

impl Scene {
    fn start() -> Option<Self> {
        let installed = |program: &&str| Command::new(program).arg("--version").output().is_ok();
        if let Some(missing) = ["runc", "redis-server", "redis-cli", "nsenter"].iter().find(|name| !installed(name)) {
            sidelane_testing::skip(format!("needs {missing}"));
            return None;
        }
        let redis = ["redis-server", "--port", PORT, "--save", "", "--loglevel", "warning"];
        let service = Container::start("service", REQUEST_LANE, &redis)?;
        let batch = Container::start("batch", BOTH_LANES, &["sh", "-c", SPIN])?;
        let scene = Self { service, batch };
        wait_until("the server answers", || scene.redis_cli(&["ping"]).stdout == PONG);
        Some(scene)
    }

    /// Runs `redis-cli` with these arguments in the service's network namespace.
    fn redis_cli(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.service.pid().to_string(), "--net", "redis-cli", "-p", PORT]).args(arguments);
        command.output().unwrap()
    }

    fn batch_cpus(&self) -> String {
        process::allowed_cpus(self.batch.pid()).unwrap_or_default()
    }

    /// Returns the names of the service for Sidelane: by its process id and by its cgroup.
    fn names(&self) -> [String; 2] {
        [format!("pid:{}", self.service.pid()), format!("cgroup:{}", self.service.group())]
    }

    /// Checks that batch borrows the lane beside the service, and has its CPUs back at the end.
    fn check_batch_borrows_the_lane(&self, service: &str, wrapper: &[String]) {
        let found = process::allowed_cpus(self.service.pid());
        let before = Footprint::capture();
        let adopt = format!("cgroup:{}", self.batch.group());
        let mut run = Run::beside_service(service)
            .with_more_arguments(&["--adopt", &adopt])
            .through_wrapper(wrapper)
            .start_without_batch();
        run.wait_until("batch was in its lane", |_| self.batch_cpus() == BATCH_LANE);
        let asked_ns = now_ns();
        assert_eq!(self.redis_cli(&["-r", "10", "ping"]).stdout, PONG.repeat(10));
        run.wait_until_audited("hold", asked_ns);
        run.signal(libc::SIGTERM);
        run.wait_for_end().expect_exit_code(0).expect_stderr_contains(&["adopted", &adopt, "given back"]);
        assert_eq!(self.batch_cpus(), BOTH_LANES);
        assert_eq!(process::allowed_cpus(self.service.pid()), found);
        before.wait_until_restored();
        wait_until("batch ran on", || process::wants_cpu(self.batch.pid()));
    }

    /// Checks that each request of the service is counted, and no other request.
    fn check_requests_are_counted(&self, service: &str, wrapper: &[String]) {
        let watches = [SIDELANE, "requests", "--service", service, "--for", "100s"];
        let mut words = wrapper.iter().map(String::as_str).chain(watches);
        let mut command = Command::new(words.next().unwrap());
        command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut watching = process::kill_with_test(&mut command).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(watching.stderr.as_mut().unwrap()).read_line(&mut said).unwrap();
        assert!(said.contains("seen at its sockets"), "{said}");
        assert_eq!(self.redis_cli(&["-r", "10", "ping"]).stdout, PONG.repeat(10));
        process::signal(watching.id(), libc::SIGINT);
        let output = watching.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.starts_with("sidelane: 10 requests of "), "{wrapper:?}: {said}");
    }
}

#[test]
fn batch_and_service_may_be_in_different_containers() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(scene) = Scene::start() else { return };
    for service in scene.names() {
        scene.check_batch_borrows_the_lane(&service, &[]);
    }
}

#[test]
fn requests_of_a_service_in_a_container_are_counted() {
    let Some(_turn) = lock_lanes() else { return };
    if !can_observe_requests() {
        return;
    }
    let Some(scene) = Scene::start() else { return };
    for service in scene.names() {
        scene.check_requests_are_counted(&service, &[]);
    }
}

/// Sidelane's container shares namespaces and directories with the host, as docs/guides/containers.md says.
#[test]
fn sidelane_works_from_a_third_container() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(scene) = Scene::start() else { return };
    let sees = Path::new(SIDELANE).parent().unwrap();
    let Some(third) = Container::start_privileged("third", sees) else { return };
    for service in scene.names() {
        scene.check_batch_borrows_the_lane(&service, &third.exec_command());
        if can_observe_requests() {
            scene.check_requests_are_counted(&service, &third.exec_command());
        }
    }
}

/// The runtime ends all processes in the cgroups of Sidelane's container.
#[test]
fn removed_container_of_sidelane_gives_batch_its_cpus_back() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(scene) = Scene::start() else { return };
    let Some(third) = Container::start_privileged("third", Path::new(SIDELANE).parent().unwrap()) else { return };
    let [service, _] = scene.names();
    let adopt = format!("cgroup:{}", scene.batch.group());
    let before = Footprint::capture();
    let mut run = Run::beside_service(service)
        .with_more_arguments(&["--adopt", &adopt])
        .through_wrapper(&third.exec_command())
        .start_without_batch();
    run.wait_until("batch was in its lane", |_| scene.batch_cpus() == BATCH_LANE);
    drop(third);
    wait_until("batch had its CPUs back", || scene.batch_cpus() == BOTH_LANES);
    before.wait_until_restored();
}

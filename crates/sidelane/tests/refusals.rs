//! Tests of refusals by `sidelane run`: it prints what is wrong and what to do. The machine, and above all the service,
//! are unchanged.

mod common;

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use common::agent::SIDELANE;
use common::lanes::{BATCH_LANE, REQUEST_LANE};
use common::{Finished, Footprint, Run, Service, UNTIL_END_OF_INPUT, lock_lanes, process};

const EXIT_FAILURE: i32 = 125;
const EXIT_USAGE: i32 = 2;
/// User id of the unprivileged user on every Linux.
const NOBODY: &str = "65534";
const BATCH: [&str; 2] = ["echo", "batch ran"];

/// Checks that a run ends with an error and changes nothing.
#[track_caller]
fn check_run_fails_unchanged(run: Run) -> Finished {
    let before = Footprint::capture();
    let run = run.run_to_end(&BATCH);
    assert!(run.code == Some(EXIT_FAILURE) || run.code == Some(EXIT_USAGE), "{run}");
    assert_eq!(run.stdout, "", "{run}");
    assert!(!says_anything_twice(&run.stderr), "{run}");
    before.wait_until_restored();
    run
}

/// Returns whether an error repeats its cause: "cannot X: no such file: no such file".
fn says_anything_twice(message: &str) -> bool {
    let parts: Vec<&str> = message.trim_end().split(": ").collect();
    parts.windows(2).any(|pair| pair[0] == pair[1])
}

/// Checks that a run beside an idle service ends with an error and changes nothing, not even the service.
#[track_caller]
fn check_run_beside_service_fails(options: &[&str], wrapper: &[&str]) -> Finished {
    let service = Service::idle();
    let run = check_run_fails_unchanged(
        Run::with_arguments(&["run", "--service", &service.target()])
            .with_more_arguments(options)
            .through_wrapper(wrapper),
    );
    service.must_be_unharmed(REQUEST_LANE);
    run
}

#[track_caller]
fn check_usage_error(arguments: &[&str]) -> Finished {
    Run::with_arguments(arguments).start_without_batch().wait_for_end().expect_exit_code(EXIT_USAGE)
}

#[test]
fn wrong_arguments_are_usage_errors() {
    check_usage_error(&["run", "--service", "pid:1", "--lane", "0:1", "--", "true"])
        .expect_stderr_contains(&["'--lane'", "--lanes"]);
    check_usage_error(&["run", "--", "true"]).expect_stderr_contains(&["--service"]);
    check_usage_error(&["run", "--service", "pid:1"]).expect_stderr_contains(&["COMMAND"]);
    check_usage_error(&["run", "--service", "pid:1", "--"]).expect_stderr_contains(&["COMMAND"]);
    check_usage_error(&["walk"]).expect_stderr_contains(&["'walk'"]);
    let lanes_of_one = ["run", "--service", "pid:1", "--lanes", "0:1", "--service", "pid:2", "--", "true"];
    check_usage_error(&lanes_of_one).expect_stderr_contains(&["--lanes is given 1 times for 2 services"]);
}

#[test]
fn two_services_with_the_same_lane_are_refused() {
    let Some(_turn) = lock_lanes() else { return };
    let (one, other) = (Service::idle(), Service::idle());
    let named = |service: &Service| ["--service".to_owned(), service.target(), "--lanes".to_owned(), "0:1".to_owned()];
    let run = check_run_fails_unchanged(
        Run::with_arguments(&["run"]).with_more_arguments(&named(&one)).with_more_arguments(&named(&other)),
    );
    run.expect_stderr_contains(&["cannot use CPU 0 for both", &one.target(), &other.target(), "--lanes once for each"]);
    [one, other].iter().for_each(|service| service.must_be_unharmed(REQUEST_LANE));
}

#[test]
fn times_without_a_unit_are_usage_errors() {
    for option in ["--grace", "--min-idle"] {
        let arguments = ["run", "--service", "pid:1", option, "10", "--", "true"];
        check_usage_error(&arguments).expect_stderr_contains(&[option, "`10` is not a time", "8us"]);
    }
}

#[test]
fn services_named_in_no_known_form_are_usage_errors() {
    for target in ["redis", "pid:0", "pid:x", "port:70000", "comm:", "cgroup:relative"] {
        check_usage_error(&["run", "--service", target, "--", "true"]).expect_stderr_contains(&[target, "port:NUMBER"]);
    }
}

#[test]
fn lanes_that_cannot_be_a_pair_are_refused() {
    let Some(_turn) = lock_lanes() else { return };
    let refused_lanes = |lanes| check_run_beside_service_fails(&["--lanes", lanes], &[]);
    refused_lanes("0:99").expect_stderr_contains(&["cannot use CPU 99: it does not exist", "name some of"]);
    refused_lanes("1:1").expect_stderr_contains(&["cannot use CPU 1 as request lane and batch lane at once"]);
    refused_lanes("0").expect_stderr_contains(&["`0`", "REQUEST:BATCH"]);
    refused_lanes("zero:one").expect_stderr_contains(&["zero", "REQUEST:BATCH"]);
    refused_lanes("").expect_stderr_contains(&["REQUEST:BATCH"]);
}

#[test]
fn missing_services_are_refused() {
    let Some(_turn) = lock_lanes() else { return };
    let not_found = |target: &str, hint: &str| {
        check_run_fails_unchanged(Run::beside_service(target))
            .expect_stderr_contains(&[&format!("cannot find the service {target}"), hint]);
    };
    not_found(&format!("pid:{}", unused_pid()), "no process");
    not_found(&format!("port:{}", unused_port()), "ss -ltnp");
    not_found("comm:no-such-service", "ps -e");
    not_found("cgroup:/no/such/group", "systemd-cgls");
}

#[test]
fn a_service_that_may_run_on_the_batch_lane_is_refused() {
    let Some(_turn) = lock_lanes() else { return };
    let service = Service::start_sleeping_on_both_lanes();
    check_run_fails_unchanged(Run::beside_service(service.target())).expect_stderr_contains(&[
        &service.target(),
        "taskset -a -c -p 0",
        "--pin-service",
    ]);
    service.must_be_unharmed("0-1");
}

#[test]
fn swapped_lanes_are_refused() {
    let Some(_turn) = lock_lanes() else { return };
    let run = check_run_beside_service_fails(&["--lanes", "1:0"], &[]);
    run.expect_stderr_contains(&["may run on CPUs 0", "cannot lend lane(s) 0", "taskset -a -c -p 1 PID"]);
}

#[test]
fn a_lane_that_is_lent_already_is_refused() {
    let Some(_turn) = lock_lanes() else { return };
    let service = Service::idle();
    let mut first = Run::beside_service(service.target()).start_script(UNTIL_END_OF_INPUT);
    first.first_line();
    let owner = format!("process {}", first.pid());
    check_run_fails_unchanged(Run::beside_service(service.target())).expect_stderr_contains(&[
        &format!("batch lane {BATCH_LANE}"),
        &owner,
        "--lanes",
    ]);
    first.wait_for_end().expect_exit_code(0);
    Run::beside_service(service.target()).run_to_end(&["true"]).expect_exit_code(0);
}

#[test]
fn budget_without_known_requests_is_refused() {
    let Some(_turn) = lock_lanes() else { return };
    let budget = ["--lanes", "0:1", "--policy", "fixed-budget", "--budget", "5ms"];
    let run = check_run_beside_service_fails(&budget, &[]).expect_exit_code(EXIT_FAILURE);
    run.expect_stderr_contains(&["listens on no TCP port", "runtime/c/sidelane.h", "--policy borrow-idle"]);
}

#[test]
fn users_without_privileges_are_told_what_they_lack() {
    let Some(_turn) = lock_lanes() else { return };
    // Other users may not be allowed to read the build directory.
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let binary = dir.path().join("sidelane");
    process::copy_program(SIDELANE, &binary);
    let service = Service::idle();
    let run = Run::with_arguments(&["run", "--service", &service.target(), "--lanes", "0:1"]).with_binary(&binary);
    let as_nobody = ["setpriv", "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"];
    check_run_fails_unchanged(run.in_dir(dir.path()).through_wrapper(&as_nobody))
        .expect_exit_code(EXIT_FAILURE)
        .expect_stderr_contains(&["root", "CAP_BPF"]);
    service.must_be_unharmed(REQUEST_LANE);
}

#[test]
fn root_without_bpf_capabilities_is_refused() {
    const DROPPED: &str = "-sys_admin,-bpf,-perfmon";
    let Some(_turn) = lock_lanes() else { return };
    let without_bpf = ["setpriv", "--bounding-set", DROPPED, "--inh-caps", DROPPED];
    let run = check_run_beside_service_fails(&["--lanes", "0:1"], &without_bpf);
    run.expect_exit_code(EXIT_FAILURE).expect_stderr_contains(&["lacks CAP_BPF and CAP_PERFMON", "root"]);
}

#[test]
fn kernel_without_btf_is_reported() {
    const HIDE_BTF: &str = "mount -t tmpfs none /sys/kernel/btf && exec \"$0\" \"$@\"";
    let Some(_turn) = lock_lanes() else { return };
    let run = check_run_beside_service_fails(&["--lanes", "0:1"], &["unshare", "--mount", "sh", "-c", HIDE_BTF]);
    run.expect_exit_code(EXIT_FAILURE).expect_stderr_contains(&["BTF", "CONFIG_DEBUG_INFO_BTF"]);
}

#[test]
fn threads_that_may_not_become_real_time_are_named() {
    const DROPPED: &str = "-sys_nice,-sys_resource";
    let Some(_turn) = lock_lanes() else { return };
    let without_nice = ["setpriv", "--bounding-set", DROPPED, "--inh-caps", DROPPED];
    let run = check_run_beside_service_fails(&["--lanes", "0:1"], &without_nice);
    run.expect_exit_code(EXIT_FAILURE).expect_stderr_contains(&["SCHED_FIFO", "CAP_SYS_NICE"]);
}

#[test]
fn files_that_cannot_be_written_are_named_before_batch_runs() {
    let Some(_turn) = lock_lanes() else { return };
    for option in ["--audit", "--json"] {
        let run = check_run_beside_service_fails(&["--lanes", "0:1", option, "/no/such/dir/file"], &[]);
        run.expect_exit_code(EXIT_FAILURE).expect_stderr_contains(&["/no/such/dir/file"]);
    }
}

/// Returns an unused process id.
fn unused_pid() -> u32 {
    let mut child = std::process::Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    child.id()
}

/// Returns a port without a listener.
fn unused_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

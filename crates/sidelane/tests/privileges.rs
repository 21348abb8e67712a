//! Tests that each verb works with exactly the capabilities in its row of `docs/reference/privileges.md`, names what is
//! missing with one fewer, and gives up what the page does not list.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;

use clap::Parser;
use common::agent::{Finished, SIDELANE, guardians};
use common::process::{MARK, mark_of_this_test};
use common::screen::Interactive;
use common::{Busy, Hurrying, Run, Running, SPIN, Service, can_observe_requests, lock_lanes, wait_until};
use sidelane::cli::Cli;
use sidelane::verbs::privileges::{kept_capabilities, rights_of_started_programs};
use sidelane_host::capabilities as numbers;
use sidelane_host::capabilities::{Capabilities, StartedPrograms};

fn page() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/privileges.md");
    fs::read_to_string(page).expect("the page is there")
}

/// Returns the capabilities in the row of a verb: `["CAP_BPF", …]`.
fn documented_capabilities(verb: &str) -> Vec<String> {
    let (page, verb) = (page(), format!("`{verb}`"));
    let mut rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | "));
    let (_, needs) = rows.find(|(verbs, _)| verbs.split(", ").any(|one| one == verb)).expect("each verb has a row");
    needs.split([',', ' ', '|']).filter(|word| word.starts_with("CAP_")).map(str::to_owned).collect()
}

/// Starts a verb as root with these capabilities alone.
fn start_with(capabilities: &[&str], arguments: &[&str]) -> Running {
    let kept = capabilities.iter().map(|name| format!(",+{}", name["CAP_".len()..].to_lowercase()));
    let kept = format!("-all{}", kept.collect::<String>());
    let limited = ["setpriv", "--bounding-set", &kept, "--inh-caps", "-all"];
    Run::with_arguments(arguments).through_wrapper(&limited).start_without_batch()
}

fn run_with(capabilities: &[&str], arguments: &[&str]) -> Finished {
    start_with(capabilities, arguments).wait_for_end()
}

/// Runs a verb with the capabilities of its row, and with one fewer. `missing` has, for each capability, words of the
/// message without it.
fn check_capabilities(arguments: &[&str], missing: &[(&str, &str)]) {
    let needed = documented_capabilities(arguments[0]);
    let tested: BTreeSet<&str> = missing.iter().map(|(capability, _)| *capability).collect();
    assert_eq!(needed.iter().map(String::as_str).collect::<BTreeSet<_>>(), tested, "{arguments:?}");
    let needed: Vec<&str> = needed.iter().map(String::as_str).collect();
    let with_all = run_with(&needed, arguments).expect_exit_code(0);
    for (capability, words) in missing {
        assert!(!with_all.stderr.contains(words), "`{words}` with {needed:?}: {with_all}");
        let others: Vec<&str> = needed.iter().copied().filter(|name| name != capability).collect();
        run_with(&others, arguments).expect_stderr_contains(&[words]);
    }
}

/// Starts a server at a free port, and returns it with its port.
fn start_server() -> (Service, u16) {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let service = Service::of_command("python3", &["-m", "http.server", &port.to_string(), "--bind", "127.0.0.1"]);
    wait_until("the server listened", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    (service, port)
}

const BPF: (&str, &str) = ("CAP_BPF", "CAP_BPF");
const PERFMON: (&str, &str) = ("CAP_PERFMON", "CAP_PERFMON");
const SYS_PTRACE: (&str, &str) = ("CAP_SYS_PTRACE", "no process that is visible here listens");

#[test]
fn run_works_with_its_capabilities_alone() {
    let Some(_turn) = lock_lanes() else { return };
    let (_server, port) = start_server();
    let service = format!("port:{port}");
    let arguments = ["run", "--service", &service, "--lanes", "0:1", "--", "true"];
    check_capabilities(&arguments, &[BPF, PERFMON, ("CAP_SYS_NICE", "CAP_SYS_NICE"), SYS_PTRACE]);
}

#[test]
fn watching_verbs_work_with_their_capabilities_alone() {
    let Some(_turn) = lock_lanes() else { return };
    if !can_observe_requests() {
        return;
    }
    let (_server, port) = start_server();
    let service = format!("port:{port}");
    for verb in ["requests", "trace", "observe"] {
        let arguments = [verb, "--service", &service, "--for", "100ms"];
        check_capabilities(&arguments, &[BPF, PERFMON, SYS_PTRACE]);
    }
}

#[test]
fn list_proxy_and_hazards_work_with_their_capabilities_alone() {
    let Some(_turn) = lock_lanes() else { return };
    let (_server, port) = start_server();
    check_capabilities(&["list", &format!("port:{port}")], &[SYS_PTRACE]);
    let active = format!("127.0.0.1:{port}");
    let arguments = ["proxy", "--listen", "127.0.0.1:0", "--active", &active, "--for", "100ms"];
    check_capabilities(&arguments, &[("CAP_SYS_PTRACE", "are not watched")]);
    let dir = tempfile::tempdir().unwrap();
    let (server, socket) = (format!("s1={active}"), dir.path().join("hazards.sock"));
    let arguments = ["hazards", "--server", &server, "--socket", socket.to_str().unwrap(), "--for", "100ms"];
    check_capabilities(&arguments, &[("CAP_SYS_PTRACE", "are not watched")]);
}

/// Returns a file for the agent that changes nothing. Its group of batch never exists; a note says so, with those about
/// services that are not found.
fn unmanaging_file(port: u16) -> String {
    let batch = "[[batch]]\ncgroup = \"/sidelane-test-absent\"\n[policy]\nkind = \"unmanaged\"\n";
    format!("[[service]]\nname = \"the server\"\nport = {port}\n{batch}")
}

#[test]
fn agent_works_with_its_capabilities_alone() {
    let Some(_turn) = lock_lanes() else { return };
    let (_server, port) = start_server();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("sidelane.toml");
    fs::write(&file, unmanaging_file(port)).unwrap();
    let arguments = ["agent", "--config", file.to_str().unwrap()];
    let needed = documented_capabilities("agent");
    let missing = [
        ("CAP_BPF", "cannot load the lane tracker"),
        ("CAP_PERFMON", "cannot load the lane tracker"),
        ("CAP_SYS_NICE", "cannot use SCHED_FIFO"),
        ("CAP_SYS_PTRACE", "the server"),
    ];
    assert_eq!(needed, missing.map(|(capability, _)| capability));
    let needed = missing.map(|(capability, _)| capability);
    let end = |mut agent: Running| {
        if !agent.has_ended() {
            agent.signal(libc::SIGTERM);
        }
        agent.wait_for_end()
    };
    let mut agent = start_with(&needed, &arguments);
    agent.wait_until("it had looked for batch", |agent| agent.errors().contains("sidelane-test-absent"));
    let with_all = end(agent).expect_exit_code(0);
    for (capability, words) in missing {
        assert!(!with_all.stderr.contains(words), "`{words}`: {with_all}");
        let others: Vec<&str> = needed.into_iter().filter(|name| *name != capability).collect();
        let mut agent = start_with(&others, &arguments);
        agent.wait_until(&format!("it said `{words}`"), |agent| agent.errors().contains(words));
        end(agent);
    }
}

#[test]
fn verbs_that_only_read_files_need_no_capabilities() {
    let scenario = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/scenarios/elfen-fig11.toml");
    let scenario = scenario.to_str().unwrap();
    let verbs: [&[&str]; 3] = [&["sim", scenario, "--quick"], &["completions", "bash"], &["agent", "example"]];
    for verb in verbs {
        assert_eq!(run_with(&[], verb).expect_exit_code(0).stderr, "", "{verb:?}");
    }
}

const NAMES: [(&str, u32); 10] = [
    ("CAP_BPF", numbers::CAP_BPF),
    ("CAP_PERFMON", numbers::CAP_PERFMON),
    ("CAP_SYS_NICE", numbers::CAP_SYS_NICE),
    ("CAP_SYS_PTRACE", numbers::CAP_SYS_PTRACE),
    ("CAP_IPC_LOCK", numbers::CAP_IPC_LOCK),
    ("CAP_DAC_OVERRIDE", numbers::CAP_DAC_OVERRIDE),
    ("CAP_FOWNER", numbers::CAP_FOWNER),
    ("CAP_KILL", numbers::CAP_KILL),
    ("CAP_SETPCAP", numbers::CAP_SETPCAP),
    ("CAP_NET_BIND_SERVICE", numbers::CAP_NET_BIND_SERVICE),
];

/// Returns the verbs of the table of what is kept, each with its capabilities.
fn documented_as_kept() -> Vec<(String, Capabilities)> {
    let page = page();
    let (_, table) = page.split_once("keeps, if it has it |\n").expect("the table is there");
    let rows = table.lines().take_while(|line| line.starts_with('|')).filter_map(|line| {
        let (verbs, kept) = line.strip_prefix("| ")?.split_once(" | ")?;
        let named: Vec<u32> = NAMES.iter().filter(|(name, _)| kept.contains(name)).map(|(_, number)| *number).collect();
        assert_eq!(named.len(), kept.matches("CAP_").count(), "{line}");
        Some((verbs.replace('`', ""), Capabilities::of(&named)))
    });
    let single = |(verbs, kept): (String, Capabilities)| {
        verbs.split(", ").map(|verb| (verb.to_owned(), kept)).collect::<Vec<_>>()
    };
    rows.flat_map(single).collect()
}

/// Returns what the verb of this command line keeps.
fn kept_by(arguments: &[&str]) -> (Capabilities, StartedPrograms) {
    let verb = Cli::parse_from(["sidelane"].iter().chain(arguments)).verb;
    (kept_capabilities(&verb).expect("it gives some up"), rights_of_started_programs(&verb))
}

#[test]
fn each_verb_keeps_what_the_page_says() {
    let service = ["--service", "pid:1"];
    let proxy = ["proxy", "--listen", "127.0.0.1:0", "--active", "127.0.0.1:1"];
    let hazards = ["hazards", "--server", "s1=127.0.0.1:1", "--socket", "/run/hazards.sock"];
    let verbs: [(&str, Vec<&str>); 12] = [
        ("run", [&["run"], &service[..], &["--", "true"]].concat()),
        ("agent", vec!["agent", "--config", "agent.toml"]),
        ("hurry", [&["hurry"], &service[..]].concat()),
        ("requests", [&["requests"], &service[..]].concat()),
        ("estimate", [&["estimate"], &service[..]].concat()),
        ("trace", [&["trace"], &service[..]].concat()),
        ("observe", [&["observe"], &service[..]].concat()),
        ("proxy", proxy.to_vec()),
        ("hazards", hazards.to_vec()),
        ("proxy --trace", [&proxy[..], &["--trace"]].concat()),
        ("top", vec!["top"]),
        ("the guardian", vec!["__guardian", "1"]),
    ];
    let kept = verbs.map(|(name, arguments)| (name.to_owned(), kept_by(&arguments).0));
    assert_eq!(kept.to_vec(), documented_as_kept());
}

/// Returns the different sets of this name that the threads of a process have.
fn sets_of_threads(pid: u32, set: &str) -> BTreeSet<u64> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let status = tasks.filter_map(|task| fs::read_to_string(task.path().join("status")).ok());
    status.filter_map(|status| Capabilities::parse_set(&status, set)).map(|set| set.0).collect()
}

fn thread_count(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count)
}

/// Returns the set that this test has under this name.
fn own(set: &str) -> u64 {
    Capabilities::parse_set(&fs::read_to_string("/proc/self/status").unwrap(), set).unwrap().0
}

/// Fails unless all threads of a verb have given up all capabilities but those of its row. The process has more threads
/// than its first one.
#[track_caller]
fn check_threads(pid: u32, (kept, programs): (Capabilities, StartedPrograms)) {
    let bounding = own("CapBnd:") & if programs == StartedPrograms::LoseThem { kept.0 } else { u64::MAX };
    for (set, expected) in
        [("CapEff:", own("CapEff:") & kept.0), ("CapPrm:", own("CapPrm:") & kept.0), ("CapBnd:", bounding)]
    {
        assert_eq!(sets_of_threads(pid, set), [expected].into(), "{set}");
    }
}

#[test]
fn verbs_of_root_have_given_up_what_they_do_not_need() {
    let Some(_turn) = lock_lanes() else { return };
    if !can_observe_requests() {
        return;
    }
    let (_server, port) = start_server();
    let (service, active) = (format!("port:{port}"), format!("127.0.0.1:{port}"));
    let dir = tempfile::tempdir().unwrap();
    let (file, session) = (dir.path().join("sidelane.toml"), dir.path().join("session.jsonl"));
    fs::write(&file, unmanaging_file(port)).unwrap();
    fs::write(&session, "{\"at_ms\":0,\"status\":{\"agent\":{\"pid\":7}}}\n").unwrap();
    let verbs: [&[&str]; 5] = [
        &["agent", "--config", file.to_str().unwrap()],
        &["requests", "--service", &service, "--for", "60s"],
        &["trace", "--service", &service, "--for", "60s"],
        &["observe", "--service", &service, "--for", "60s"],
        &["proxy", "--listen", "127.0.0.1:0", "--active", &active],
    ];
    for arguments in verbs {
        let mut verb = Run::with_arguments(arguments).start_without_batch();
        let has_begun = |verb: &Running| thread_count(verb.pid()) > 2 || verb.errors().contains("Ctrl-C ends it");
        verb.wait_until(&format!("{} had begun", arguments[0]), has_begun);
        check_threads(verb.pid(), kept_by(arguments));
        verb.signal(libc::SIGTERM);
        let end = verb.wait_for_end();
        assert!(!end.stderr.contains("cannot give up"), "{arguments:?}: {end}");
    }
    let replay = ["top", session.to_str().unwrap()];
    let mut top = Interactive::start(Command::new(SIDELANE).args(replay).env(MARK, mark_of_this_test()), 100);
    top.wait_to_see("■ end");
    check_threads(top.pid(), kept_by(&replay));
    top.type_keys(b"q");
    assert_eq!(top.wait_for_end(), Some(0));
}

#[test]
fn hurry_of_root_has_given_up_what_it_does_not_need() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(busy) = Busy::start("thread-per-connection", None) else { return };
    let hurrying = Hurrying::start(&busy, &["--threshold", "1ms"]);
    check_threads(hurrying.child.id(), kept_by(&["hurry", "--service", "pid:1"]));
    hurrying.stop();
}

#[test]
fn batch_of_root_keeps_the_rights_that_its_run_gives_up() {
    let Some(_turn) = lock_lanes() else { return };
    let service = Service::idle();
    let mut run = Run::beside_service(service.target()).start_script(&format!("echo $$; {SPIN}"));
    let batch = run.batch_pid();
    check_threads(run.pid(), kept_by(&["run", "--service", "pid:1", "--", "true"]));
    let taken = Capabilities::of(&[numbers::CAP_SYS_NICE, numbers::CAP_SYS_RESOURCE]).0;
    for set in ["CapEff:", "CapPrm:", "CapBnd:", "CapInh:"] {
        assert_eq!(sets_of_threads(batch, set), [own(set) & !taken].into(), "{set}");
    }
    let guardian = guardians()[0];
    check_threads(guardian, kept_by(&["__guardian", "1"]));
    run.signal(libc::SIGTERM);
    run.wait_for_end();
}

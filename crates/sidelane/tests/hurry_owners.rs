//! Tests of the rights of a service's owner beside `sidelane hurry`: CPUs that the service chooses itself, and
//! processes that it starts.
//!
//! The tests declare CPU 0 to be big, as in `hurry.rs`. They declare a CPU offline to make the mapper check the
//! threads.
#![cfg(debug_assertions)]

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use common::agent::guardians;
use common::busy::{BIG, CLIENTS, LITTLE};
use common::{Busy, Hurrying, can_observe_requests, lock_lanes, process, wait_until};
use sidelane_host::cgroup::{BatchGroup, Hierarchy};
use sidelane_host::freezer::Freezer;
use sidelane_host::priority::pin_thread;
use tempfile::TempDir;

/// File that lists the CPUs which are declared offline.
struct OfflineCpusFile(PathBuf);

impl OfflineCpusFile {
    fn create_for(command: &mut Command, file: PathBuf) -> Self {
        fs::write(&file, "").unwrap();
        command.env("SIDELANE_OFFLINE", &file);
        Self(file)
    }

    fn write_cpus(&self, cpus: &str) {
        fs::write(&self.0, cpus).unwrap();
    }
}

#[test]
fn affinities_set_by_the_threads_themselves_are_kept() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(busy) = Busy::start("thread-per-connection", None) else { return };
    let mut command = Hurrying::command(&busy, &["--mapping", "all-little"]);
    let offline = OfflineCpusFile::create_for(&mut command, busy.file("offline"));
    let hurrying = Hurrying::start_command(&mut command, &busy.file("moves"));
    wait_until("each worker is bound", || busy.bound_thread_count() >= CLIENTS);
    // The test pins one thread that existed at the start, and one that is created now. Neither serves a client.
    let (first, known) = (busy.threads()[0], busy.threads());
    pin_thread(first, &[1]).unwrap();
    let _stream = TcpStream::connect(busy.address).unwrap();
    wait_until("a thread is born", || busy.threads().len() > known.len());
    let born = *busy.threads().iter().find(|tid| !known.contains(tid)).unwrap();
    pin_thread(born, &[0]).unwrap();
    let chosen = |busy: &Busy| [busy.cpus_by_thread()[&first].clone(), busy.cpus_by_thread()[&born].clone()];
    offline.write_cpus(LITTLE);
    wait_until("threads were looked at", || busy.threads().len() - busy.bound_thread_count() >= CLIENTS);
    assert_eq!(chosen(&busy), [LITTLE, BIG]);
    offline.write_cpus("");
    wait_until("threads were looked at again", || busy.bound_thread_count() >= CLIENTS + 2);
    hurrying.stop();
    assert_eq!(chosen(&busy), [LITTLE, BIG]);
}

/// Program that answers each line with the id of a process that it has started for it, or with 0.
const FORKING: &str = r#"
use IO::Socket::INET;
$| = 1;
my $socket = IO::Socket::INET->new(Listen => 5, LocalAddr => "127.0.0.1") or die;
print $socket->sockport, "\n";
my $client = $socket->accept;
while (my $line = <$client>) {
    my $pid = 0;
    if ($line =~ /child/ && !($pid = fork)) { exec "sleep", "1000" }
    if ($line =~ /daemon/) { ($pid) = `sleep 1000 >/dev/null 2>&1 & echo \$!` =~ /(\d+)/ }
    print $client "$pid\n";
}
"#;

/// Service with one thread, which forks.
struct Forking {
    child: Child,
    stream: BufReader<TcpStream>,
    started: Vec<u32>,
    dir: TempDir,
}

impl Forking {
    fn start() -> Option<Self> {
        if !can_observe_requests() {
            return None;
        }
        let mut command = Command::new("perl");
        let command = process::kill_with_test(&mut command).args(["-e", FORKING]).stdout(Stdio::piped());
        let Ok(mut child) = command.spawn() else {
            sidelane_testing::skip("needs perl".to_owned());
            return None;
        };
        let mut port = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut port).unwrap();
        let stream = TcpStream::connect(("127.0.0.1", port.trim().parse().unwrap())).unwrap();
        Some(Self { child, stream: BufReader::new(stream), started: vec![], dir: tempfile::tempdir().unwrap() })
    }

    /// Sends a line. Returns the id of the started process, or 0 if none was asked for.
    fn send_line(&mut self, what: &str) -> u32 {
        writeln!(self.stream.get_mut(), "{what}").unwrap();
        let mut answer = String::new();
        self.stream.read_line(&mut answer).unwrap();
        let pid = answer.trim().parse().unwrap();
        self.started.extend(Some(pid).filter(|pid| *pid > 0));
        pid
    }

    fn cpus(&self) -> String {
        process::allowed_cpus(self.child.id()).unwrap()
    }
}

impl Drop for Forking {
    fn drop(&mut self) {
        self.started.iter().for_each(|pid| process::kill(*pid));
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn child_of_a_bound_thread_gets_all_cpus_at_a_check() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(mut forking) = Forking::start() else { return };
    let (found, log) = (forking.cpus(), forking.dir.path().join("moves"));
    let service = format!("pid:{}", forking.child.id());
    let mut command = Hurrying::command_for(&service, &log, &["--mapping", "static"]);
    let offline = OfflineCpusFile::create_for(&mut command, forking.dir.path().join("offline"));
    let hurrying = Hurrying::start_command(&mut command, &log);
    wait_until("it is bound", || forking.send_line("hello") == 0 && forking.cpus() == BIG);
    let born = [forking.send_line("child"), forking.send_line("daemon")];
    offline.write_cpus(BIG);
    wait_until("threads were looked at", || forking.cpus() == LITTLE);
    assert_eq!(born.map(|pid| process::allowed_cpus(pid).unwrap()), [found.clone(), found.clone()]);
    let last = forking.send_line("daemon");
    hurrying.stop();
    assert_eq!([process::allowed_cpus(last).unwrap(), forking.cpus()], [found.clone(), found]);
}

#[test]
fn hurry_ends_with_the_process_given_by_pid() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(busy) = Busy::start("thread-per-connection", None) else { return };
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("moves");
    let mut hurrying = Hurrying::start_command(&mut Hurrying::command_for(&busy.target(), &log, &[]), &log);
    let service = busy.target();
    drop(busy);
    wait_until("it has ended", || hurrying.child.try_wait().unwrap().is_some());
    let told = hurrying.stop();
    assert!(told.contains(&format!("{service} has ended")), "{told}");
}

#[test]
fn stopped_guardian_is_replaced_and_threads_are_restored() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(busy) = Busy::start("thread-per-connection", None) else { return };
    let found = busy.cpus_by_thread();
    let hurrying = Hurrying::start(&busy, &[]);
    wait_until("each worker is bound", || busy.bound_thread_count() >= CLIENTS);
    let first = guardians();
    first.iter().for_each(|guardian| process::stop_and_fill_pipe(*guardian));
    wait_until("there is another guardian", || guardians().iter().any(|guardian| !first.contains(guardian)));
    hurrying.stop();
    let now = busy.cpus_by_thread();
    assert!(found.iter().all(|(thread, cpus)| now.get(thread) == Some(cpus)), "{found:?} {now:?}");
}

/// Mechanism that halts a mapper.
enum HaltMethod {
    Stop,
    Freeze(BatchGroup),
}

impl HaltMethod {
    /// Returns all mechanisms that this machine has.
    fn all() -> Vec<Self> {
        let leaf = |found: Hierarchy| BatchGroup::create(&found, &format!("hurry-halt-{}", std::process::id())).ok();
        let leaves = Hierarchy::all().into_iter().filter(|found| found.is_v2() || found.has_controller("freezer"));
        let leaves = leaves.filter_map(leaf).filter(|leaf| Freezer::find_in_group(&leaf.dir).is_some());
        [Self::Stop].into_iter().chain(leaves.map(Self::Freeze)).collect()
    }

    fn set_halted(&self, mapper: u32, halted: bool) {
        match self {
            Self::Stop => process::signal(mapper, if halted { libc::SIGSTOP } else { libc::SIGCONT }),
            Self::Freeze(leaf) => {
                leaf.move_process_in(mapper).unwrap();
                Freezer::find_in_group(&leaf.dir).unwrap().set_frozen(halted).unwrap();
            }
        }
    }
}

impl Drop for HaltMethod {
    fn drop(&mut self) {
        if let Self::Freeze(leaf) = self {
            let _ = leaf.remove();
        }
    }
}

#[test]
fn threads_have_their_cpus_while_the_mapper_is_halted() {
    let Some(_turn) = lock_lanes() else { return };
    for halt in HaltMethod::all() {
        let Some(busy) = Busy::start("thread-per-connection", None) else { return };
        let found = busy.cpus_by_thread();
        let hurrying = Hurrying::start(&busy, &["--mapping", "all-little"]);
        wait_until("each worker is bound", || busy.bound_thread_count() >= CLIENTS);
        halt.set_halted(hurrying.child.id(), true);
        wait_until("no thread is bound", || busy.bound_thread_count() == 0);
        let known = busy.threads();
        let _stream = TcpStream::connect(busy.address).unwrap();
        wait_until("a thread is born", || busy.threads().len() > known.len());
        assert_eq!(busy.bound_thread_count(), 0, "born to a thread that has all CPUs");
        halt.set_halted(hurrying.child.id(), false);
        wait_until("each worker is bound again", || busy.bound_thread_count() >= CLIENTS);
        hurrying.stop();
        let now = busy.cpus_by_thread();
        assert!(found.iter().all(|(thread, cpus)| now.get(thread) == Some(cpus)), "{found:?} {now:?}");
    }
}

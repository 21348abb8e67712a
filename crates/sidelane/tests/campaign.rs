//! Fault campaign: each round starts one verb of Sidelane, causes one fault, ends Sidelane, and checks that the service
//! was not disturbed and that the machine is as it was found. `make test-faults` runs it.
//!
//! `SIDELANE_FAULTS_SEED` chooses the faults, `SIDELANE_FAULTS_MINUTES` the length, and `SIDELANE_FAULTS_ROUND` a single
//! round to be repeated. The last line counts faults and broken invariants.

mod common;
#[allow(dead_code, reason = "the tests of the agent use the rest")]
#[path = "agent/daemon.rs"]
mod daemon;
#[allow(dead_code, reason = "the tests of the agent use the rest")]
#[path = "agent/groups.rs"]
mod groups;

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File as FileOnDisk};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use sidelane_host::cgroup::{BatchGroup, Hierarchy};
use sidelane_host::freezer::Freezer;
use sidelane_host::procfs::{all_pids, state, threads};
use tempfile::TempDir;

use common::agent::{batch_processes, guardians};
use common::busy::{MESSAGE, read_address, send_request};
use common::c_program;
use common::lanes::{LANES, REQUEST_LANE, lab_binary_path};
use common::process::{allowed_cpus, class_priority_and_nice, forbid_open_files, kill, signal, threads_named};
use common::screen::open_pseudo_terminal;
use common::scripted::{send_answer, start_answering_server, unused_address};
use common::snapshot::{groups_named, is_sidelane, is_stopped, remove_group};
use common::{
    Disk, FreezableGroup, Job, Random, Run, Running, SPIN, Service, Snapshot, holds_within, lock_lanes, process,
};
use daemon::{Daemon, File};
use groups::{Container, Place, Tree};

const SEED_VARIABLE: &str = "SIDELANE_FAULTS_SEED";
const MINUTES_VARIABLE: &str = "SIDELANE_FAULTS_MINUTES";
const ROUND_VARIABLE: &str = "SIDELANE_FAULTS_ROUND";
const MINUTES: u64 = 15;

/// Time after the end of all processes of Sidelane within which the machine is as before.
const RESTORED_WITHIN: Duration = Duration::from_secs(5);
/// Time within which Sidelane ends, and then its guardian.
const ENDED_WITHIN: Duration = Duration::from_secs(30);
/// Longest answer time of the service that does not count as a pause. Answers take 0.1 ms of CPU time.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// Time within which a lost guardian is replaced. It is promised within 0.5 s, on a machine that is not overloaded.
const REPLACED_WITHIN: Duration = Duration::from_secs(10);
/// Two blows within 0.5 s are not answered (docs/explanation/security.md), so the campaign waits after a replacement.
const BETWEEN_BLOWS: Duration = Duration::from_secs(1);
/// Least limit of open files: the shell that starts a round saves descriptors as 10 and above.
const FILES_MIN: u64 = 16;
const AT_MS_MAX: u64 = 1_000;
const LASTS_MS_MAX: u64 = 700;
/// CPUs of a service that may run everywhere.
const BOTH: &str = "0,1";
const EXIT_FAILURE: i32 = 125;

/// Verb of Sidelane that a fault hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verb {
    Run,
    Adopt,
    Agent,
    Requests,
    Trace,
    Observe,
    Proxy,
    Hurry,
    Top,
}

use Verb::{Adopt, Agent, Hurry, Observe, Proxy, Requests, Top, Trace};

const ALL: &[Verb] = &[Verb::Run, Adopt, Agent, Requests, Trace, Observe, Proxy, Hurry, Top];
const GUARDED: &[Verb] = &[Verb::Run, Adopt, Agent, Hurry];
const LENDING: &[Verb] = &[Verb::Run, Adopt, Agent];
const SERVED: &[Verb] = &[Verb::Run, Adopt, Agent, Requests, Trace, Observe, Hurry];

/// Kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Kill,
    Stop,
    CtrlZ,
    KillWhileStopped,
    Signals,
    NoMoreFiles,
    FewFiles,
    Freeze,
    KillGuardian,
    StopGuardian,
    FillGuardianPipe,
    NoMoreFilesForGuardian,
    ChangeHolders,
    KillService,
    StopService,
    MoveService,
    ManyConnections,
    NonsensicalRequests,
    KillBatch,
    StopBatch,
    FreezeBatch,
    ChangeClassOfBatch,
    MoveBatch,
    ThousandProcesses,
    LyingBatch,
    RemoveGroups,
    OfflineCpu,
    FullDisk,
    BadConfig,
    ControlSocket,
    MetricsPort,
    HotspotCounters,
    SignalFile,
    StatsPipe,
    FullRings,
}

/// All kinds of faults, and the verbs that each can hit.
const FAULTS: &[(Kind, &[Verb])] = &[
    (Kind::Kill, ALL),
    (Kind::Stop, ALL),
    (Kind::CtrlZ, ALL),
    (Kind::KillWhileStopped, ALL),
    (Kind::Signals, ALL),
    (Kind::NoMoreFiles, ALL),
    (Kind::FewFiles, ALL),
    (Kind::Freeze, &[Verb::Run, Adopt, Agent, Requests, Trace, Hurry]),
    (Kind::KillGuardian, GUARDED),
    (Kind::StopGuardian, GUARDED),
    (Kind::FillGuardianPipe, LENDING),
    (Kind::NoMoreFilesForGuardian, GUARDED),
    (Kind::ChangeHolders, LENDING),
    (Kind::KillService, SERVED),
    (Kind::StopService, SERVED),
    (Kind::MoveService, &[Verb::Run, Adopt, Agent, Requests, Trace]),
    (Kind::ManyConnections, &[Verb::Run, Agent, Requests, Trace, Proxy, Hurry]),
    (Kind::NonsensicalRequests, &[Verb::Run, Adopt, Requests, Trace, Observe, Hurry]),
    (Kind::KillBatch, LENDING),
    (Kind::StopBatch, LENDING),
    (Kind::FreezeBatch, LENDING),
    (Kind::ChangeClassOfBatch, LENDING),
    (Kind::MoveBatch, LENDING),
    (Kind::ThousandProcesses, LENDING),
    (Kind::LyingBatch, &[Verb::Run]),
    (Kind::RemoveGroups, LENDING),
    (Kind::OfflineCpu, LENDING),
    (Kind::FullDisk, ALL),
    (Kind::BadConfig, &[Agent]),
    (Kind::ControlSocket, LENDING),
    (Kind::MetricsPort, &[Agent, Proxy]),
    (Kind::HotspotCounters, &[Observe, Trace]),
    (Kind::SignalFile, &[Observe, Top]),
    (Kind::StatsPipe, &[Hurry]),
    (Kind::FullRings, &[Verb::Run, Requests, Trace]),
];

/// Faults that the campaign does not cause, with the reason.
const LEFT_OUT: [&str; 3] = [
    "steps of the clock: CLOCK_REALTIME is one for the whole machine, also in a time namespace",
    "CPUs really offline: the kernel would take them from cpusets and affinities of other programs for good; \
     SIDELANE_OFFLINE stands in",
    "agent and guardian killed within 0.5 s: documented to leave changes (docs/explanation/security.md)",
];

/// How Sidelane is ended after the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Terminate,
    Interrupt,
    Kill,
}

/// One fault of the campaign.
#[derive(Clone, Copy, Debug)]
struct Fault {
    verb: Verb,
    kind: Kind,
    /// Time from the start of Sidelane to the fault.
    at: Duration,
    lasts: Duration,
    end: End,
    /// Chooses options and details.
    variant: u64,
}

impl Fault {
    /// Returns the fault of a round. All pairs of verb and kind come in turn, each time in another order.
    fn of_round(seed: u64, round: u64) -> Self {
        let mut pairs: Vec<(Verb, Kind)> =
            FAULTS.iter().flat_map(|(kind, verbs)| verbs.iter().map(|verb| (*verb, *kind))).collect();
        let count = pairs.len() as u64;
        let mut order = random_of(seed, round / count);
        for last in (1..pairs.len()).rev() {
            pairs.swap(last, order.next_below(last as u64 + 1) as usize);
        }
        let (verb, kind) = pairs[(round % count) as usize];
        let mut random = random_of(seed ^ 0x5bd1_e995, round);
        let mut ms = |max| Duration::from_millis(random.next_below(max));
        let (at, lasts) = (ms(AT_MS_MAX), ms(LASTS_MS_MAX));
        let end = [End::Terminate, End::Interrupt, End::Kill][random.next_below(3) as usize];
        Self { verb, kind, at, lasts, end, variant: random.next_below(1 << 30) }
    }

    fn has(self, kind: Kind) -> bool {
        self.kind == kind
    }

    fn choose<'a, T: ?Sized>(self, choices: &[&'a T]) -> &'a T {
        choices[(self.variant % choices.len() as u64) as usize]
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verb, kind, at, lasts, end, variant } = self;
        write!(f, "{verb:?}, {kind:?} at {at:?} for {lasts:?}, then {end:?}, variant {variant}")
    }
}

/// Returns a generator for a pair of numbers. Its first numbers are dropped, because they are similar for similar seeds.
fn random_of(seed: u64, number: u64) -> Random {
    let mut random =
        Random::from_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number.wrapping_mul(0xd6e8_feb8_6659_fd93));
    for _ in 0..8 {
        random.next_below(2);
    }
    random
}

/// Server of the lab that answers requests, each on a thread of its connection.
struct Server {
    child: Child,
    address: SocketAddr,
    cpus: String,
    _dir: TempDir,
}

impl Server {
    fn start(lab: &Path, cpus: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new("taskset");
        process::kill_with_test(&mut command).args(["-c", cpus]).arg(lab).arg("echo-server");
        command.args(["--design", "thread-per-connection", "--service-us", "100", "--log"]).arg(dir.path().join("log"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let address = read_address(&mut child);
        let cpus = allowed_cpus(child.id()).unwrap();
        Self { child, address, cpus, _dir: dir }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn target(&self) -> String {
        format!("pid:{}", self.pid())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the probe of the service expects. A number grows with each change, so that an answer is judged only if the
/// expectation was the same from its request on.
#[derive(Default)]
struct Expectation {
    /// Even while the service has to answer, odd while the campaign itself has stopped or ended it.
    phase: AtomicU64,
    is_over: AtomicU64,
    /// CPUs and class; `None` while they may change.
    settings: Mutex<Option<String>>,
}

/// Client that sends the service requests all the time, and checks that it answers, runs, and keeps CPUs and class.
struct Probe {
    expectation: Arc<Expectation>,
    thread: Option<JoinHandle<Vec<String>>>,
}

impl Probe {
    fn start(server: &Server, may_be_moved: bool) -> Self {
        let (address, pid) = (server.address, server.pid());
        let expectation = Arc::new(Expectation::default());
        *expectation.settings.lock().unwrap() = (!may_be_moved).then(|| settings_of(pid));
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let shared = Arc::clone(&expectation);
        let thread = thread::spawn(move || probe_until_over(&mut stream, pid, &shared));
        Self { expectation, thread: Some(thread) }
    }

    /// Changes between phases in which the service has to answer, and phases in which it cannot.
    fn change_phase(&self) {
        self.expectation.phase.fetch_add(1, Ordering::SeqCst);
    }

    fn expect_settings(&self, settings: Option<String>) {
        *self.expectation.settings.lock().unwrap() = settings;
    }

    /// Ends the probe. Returns what was wrong.
    fn end(&mut self) -> Vec<String> {
        self.expectation.is_over.store(1, Ordering::SeqCst);
        self.thread.take().map(|thread| thread.join().unwrap()).unwrap_or_default()
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.expectation.is_over.store(1, Ordering::SeqCst);
    }
}

fn settings_of(pid: u32) -> String {
    format!("CPUs {:?}, class, priority and nice value {:?}", allowed_cpus(pid), class_priority_and_nice(pid))
}

fn probe_until_over(stream: &mut TcpStream, pid: u32, expectation: &Expectation) -> Vec<String> {
    let mut wrong = Vec::new();
    let phase = || expectation.phase.load(Ordering::SeqCst);
    while expectation.is_over.load(Ordering::SeqCst) == 0 && wrong.len() < 5 {
        let (began, expected) = (Instant::now(), phase());
        let answered = send_request(stream).and_then(|()| stream.read_exact(&mut [0; MESSAGE]));
        let took = began.elapsed();
        let stopped = is_stopped(pid);
        let wanted = expectation.settings.lock().unwrap();
        let changed = wanted.as_ref().filter(|wanted| **wanted != settings_of(pid)).cloned();
        drop(wanted);
        let is_judged = expected % 2 == 0 && phase() == expected;
        match answered {
            Err(error) if is_judged => wrong.push(format!("the service does not answer: {error}")),
            Ok(()) if is_judged && took > ANSWER_MAX => wrong.push(format!("the service took {took:?} for an answer")),
            _ => {}
        }
        if is_judged && stopped {
            wrong.push("the service was stopped".to_owned());
        }
        if let Some(before) = changed.filter(|_| is_judged) {
            wrong.push(format!("the service had {before}, and then {}", settings_of(pid)));
        }
        sleep(Duration::from_millis(if expected % 2 == 0 { 2 } else { 20 }));
    }
    wrong
}

/// Programs and files around Sidelane in one round.
struct Surroundings {
    dir: TempDir,
    disk: Option<Disk>,
    job: Option<Job>,
    container: Option<Container>,
    tree: Option<Tree>,
    home: Option<FreezableGroup>,
    /// Program that writes nonsense where Sidelane reads.
    liar: Option<Service>,
    terminal: Option<std::os::fd::OwnedFd>,
    listen: SocketAddr,
    metrics: SocketAddr,
}

impl Surroundings {
    /// Starts batch that is there before Sidelane, and what the fault needs.
    fn start(fault: Fault) -> Result<Self, String> {
        let dir = tempfile::tempdir().unwrap();
        let missing = |what: &str| format!("needs {what}");
        let disk = match fault.has(Kind::FullDisk) {
            true => Some(Disk::mount().ok_or_else(|| missing("to mount a tmpfs"))?),
            false => None,
        };
        let job = match fault.verb {
            Adopt => Some(start_job(fault).ok_or_else(|| missing("a cgroup for batch"))?),
            _ => None,
        };
        let place = *fault.choose(&[&Place::Lists, &Place::NoLists]);
        let tree = match fault.verb {
            Agent => Some(Tree::make(place).ok_or_else(|| missing("cgroups for containers"))?),
            _ => None,
        };
        let script = if fault.has(Kind::ThousandProcesses) { thousand_processes() } else { SPIN.to_owned() };
        let container = tree.as_ref().map(|tree| tree.start_container_with_script("one", &script));
        let home = match fault.has(Kind::Freeze) {
            true => {
                let hierarchies = FreezableGroup::hierarchies();
                let found = hierarchies.get(fault.variant as usize % hierarchies.len().max(1));
                let home = found.and_then(|hierarchy| FreezableGroup::make(hierarchy, "home"));
                Some(home.ok_or_else(|| missing("a cgroup that can be frozen"))?)
            }
            false => None,
        };
        let liar = match fault.kind {
            Kind::NonsensicalRequests => Some(("emit_nonsense", "-std=gnu99")),
            Kind::HotspotCounters => Some(("hsperf_nonsense", "-std=gnu11")),
            _ => None,
        };
        let folder = dir.path().to_str().unwrap().to_owned();
        let compile = |(name, dialect)| {
            c_program::compile("cc", &[dialect], name, dir.path()).ok_or_else(|| missing("a C compiler"))
        };
        let liar = liar.map(compile).transpose()?;
        let liar = liar.map(|program| Service::of_command(program.to_str().unwrap(), &[&folder]));
        let (listen, metrics) = (unused_address(), unused_address());
        Ok(Self { dir, disk, job, container, tree, home, liar, terminal: None, listen, metrics })
    }

    /// Returns the path of a file that Sidelane writes, on the disk that becomes full if there is one.
    fn file(&self, name: &str) -> PathBuf {
        self.disk.as_ref().map_or_else(|| self.dir.path().join(name), |disk| disk.path(name))
    }

    fn text(&self, name: &str) -> String {
        self.file(name).display().to_string()
    }
}

/// Starts a job without cgroups, or in those of one version.
fn start_job(fault: Fault) -> Option<Job> {
    let needs_group = fault.has(Kind::FreezeBatch) || fault.has(Kind::RemoveGroups);
    match fault.variant % 3 {
        0 if !needs_group => Some(Job::start_without_cgroup()),
        1 => Job::start_in_cgroups(Hierarchy::is_v2),
        _ => Job::start_in_cgroups(|found| found.has_controller("freezer") || found.has_controller("cpuset"))
            .or_else(|| Job::start_in_cgroups(Hierarchy::is_v2)),
    }
}

/// Returns a script that creates 1,000 processes, and then computes.
fn thousand_processes() -> String {
    format!("i=0; while [ $i -lt 1000 ]; do (:) & i=$((i+1)); done; wait; {SPIN}")
}

/// Returns the script of a batch command: with a child and a daemon, or with 1,000 processes.
fn batch_script(fault: Fault) -> String {
    match fault.kind {
        Kind::ThousandProcesses => thousand_processes(),
        // A guardian knows daemons of batch only by the group, which this fault removes.
        Kind::RemoveGroups => format!("sh -c '{SPIN}' & {SPIN}"),
        _ => format!("sh -c '{SPIN}' & setsid sh -c '(sh -c \"{SPIN}\" &)' & {SPIN}"),
    }
}

/// Sidelane in a round.
enum Subject {
    Running(Running),
    Daemon(Daemon),
}

impl Subject {
    fn running(&mut self) -> &mut Running {
        match self {
            Self::Running(running) => running,
            Self::Daemon(daemon) => &mut daemon.run,
        }
    }

    fn into_running(self) -> Running {
        match self {
            Self::Running(running) => running,
            Self::Daemon(daemon) => daemon.run,
        }
    }
}

/// Returns the agent's file: one service, one tree of containers, a gate, and metrics.
fn agent_file(fault: Fault, server: &Server, around: &Surroundings) -> File {
    let service = format!("port = {}", server.address.port());
    let tree = around.tree.as_ref().expect("the agent has a tree");
    let recorder = format!("[trace]\ndir = \"{}\"", around.dir.path().display());
    let (slo, recorder) = if fault.variant & 64 == 0 { ("", "") } else { ("\nslo = \"p99=5ms\"", recorder.as_str()) };
    File::with_holmes_policy()
        .with_service(&(service + slo))
        .with_batch(tree.path())
        .with_lines("[lanes]\ngate = \"holder\"\npolicy = \"borrow-idle\"")
        .with_lines(&format!("[metrics]\nlisten = \"{}\"", around.metrics))
        .with_lines(recorder)
}

/// Returns the arguments of each verb but the agent.
fn arguments(fault: Fault, server: &Server, around: &Surroundings) -> Vec<String> {
    let service = around.liar.as_ref().map_or_else(|| server.target(), Service::target);
    let text = |name: &str| around.text(name);
    let of_service = |verb: &str| vec![verb.to_owned(), "--service".to_owned(), service.clone()];
    let and = |mut first: Vec<String>, more: &[&str]| {
        first.extend(more.iter().map(|word| (*word).to_owned()));
        first
    };
    let (log, json, page) = (text("log"), text("result.json"), text("page.html"));
    let for_long = ["--for", "60s", "--json", &json, "--log", &log];
    match fault.verb {
        Verb::Run | Adopt => run_arguments(fault, and(of_service("run"), &["--lanes", LANES, "--json", &json]), around),
        Agent => unreachable!("its arguments are in its file"),
        Requests => and(of_service("requests"), &for_long),
        Trace if fault.variant & 4 == 0 => and(and(of_service("trace"), &for_long), &["--page", &page]),
        Trace => and(of_service("trace"), &["--slo", "1ms", "--record", &text("")]),
        Observe => {
            let file = format!("lane,counter:file:{}#1", around.dir.path().join("signal").display());
            let signals = match fault.kind {
                Kind::HotspotCounters => "lane,jvm",
                Kind::SignalFile => &file,
                _ => "lane,request",
            };
            and(and(of_service("observe"), &for_long), &["--signal", signals])
        }
        Proxy => {
            let [active, backup] = servers_of_proxies().map(|address| address.to_string());
            let (listen, metrics) = (around.listen.to_string(), around.metrics.to_string());
            let first = ["--listen", &listen, "--metrics", &metrics, "--active", &active, "--backup", &backup];
            let access = ["--drain", "1s", "--json", &json, "--access-log", &log];
            and(and(vec!["proxy".to_owned()], &first), &access)
        }
        Hurry => {
            let pipe = format!("pipe:{}", around.dir.path().join("stats").display());
            let stats = ["--stats", pipe.as_str()];
            let stats = if fault.has(Kind::StatsPipe) { &stats[..] } else { &[] };
            let cores = ["--big", "0", "--little", "1", "--threshold", "1ms", "--json", &json, "--log", &log];
            and(and(of_service("hurry"), &cores), stats)
        }
        Top if fault.has(Kind::SignalFile) => vec!["top".to_owned(), around.text("signal")],
        Top => vec!["top".to_owned(), "--record".to_owned(), log],
    }
}

fn run_arguments(fault: Fault, mut arguments: Vec<String>, around: &Surroundings) -> Vec<String> {
    let mut add = |words: &[&str]| arguments.extend(words.iter().map(|word| (*word).to_owned()));
    let gate = match fault.kind {
        Kind::LyingBatch => "instrumented",
        _ if fault.verb == Adopt => fault.choose(&["auto", "holder"]),
        _ => fault.choose(&["auto", "holder", "freezer", "sched-idle"]),
    };
    add(&["--gate", gate, "--grace", "1s", "--status", "1s"]);
    match gate {
        "holder" if fault.variant & 16 > 0 => add(&["--slo", "p99=20ms"]),
        "holder" if fault.variant & 32 > 0 => add(&["--budget", "1ms"]),
        _ => {}
    }
    if fault.has(Kind::FullDisk) && fault.variant & 1 > 0 {
        add(&["--out", &around.text("run")]);
    } else {
        add(&["--audit", &around.text("audit.jsonl")]);
    }
    if let Some(job) = &around.job {
        add(&["--adopt", &job.target()]);
    }
    arguments
}

/// Returns the addresses of two HTTP servers in this process, for all rounds.
fn servers_of_proxies() -> [SocketAddr; 2] {
    static SERVERS: OnceLock<[SocketAddr; 2]> = OnceLock::new();
    *SERVERS.get_or_init(|| [(); 2].map(|()| start_answering_server(|stream, _| send_answer(stream, "yes"))))
}

/// One round: Sidelane, its surroundings, and a service that must not notice any of it.
struct Scene {
    fault: Fault,
    before: Snapshot,
    probe: Probe,
    subject: Option<Subject>,
    /// Run that `top` shows.
    companion: Option<Running>,
    around: Surroundings,
    server: Server,
    broken: Vec<String>,
    /// Whether the campaign has sent Sidelane a POSIX signal that may end it without an exit code.
    may_end_by_signal: bool,
}

impl Scene {
    fn start(fault: Fault, lab: &Path) -> Result<Self, String> {
        // A service on which `hurry` acts may run on both CPUs; a service of lanes may not.
        let server = Server::start(lab, if fault.verb == Hurry { BOTH } else { REQUEST_LANE });
        let probe = Probe::start(&server, fault.verb == Hurry);
        let mut around = Surroundings::start(fault)?;
        let before = Snapshot::capture();
        let full_at_once = fault.variant & 2 > 0;
        around.disk.iter().filter(|_| full_at_once).for_each(Disk::fill);
        if fault.has(Kind::SignalFile) {
            fs::write(around.file("signal"), "{\"at_ms\":0}\n7\n").unwrap();
        }
        let companion = (fault.verb == Top).then(|| start_companion(&server));
        if fault.verb == Top {
            around.terminal = Some(start_terminal());
        }
        let subject = Some(start_subject(fault, &server, &around)?);
        Ok(Self { fault, before, probe, subject, companion, around, server, broken: vec![], may_end_by_signal: false })
    }

    fn running(&mut self) -> &mut Running {
        self.subject.as_mut().expect("it is taken at the end").running()
    }

    fn pid(&mut self) -> u32 {
        self.running().pid()
    }

    fn has_ended(&mut self) -> bool {
        self.running().has_ended()
    }

    /// Sends Sidelane a POSIX signal, unless it has ended. Before Sidelane has set its handlers, the signal ends it.
    fn signal(&mut self, number: i32) {
        if !self.has_ended() {
            let pid = self.pid();
            // The shell that puts Sidelane into a group catches SIGINT, and Sidelane does not inherit that.
            let handles_itself = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGCONT].contains(&number)
                || is_sidelane(pid) && is_handled(pid, number);
            self.may_end_by_signal |= !handles_itself;
            self.running().signal(number);
        }
    }

    fn broken(&mut self, what: impl Into<String>) {
        self.broken.push(what.into());
    }

    /// Returns the process ids of batch that the fault hits.
    fn batch_pids(&self) -> Vec<u32> {
        if let Some(job) = &self.around.job {
            // The job's other processes show afterwards that it goes on.
            let is_asleep = |pid: &u32| process::command_line(*pid) == ["sleep", "1000", ""];
            return job.long_lived_pids().into_iter().filter(is_asleep).collect();
        }
        self.around.container.as_ref().map_or_else(batch_processes, |container| vec![container.pid()])
    }
}

fn start_subject(fault: Fault, server: &Server, around: &Surroundings) -> Result<Subject, String> {
    let mut run = Run::with_arguments(&[]);
    if let Some(home) = &around.home {
        run = run.through_wrapper(&["sh", "-c", &home.enter_command()]);
    }
    if fault.has(Kind::FewFiles) {
        run = run.with_limits(&[(libc::RLIMIT_NOFILE, FILES_MIN + fault.variant % 60)]);
    }
    if fault.has(Kind::OfflineCpu) {
        run = run.with_variable("SIDELANE_OFFLINE", &around.text("offline"));
    }
    if fault.verb == Agent {
        let file = agent_file(fault, server, around);
        return Ok(Subject::Daemon(match fault.has(Kind::FullDisk) {
            true => Daemon::launch_auditing(&file, &around.file("audit.jsonl")),
            false => Daemon::launch(&file, run),
        }));
    }
    if let Some(terminal) = &around.terminal {
        let name = fs::read_link(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(terminal))).unwrap();
        let on_terminal = format!("exec \"$0\" \"$@\" <>{0} >{0}", name.display());
        run = run.through_wrapper(&["sh", "-c", &on_terminal]).with_variable("TERM", "xterm-256color");
    }
    let run = run.with_more_arguments(&arguments(fault, server, around));
    Ok(Subject::Running(match fault.kind {
        _ if fault.verb != Verb::Run => run.start_without_batch(),
        Kind::LyingBatch => {
            let liar = c_program::compile("cc", &["-finstrument-functions"], "gate_nonsense", around.dir.path());
            run.start(&[liar.ok_or("needs a C compiler")?.to_str().unwrap()])
        }
        _ => run.start_script(&batch_script(fault)),
    }))
}

/// Starts the run that `top` shows, and waits until it answers.
fn start_companion(server: &Server) -> Running {
    let run = Run::beside_service(server.target()).with_more_arguments(&["--grace", "1s"]).start_script(SPIN);
    let socket = format!("/run/sidelane-run-{}.sock", run.pid());
    common::wait_until("the run of `top` answers", || Path::new(&socket).exists());
    run
}

/// Opens a pseudo-terminal that takes all that is written to it. Returns the program's end.
fn start_terminal() -> std::os::fd::OwnedFd {
    let (ours, theirs) = open_pseudo_terminal(100);
    let mut screen = FileOnDisk::from(ours);
    thread::spawn(move || while let Ok(1..) = screen.read(&mut [0; 4096]) {});
    theirs
}

impl Scene {
    /// Causes the fault.
    fn cause(&mut self) {
        let fault = self.fault;
        sleep(fault.at);
        match fault.kind {
            Kind::Kill => self.kill(),
            Kind::Stop => self.halt(libc::SIGSTOP),
            Kind::CtrlZ => self.halt(libc::SIGTSTP),
            Kind::KillWhileStopped => {
                self.signal(libc::SIGSTOP);
                sleep(fault.lasts);
                self.kill();
            }
            Kind::Signals => self.send_signals(),
            Kind::NoMoreFiles => {
                let pid = self.pid();
                if !self.has_ended() {
                    forbid_open_files(pid);
                }
                sleep(fault.lasts);
            }
            Kind::FewFiles | Kind::ThousandProcesses | Kind::LyingBatch | Kind::NonsensicalRequests => {
                if let Some(job) = self.around.job.as_ref().filter(|_| fault.has(Kind::ThousandProcesses)) {
                    start_thousand_processes_in(job);
                }
                sleep(fault.lasts);
            }
            Kind::Freeze => {
                self.around.home.iter().for_each(|home| home.freeze(true));
                sleep(fault.lasts);
                self.around.home.iter().for_each(|home| home.freeze(false));
            }
            Kind::KillGuardian | Kind::StopGuardian | Kind::FillGuardianPipe | Kind::NoMoreFilesForGuardian => {
                self.hit_guardian();
            }
            Kind::ChangeHolders => self.change_holders(),
            Kind::KillService | Kind::StopService | Kind::MoveService | Kind::ManyConnections | Kind::FullRings => {
                self.hit_service();
            }
            Kind::KillBatch | Kind::StopBatch | Kind::ChangeClassOfBatch | Kind::MoveBatch => self.hit_batch(),
            Kind::FreezeBatch | Kind::RemoveGroups => self.hit_groups(),
            _ => self.hit_files(),
        }
    }

    fn kill(&mut self) {
        self.may_end_by_signal = true;
        self.running().kill_if_there();
    }

    fn halt(&mut self, number: i32) {
        let pid = self.pid();
        self.signal(number);
        // The handler of Ctrl-Z stops Sidelane later; if it were resumed sooner, it would stay stopped.
        holds_within(Duration::from_secs(10), || is_stopped(pid) || self.has_ended());
        sleep(self.fault.lasts);
        self.signal(libc::SIGCONT);
    }

    fn send_signals(&mut self) {
        let all = [libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2, libc::SIGALRM, libc::SIGTERM, libc::SIGINT];
        let number = all[(self.fault.variant % 6) as usize];
        self.signal(number);
        sleep(self.fault.lasts);
        self.signal(number);
    }

    /// Hits the guardian, and waits until another one has taken over, or Sidelane has ended.
    fn hit_guardian(&mut self) {
        let mut found = None;
        holds_within(Duration::from_secs(10), || {
            found = guardians().first().copied();
            found.is_some() || self.has_ended()
        });
        let Some(guardian) = found.filter(|_| !self.has_ended()) else { return };
        match self.fault.kind {
            Kind::KillGuardian => kill(guardian),
            Kind::StopGuardian => signal(guardian, libc::SIGSTOP),
            Kind::FillGuardianPipe => {
                signal(guardian, libc::SIGSTOP);
                let pipe = PathBuf::from(format!("/proc/{guardian}/fd/0"));
                while write_without_waiting(&pipe, b"\n") {}
            }
            _ => {
                forbid_open_files(guardian);
                sleep(self.fault.lasts);
                return;
            }
        }
        let replaced =
            holds_within(REPLACED_WITHIN, || guardians().iter().any(|pid| *pid != guardian) || self.has_ended());
        signal(guardian, libc::SIGCONT);
        if !replaced {
            self.broken(format!("no guardian has replaced {guardian} within {REPLACED_WITHIN:?}"));
        }
        sleep(BETWEEN_BLOWS);
    }

    /// Moves the holders of lanes to another CPU and class, as root may.
    fn change_holders(&mut self) {
        let pid = self.pid();
        holds_within(Duration::from_secs(3), || !threads_named(pid, "holder-1").is_empty());
        for tid in threads_named(pid, "holder-1") {
            let tid = tid.to_string();
            run_tool(&["taskset", "-c", "-p", "0", &tid]);
            run_tool(&["chrt", "-o", "-p", "0", &tid]);
        }
        sleep(self.fault.lasts);
    }

    fn hit_service(&mut self) {
        let (pid, address, lasts) = (self.server.pid(), self.server.address, self.fault.lasts);
        match self.fault.kind {
            Kind::KillService => {
                self.probe.change_phase();
                let _ = self.server.child.kill();
                let _ = self.server.child.wait();
                sleep(lasts);
            }
            Kind::StopService => {
                self.probe.change_phase();
                signal(pid, libc::SIGSTOP);
                sleep(lasts);
                signal(pid, libc::SIGCONT);
                common::wait_until("the service went on", || !is_stopped(pid));
                self.probe.change_phase();
            }
            Kind::MoveService => {
                let cpus = self.fault.choose(&["1", BOTH]);
                self.probe.expect_settings(None);
                process::set_process_affinity(pid, cpus);
                self.server.cpus = allowed_cpus(pid).unwrap_or_default();
                self.probe.expect_settings(Some(settings_of(pid)));
                self.before.refresh_process(pid);
                sleep(lasts);
            }
            Kind::ManyConnections => {
                let to = if self.fault.verb == Proxy { self.around.listen } else { address };
                let count = 100 + self.fault.variant % 500;
                let mut open: Vec<TcpStream> = (0..count).filter_map(|_| TcpStream::connect(to).ok()).collect();
                open.iter_mut().for_each(|stream| drop(send_request(stream)));
                sleep(lasts);
            }
            _ => self.fill_rings(),
        }
    }

    /// Stops Sidelane while the service answers as many requests as it can, so that records are lost.
    fn fill_rings(&mut self) {
        let (address, until) = (self.server.address, Instant::now() + 3 * self.fault.lasts);
        let load = move || {
            let Ok(mut stream) = TcpStream::connect(address) else { return };
            while Instant::now() < until
                && send_request(&mut stream).and_then(|()| stream.read_exact(&mut [0; MESSAGE])).is_ok()
            {}
        };
        let clients: Vec<JoinHandle<()>> = (0..4).map(|_| thread::spawn(load)).collect();
        sleep(self.fault.lasts / 2);
        self.signal(libc::SIGSTOP);
        sleep(2 * self.fault.lasts);
        self.signal(libc::SIGCONT);
        clients.into_iter().for_each(|client| client.join().unwrap());
    }

    fn hit_batch(&mut self) {
        let (pids, lasts) = (self.batch_pids(), self.fault.lasts);
        match self.fault.kind {
            Kind::KillBatch => match self.around.container.as_mut() {
                Some(container) => container.end_first_process(),
                None => pids.into_iter().for_each(kill),
            },
            Kind::StopBatch => {
                pids.iter().for_each(|pid| signal(*pid, libc::SIGSTOP));
                sleep(lasts);
                pids.iter().for_each(|pid| signal(*pid, libc::SIGCONT));
            }
            _ => {
                for pid in pids {
                    let words = pid.to_string();
                    match self.fault.kind {
                        Kind::MoveBatch => run_tool(&["taskset", "-a", "-c", "-p", "0", &words]),
                        _ => run_tool(&["chrt", "-f", "-p", "20", &words]),
                    }
                    self.before.forget_process(pid);
                }
                sleep(lasts);
            }
        }
    }

    fn hit_groups(&mut self) {
        let own = format!("sidelane-{}", self.pid());
        let freezes = self.fault.has(Kind::FreezeBatch);
        if let Some(container) = self.around.container.take() {
            if freezes {
                container.freeze(true);
                sleep(self.fault.lasts);
                container.freeze(false);
                self.around.container = Some(container);
            } else {
                drop(container);
                let tree = self.around.tree.as_ref().expect("a container is in a tree");
                self.before.forget_groups(&format!("{}/one", tree.path()));
            }
            return;
        }
        let dirs = match &self.around.job {
            Some(job) if freezes => vec![job.group().dir.clone()],
            _ => groups_named(&own),
        };
        if freezes {
            let freezers: Vec<Freezer> = dirs.iter().filter_map(|dir| Freezer::find_in_group(dir)).collect();
            freezers.iter().for_each(|freezer| drop(freezer.set_frozen(true)));
            sleep(self.fault.lasts);
            freezers.iter().for_each(|freezer| drop(freezer.set_frozen(false)));
        } else if let Some(job) = &self.around.job {
            let root = BatchGroup { dir: job.group().dir.parent().unwrap().to_owned() };
            for pid in self.batch_pids() {
                let _ = root.move_process_in(pid);
                self.before.forget_process(pid);
            }
        } else {
            dirs.iter().for_each(|dir| remove_group(dir));
            // Batch that root moves is put right in 0.5 s (docs/explanation/security.md), and not sooner.
            sleep(BETWEEN_BLOWS);
        }
        sleep(self.fault.lasts);
    }

    fn hit_files(&mut self) {
        let (fault, pid) = (self.fault, self.pid());
        let mut random = random_of(fault.variant, 1);
        match fault.kind {
            Kind::OfflineCpu => {
                let offline = self.around.file("offline");
                fs::write(&offline, fault.choose(&["0", "1", "0-1", "nonsense"])).unwrap();
                sleep(fault.lasts);
                fs::write(&offline, "").unwrap();
            }
            Kind::FullDisk if fault.variant & 2 == 0 => self.around.disk.iter().for_each(Disk::fill),
            Kind::BadConfig => {
                let Some(Subject::Daemon(daemon)) = &mut self.subject else { return };
                for _ in 0..3 {
                    if !daemon.run.has_ended() {
                        daemon.reload(&File::default().with_lines(&nonsense(&mut random)));
                    }
                    sleep(fault.lasts / 2);
                }
            }
            Kind::ControlSocket => {
                let path = match fault.verb {
                    Agent => sidelane_agent::status::SOCKET.to_owned(),
                    _ => format!("/run/sidelane-run-{pid}.sock"),
                };
                holds_within(Duration::from_secs(2), || Path::new(&path).exists());
                send_nonsense(|| UnixStream::connect(&path), fault.lasts, &mut random);
            }
            Kind::MetricsPort => {
                let metrics = self.around.metrics;
                holds_within(Duration::from_secs(2), || TcpStream::connect(metrics).is_ok());
                send_nonsense(|| TcpStream::connect(metrics), fault.lasts, &mut random);
            }
            Kind::SignalFile => {
                for _ in 0..10 {
                    let _ = fs::write(self.around.file("signal"), nonsense(&mut random));
                    sleep(fault.lasts / 10);
                }
                let _ = fs::remove_file(self.around.file("signal"));
            }
            Kind::StatsPipe => {
                let path = self.around.dir.path().join("stats");
                holds_within(Duration::from_secs(2), || path.exists());
                for _ in 0..10 {
                    let text = format!("{};{}\n", self.server.pid(), nonsense(&mut random));
                    write_without_waiting(&path, text.as_bytes());
                    sleep(fault.lasts / 10);
                }
            }
            _ => sleep(fault.lasts),
        }
    }
}

/// Returns whether a process catches, blocks or ignores a POSIX signal.
fn is_handled(pid: u32, number: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = |line: &str| {
        let bits = ["SigBlk:", "SigIgn:", "SigCgt:"].iter().find_map(|name| line.strip_prefix(name))?;
        u64::from_str_radix(bits.trim(), 16).ok()
    };
    status.lines().filter_map(mask).any(|bits| bits >> (number - 1) & 1 == 1)
}

fn run_tool(words: &[&str]) {
    let _ = Command::new(words[0]).args(&words[1..]).output();
}

/// Starts a shell in the job's cgroups that creates 1,000 processes and ends.
fn start_thousand_processes_in(job: &Job) {
    let script = "read -r _; i=0; while [ $i -lt 1000 ]; do (:) & i=$((i+1)); done; wait";
    let mut command = Command::new("sh");
    let command = process::kill_with_test(&mut command).args(["-c", script]).stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    job.move_process_in(child.id());
    drop(child.stdin.take());
    // The thread reaps the shell; it ends by itself or with the round.
    thread::spawn(move || child.wait());
}

/// Returns text that is like a file of the agent, a request or a number, and is none.
fn nonsense(random: &mut Random) -> String {
    const PARTS: [&str; 22] = [
        "[policy]\n",
        "[[service]]\n",
        "kind = ",
        "\"holmes\"",
        "reserved = \"0-4096\"\n",
        "=",
        "\n",
        "\"",
        "\u{0}",
        "\u{fffd}",
        "-1",
        "18446744073709551616",
        "1e999",
        "{",
        "}",
        "[",
        "]",
        ";",
        "GET / HTTP/1.1\r\n",
        "status\n",
        "null",
        " ",
    ];
    let count = random.next_below(200);
    (0..count).map(|_| PARTS[random.next_below(PARTS.len() as u64) as usize]).collect()
}

/// Opens connections, sends nonsense on each, closes half of them at once and keeps the others for a while.
fn send_nonsense<S: Write>(connect: impl Fn() -> std::io::Result<S>, lasts: Duration, random: &mut Random) {
    let mut kept = Vec::new();
    for number in 0..40 {
        let Ok(mut stream) = connect() else { continue };
        let _ = stream.write_all(nonsense(random).as_bytes());
        if number % 2 == 0 {
            kept.push(stream);
        }
    }
    sleep(lasts);
}

/// Returns whether the pipe had room for the bytes.
fn write_without_waiting(path: &Path, bytes: &[u8]) -> bool {
    use std::os::unix::fs::OpenOptionsExt;
    let pipe = FileOnDisk::options().write(true).custom_flags(libc::O_NONBLOCK).open(path);
    pipe.and_then(|mut pipe| pipe.write_all(bytes)).is_ok()
}

impl Scene {
    /// Ends Sidelane, and checks all invariants. Returns those that are broken.
    fn end_and_check(mut self) -> Vec<String> {
        match self.fault.end {
            End::Terminate => self.signal(libc::SIGTERM),
            End::Interrupt => self.signal(libc::SIGINT),
            End::Kill => self.kill(),
        }
        self.check_end_of_subject();
        if let Some(companion) = self.companion.take() {
            companion.signal(libc::SIGTERM);
            let ended = companion.wait_for_end();
            // Batch that gets no CPU on a busy machine does not end by itself, and is killed.
            if ![128 + libc::SIGTERM, 128 + libc::SIGKILL].map(Some).contains(&ended.code) {
                self.broken(format!("the run that `top` showed: {ended}"));
            }
        }
        let sidelanes = || all_pids().into_iter().filter(|pid| is_sidelane(*pid)).collect::<Vec<u32>>();
        if !holds_within(ENDED_WITHIN, || sidelanes().is_empty()) {
            let lines: Vec<Vec<String>> = sidelanes().into_iter().map(process::command_line).collect();
            self.broken(format!("processes of Sidelane are left after {ENDED_WITHIN:?}: {lines:?}"));
        }
        self.check_restored();
        let wrong = self.probe.end();
        self.broken.extend(wrong);
        if let Some(job) = &self.around.job {
            job.check_is_running();
        }
        self.broken
    }

    /// Waits for the end of Sidelane, and checks its exit code and its errors.
    fn check_end_of_subject(&mut self) {
        if !holds_within(ENDED_WITHIN, || self.has_ended()) {
            let errors = self.running().errors();
            let state = state(&format!("/proc/{}/stat", self.pid()));
            self.broken(format!("Sidelane has not ended within {ENDED_WITHIN:?}, in state {state:?}: {errors}"));
            self.kill();
        }
        let ended = self.subject.take().expect("it is taken once").into_running().wait_for_end();
        let is_known = match (self.fault.verb, ended.code) {
            (_, None) => self.may_end_by_signal,
            // The last numbers are of a batch command that a POSIX signal ended.
            (Verb::Run, Some(code)) => matches!(code, 0 | 99 | EXIT_FAILURE | 126 | 127 | 130 | 129..=192),
            (Adopt, Some(code)) => matches!(code, 0 | 99 | EXIT_FAILURE),
            (_, Some(code)) => matches!(code, 0 | EXIT_FAILURE),
        };
        if !is_known {
            self.broken(format!("the exit code is not documented: {ended}"));
        }
        if ["panicked at", "RUST_BACKTRACE", "internal error"].iter().any(|text| ended.stderr.contains(text)) {
            self.broken(format!("a panic: {}", ended.stderr));
        }
    }

    fn check_restored(&mut self) {
        let mut left = Vec::new();
        let restored = holds_within(RESTORED_WITHIN, || {
            left = self.before.differences(&Snapshot::capture());
            let is_other = |tid: &u32| allowed_cpus(*tid).is_some_and(|cpus| cpus != self.server.cpus);
            let others = threads(self.server.pid()).into_iter().filter(is_other);
            left.extend(others.map(|tid| format!("thread {tid} of the service has CPUs {:?}", allowed_cpus(tid))));
            left.is_empty()
        });
        if !restored {
            self.broken(format!("not as before after {RESTORED_WITHIN:?}:\n    {}", left.join("\n    ")));
        }
    }
}

/// Runs one round in this thread. Returns the broken invariants, or why the fault is impossible here.
fn run_round(fault: Fault, lab: &Path) -> Result<Vec<String>, String> {
    let mut scene = Scene::start(fault, lab)?;
    let clients = (fault.verb == Proxy).then(|| start_clients_of_proxy(scene.around.listen));
    scene.cause();
    let broken = scene.end_and_check();
    drop(clients);
    Ok(broken)
}

/// Starts a client of the proxy, which ends when the returned value is dropped.
fn start_clients_of_proxy(address: SocketAddr) -> Arc<()> {
    let guard = Arc::new(());
    let weak = Arc::downgrade(&guard);
    thread::spawn(move || {
        while weak.upgrade().is_some() {
            let client = TcpStream::connect(address).and_then(|mut stream| {
                stream.set_read_timeout(Some(Duration::from_secs(1)))?;
                stream.write_all(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")?;
                stream.read_to_end(&mut Vec::new())
            });
            sleep(Duration::from_millis(if client.is_ok() { 1 } else { 20 }));
        }
    });
    guard
}

/// Counts of the campaign.
#[derive(Default)]
struct Totals {
    faults: u64,
    broken: u64,
    skipped: BTreeMap<String, u64>,
}

impl Totals {
    /// Runs a round in its own thread. A step of the campaign that fails counts as a broken invariant.
    fn run_round(&mut self, seed: u64, round: u64, lab: &Path, clean: &Snapshot) {
        let fault = Fault::of_round(seed, round);
        eprintln!("round {round}: {fault}");
        let outcome = thread::scope(|scope| scope.spawn(|| run_round(fault, lab)).join());
        let broken = match outcome {
            Ok(Ok(broken)) => broken,
            Ok(Err(reason)) => {
                *self.skipped.entry(format!("{:?}, {:?}: {reason}", fault.verb, fault.kind)).or_default() += 1;
                return;
            }
            Err(message) => {
                let text = message.downcast_ref::<String>().cloned();
                let text = text.or_else(|| message.downcast_ref::<&str>().map(|text| (*text).to_owned()));
                vec![format!("a step failed: {}", text.unwrap_or_default())]
            }
        };
        self.faults += 1;
        self.broken += broken.len() as u64;
        for what in &broken {
            eprintln!("broken: seed {seed}, round {round}: {fault}\n  {what}");
            eprintln!("  repeat it with: make test-faults ARGS='--seed {seed} --round {round}'");
        }
        if !broken.is_empty() {
            clean.restore();
        }
    }
}

#[test]
#[ignore = "takes a quarter of an hour; `make test-faults` runs it"]
fn machine_and_service_survive_every_fault() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(lab) = lab_binary_path() else { return };
    let variable = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let seed = variable(SEED_VARIABLE).unwrap_or(1);
    let until = Instant::now() + Duration::from_secs(60 * variable(MINUTES_VARIABLE).unwrap_or(MINUTES));
    let clean = Snapshot::capture();
    let mut totals = Totals::default();
    match variable(ROUND_VARIABLE) {
        Some(round) => totals.run_round(seed, round, &lab, &clean),
        None => {
            (0..).take_while(|_| Instant::now() < until).for_each(|round| totals.run_round(seed, round, &lab, &clean))
        }
    }
    LEFT_OUT.iter().for_each(|reason| eprintln!("left out: {reason}"));
    totals.skipped.iter().for_each(|(what, times)| eprintln!("skipped {times} times: {what}"));
    eprintln!("{} faults, {} invariants broken, seed {seed}", totals.faults, totals.broken);
    assert_eq!(totals.broken, 0, "broken invariants");
}

/// Each round has the same fault each time, and a campaign of one cycle has each pair of verb and kind once.
#[test]
fn faults_of_a_seed_are_the_same_and_complete() {
    let count: usize = FAULTS.iter().map(|(_, verbs)| verbs.len()).sum();
    let pairs = |seed| (0..count as u64).map(move |round| Fault::of_round(seed, round)).map(|it| (it.verb, it.kind));
    let order: Vec<_> = pairs(1).collect();
    assert_eq!(order, pairs(1).collect::<Vec<_>>());
    assert_ne!(order, pairs(2).collect::<Vec<_>>());
    assert_eq!(order.iter().collect::<std::collections::BTreeSet<_>>().len(), count);
}

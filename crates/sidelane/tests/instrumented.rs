//! Tests of the instrumented gate, end to end: C programs that check their own lane, built with the compiler's options.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use common::agent::{Finished, SIDELANE};
use common::deadline::TIMEOUT;
use common::lanes::{BATCH_LANE, REQUEST_LANE};
use common::redis::traceable_redis;
use common::{
    Footprint, Run, Running, Service, ServiceOnCommand, Words, can_observe_requests, lab_binary_path, lock_lanes,
    process,
};
use sidelane_host::priority::run_with_this_thread_on;
use sidelane_lab::programs::LabBinary;
use sidelane_policy::borrow::{ContentionCost, LaneState};
use tempfile::TempDir;

/// Program `runtime/c/examples/kernels.c`, built with checks.
struct Kernels {
    dir: TempDir,
}

impl Kernels {
    /// Builds the program. Without a compiler or a library to preload, prints a message and returns `None`.
    fn build_with(options: &[&str]) -> Option<Self> {
        if !library().exists() {
            sidelane_testing::skip(format!("needs {}: run `cargo build -p sidelane-gate` first", library().display()));
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        compile("examples/kernels.c", &dir.path().join("kernels"), options).then_some(Self { dir })
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("kernels")
    }

    fn command(&self, kernel: &str, seconds: &str) -> [String; 3] {
        [self.path().display().to_string(), kernel.to_owned(), seconds.to_owned()]
    }
}

fn library() -> PathBuf {
    Path::new(SIDELANE).with_file_name("libsidelane_gate.so")
}

/// Compiles a file of `runtime/c`. Without a compiler, prints a message and returns false.
fn compile(source: &str, program: &Path, options: &[&str]) -> bool {
    let runtime = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../runtime/c");
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-w", "-pthread", "-o"]).arg(program).args(options).arg(runtime.join(source));
    match gcc.status() {
        Ok(status) => assert!(status.success(), "gcc {options:?} {source} failed"),
        Err(error) => sidelane_testing::skip(format!("needs gcc: {error}")),
    }
    program.exists()
}

fn run(service: &Service, command: &[String]) -> Finished {
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    Run::beside_service(service.target()).with_more_arguments(&["--gate", "instrumented"]).run_to_end(&words)
}

/// Run of a command that checks its own lane, beside a service that works on command.
struct Turns {
    service: ServiceOnCommand,
    run: Running,
    lane: Words,
}

impl Turns {
    fn start(command: &[String]) -> Self {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let service = Service::on_command();
        let mut run =
            Run::beside_service(service.target()).with_more_arguments(&["--gate", "instrumented"]).start(&words);
        let lane = Words::wait_and_map(&mut run);
        Self { service, run, lane }
    }

    /// Runs one turn of the service, until batch napped or its lane was held. Returns whether batch napped by itself,
    /// without a summons.
    #[track_caller]
    fn run_turn(&mut self) -> bool {
        let lane = self.lane;
        self.run.wait_until("batch had the lane", |_| {
            lane.has_batch_in_state(LaneState::Released) && !lane.is_batch_napping()
        });
        let before = lane.summons();
        self.service.work();
        self.run.wait_until("batch was off", |_| lane.is_batch_napping() || lane.is_kept_free());
        let by_itself = lane.is_batch_napping() && lane.summons() == before;
        self.service.rest();
        by_itself
    }

    /// Runs turns until batch has napped `times` times by itself. Before its first check, and after a pause in which
    /// other programs kept it from checking, batch is treated like any other batch.
    #[track_caller]
    fn run_until_naps(&mut self, times: usize) {
        let (mut naps, deadline) = (0, Instant::now() + TIMEOUT);
        while naps < times {
            assert!(Instant::now() < deadline, "batch napped {naps} times by itself in {TIMEOUT:?}");
            naps += usize::from(self.run_turn());
        }
    }

    fn end(self) -> Finished {
        self.run.signal(libc::SIGTERM);
        self.run.wait_for_end().expect_exit_code(128 + libc::SIGTERM)
    }
}

#[test]
fn instrumented_batch_naps_without_any_summons() {
    let Some(_turn) = lock_lanes() else { return };
    for options in
        [&["-pg", "-mfentry"][..], &["-pg"], &["-finstrument-functions"], &["-DCHECK"], &["-DCHECK", "-no-pie"]]
    {
        let Some(kernels) = Kernels::build_with(options) else { return };
        let mut turns = Turns::start(&kernels.command("matrix", "600"));
        turns.run_until_naps(20);
        let run = turns.end().expect_stderr_contains(&["instrumented"]);
        let figures = run.figures();
        assert!(run.figure("gate_naps_count") >= 20.0, "{options:?}: {figures:?}");
        assert!(run.figure("gate_threads_count") >= 1.0, "{options:?}: {figures:?}");
        assert_eq!(run.result().settings["gate"], "instrumented");
    }
}

#[test]
fn instrumented_program_is_detected_from_its_file() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(kernels) = Kernels::build_with(&["-pg", "-mfentry"]) else { return };
    let service = Service::idle();
    let command = kernels.command("loop", "0.1");
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    let gate_of = |words: &[&str]| {
        Run::beside_service(service.target()).run_to_end(words).expect_exit_code(0).result().settings["gate"].clone()
    };
    assert_eq!(gate_of(&words), "instrumented");
    assert_eq!(gate_of(&["true"]), "holder");
}

/// A client on the batch lane sends short requests. Batch that follows it there runs until its next check. The bound is far
/// below what batch keeps.
#[test]
fn holders_take_over_from_a_gate_that_auto_chose() {
    let Some((_turn, _, server)) = traceable_redis() else { return };
    let Some(kernels) = Kernels::build_with(&["-pg", "-mfentry"]) else { return };
    let address = server.address();
    let client = thread::spawn(move || {
        run_with_this_thread_on(&[BATCH_LANE.parse().unwrap()], || ping_until_closed(address)).unwrap();
    });
    let command = kernels.command("matrix", "600");
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    let start = |gate| {
        let options = ["--gate", gate, "--fail-on-overlap", "0.0001%", "--max-slowdown", "none"];
        Run::beside_service(format!("port:{}", address.port())).with_more_arguments(&options).start(&words)
    };

    let mut run = start("auto");
    run.wait_until("holders took over", |run| run.errors().contains("holders took over from the gate instrumented"));
    let lane = Words::wait_and_map(&mut run);
    let before = lane.summons();
    run.wait_until("the holder had the lane from batch again and again", |_| lane.summons() > before + 100);
    assert!(!lane.is_batch_napping(), "batch naps after holders have taken over");
    run.signal(libc::SIGTERM);
    let run = run.wait_for_end();
    let run = run.expect_stderr_contains(&["gate instrumented (the command checks its lane itself)"]);
    let settings = &run.result().settings;
    assert_eq!(settings["gate"], "holder");
    assert!(settings["gate_reason"].as_str().unwrap().starts_with("took over from instrumented"), "{settings:?}");

    let mut run = start("instrumented");
    let lane = Words::wait_and_map(&mut run);
    run.wait_until("batch napped by itself", |_| lane.is_batch_napping());
    // Longer than a gate on trial has.
    thread::sleep(Duration::from_secs(5));
    run.signal(libc::SIGTERM);
    let run = run.wait_for_end();
    assert!(!run.stderr.contains("took over"), "{run}");
    assert_eq!(run.result().settings["gate"], "instrumented");
    drop(server);
    client.join().unwrap();
}

/// Sends requests to a Redis server, 4,000 a second at most, until it is gone.
fn ping_until_closed(address: SocketAddr) {
    let mut stream = TcpStream::connect(address).unwrap();
    let mut ping = || stream.write_all(b"PING\r\n").and_then(|()| stream.read_exact(&mut [0; "+PONG\r\n".len()]));
    while ping().is_ok() {
        thread::sleep(Duration::from_micros(200));
    }
}

#[test]
fn gate_keeps_exit_codes_signals_and_environment() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(_) = Kernels::build_with(&[]) else { return };
    let service = Service::idle();
    let gated = || {
        Run::beside_service(service.target())
            .with_more_arguments(&["--gate", "instrumented"])
            .with_variable("LD_PRELOAD", "/dev/null")
    };
    assert_eq!(gated().run_to_end(&["sh", "-c", "exit 7"]).code, Some(7));
    assert_eq!(gated().run_to_end(&["sh", "-c", "kill -TERM $$"]).code, Some(128 + libc::SIGTERM));
    assert_eq!(gated().run_to_end(&["no-such-command-of-sidelane"]).code, Some(127));
    let run = gated().run_to_end(&["sh", "-c", "echo $LD_PRELOAD"]).expect_exit_code(0);
    assert_eq!(run.stdout.trim(), format!("{}:/dev/null", library().canonicalize().unwrap().display()));
}

#[test]
fn holder_gate_removes_variables_of_instrumented_gate() {
    let Some(_turn) = lock_lanes() else { return };
    let service = Service::idle();
    let run = Run::beside_service(service.target())
        .with_more_arguments(&["--gate", "holder"])
        .with_variable("SIDELANE_GATE", "garbage");
    let run = run.run_to_end(&["sh", "-c", "echo [$SIDELANE_GATE] [$LD_PRELOAD]"]).expect_exit_code(0);
    assert_eq!(run.stdout, "[] []\n");
}

#[test]
fn threads_and_children_check_their_lanes_too() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(_) = Kernels::build_with(&["-pg"]) else { return };
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("family");
    assert!(compile("examples/family.c", &program, &["-pg", "-mfentry"]));
    let mut turns = Turns::start(&[program.display().to_string(), "600".to_owned()]);
    turns.run_until_naps(20);
    turns.end();
}

/// A check naps during a call whose arguments fill every register.
#[test]
fn a_check_that_naps_leaves_its_callers_registers_alone() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(lab) = lab_binary_path() else { return };
    for options in [&["-march=native", "-pg", "-mfentry"][..], &["-march=native", "-pg"]] {
        let Some(_) = Kernels::build_with(options) else { return };
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("registers");
        assert!(compile("examples/registers.c", &program, options));
        let service = Service::pulsing(&lab);
        let run = run(&service, &[program.display().to_string(), "1.5".to_owned()]).expect_exit_code(0);
        assert!(run.figure("gate_naps_count") > 0.0, "{:?}", run.figures());
    }
}

/// A client of the service on the batch lane runs there for a moment after each of its sleeps. Naps in the microsecond
/// before and after such a moment must be counted as naps, not as overlap.
#[test]
fn naps_that_another_program_cuts_short_are_no_overlap() {
    const CUTS: u32 = 20_000;
    /// Overlap in nanoseconds that is allowed for each cut: a chunk of a nap is 1 µs long, and each cut falls into one.
    const LEFT_NS: f64 = 500.0;
    let Some(_turn) = lock_lanes() else { return };
    let Some(kernels) = Kernels::build_with(&["-pg", "-mfentry"]) else { return };
    let mut turns = Turns::start(&kernels.command("matrix", "600"));
    turns.run_until_naps(5);
    let cut = |turns: &mut Turns| {
        let lane = turns.lane;
        turns.run.wait_until("batch had the lane", |_| {
            lane.has_batch_in_state(LaneState::Released) && !lane.is_batch_napping()
        });
        turns.service.work();
        turns.run.wait_until("batch was off", |_| lane.is_batch_napping() || lane.is_kept_free());
        let client = || (0..CUTS).for_each(|_| thread::sleep(Duration::from_micros(1)));
        thread::spawn(move || run_with_this_thread_on(&[BATCH_LANE.parse().unwrap()], client)).join().unwrap().unwrap();
        turns.service.rest();
    };
    cut(&mut turns);
    let run = turns.end();
    let overlap_ns = run.figure("overlap_percent") / 100.0 * run.figure("service_cpu_s") * 1e9;
    assert!(overlap_ns < LEFT_NS * f64::from(CUTS), "{overlap_ns} ns in {CUTS} cuts: {:?}", run.figures());
}

/// For the kernel a nap looks like batch that runs beside the request. Without the accounting of naps no request would
/// count as alone on its core, and batch's cost could never be computed.
#[test]
fn request_counts_as_alone_while_batch_naps() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(lab) = lab_binary_path().map(LabBinary::with_path) else { return };
    if !can_observe_requests() {
        return;
    }
    let Some(kernels) = Kernels::build_with(&["-pg", "-mfentry"]) else { return };
    let scratch = tempfile::tempdir().unwrap();
    let (journal, log) = (scratch.path().join("journal"), scratch.path().join("client"));
    let options = ["echo-server", "--design", "event-loop", "--cpu", REQUEST_LANE, "--fifo", "10", "--service-us"];
    let options = options.into_iter().chain(["500", "--log"]).map(AsRef::as_ref);
    let server = lab.start(options.chain([journal.as_os_str()])).unwrap();
    let target = format!("127.0.0.1:{}", server.ready_number("port").unwrap());
    let options = ["echo-client", "--cpu", BATCH_LANE, "--rate", "400", "--seconds", "600", "--habits", "0"];
    let options = options.into_iter().chain(["--target", &target, "--log"]).map(AsRef::as_ref);
    let mut client = lab.command(options.chain([log.as_os_str()])).spawn().unwrap();
    let run = Run::beside_service(format!("pid:{}", server.pid())).with_more_arguments(&[
        "--gate",
        "instrumented",
        "--budget",
        "1ms",
    ]);
    let command = kernels.command("matrix", "600");
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    let mut run = run.start(&words);
    let lane = Words::wait_and_map(&mut run);
    run.wait_until("the contention cost was known", |_| {
        lane.limits().contention_cost_ppm.load(Ordering::Acquire) < ContentionCost::FULL.ppm()
    });
    run.signal(libc::SIGTERM);
    let run = run.wait_for_end().expect_exit_code(128 + libc::SIGTERM);
    client.kill().and_then(|()| client.wait()).unwrap();
    let source = &run.result().settings["contention_cost_source"];
    assert!(source == "server_times" || source == "counters", "{source}: {run}");
    assert!(run.figure("gate_naps_count") > 0.0, "{:?}", run.figures());
}

/// Batch checks its lane until the test tells it to stop checking. After that only a holder gets batch off the lane.
#[test]
fn lane_is_held_if_batch_stops_checking_it() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(_) = Kernels::build_with(&["-pg"]) else { return };
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("stops_looking");
    assert!(compile("tests/stops_looking.c", &program, &[]));
    let mut turns = Turns::start(&[program.display().to_string()]);
    turns.run_until_naps(3);
    let batch = turns.run.batch_pid();
    process::signal(batch, libc::SIGUSR1);
    let lane = turns.lane;
    for _ in 0..10 {
        turns.run.wait_until("batch had the lane", |_| {
            lane.has_batch_in_state(LaneState::Released) && !lane.is_batch_napping()
        });
        turns.service.work();
        turns.run.wait_until("the lane was held", |_| lane.is_kept_free());
        lane.check_no_batch_while_held();
        turns.service.rest();
    }
    turns.end().expect_stderr_contains(&["did not check its lane"]);
}

#[test]
fn instrumented_programs_run_without_sidelane() {
    let Some(kernels) = Kernels::build_with(&["-pg"]) else { return };
    let run = |garbage: Option<&str>| {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new(kernels.path());
        command.args(["loop", "0.05"]).current_dir(dir.path());
        if let Some(garbage) = garbage {
            command.env("LD_PRELOAD", library()).env("SIDELANE_GATE", garbage);
        }
        let output = command.output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{garbage:?}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stdout).trim().parse::<u64>().unwrap() > 0);
        dir.path().join("gmon.out").exists()
    };
    assert!(run(None), "the profiler is the program's own");
    for garbage in ["", "garbage", "1:0:1:2:3:4:5", "1:900:901:902:903:904:905", "2:3:4:5:6:7:8", "1:-1:0:0:0:0:0"] {
        assert!(!run(Some(garbage)), "{garbage}");
    }
}

#[test]
fn instrumented_gate_needs_its_library_and_auto_does_not() {
    let Some(_turn) = lock_lanes() else { return };
    let service = Service::idle();
    let run = || Run::beside_service(service.target()).with_variable("SIDELANE_GATE_LIBRARY", "/no/such/library.so");
    let refused = run().with_more_arguments(&["--gate", "instrumented"]).run_to_end(&["true"]).expect_exit_code(125);
    refused.expect_stderr_contains(&["libsidelane_gate.so", "/no/such/library.so", "--gate holder"]);
    run().run_to_end(&["true"]).expect_exit_code(0);
}

#[test]
fn batch_that_naps_ends_with_the_agent() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(lab) = lab_binary_path() else { return };
    let Some(kernels) = Kernels::build_with(&["-pg", "-mfentry"]) else { return };
    let before = Footprint::capture();
    let service = Service::pulsing(&lab);
    let command = kernels.command("matrix", "60");
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    let mut run = Run::beside_service(service.target()).with_more_arguments(&["--gate", "instrumented"]).start(&words);
    run.wait_until("batch runs", |_| {
        common::agent::batch_processes().iter().any(|pid| process::program(*pid) == Some(kernels.path()))
    });
    run.kill();
    before.wait_until_restored();
}

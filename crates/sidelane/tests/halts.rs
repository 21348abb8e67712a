//! Tests of halts: Sidelane, one of its threads or its guardian is killed, stopped or frozen. Batch then runs beside
//! the service only until the guardian has frozen it, and nothing is left.
//!
//! `SIDELANE_HALTS_MOMENTS=200 SIDELANE_HALTS_SEED=1 cargo test -p sidelane --test halts -- --nocapture moment` causes
//! 200 halts, and prints figures. It fails if batch was beside the service for longer than 20 ms at a stretch.

mod common;

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use common::agent::guardians;
use common::c_program;
use common::own_clock::{OwnClock, longest_overlap_ns};
use common::process::{allowed_cpus, class_priority_and_nice, is_alive, kill, signal, threads_named, wants_cpu};
use common::{
    Footprint, FreezableGroup, Random, Run, Running, Service, ServiceOnCommand, TIMEOUT, Words, lock_lanes, process,
    wait_until,
};
use sidelane_host::cgroup::Hierarchy;
use sidelane_host::clock::now_ns;
use sidelane_host::freezer::Freezer;
use sidelane_host::halt::HaltWatch;
use sidelane_policy::borrow::LaneState;
use tempfile::TempDir;

/// Environment variables with the number of moments and the seed; the default seed is different each time.
const MOMENTS_VARIABLE: &str = "SIDELANE_HALTS_MOMENTS";
const SEED_VARIABLE: &str = "SIDELANE_HALTS_SEED";
const MOMENTS: u64 = 8;
/// Number of halts after which the test gives the lanes to other tests.
const MOMENTS_A_TURN: u64 = 25;
/// Longest time before a halt in milliseconds: a hold becomes an eviction after 250 ms.
const BEFORE_MS_MAX: u64 = 400;
const HALT_MS_MAX: u64 = 200;
const OVERLAP_MAX: Duration = Duration::from_millis(20);

/// Batch that ran before the run, in a cgroup that does not belong to Sidelane.
struct Adopted {
    child: Child,
    as_found: (Option<String>, [Option<String>; 3]),
    group: FreezableGroup,
}

impl Adopted {
    fn start(recording_program: &RunClockProgram, hierarchy: &Hierarchy) -> Self {
        let group = FreezableGroup::make(hierarchy, "batch").expect("one could be made before");
        let mut command = Command::new("sh");
        let command = process::kill_with_test(&mut command).args(["-c", &group.enter_command()]);
        command
            .arg(&recording_program.program)
            .arg(recording_program.file("batch"))
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let child = command.spawn().unwrap();
        wait_until("batch ran", || recording_program.file("batch").exists());
        let as_found = (allowed_cpus(child.id()), class_priority_and_nice(child.id()));
        Self { child, as_found, group }
    }

    fn wait_until_restored(&self) {
        let pid = self.child.id();
        wait_until("batch was as it was found", || (allowed_cpus(pid), class_priority_and_nice(pid)) == self.as_found);
        wait_until("batch runs", || wants_cpu(pid));
    }
}

impl Drop for Adopted {
    fn drop(&mut self) {
        self.group.freeze(false);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Program that records when it runs, and the files of its records.
struct RunClockProgram {
    program: PathBuf,
    dir: TempDir,
}

impl RunClockProgram {
    fn make() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let program = c_program::compile("cc", &["-std=gnu11"], "clocks_itself", dir.path())?;
        Some(Self { program, dir })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn program(&self) -> &str {
        path_str(&self.program)
    }
}

fn path_str(path: &Path) -> &str {
    path.to_str().expect("a readable path")
}

/// Run in its own cgroup, beside a service on command. The cgroups are dropped first: a frozen run does not end.
struct Scene {
    home: FreezableGroup,
    /// Cgroup for single threads and guardians that are frozen.
    jail: FreezableGroup,
    service: ServiceOnCommand,
    run: Running,
    batch: u32,
    lane: Words,
    adopted: Option<Adopted>,
    /// Records of the service and of batch about when each ran.
    clocks: [OwnClock; 2],
    _witness: RunClockProgram,
}

impl Scene {
    fn start(hierarchy: &Hierarchy, adopts: bool) -> Option<Self> {
        let witness = RunClockProgram::make()?;
        let [home, jail] =
            ["home", "jail"].map(|name| FreezableGroup::make(hierarchy, name).expect("one could be made before"));
        let service = witness.file("service");
        let service = Service::start_program_on_command(witness.program(), &[path_str(&service), "on-command"]);
        wait_until("the service was there", || witness.file("service").exists());
        let adopted = adopts.then(|| Adopted::start(&witness, hierarchy));
        let run = Run::beside_service(service.target()).through_wrapper(&["sh", "-c", &home.enter_command()]);
        let mut run = match &adopted {
            Some(adopted) => {
                run.with_more_arguments(&["--adopt", &adopted.group.target(hierarchy)]).start_without_batch()
            }
            None => run.start(&[witness.program(), path_str(&witness.file("batch"))]),
        };
        let batch = adopted.as_ref().map_or_else(|| run.batch_pid(), |adopted| adopted.child.id());
        let lane = Words::wait_and_map(&mut run);
        let clocks = ["service", "batch"].map(|name| OwnClock::open(&witness.file(name)));
        let mut scene = Self { home, jail, service, run, batch, lane, adopted, clocks, _witness: witness };
        scene.wait_for_batch();
        Some(scene)
    }

    fn wait_for_batch(&mut self) {
        let lane = self.lane;
        self.run.wait_until("batch had the lane", |_| lane.has_batch_in_state(LaneState::Released));
    }

    fn wait_until_evicted(&mut self) {
        let (lane, batch) = (self.lane, self.batch);
        self.run.wait_until("batch was away", |_| lane.state() == Some(LaneState::Evicted) && !wants_cpu(batch));
    }

    fn holder(&self) -> u32 {
        threads_named(self.run.pid(), "holder-1")[0]
    }

    /// Returns the guardian's process id. A guardian that was killed while frozen exists until it is thawed.
    fn guardian(&mut self) -> u32 {
        self.run.wait_until("there was one guardian", |_| guardians().len() == 1);
        self.run.wait_for_guardian_other_than(None)
    }

    fn end(self) {
        self.run.signal(libc::SIGTERM);
        self.run.wait_for_end();
        self.adopted.iter().for_each(Adopted::wait_until_restored);
    }
}

/// Kind of halt of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum HaltKind {
    Kill,
    Stop,
    CtrlZ,
    Freeze,
    FreezeHolder,
    KillGuardian,
    StopGuardian,
    FreezeGuardian,
}

impl HaltKind {
    const ALL: [Self; 8] = [
        Self::Kill,
        Self::Stop,
        Self::CtrlZ,
        Self::Freeze,
        Self::FreezeHolder,
        Self::KillGuardian,
        Self::StopGuardian,
        Self::FreezeGuardian,
    ];

    fn targets_guardian(self) -> bool {
        matches!(self, Self::KillGuardian | Self::StopGuardian | Self::FreezeGuardian)
    }

    /// Returns a kind of halt that is possible here: only cgroup version 1 freezes a single thread of any process.
    fn or_supported_kind(self, hierarchy: &Hierarchy) -> Self {
        if self == Self::FreezeHolder && hierarchy.is_v2() { Self::Freeze } else { self }
    }

    fn apply(self, scene: &mut Scene) {
        let agent = scene.run.pid();
        match self {
            Self::Kill => scene.run.kill(),
            Self::Stop => signal(agent, libc::SIGSTOP),
            Self::CtrlZ => signal(agent, libc::SIGTSTP),
            Self::Freeze => scene.home.freeze(true),
            Self::FreezeHolder => {
                scene.jail.0.write("tasks", &scene.holder().to_string()).unwrap();
                scene.jail.freeze(true);
            }
            Self::KillGuardian => kill(scene.guardian()),
            Self::StopGuardian => signal(scene.guardian(), libc::SIGSTOP),
            Self::FreezeGuardian => {
                let guardian = scene.guardian();
                scene.jail.0.move_process_in(guardian).unwrap();
                scene.jail.freeze(true);
            }
        }
    }

    fn resume(self, scene: &Scene) {
        match self {
            Self::Stop | Self::CtrlZ => signal(scene.run.pid(), libc::SIGCONT),
            Self::Freeze => scene.home.freeze(false),
            Self::FreezeHolder => {
                scene.jail.freeze(false);
                scene.home.0.write("tasks", &scene.holder().to_string()).unwrap();
            }
            Self::FreezeGuardian => scene.jail.freeze(false),
            Self::Kill | Self::KillGuardian | Self::StopGuardian => {}
        }
    }
}

/// Measured result of one halt.
struct Outcome {
    blow: HaltKind,
    /// Time from the halt until batch's cgroup was being frozen; `None` if no freeze was needed.
    reaction: Option<Duration>,
    overlap: Duration,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { blow, reaction, overlap } = self;
        write!(f, "{blow:?}: batch was frozen after {reaction:?}, beside the service for {overlap:?} at most")
    }
}

impl Scene {
    /// Halts the run while the service works or rests, and lets the run continue after a while. Returns `None` for the
    /// scene if the run was killed.
    fn halt_and_resume(mut self, halt_kind: HaltKind, timing: &HaltTiming) -> (Outcome, Option<Self>) {
        let began_ns = now_ns();
        if timing.is_busy {
            self.service.work();
        }
        sleep(timing.before);
        let guardian = halt_kind.targets_guardian().then(|| self.guardian());
        let hit = Instant::now();
        halt_kind.apply(&mut self);
        let batch = self.batch;
        if halt_kind == HaltKind::Kill {
            let ended_ns = if self.adopted.is_none() { self.wait_for_end_of_batch() } else { now_ns() };
            let outcome =
                Outcome { blow: halt_kind, reaction: None, overlap: self.longest_overlap((began_ns, ended_ns)) };
            self.adopted.iter().for_each(Adopted::wait_until_restored);
            return (outcome, None);
        }
        let mut reaction = None;
        match guardian {
            Some(guardian) => drop(self.run.wait_for_guardian_other_than(Some(guardian))),
            None => {
                // This loop checks more often than `wait_until`, which checks every 5 ms.
                let (mut agent, mut freezers) = (HaltWatch::new(self.run.pid()), HaltWatch::new(batch));
                let mut halted = None;
                while !freezers.is_halted() {
                    // A POSIX signal stops a process once one of its threads runs. That thread may first wait for a
                    // CPU, while the holder still holds the lane.
                    halted = halted.or_else(|| agent.is_halted().then(Instant::now));
                    assert!(hit.elapsed() < TIMEOUT, "batch runs on");
                    sleep(Duration::from_micros(200));
                }
                reaction = Some(halted.map_or(Duration::ZERO, |halted| halted.elapsed()));
                wait_until("batch stood still", || !wants_cpu(batch));
            }
        }
        if !timing.is_busy {
            self.service.work();
        }
        sleep(timing.halt);
        halt_kind.resume(&self);
        self.wait_until_evicted();
        self.service.rest();
        self.wait_for_batch();
        let overlap = self.longest_overlap((began_ns, now_ns()));
        (Outcome { blow: halt_kind, reaction, overlap }, Some(self))
    }

    fn wait_for_end_of_batch(&self) -> u64 {
        wait_until("batch was ended", || !is_alive(self.batch));
        now_ns()
    }

    fn longest_overlap(&mut self, span: (u64, u64)) -> Duration {
        let [service, batch] = self.clocks.each_mut().map(|clock| clock.take_turns_since(span.0));
        Duration::from_nanos(longest_overlap_ns(&service, &batch, span))
    }
}

/// Time and length of a halt, and whether the service works then.
#[derive(Debug)]
struct HaltTiming {
    is_busy: bool,
    before: Duration,
    halt: Duration,
}

impl HaltTiming {
    fn random_timing(random: &mut Random) -> Self {
        let mut up_to = |max| Duration::from_millis(random.next_below(max));
        let (before, halt) = (up_to(BEFORE_MS_MAX), up_to(HALT_MS_MAX));
        Self { is_busy: random.next_below(4) > 0, before, halt }
    }
}

/// In the end batch is away from a busy service, and back beside an idle one. Nothing is left of a run that was killed.
#[test]
fn halt_at_any_moment_keeps_batch_off_and_leaves_nothing() {
    let variable = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let wanted: Option<u64> = variable(MOMENTS_VARIABLE);
    let (moments, seed) = (wanted.unwrap_or(MOMENTS), variable(SEED_VARIABLE).unwrap_or_else(now_ns));
    let mut random = Random::from_seed(seed);
    let mut outcomes = Vec::new();
    for first in (0..moments).step_by(MOMENTS_A_TURN as usize) {
        let numbers = first..moments.min(first + MOMENTS_A_TURN);
        let turn = || run_numbered_halts(numbers, seed, &mut random);
        // The test runs on its own thread, which stays on the request lane.
        outcomes.extend(thread::scope(|scope| scope.spawn(turn).join()).expect("batch was held"));
    }
    print_outcomes(&outcomes, seed);
    let beyond: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.overlap > OVERLAP_MAX).collect();
    // Noise of the machine can lengthen an overlap. So overlaps are only judged if the environment variable with the
    // number of moments is set.
    assert!(
        wanted.is_none() || beyond.is_empty(),
        "seed {seed}: {} of {} beyond {OVERLAP_MAX:?}",
        beyond.len(),
        moments
    );
}

fn run_numbered_halts(numbers: std::ops::Range<u64>, seed: u64, random: &mut Random) -> Vec<Outcome> {
    let Some(_turn) = lock_lanes() else { return Vec::new() };
    let hierarchies = FreezableGroup::hierarchies();
    if hierarchies.is_empty() {
        sidelane_testing::skip("needs a control group that can be frozen".to_owned());
        return Vec::new();
    }
    let before = Footprint::capture();
    let (mut scene, mut outcomes) = (None, Vec::new());
    for number in numbers {
        let hierarchy = &hierarchies[random.next_below(hierarchies.len() as u64) as usize];
        let (adopts, moment) = (random.next_below(3) > 0, HaltTiming::random_timing(random));
        let blow = HaltKind::ALL[random.next_below(HaltKind::ALL.len() as u64) as usize].or_supported_kind(hierarchy);
        eprintln!("moment {number} of seed {seed}: {blow:?}, {moment:?}");
        // A scene uses one hierarchy.
        let is_v2 = |scene: &Scene| Freezer::find_in_group(&scene.home.0.dir).is_some_and(|freezer| freezer.is_v2());
        scene = match scene.take() {
            Some(scene) if is_v2(&scene) == hierarchy.is_v2() => Some(scene),
            other => {
                other.into_iter().for_each(Scene::end);
                Scene::start(hierarchy, adopts)
            }
        };
        let Some(hit) = scene.take() else { return outcomes };
        let (outcome, rest) = hit.halt_and_resume(blow, &moment);
        eprintln!("    {outcome}");
        outcomes.push(outcome);
        scene = rest;
        if scene.is_none() {
            before.wait_until_restored();
        }
    }
    scene.into_iter().for_each(Scene::end);
    before.wait_until_restored();
    outcomes
}

fn print_outcomes(outcomes: &[Outcome], seed: u64) {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    for blow in HaltKind::ALL {
        let of_blow: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.blow == blow).collect();
        let longest = of_blow.iter().map(|outcome| outcome.overlap).max().unwrap_or_default();
        let mut reactions: Vec<Duration> = of_blow.iter().filter_map(|outcome| outcome.reaction).collect();
        reactions.sort();
        eprintln!(
            "seed {seed}: {blow:?} {} times: longest overlap {:.2} ms; frozen after {:.2} ms (median), {:.2} ms (longest)",
            of_blow.len(),
            ms(longest),
            ms(reactions.get(reactions.len() / 2).copied().unwrap_or_default()),
            ms(reactions.last().copied().unwrap_or_default()),
        );
    }
}

#[test]
fn longest_overlap_is_common_time_in_one_stretch() {
    let ms =
        |turns: &[(u64, u64)]| turns.iter().map(|(from, to)| (from * 1_000_000, to * 1_000_000)).collect::<Vec<_>>();
    let all = (0, u64::MAX);
    let longest = |one, other, span| longest_overlap_ns(&ms(one), &ms(other), span) / 1_000_000;
    assert_eq!(longest(&[(10, 20)], &[(30, 40)], all), 0);
    assert_eq!(longest(&[(10, 20)], &[(15, 40)], all), 5);
    // The programs run at once in two spans of 3 ms and 4 ms, 10 ms apart.
    assert_eq!(longest(&[(10, 13), (23, 27)], &[(0, 100)], all), 4);
    assert_eq!(longest(&[(0, 100)], &[(10, 13), (23, 27)], (11_000_000, 25_000_000)), 2);
    let halves = [(10_000_000, 12_000_000), (12_500_000, 14_000_000)];
    assert_eq!(longest_overlap_ns(&halves, &[(0, 100_000_000)], all), 3_500_000, "one stretch, without its gap");
}

/// Adopted batch is in another cgroup than the frozen run, and would run on without the guardian.
#[test]
fn adopted_batch_is_frozen_while_the_run_is_frozen() {
    let Some(_turn) = lock_lanes() else { return };
    for hierarchy in FreezableGroup::hierarchies() {
        let Some(scene) = Scene::start(&hierarchy, true) else { return };
        check_batch_stops_during(HaltKind::Freeze, scene);
    }
}

#[test]
fn batch_is_frozen_while_one_holder_is_frozen() {
    let Some(_turn) = lock_lanes() else { return };
    for hierarchy in FreezableGroup::hierarchies().into_iter().filter(|found| !found.is_v2()) {
        let Some(scene) = Scene::start(&hierarchy, true) else { return };
        check_batch_stops_during(HaltKind::FreezeHolder, scene);
    }
}

fn check_batch_stops_during(halt_kind: HaltKind, mut scene: Scene) {
    let (batch, lane, told) = (scene.batch, scene.lane, scene.lane.halt_event_bytes());
    halt_kind.apply(&mut scene);
    wait_until("the kernel program had told of the halt", || lane.halt_event_bytes() > told);
    wait_until("batch stood still", || !wants_cpu(batch));
    halt_kind.resume(&scene);
    scene.wait_for_batch();
    scene.end();
}

#[test]
fn a_guardian_that_is_stopped_or_frozen_is_replaced() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(hierarchy) = FreezableGroup::hierarchies().pop() else { return };
    for blow in [HaltKind::StopGuardian, HaltKind::FreezeGuardian] {
        let Some(mut scene) = Scene::start(&hierarchy, true) else { return };
        let guardian = scene.guardian();
        blow.apply(&mut scene);
        scene.run.wait_for_guardian_other_than(Some(guardian));
        scene.run.wait_until("it was said", |run| run.errors().contains("a new one took over"));
        blow.resume(&scene);
        wait_until("the other guardian was gone", || !is_alive(guardian));
        // The new guardian has the list of changes to undo, so it can freeze batch when the run is stopped.
        check_batch_stops_during(HaltKind::Stop, scene);
    }
}

//! Tests of stops: after any stop and continuation of the agent or its guardian, evicted batch stays away.

mod common;

use std::fs;
use std::ops::Range;
use std::thread::{self, sleep};
use std::time::Duration;

use common::lanes::{BATCH_LANE, REQUEST_LANE};
use common::process::{cpu_ticks, is_alive, signal, wants_cpu};
use common::{Footprint, Random, Run, Running, SPIN, Service, ServiceOnCommand, Words, lock_lanes, wait_until};
use sidelane_host::clock::now_ns;
use sidelane_policy::borrow::LaneState;

/// Number of consecutive reads of the lane's state: more than enough to see batch that runs for a scheduler's tick.
const LOOKS: usize = 5_000;

/// Run beside a service on command, whose batch has the lane.
struct Scene {
    service: ServiceOnCommand,
    run: Running,
    batch: u32,
    lane: Words,
}

impl Scene {
    fn start() -> Self {
        let service = Service::on_command();
        let mut run = Run::beside_service(service.target()).start_script(&format!("trap : USR1 USR2; echo $$; {SPIN}"));
        let batch = run.batch_pid();
        let lane = Words::wait_and_map(&mut run);
        let mut scene = Self { service, run, batch, lane };
        scene.wait_for_batch();
        scene
    }

    fn wait_for_batch(&mut self) {
        let lane = self.lane;
        self.run.wait_until("batch had the lane", |_| lane.has_batch_in_state(LaneState::Released));
    }

    fn work_until_batch_evicted(&mut self) {
        self.service.work();
        self.wait_until_evicted();
    }

    fn stop_agent(&self, stop_signal: i32) {
        self.run.signal(stop_signal);
        let agent = self.run.pid();
        wait_until("the agent was stopped", || state(agent) == Some('T'));
    }

    /// Lets the agent continue, and waits until it has done its first steps: only after these steps it forwards the
    /// signal `token`.
    fn resume_agent(&mut self, token: i32) {
        self.run.signal(token);
        self.run.signal(libc::SIGCONT);
        let batch = self.batch;
        // If batch runs, the wait ends, too, and later checks fail.
        self.run.wait_until("the agent went on", |_| has_pending(batch, token) || wants_cpu(batch));
    }

    /// Fails unless batch is frozen while the service works and no keeper is on the lane.
    #[track_caller]
    fn check_batch_is_frozen_and_lane_free(&self) {
        // A signal wakes a frozen process for a moment, within the kernel. Batch that was thawed wants the CPU
        // permanently.
        wait_until("batch was frozen", || !wants_cpu(self.batch));
        let away_at_ticks = cpu_ticks(self.batch);
        for _ in 0..LOOKS {
            assert!(!self.lane.is_batch_on_lane(), "batch runs beside the service: {:?}", self.lane.state());
        }
        assert_eq!(cpu_ticks(self.batch), away_at_ticks, "batch ran on");
    }

    /// Lets the service rest, and waits until batch has returned.
    fn rest_until_batch_returns(&mut self) {
        self.service.rest();
        self.wait_for_batch();
    }

    fn end(mut self) {
        self.rest_until_batch_returns();
        self.end_at_rest();
    }

    fn end_at_rest(self) {
        self.run.signal(libc::SIGTERM);
        self.run.wait_for_end().expect_exit_code(128 + libc::SIGTERM);
    }
}

fn state(pid: u32) -> Option<char> {
    sidelane_host::procfs::state(&format!("/proc/{pid}/stat"))
}

/// Returns whether the process was sent this signal and has not run since.
fn has_pending(pid: u32, signal: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
    let pending = pending.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    pending.is_some_and(|bits| bits >> (signal - 1) & 1 == 1)
}

#[test]
fn evicted_batch_stays_frozen_after_ctrl_z() {
    let Some(_turn) = lock_lanes() else { return };
    let mut scene = Scene::start();
    scene.work_until_batch_evicted();
    for (how, token) in [(libc::SIGTSTP, libc::SIGUSR1), (libc::SIGSTOP, libc::SIGUSR2)] {
        scene.stop_agent(how);
        scene.resume_agent(token);
        scene.check_batch_is_frozen_and_lane_free();
    }
    scene.end();
}

/// The guardian freezes batch that may run, and is stopped. The agent continues, and evicts this batch.
#[test]
fn guardian_resumed_late_does_not_thaw_batch() {
    let Some(_turn) = lock_lanes() else { return };
    let mut scene = Scene::start();
    let (batch, guardian) = (scene.batch, scene.run.wait_for_guardian_other_than(None));
    scene.stop_agent(libc::SIGSTOP);
    wait_until("the guardian had frozen batch", || !wants_cpu(batch));
    signal(guardian, libc::SIGSTOP);
    wait_until("the guardian was stopped", || state(guardian) == Some('T'));
    scene.run.signal(libc::SIGCONT);
    scene.service.set_affinity(BATCH_LANE);
    scene.service.work();
    scene.run.wait_until_audited("evict", 0);
    // The agent has killed the guardian, and another one has taken over.
    scene.run.wait_for_guardian_other_than(Some(guardian));
    signal(guardian, libc::SIGCONT);
    wait_until("the guardian was gone", || !is_alive(guardian));
    scene.check_batch_is_frozen_and_lane_free();
    scene.service.set_affinity(REQUEST_LANE);
    scene.end();
}

/// Environment variables with the number of moments and the seed; the default seed is different each time.
const MOMENTS_VARIABLE: &str = "SIDELANE_STOPS_MOMENTS";
const SEED_VARIABLE: &str = "SIDELANE_STOPS_SEED";
const MOMENTS: u64 = 12;
/// Number of stops after which the test gives the lanes to other tests.
const MOMENTS_A_TURN: u64 = 25;
/// Longest time before a stop in milliseconds: a hold becomes an eviction after 250 ms.
const MOMENT_MS_MAX: u64 = 400;

/// Kind of stop or kill of the agent.
#[derive(Clone, Copy, Debug)]
enum StopKind {
    Kill,
    Stop,
    StopWithGuardian,
    CtrlZ,
}

impl StopKind {
    const ALL: [Self; 4] = [Self::Kill, Self::Stop, Self::StopWithGuardian, Self::CtrlZ];
}

impl Scene {
    /// Makes the service work, and stops or kills the agent at any moment after that, also during an eviction. Returns
    /// `None` if the agent was killed.
    fn work_and_stop_or_kill_agent_after(mut self, stop_kind: StopKind, after: Duration) -> Option<Self> {
        self.service.work();
        sleep(after);
        let was_away =
            (self.lane.state() == Some(LaneState::Evicted) && !wants_cpu(self.batch)).then(|| cpu_ticks(self.batch));
        match stop_kind {
            StopKind::Kill => {
                self.run.kill();
                return None;
            }
            StopKind::Stop => self.stop_and_resume(libc::SIGSTOP),
            StopKind::CtrlZ => self.stop_and_resume(libc::SIGTSTP),
            StopKind::StopWithGuardian => {
                let guardian = self.run.wait_for_guardian_other_than(None);
                self.stop_agent(libc::SIGSTOP);
                signal(guardian, libc::SIGSTOP);
                self.run.signal(libc::SIGCONT);
                self.wait_until_evicted();
                signal(guardian, libc::SIGCONT);
            }
        }
        self.wait_until_evicted();
        let ticks = cpu_ticks(self.batch);
        assert!(was_away.is_none_or(|before| before == ticks), "batch that was away ran");
        self.check_batch_is_frozen_and_lane_free();
        self.rest_until_batch_returns();
        Some(self)
    }

    fn stop_and_resume(&mut self, stop_signal: i32) {
        self.stop_agent(stop_signal);
        let batch = self.batch;
        wait_until("batch stood still", || !wants_cpu(batch));
        self.run.signal(libc::SIGCONT);
    }

    /// Waits until batch is evicted beside a service that works without a pause, whatever happened before.
    fn wait_until_evicted(&mut self) {
        let (lane, batch) = (self.lane, self.batch);
        self.run.wait_until("batch was away", |_| lane.state() == Some(LaneState::Evicted) && !wants_cpu(batch));
    }
}

/// Evicted batch never runs beside the service without permission, and returns; nothing is left of a killed agent.
#[test]
fn stop_or_kill_at_any_moment_keeps_batch_evicted() {
    let variable = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let (moments, seed) =
        (variable(MOMENTS_VARIABLE).unwrap_or(MOMENTS), variable(SEED_VARIABLE).unwrap_or_else(now_ns));
    let mut random = Random::from_seed(seed);
    for first in (0..moments).step_by(MOMENTS_A_TURN as usize) {
        let turn = || run_numbered_stops(first..moments.min(first + MOMENTS_A_TURN), seed, &mut random);
        // The test runs on its own thread, which stays on the request lane.
        thread::scope(|scope| scope.spawn(turn).join()).expect("batch stayed away");
    }
}

fn run_numbered_stops(moments: Range<u64>, seed: u64, random: &mut Random) {
    let Some(_turn) = lock_lanes() else { return };
    let before = Footprint::capture();
    let mut scene = None;
    for number in moments {
        let blow = StopKind::ALL[random.next_below(StopKind::ALL.len() as u64) as usize];
        let after = Duration::from_millis(random.next_below(MOMENT_MS_MAX));
        eprintln!("moment {number} of seed {seed}: {blow:?} after {after:?}");
        scene = scene.take().unwrap_or_else(Scene::start).work_and_stop_or_kill_agent_after(blow, after);
        if scene.is_none() {
            before.wait_until_restored();
        }
    }
    scene.into_iter().for_each(Scene::end_at_rest);
    before.wait_until_restored();
}

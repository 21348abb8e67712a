//! Stops: whatever stops the agent or its guardian and lets it go on, batch that was sent away from its lane stays away.

mod common;

use std::fs;

use common::lanes::{BATCH_LANE, REQUEST_LANE};
use common::process::{cpu_ticks, signal, wants_cpu};
use common::{Run, Running, SPIN, Service, ServiceOnCommand, Words, lanes_to_ourselves, wait_until};
use sidelane_signal::HoldState;

/// Consecutive reads: more than enough to see batch that runs for a scheduler's tick.
const LOOKS: usize = 5_000;

/// A run beside a service on command, whose batch has the lane.
struct Scene {
    service: ServiceOnCommand,
    run: Running,
    batch: u32,
    lane: Words,
}

impl Scene {
    fn start() -> Self {
        let service = Service::on_command();
        let mut run = Run::beside(service.target()).start_script(&format!("trap : USR1 USR2; echo $$; {SPIN}"));
        let batch = run.batch_pid();
        let lane = Words::of(&mut run);
        let mut scene = Self { service, run, batch, lane };
        scene.wait_for_batch();
        scene
    }

    fn wait_for_batch(&mut self) {
        let lane = self.lane;
        self.run.wait_until("batch had the lane", |_| lane.is_batchs(HoldState::Released));
    }

    fn send_batch_away(&mut self) {
        self.service.work();
        let (lane, batch) = (self.lane, self.batch);
        self.run.wait_until("batch was sent away", |_| lane.state() == HoldState::Evicted && !wants_cpu(batch));
    }

    fn stop_agent(&self, how: i32) {
        self.run.signal(how);
        let agent = self.run.pid();
        wait_until("the agent was stopped", || state(agent) == Some('T'));
    }

    /// Lets the agent go on, and waits until it has done what it does then: only after that it passes `token` on.
    fn let_agent_go_on(&mut self, token: i32) {
        self.run.signal(token);
        self.run.signal(libc::SIGCONT);
        let batch = self.batch;
        // Batch that runs is what is looked for, too.
        self.run.wait_until("the agent went on", |_| has_pending(batch, token) || wants_cpu(batch));
    }

    /// The service works, and nobody is on the lane who would keep batch off it.
    #[track_caller]
    fn batch_must_be_away(&self) {
        assert!(!wants_cpu(self.batch), "batch was let go on: {:?}", self.lane.state());
        let away_at_ticks = cpu_ticks(self.batch);
        for _ in 0..LOOKS {
            assert!(!self.lane.batch_is_on(), "batch runs beside the service: {:?}", self.lane.state());
        }
        assert_eq!(cpu_ticks(self.batch), away_at_ticks, "batch ran on");
    }

    fn end(mut self) {
        self.service.rest();
        self.wait_for_batch();
        self.run.signal(libc::SIGTERM);
        self.run.wait_for_end().must_exit(128 + libc::SIGTERM);
    }
}

fn state(pid: u32) -> Option<char> {
    sidelane_host::procfs::state(&format!("/proc/{pid}/stat"))
}

/// Whether the process was sent this signal and has not run since.
fn has_pending(pid: u32, signal: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
    let pending = pending.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    pending.is_some_and(|bits| bits >> (signal - 1) & 1 == 1)
}

#[test]
fn batch_that_was_sent_away_stays_away_after_ctrl_z() {
    let Some(_turn) = lanes_to_ourselves() else { return };
    let mut scene = Scene::start();
    scene.send_batch_away();
    for (how, token) in [(libc::SIGTSTP, libc::SIGUSR1), (libc::SIGSTOP, libc::SIGUSR2)] {
        scene.stop_agent(how);
        scene.let_agent_go_on(token);
        scene.batch_must_be_away();
    }
    scene.end();
}

/// The guardian freezes batch that may run. Before it looks again the agent goes on, and sends that batch away.
#[test]
fn a_guardian_that_is_late_does_not_bring_batch_back() {
    let Some(_turn) = lanes_to_ourselves() else { return };
    let mut scene = Scene::start();
    let (batch, guardian) = (scene.batch, scene.run.guardian_other_than(None));
    scene.stop_agent(libc::SIGSTOP);
    wait_until("the guardian had frozen batch", || !wants_cpu(batch));
    signal(guardian, libc::SIGSTOP);
    wait_until("the guardian was stopped", || state(guardian) == Some('T'));
    scene.run.signal(libc::SIGCONT);
    scene.service.move_to(BATCH_LANE);
    scene.service.work();
    scene.run.wait_until_audited("evict", 0);
    signal(guardian, libc::SIGCONT);
    // Nothing comes of its looks that could be waited for.
    let before = sleeps(guardian);
    wait_until("the guardian had looked", || sleeps(guardian) >= before + 4);
    scene.batch_must_be_away();
    scene.service.move_to(REQUEST_LANE);
    scene.end();
}

/// How often the process went to sleep.
fn sleeps(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

//! A part of `sidelane bench hold`: a service that is killed and started again without its mask, and works on the batch
//! lane. How long it takes until a line says what to do, and until batch goes on when that was done.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::rounds::{Limit, Patience, until_decided};
use crate::lab::{Lab, Service};
use crate::lane::beside::Beside;
use crate::lane::session::Session;
use crate::note::Note;
use sidelane_host::median::median;
use sidelane_host::priority::pin_thread;
use sidelane_host::service::Target;
use sidelane_host::topology::Lanes;
use sidelane_report::{Check, Row, Unit};

const ROUNDS: Limit = Limit { first: 12, rounds: 12, time: Duration::MAX };
const ROUNDS_QUICK: Limit = Limit { first: 5, rounds: 5, time: Duration::MAX };
const LIMIT_MS: f64 = 1_000.0;
/// What it is called, so that it is found again.
const NAME: &str = "sidelane-pulse";
/// Busy and idle microseconds, and how often.
const RHYTHM: [&str; 6] = ["--busy-us", "200", "--idle-us", "600", "--count", "1000000"];
/// Between two looks at what is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// Batch has gone on when it has run for so long.
const GONE_ON_NS: u64 = 1_000_000;
const PATIENCE: Duration = Duration::from_secs(20);

/// Where services are restarted.
pub(super) struct Ground<'a> {
    lab: Lab,
    pair: &'a Lanes,
    request_lane: u32,
    batch_lane: u32,
}

/// Milliseconds, of each round.
#[derive(Default)]
pub(super) struct Restarts {
    line_ms: Vec<f64>,
    back_ms: Vec<f64>,
}

impl<'a> Ground<'a> {
    /// The service's program is the lab's, under another name in `scratch`.
    pub(super) fn new(lab: &Lab, pair: &'a Lanes, scratch: &Path) -> Result<Self> {
        let path = scratch.join(NAME);
        symlink(lab.path(), &path).context("cannot give the service a name of its own")?;
        let request_lane = pair.request_lanes.iter().next().context("no request lane")?;
        Ok(Self { lab: Lab::at(path), pair, request_lane, batch_lane: pair.batch[0].cpu })
    }

    /// Some rounds, each in a session of its own.
    pub(super) fn measure(&self, patience: Patience, start: impl Fn(Beside) -> Result<Session>) -> Result<Restarts> {
        let mut restarts = Restarts::default();
        let round = |restarts: &mut Restarts, _: super::rounds::Turn<'_>| {
            let (line, back) = self.round(&start)?;
            restarts.line_ms.push(milliseconds(line));
            restarts.back_ms.push(milliseconds(back));
            Ok(())
        };
        until_decided("restarts", patience.limit(ROUNDS_QUICK, ROUNDS), &mut restarts, round, |_| Vec::new())?;
        Ok(restarts)
    }

    fn round(&self, start: &impl Fn(Beside) -> Result<Session>) -> Result<(Duration, Duration)> {
        let service = self.start_service(self.request_lane)?;
        let lanes = format!("{}:{}", self.request_lane, self.batch_lane);
        let mut session = start(Beside::find(Target::Comm(NAME.to_owned()), Some(&lanes), false)?)?;
        self.wait_for_batch(&mut session).context("batch did not run")?;
        drop(service);
        let restarted = Instant::now();
        // Where a service without its mask may come to; that it does is not left to the scheduler.
        let service = self.start_service(self.batch_lane)?;
        let is_said =
            |session: &mut Session| session.take_news().iter().any(|note| matches!(note, Note::ServiceVisited { .. }));
        wait(&mut session, is_said).context("no line said that the service is on the batch lane")?;
        let line = restarted.elapsed();
        pin_thread(service.pid(), &[self.request_lane]).context("cannot confine the service")?;
        let confined = Instant::now();
        self.wait_for_batch(&mut session).context("batch did not go on")?;
        let back = confined.elapsed();
        session.kill();
        session.end()?;
        Ok((line, back))
    }

    fn start_service(&self, cpu: u32) -> Result<Service> {
        self.lab.start(["pulse", "--cpu", &cpu.to_string()].into_iter().chain(RHYTHM))
    }

    fn wait_for_batch(&self, session: &mut Session) -> Result<()> {
        let ran_ns = |session: &Session| session.books().batch_ns(self.pair);
        let before_ns = ran_ns(session);
        wait(session, |session| ran_ns(session) >= before_ns + GONE_ON_NS)
    }
}

/// Looks after the session as often as a run does, until something is so.
fn wait(session: &mut Session, mut is_so: impl FnMut(&mut Session) -> bool) -> Result<()> {
    let (began, mut looked_at) = (Instant::now(), Instant::now());
    while !is_so(session) {
        ensure!(began.elapsed() < PATIENCE, "nothing happened for {} s", PATIENCE.as_secs());
        thread::sleep(LOOK_EVERY);
        if looked_at.elapsed() >= session.due() {
            looked_at = Instant::now();
            session.supervise()?;
        }
    }
    Ok(())
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn worst(times_ms: &[f64]) -> Option<f64> {
    times_ms.iter().copied().reduce(f64::max)
}

impl Restarts {
    pub(super) fn row(&self) -> Row {
        let mut row = Row::new("restarted_without_its_mask");
        row.put("line_p50_ms", median(self.line_ms.iter().copied()));
        row.put("line_max_ms", worst(&self.line_ms));
        row.put("batch_back_p50_ms", median(self.back_ms.iter().copied()));
        row.put("batch_back_max_ms", worst(&self.back_ms));
        row.put("rounds_count", self.line_ms.len() as f64);
        row
    }

    pub(super) fn checks(&self) -> [Check; 2] {
        let rounds = self.line_ms.len();
        let check = |what, times_ms: &[f64]| {
            Check::at_most(format!("{what}, worst of {rounds}"), worst(times_ms), LIMIT_MS, Unit::Ms)
        };
        [
            check("a line says what to do after a restart without its mask", &self.line_ms),
            check("batch goes on after that was done", &self.back_ms),
        ]
    }
}

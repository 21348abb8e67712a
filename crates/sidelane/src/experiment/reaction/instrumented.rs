//! The instrumented gate, measured through the real thing: a session, the gate's library, and a batch
//! program that checks.

use std::ffi::OsString;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use sidelane_policy::borrow::Lending;

use crate::experiment::reaction::latency::{Effort, Figures, Spread};
use crate::experiment::reaction::pair::TestPair;
use crate::lab::Lab;
use crate::lane::beside::Beside;
use crate::lane::gate::{Gate, GateChoice};
use crate::lane::session::{Session, SessionOptions};
use sidelane_host::service::Target;
use sidelane_kernel::books::Books;
use sidelane_kernel::histogram::Histogram;

/// Bursts of the service, and idle moments between them.
const RHYTHM: [&str; 6] = ["--busy-us", "200", "--idle-us", "600", "--count", "1000000"];

/// Measures the gate on `pair`. `None` if no reaction was counted.
pub fn measure(pair: &TestPair, effort: &Effort) -> Result<Option<Figures>> {
    let (off, on) = reactions(pair, effort)?;
    let samples = off.count();
    Ok(Spread::of_histogram(&off).zip(Spread::of_histogram(&on)).map(|(off, on)| Figures { off, on, samples }))
}

/// From the service's wake-up to a nap, and from its end to the nap's end.
pub fn reactions(pair: &TestPair, effort: &Effort) -> Result<(Histogram, Histogram)> {
    let scratch = tempfile::tempdir().context("cannot make a directory for the batch program's counter")?;
    let lab = Lab::find()?;
    let command = command(&lab, &scratch.path().join("counter"));
    let gate = Gate::choose(GateChoice::Instrumented, &command)?;
    let lanes = format!("{}:{}", pair.request, pair.batch);
    let books = beside_pulses(&lanes, pair.request, &command, gate, Duration::ZERO, effort.gate_time)?;
    Ok((books.reaction_off().clone(), books.reaction_on().clone()))
}

/// Runs `command` beside a service that pulses on `request`, and reads the books of `length`, after
/// `start`. `lanes` is the pair, as in `--lanes`.
pub(crate) fn beside_pulses(
    lanes: &str,
    request: u32,
    command: &[OsString],
    gate: Gate,
    start: Duration,
    length: Duration,
) -> Result<Books> {
    let pulse = Lab::find()?.start(["pulse", "--cpu", &request.to_string()].into_iter().chain(RHYTHM))?;
    let beside = Beside::find(Target::Pid(pulse.pid()), Some(lanes), false)?;
    let options = SessionOptions {
        class: gate.batch_class(),
        hold: Some(Lending::default()),
        gate,
        audit: None,
        max_slowdown: None,
        quiet: false,
        allow_realtime: false,
    };
    let mut session = Session::start(vec![beside], command, options)?;
    thread::sleep(start);
    let before = session.memory().books();
    thread::sleep(length);
    let spent = session.memory().books().since(&before);
    session.kill();
    session.end()?;
    Ok(spent)
}

fn command(lab: &Lab, counter: &Path) -> Vec<OsString> {
    let options = ["batch", "loop", "--checks", "--counter"].map(OsString::from);
    [lab.path().into()].into_iter().chain(options).chain([counter.into()]).collect()
}

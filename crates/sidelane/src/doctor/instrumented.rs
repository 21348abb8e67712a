//! The instrumented gate, measured through the real thing: a session, the gate's library, and a batch
//! program that checks.

use std::ffi::OsString;
use std::path::Path;
use std::thread;

use anyhow::{Context, Result};

use super::latency::{Effort, Figures, Spread};
use super::pair::TestPair;
use crate::lab::Lab;
use crate::lane::batch::BatchClass;
use crate::lane::beside::Beside;
use crate::lane::gate::{Gate, GateChoice};
use crate::lane::histogram::Histogram;
use crate::lane::service::Target;
use crate::lane::session::{Session, SessionOptions};
use crate::lane::terms::Lending;

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
    let pulse = lab.start(["pulse", "--cpu", &pair.request.to_string()].into_iter().chain(RHYTHM))?;
    let lanes = format!("{}:{}", pair.request, pair.batch);
    let beside = Beside::find(Target::Pid(pulse.pid()), Some(&lanes), false)?;
    let options = SessionOptions { class: BatchClass::Idle, hold: Some(Lending::default()), gate, audit: None };
    let mut session = Session::start(beside, &command, options)?;
    // As long as the holder's bursts may take.
    thread::sleep(effort.gate_time);
    let books = session.memory().books();
    session.kill();
    session.end()?;
    Ok((books.reaction_off().clone(), books.reaction_on().clone()))
}

fn command(lab: &Lab, counter: &Path) -> Vec<OsString> {
    let options = ["batch", "loop", "--checks", "--counter"].map(OsString::from);
    [lab.path().into()].into_iter().chain(options).chain([counter.into()]).collect()
}

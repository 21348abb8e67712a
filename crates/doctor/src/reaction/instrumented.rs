//! Measurement of the instrumented gate with the production code: a session, the gate's library, and a batch program
//! that checks.

use std::ffi::OsString;
use std::num::NonZeroU64;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::thread::{Timespec, nanosleep, set_current_timer_slack};
use sidelane_host::check::GateCheck;
use sidelane_host::clock::now_ns;
use sidelane_policy::borrow::Lending;

use super::child::{Child, ChildMemory, Class};
use crate::reaction::latency::{Figures, LatencyPercentiles, ReactionPlan};
use crate::reaction::pair::TestPair;
use sidelane_host::service::Target;
use sidelane_lanes::gate::{Gate, GateChoice, GateReason};
use sidelane_lanes::placement::Placement;
use sidelane_lanes::session::{Session, SessionOptions};
use sidelane_tracker::accounting::Accounting;
use sidelane_tracker::histogram::Histogram;

/// Verb by which this program starts itself as the batch program that checks.
pub const VERB: &str = "__checks";
/// Length of the service's bursts in nanoseconds; `IDLE_NS` is the length of the idle moments between bursts.
const BUSY_NS: u64 = 200_000;
const IDLE_NS: i64 = 600_000;
/// Number of loop turns between two checks, as in a loop of a program built with `gcc -pg`.
const TURNS_A_CHECK: u32 = 100;

/// Measures the gate on `pair`. Returns `None` if no reaction was counted.
pub fn measure_gate(pair: &TestPair, effort: &ReactionPlan) -> Result<Option<Figures>> {
    let (off, on) = reaction_histograms(pair, effort)?;
    let samples = off.count();
    Ok(LatencyPercentiles::from_histogram(&off).zip(LatencyPercentiles::from_histogram(&on)).map(|(off, on)| Figures {
        off,
        on,
        samples,
    }))
}

/// Returns the histograms of two times: from the service's wakeup to batch's nap, and from the end of the service's
/// burst to the end of that nap.
pub fn reaction_histograms(pair: &TestPair, effort: &ReactionPlan) -> Result<(Histogram, Histogram)> {
    let own = std::env::current_exe().context("cannot find the path of this program")?;
    let command = [own.into_os_string(), VERB.into()];
    let gate = Gate::choose(GateChoice::Instrumented, &command)?;
    let lanes = format!("{}:{}", pair.request, pair.batch);
    let accounting =
        run_beside_pulsing_service(&lanes, pair.request, &command, gate, Duration::ZERO, effort.gate_time)?;
    Ok((accounting.batch_off_latencies().clone(), accounting.batch_on_latencies().clone()))
}

/// Runs `command` beside a service on the CPU `request` that is busy and idle in turns. Returns the accounting of a
/// time span of `length`, which begins after `start`. `lanes` is the pair of lanes, as in `--lanes`.
pub fn run_beside_pulsing_service(
    lanes: &str,
    request_cpu: u32,
    command: &[OsString],
    gate: Gate,
    start: Duration,
    length: Duration,
) -> Result<Accounting> {
    let service = Child::start(request_cpu, Class::Ordinary, None, run_pulsing_service).context(
        "cannot start the service that is \
                                                                               measured",
    )?;
    let beside = Placement::find(Target::Pid(service.pid()), Some(lanes), false)?;
    let options = SessionOptions {
        class: gate.batch_class(),
        hold: Some(Lending::default()),
        gate,
        gate_reason: GateReason::Asked,
        max_overlap_ppm: None,
        audit: None,
        max_slowdown: None,
        quiet: false,
        allow_realtime: false,
    };
    let mut session = Session::start(vec![beside], command, options)?;
    thread::sleep(start);
    let before = session.memory().accounting();
    thread::sleep(length);
    let spent = session.memory().accounting().since(&before);
    session.kill();
    session.end()?;
    Ok(spent)
}

/// Runs a service without clients: it is busy and idle at known times.
fn run_pulsing_service(_: &ChildMemory) {
    // The default timer slack of 50 µs is as long as the measured times.
    let _ = set_current_timer_slack(Some(NonZeroU64::MIN));
    let idle = Timespec { tv_sec: 0, tv_nsec: IDLE_NS };
    loop {
        let end_ns = now_ns() + BUSY_NS;
        while now_ns() < end_ns {
            std::hint::spin_loop();
        }
        let _ = nanosleep(&idle);
    }
}

/// Runs batch that checks its lane, until it is killed.
pub fn check_lane_forever() -> ! {
    let check = GateCheck::join_gate();
    loop {
        for turn in 0..TURNS_A_CHECK {
            std::hint::black_box(turn);
        }
        check.nap_if_service_needs_core();
    }
}

//! The cost of tracking for a request.
//!
//! A client on the service's own CPU sends one request at a time. Each request is one receive, one send and two context
//! switches, whatever else runs on the machine. The CPU time of both sides is compared with and without the kernel
//! programs, in turns. In this setup the client's CPU time includes half of the tracking cost of an arrival; over a
//! network that part falls on the CPU that takes the interrupt.

use std::io::{Read, Write};
use std::net::TcpStream;

use anyhow::{Context, Result, ensure};

use super::workload::{RealServer, ServiceCpus, start_service_tracking};
use sidelane_host::clock::thread_cpu_ns;
use sidelane_host::priority::pin_this_thread;
use sidelane_host::service::Target;
use sidelane_report::Check;
use sidelane_requests::Requests;
use sidelane_stats::rounds::{Limit, measure_until_decided};
use sidelane_tracker::tracking::ServiceTracking;

const ROUND_TRIPS: u64 = 2_000;

/// CPU time of a round trip, service and client together, one value per turn.
pub(super) struct TrackingCost {
    pub(super) untracked_us: Vec<f64>,
    /// CPU time per round trip that tracking the lanes' states alone adds.
    pub(super) lanes_us: Vec<f64>,
    /// CPU time per round trip that tracking the lanes' states and the requests adds.
    pub(super) requests_us: Vec<f64>,
    /// CPU time per round trip that `sidelane estimate` adds, which tracks the batch lane, too.
    pub(super) estimate_us: Vec<f64>,
}

/// Repeats the turns until `check` of the cost for requests is decided.
pub(super) fn measure_tracking_cost(
    server: &RealServer,
    place: ServiceCpus,
    limit: Limit,
    check: impl Fn(&[f64]) -> Check,
) -> Result<TrackingCost> {
    let of_service = place.without_batch_lanes();
    let lanes = start_service_tracking(server.pid(), &of_service, false)?;
    let both = start_service_tracking(server.pid(), &of_service, true)?;
    let with_batch_lane = start_service_tracking(server.pid(), &place.lane_pair()?, true)?;
    let pids = Target::Pid(server.pid()).find()?.pids;
    let target = format!("pid:{}", server.pid());
    let mut requests = Requests::track(&both, &target, &pids)?;
    let mut of_estimate = Requests::track(&with_batch_lane, &target, &pids)?;
    std::thread::scope(|scope| {
        // Starts a new thread for the client, which stays pinned to the service's CPU. The trackers must not run on
        // this CPU.
        let (ask, asked) = std::sync::mpsc::channel::<()>();
        let (answer, answers) = std::sync::mpsc::channel();
        scope.spawn(move || {
            for () in asked {
                let pinned = pin_this_thread(&[place.server_cpu]).context("cannot join the service on its CPU");
                let spent = pinned.and_then(|()| round_trip_cpu_us(server));
                // Ignores a failed send, which means that the receiver has stopped waiting.
                let _ = answer.send(spent);
            }
        });
        let spent_us = || -> Result<f64> {
            ask.send(()).context("the client has ended")?;
            answers.recv().context("the client has ended")?
        };
        let (mut untracked_us, mut lanes_us, mut estimate_us) = (vec![], vec![], vec![]);
        spent_us()?;
        let turn = || {
            let without = spent_us()?;
            lanes_us.push(measure_while_tracking(&lanes, &spent_us)? - without);
            let added = measure_while_tracking(&both, &spent_us)? - without;
            estimate_us.push(measure_while_tracking(&with_batch_lane, &spent_us)? - without);
            untracked_us.push(without);
            requests.drain(|_| ())?;
            of_estimate.drain(|_| ())?;
            Ok(added)
        };
        let requests_us = measure_until_decided("cost of tracking requests", limit, turn, check)?;
        Ok(TrackingCost { untracked_us, lanes_us, requests_us, estimate_us })
    })
}

fn measure_while_tracking(tracking: &ServiceTracking, measure_cpu_us: &dyn Fn() -> Result<f64>) -> Result<f64> {
    tracking.tracker().attach()?;
    let spent = measure_cpu_us();
    tracking.tracker().detach();
    spent
}

/// Returns the CPU time of a round trip, service and client together, in microseconds.
pub(super) fn round_trip_cpu_us(server: &RealServer) -> Result<f64> {
    let (stream, question, answer) = server.open_connection()?;
    exchange_cpu_us(stream, (question, answer), || server.cpu_ns())
}

/// Returns the CPU time of a round trip of this request and its answer, service and client together, in microseconds.
pub(super) fn exchange_cpu_us(
    mut stream: TcpStream,
    (question, answer): (&[u8], &[u8]),
    service_cpu_ns: impl Fn() -> u64,
) -> Result<f64> {
    let mut got = vec![0; answer.len()];
    let before_ns = thread_cpu_ns() + service_cpu_ns();
    for _ in 0..ROUND_TRIPS {
        stream.write_all(question)?;
        stream.read_exact(&mut got)?;
        ensure!(got == answer, "not the answer that was expected: {:?}", String::from_utf8_lossy(&got));
    }
    let spent_ns = thread_cpu_ns() + service_cpu_ns() - before_ns;
    Ok(spent_ns as f64 / ROUND_TRIPS as f64 / 1e3)
}

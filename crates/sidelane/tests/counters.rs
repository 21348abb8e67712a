//! What request lanes count for requests, from the counters to the harm that is agreed on.
//!
//! Few test machines have hardware counters, and the way from them does not depend on what they count.
//! So here they count the CPU's clock twice: a request that had its lane to itself has as much of it
//! as its server time, and an "IPC" of 1.

mod common;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use common::lanes::{BATCH_LANE, LANES, REQUEST_LANE};
use common::{SPIN, lab, lanes_to_ourselves};
use sidelane::lab::Lab;
use sidelane::lane::priority::pin_this_thread;
use sidelane::lane::terms::{Budget, Lending, TermsKeeper};
use sidelane::lane::topology::{Lanes, Topology};
use sidelane::lane::tracker::{Extras, ServiceCgroup, Tracker};
use sidelane::request::{Event, EventPair, Request, Requests, can_track};
use sidelane_policy::borrow::harm::HarmSource;
use sidelane_policy::borrow::{BorrowConfig, PolicyKind};
use sidelane_signal::LaneClass;

/// `PERF_TYPE_SOFTWARE`, `PERF_COUNT_SW_CPU_CLOCK`: nanoseconds.
const CPU_CLOCK: Event = Event { kind: 1, config: 0 };
const CLOCK_TWICE: EventPair = EventPair { instructions: CPU_CLOCK, cycles: CPU_CLOCK };

fn lanes() -> Lanes {
    Topology::read(Path::new("/sys")).unwrap().declared_pairs(LANES).unwrap()
}

/// A tracker that counts `pair` for the requests of `service`.
fn counting(pair: EventPair, service: u32) -> (Tracker, Requests) {
    let extras = Extras { requests: true, counters: Some(pair), ..Extras::default() };
    let mut tracker = Tracker::load_for(&lanes(), ServiceCgroup::default(), extras).unwrap();
    tracker.set_class(service, LaneClass::Lc);
    let requests = Requests::track(&tracker, "this test", &BTreeSet::from([service])).unwrap();
    tracker.attach().unwrap();
    (tracker, requests)
}

fn can_track_here() -> bool {
    can_track().inspect_err(|error| eprintln!("skipped: {error}")).is_ok()
}

/// A busy loop on the batch lane that gives way to everybody. Ended when dropped.
struct Batch(Child);

impl Batch {
    fn start() -> Self {
        let words = ["-c", BATCH_LANE, "chrt", "--idle", "0", "sh", "-c", SPIN];
        Self(Command::new("taskset").args(words).spawn().expect("taskset and chrt are there"))
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn load(lab: &Lab, port: u32, log: &Path) {
    let target = format!("127.0.0.1:{port}");
    let options = ["--cpu", BATCH_LANE, "--rate", "400", "--seconds", "1.5", "--habits", "0", "--target", &target];
    let options = ["echo-client"].into_iter().chain(options).chain(["--log"]).map(AsRef::as_ref);
    lab.run(options.chain([log.as_os_str()])).unwrap();
}

/// Part of its server time that was counted for a request.
fn counted_part(request: &Request) -> Option<f64> {
    request.counters.map(|counters| counters.cycles as f64 / request.server_ns() as f64)
}

#[test]
fn what_lanes_count_becomes_the_harm() {
    let Some(_turn) = lanes_to_ourselves() else { return };
    let Some(lab) = lab().map(Lab::at).filter(|_| can_track_here()) else { return };
    let scratch = tempfile::tempdir().unwrap();
    let journal = scratch.path().join("journal");
    let options = ["echo-server", "--design", "event-loop", "--cpu", REQUEST_LANE, "--fifo", "10", "--service-us"];
    let options = options.into_iter().chain(["500", "--log"]).map(AsRef::as_ref);
    let server = lab.start(options.chain([journal.as_os_str()])).unwrap();
    let (tracker, mut requests) = counting(CLOCK_TWICE, server.pid());
    assert!(matches!(tracker.counts(), Some(Ok(()))), "{:?}", tracker.counts());
    let (port, log) = (server.ready("port").unwrap(), scratch.path().join("client"));
    load(&lab, port, &log);
    let batch = Batch::start();
    tracker.set_class(batch.0.id(), LaneClass::Batch);
    load(&lab, port, &log);
    drop(batch);

    let budget = Budget::Given(50_000_000);
    let lending = Lending::new(Some(PolicyKind::DynamicRefresh), budget, BorrowConfig::default()).unwrap();
    let mut terms = TermsKeeper::new(lending, &lanes(), tracker.memory());
    let mut parts = Vec::new();
    let mut count = 0;
    let take = |request: &Request| {
        terms.finished(request);
        count += 1;
        parts.extend(counted_part(request));
    };
    requests.finish(take).unwrap();
    parts.sort_unstable_by(f64::total_cmp);
    // The others ran on, but somebody else had a turn on their lane.
    assert!(parts.len() > count / 2, "{} of {count} were counted", parts.len());
    // Whatever came between a look at the clock and one at the counters in a few of them.
    let (low, high) = (parts[parts.len() / 10], parts[parts.len() * 9 / 10]);
    assert!(low > 0.3 && high < 1.5, "parts {low} to {high} of the server times");
    terms.keep();
    let present = terms.present();
    assert_eq!(present.source, HarmSource::Counters);
    assert!(present.harm.ppm() < 50_000, "{present}");
    assert!(present.to_string().contains("from the IPC of requests"), "{present}");
}

/// A connection to a service that is this very thread, on the request lane.
struct Own {
    client: TcpStream,
    server: TcpStream,
    _listener: TcpListener,
}

impl Own {
    fn open() -> Self {
        pin_this_thread(&[0]).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.set_nodelay(true).unwrap();
        Self { client, server: listener.accept().unwrap().0, _listener: listener }
    }

    fn request(&mut self, work: impl FnOnce()) {
        self.client.write_all(b"ask").unwrap();
        self.server.read_exact(&mut [0; 3]).unwrap();
        work();
        self.server.write_all(b"answer").unwrap();
        self.client.read_exact(&mut [0; 6]).unwrap();
    }
}

/// What was counted for requests that `script` makes.
fn counted_in(pair: EventPair, script: impl FnOnce(&mut Own)) -> Vec<bool> {
    let mut own = Own::open();
    let (mut tracker, mut requests) = counting(pair, std::process::id());
    script(&mut own);
    tracker.detach();
    let mut counted = Vec::new();
    requests.finish(|request| counted.push(request.counters.is_some())).unwrap();
    counted
}

#[test]
fn only_requests_that_had_their_lane_to_themselves_are_counted() {
    const EACH: usize = 20;
    let Some(_turn) = lanes_to_ourselves().filter(|_| can_track_here()) else { return };
    let counted = counted_in(CLOCK_TWICE, |own| {
        (0..EACH).for_each(|_| own.request(|| ()));
        (0..EACH).for_each(|_| own.request(|| thread::sleep(Duration::from_micros(100))));
        for _ in 0..EACH {
            own.request(|| pin_this_thread(&[1]).unwrap());
            pin_this_thread(&[0]).unwrap();
        }
    });
    let of = |kind: usize| counted[kind * EACH..][..EACH].iter().filter(|counted| **counted).count();
    assert!(of(0) > 0, "{counted:?}");
    assert_eq!((of(1), of(2)), (0, 0), "switched out, moved: {counted:?}");
}

#[test]
fn without_counters_requests_are_tracked_all_the_same() {
    let Some(_turn) = lanes_to_ourselves().filter(|_| can_track_here()) else { return };
    let nothing = Event { kind: u32::MAX, config: 0 };
    let counted = counted_in(EventPair { instructions: nothing, cycles: nothing }, |own| own.request(|| ()));
    assert_eq!(counted, [false]);
}

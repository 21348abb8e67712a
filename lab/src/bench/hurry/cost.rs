//! The cost of a mapper that moves no thread, for each request of the service.
//!
//! A client on the service's own CPU sends one request at a time, as in [`request_cost`](crate::bench::request_cost),
//! so that only the kernel program differs. No core is slow during the measurement, and the searches find nothing.

use std::net::{Ipv4Addr, TcpStream};

use anyhow::{Context, Result};
use sidelane_host::priority::{pin_thread, run_with_this_thread_on};
use sidelane_host::procfs::threads;
use sidelane_report::Row;
use sidelane_stats::ranks::median;

use super::environment::Environment;
use super::plan::SWEEP_LOAD;
use super::results;
use super::variant::Variant;
use crate::bench::request_cost::exchange_cpu_us;
use sidelane_stats::rounds::{Limit, measure_until_decided};

/// Search for a word that no text contains.
const QUESTION: &[u8] = b"GET /search?q=and+zqxjzqxj HTTP/1.1\r\nHost: sidelane\r\n\r\n";
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 19\r\n\r\n\
                        {\"hits\":0,\"top\":[]}";

/// CPU time of a request and its answer, service and client together, in pairs without and with a mapper.
pub(super) struct RequestTimes {
    pub(super) without_us: Vec<f64>,
    pub(super) added_us: Vec<f64>,
}

impl RequestTimes {
    pub(super) fn row(&self) -> Row {
        let mut row = Row::new("cost");
        row.put("request_us", median(self.without_us.iter().copied()));
        row.put("request_added_us", median(self.added_us.iter().copied()));
        row.put("pairs_count", self.added_us.len() as f64);
        row
    }
}

/// Measures the cost. It must be the last measurement on `environment`, since it leaves the service on the big core
/// alone.
pub(super) fn measure_request_cost(environment: &mut Environment, limit: Limit) -> Result<RequestTimes> {
    environment.slow.as_mut().map_or(Ok(()), |slow| slow.end())?;
    for tid in threads(environment.fixture.pid) {
        pin_thread(tid, &[environment.fixture.place.request]).context("cannot bind a thread of the service")?;
    }
    let mut without_us = Vec::new();
    measure_request_cpu_us(environment)?;
    let pair = || {
        let without = measure_request_cpu_us(environment)?;
        let mapper = environment.start_mapper(Variant::Kernel, SWEEP_LOAD)?;
        let with = measure_request_cpu_us(environment);
        let ended = mapper.stop();
        let added = with? - without;
        ended?;
        without_us.push(without);
        Ok(added)
    };
    let added_us = measure_until_decided("cost for a request", limit, pair, results::check_of_cost)?;
    Ok(RequestTimes { without_us, added_us })
}

fn measure_request_cpu_us(environment: &Environment) -> Result<f64> {
    let fixture = &environment.fixture;
    let port = u16::try_from(fixture.port).context("the service has no port")?;
    let ask = || {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).context("cannot connect to the service")?;
        stream.set_nodelay(true)?;
        exchange_cpu_us(stream, (QUESTION, ANSWER), || fixture.service_cpu_ns().unwrap_or(0))
    };
    run_with_this_thread_on(&[fixture.place.request], ask).context("cannot join the service on its CPU")?
}

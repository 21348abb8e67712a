//! The event loop of the load generator: it sends the due requests, waits, and reads replies.
//!
//! There is no queue for due requests: a due request stays on the plan until a connection is free. The loop waits in
//! epoll, with a timerfd set to the absolute time of the next request. The loop therefore neither spins nor rounds its
//! waits to milliseconds.

use std::collections::{BTreeMap, VecDeque};
use std::io::ErrorKind;
use std::net::SocketAddr;

use anyhow::{Context, Result, bail};
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::fd::OwnedFd;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime};

use super::connection::{Connection, SentRequest};
use super::plan::Plan;
use super::protocol::{Kind, Protocol, Reply};
use super::series::Series;
use crate::clock::{Nanos, SECOND_NS, now_ns, process_cpu_ns, timespec};
use crate::summary::Durations;

/// Longest time without a reply before the service counts as dead.
const SILENCE_MAX_NS: Nanos = 20 * SECOND_NS;

/// Number that identifies the timer in epoll events; connections are numbered from 0.
const TIMER: u64 = u64::MAX;

/// Result of a run of the load generator.
#[derive(Debug)]
pub struct Outcome {
    /// Times from the intended start to the end of the reply, of all measured requests.
    pub latency: Durations,
    /// Times from the intended start to the end of the reply, by kind of request.
    pub kinds: BTreeMap<Kind, Durations>,
    /// Latencies by the intended time of the requests.
    pub series: Series,
    /// Times from the intended start to the actual start of a request.
    pub send_lag: Durations,
    /// Number of requests that the service answered with an error, warm-up included.
    pub errors: u64,
    /// Message of one error reply; empty without errors.
    pub error_example: String,
    cpu_ns: Nanos,
    wall_ns: Nanos,
}

impl Outcome {
    /// Returns the share of one CPU that this process used during the run.
    pub fn cpu_share(&self) -> f64 {
        self.cpu_ns as f64 / self.wall_ns.max(1) as f64
    }

    fn add(&mut self, sent: SentRequest, latency_ns: Nanos) {
        self.latency.add(latency_ns);
        self.kinds.entry(sent.kind).or_insert_with(Durations::new).add(latency_ns);
        self.series.add(sent.intended_ns, latency_ns);
    }

    fn new() -> Self {
        Outcome {
            latency: Durations::new(),
            kinds: BTreeMap::new(),
            series: Series::default(),
            send_lag: Durations::new(),
            errors: 0,
            error_example: String::new(),
            cpu_ns: 0,
            wall_ns: 0,
        }
    }
}

/// Sends the requests of the plan over `connections` connections, and returns the measured result.
pub fn run(target: SocketAddr, connections: usize, plan: Plan, protocol: Box<dyn Protocol>) -> Result<Outcome> {
    let mut engine = Engine::connect(target, connections, plan, protocol)?;
    let cpu_start_ns = process_cpu_ns();
    while !engine.is_done() {
        engine.send_due_requests()?;
        engine.wait_for_events()?;
        engine.handle_ready_events()?;
    }
    let mut outcome = engine.outcome;
    outcome.cpu_ns = process_cpu_ns() - cpu_start_ns;
    outcome.wall_ns = now_ns() - engine.start_ns;
    Ok(outcome)
}

struct Engine {
    plan: Plan,
    protocol: Box<dyn Protocol>,
    connections: Vec<Connection>,
    /// Connections without an unanswered request, the longest idle first.
    idle: VecDeque<usize>,
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
    timer: OwnedFd,
    /// Expiry time of the timer, or 0 if it is not set.
    timer_ns: Nanos,
    /// Start of the run, from which all other times count.
    start_ns: Nanos,
    /// Time of the last reply, or of the first request sent after an idle period. It serves to detect a silent service.
    silent_since_ns: Nanos,
    outcome: Outcome,
}

impl Engine {
    fn connect(target: SocketAddr, count: usize, plan: Plan, protocol: Box<dyn Protocol>) -> Result<Self> {
        let connections = (0..count).map(|_| Connection::open(target)).collect::<Result<Vec<_>>>()?;
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        let epoll = open_epoll(&timer, &connections)?;
        Ok(Engine {
            plan,
            protocol,
            idle: (0..count).collect(),
            events: Vec::with_capacity(count + 1),
            connections,
            epoll,
            timer,
            timer_ns: 0,
            start_ns: now_ns(),
            silent_since_ns: 0,
            outcome: Outcome::new(),
        })
    }

    fn is_done(&mut self) -> bool {
        self.is_idle() && self.plan.next_intended_ns().is_none()
    }

    fn since_start_ns(&self) -> Nanos {
        now_ns() - self.start_ns
    }

    fn is_idle(&self) -> bool {
        self.idle.len() == self.connections.len()
    }

    /// Sends the due requests while there are idle connections.
    fn send_due_requests(&mut self) -> Result<()> {
        while let Some(&chosen) = self.idle.front() {
            let now = self.since_start_ns();
            let Some(intended_ns) = self.plan.take_due(now) else {
                break;
            };
            self.send_request_on(chosen, intended_ns, now)?;
        }
        Ok(())
    }

    fn send_request_on(&mut self, connection_index: usize, intended_ns: Nanos, now: Nanos) -> Result<()> {
        if self.is_idle() {
            self.silent_since_ns = now;
        }
        self.idle.pop_front();
        let (kind, request) = self.protocol.next_request();
        self.connections[connection_index].send(request, SentRequest { kind, intended_ns })?;
        if self.plan.is_measured(intended_ns) {
            self.outcome.send_lag.add(now - intended_ns);
        }
        Ok(())
    }

    /// Waits for replies, or until the next request is due and a connection is free for it.
    fn wait_for_events(&mut self) -> Result<()> {
        self.set_timer()?;
        self.events.clear();
        rustix::io::retry_on_intr(|| epoll::wait(&self.epoll, spare_capacity(&mut self.events), None))
            .context("epoll_wait failed")?;
        Ok(())
    }

    fn set_timer(&mut self) -> Result<()> {
        let Some(wake_ns) = self.next_wakeup_ns() else {
            return Ok(());
        };
        if wake_ns == self.timer_ns {
            return Ok(());
        }
        let once = Itimerspec { it_interval: timespec(0), it_value: timespec(self.start_ns + wake_ns) };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &once).context("cannot set the timer")?;
        self.timer_ns = wake_ns;
        Ok(())
    }

    /// Returns the time at which the loop must wake up even if no reply arrives.
    fn next_wakeup_ns(&mut self) -> Option<Nanos> {
        let silence_end_ns = (!self.is_idle()).then_some(self.silent_since_ns + SILENCE_MAX_NS);
        let next_ns = self.plan.next_intended_ns().filter(|_| !self.idle.is_empty());
        [silence_end_ns, next_ns].into_iter().flatten().min()
    }

    fn handle_ready_events(&mut self) -> Result<()> {
        for position in 0..self.events.len() {
            match self.events[position].data.u64() {
                TIMER => self.fail_if_silent()?,
                number => self.receive_reply_on(number as usize)?,
            }
        }
        Ok(())
    }

    fn fail_if_silent(&self) -> Result<()> {
        let busy = self.connections.len() - self.idle.len();
        if busy > 0 && self.since_start_ns() >= self.silent_since_ns + SILENCE_MAX_NS {
            bail!("{busy} requests got no reply in {} s; is the service stuck?", SILENCE_MAX_NS / SECOND_NS);
        }
        Ok(())
    }

    fn receive_reply_on(&mut self, connection_index: usize) -> Result<()> {
        let connection = &mut self.connections[connection_index];
        let received = match connection.receive() {
            Ok(received) => received,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return Ok(());
            }
            Err(error) => return Err(error).context("a connection broke"),
        };
        match self.protocol.parse_reply(received)? {
            Reply::Partial => Ok(()),
            Reply::Whole { length } => self.finish_request(connection_index, length, None),
            Reply::Error { length, message } => self.finish_request(connection_index, length, Some(message)),
        }
    }

    /// Records a complete reply and frees its connection.
    fn finish_request(
        &mut self,
        connection_index: usize,
        reply_bytes: usize,
        error_message: Option<String>,
    ) -> Result<()> {
        let now = self.since_start_ns();
        let asked = self.connections[connection_index].take_finished_request(reply_bytes)?;
        self.silent_since_ns = now;
        self.idle.push_back(connection_index);
        if self.plan.is_measured(asked.intended_ns) {
            self.outcome.add(asked, now - asked.intended_ns);
        }
        if let Some(message) = error_message {
            self.outcome.errors += 1;
            self.outcome.error_example = message;
        }
        Ok(())
    }
}

/// Returns an epoll instance for the timer and all connections. The timer is edge-triggered, so it need not be read.
fn open_epoll(timer: &OwnedFd, connections: &[Connection]) -> Result<OwnedFd> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let edge = epoll::EventFlags::IN | epoll::EventFlags::ET;
    epoll::add(&epoll, timer, epoll::EventData::new_u64(TIMER), edge)?;
    for (number, connection) in connections.iter().enumerate() {
        let data = epoll::EventData::new_u64(number as u64);
        epoll::add(&epoll, connection.stream(), data, epoll::EventFlags::IN)?;
    }
    Ok(epoll)
}

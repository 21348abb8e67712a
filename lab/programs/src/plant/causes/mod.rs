//! Implementations of the planted causes.

mod cpu;
mod datagram;
mod disk;
mod downstream;
mod far;
mod http2;
mod local;
mod memory;
mod others;
mod threads;

use std::net::Ipv4Addr;

use anyhow::Result;

use super::cause::{PlantArgs, Planted, PlantedCause};
use crate::clock::{Nanos, now_ns, sleep_until};

/// Returns the address at which the service listens for this cause.
pub fn address(cause: Planted) -> Ipv4Addr {
    if cause == Planted::CongestionWindow { far::SERVICE } else { Ipv4Addr::LOCALHOST }
}

/// Prepares the cause in `args`. This process must have one thread.
pub fn prepare(args: &PlantArgs) -> Result<Box<dyn PlantedCause>> {
    Ok(match args.cause {
        Planted::Nagle => Box::new(Nagle),
        Planted::Retransmit | Planted::EventLoop => Box::new(Nothing),
        Planted::SlowReader => Box::new(Long(1 << 20)),
        Planted::SmallWindow => Box::new(Long(16 << 10)),
        Planted::CongestionWindow => Box::new(far::Far::prepare(args)?),
        Planted::Sleep => Box::new(Sleep(args.delay_ns())),
        Planted::Abandoned => Box::new(Sleep(2 * args.delay_ns())),
        Planted::Faults => Box::new(memory::Faults::prepare(args)?),
        Planted::Disk => Box::new(disk::Reads::prepare(args)?),
        Planted::Migrate => Box::new(cpu::Moves::prepare(args)),
        Planted::Hog => Box::new(cpu::hog(args)?),
        Planted::RealTime => Box::new(cpu::real_time_thread(args)?),
        Planted::Sibling => Box::new(cpu::sibling(args)?),
        Planted::Throttle => Box::new(cpu::Quota::prepare(args)?),
        Planted::Stop => Box::new(others::stop(args)?),
        Planted::Freeze => Box::new(others::freeze(args)?),
        Planted::Downstream => Box::new(downstream::plain(args)?),
        Planted::DownstreamHttp => Box::new(downstream::Http::prepare(args)?),
        Planted::DownstreamGrpc => Box::new(downstream::grpc(args)?),
        Planted::NoAnswer => Box::new(datagram::Silent::prepare(args)?),
        Planted::LateAnswer => Box::new(datagram::Late::prepare(args)?),
        Planted::Connect => Box::new(downstream::FullQueue::prepare(args)?),
        Planted::UnixSocket => Box::new(local::Socket::prepare(args)?),
        Planted::FullPipe => Box::new(local::Pipe::prepare(args)?),
        Planted::FileLock => Box::new(local::FileLock::prepare(args)?),
        Planted::Condition => Box::new(threads::Condition::prepare(args)?),
        Planted::Lock => Box::new(threads::HeldLock::prepare(args)?),
        Planted::HandOver => Box::new(threads::Pool::prepare(args)?),
    })
}

/// Cause in the sending of the response: two writes with Nagle's algorithm.
struct Nagle;

impl PlantedCause for Nagle {
    fn strike(&mut self) -> Result<()> {
        Ok(())
    }

    fn in_two_writes(&self) -> bool {
        true
    }
}

/// Cause at the client: the response of this number of bytes does not fit its receive window.
struct Long(usize);

impl PlantedCause for Long {
    fn strike(&mut self) -> Result<()> {
        Ok(())
    }

    fn response_bytes(&self) -> usize {
        self.0
    }
}

/// Sleep of the service's thread, in nanoseconds.
struct Sleep(Nanos);

impl PlantedCause for Sleep {
    fn strike(&mut self) -> Result<()> {
        sleep_until(now_ns() + self.0)
    }
}

/// Cause that needs no action here: it is at the client, or in the event loop.
struct Nothing;

impl PlantedCause for Nothing {
    fn strike(&mut self) -> Result<()> {
        Ok(())
    }
}

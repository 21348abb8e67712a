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
pub fn listen_address(cause: Planted) -> Ipv4Addr {
    if cause == Planted::CongestionWindow { far::SERVICE } else { Ipv4Addr::LOCALHOST }
}

/// Prepares the cause of slowness that `args` selects. This process must have one thread.
pub fn prepare_cause(args: &PlantArgs) -> Result<Box<dyn PlantedCause>> {
    Ok(match args.cause {
        Planted::Nagle => Box::new(Nagle),
        Planted::Retransmit | Planted::EventLoop => Box::new(NoAction),
        Planted::SlowReader => Box::new(LongResponse(1 << 20)),
        Planted::SmallWindow => Box::new(LongResponse(16 << 10)),
        Planted::CongestionWindow => Box::new(far::DelayedNetwork::prepare(args)?),
        Planted::Sleep => Box::new(Sleep(args.delay_ns())),
        Planted::Abandoned => Box::new(Sleep(2 * args.delay_ns())),
        Planted::Faults => Box::new(memory::PageFaults::prepare(args)?),
        Planted::Disk => Box::new(disk::DiskReads::prepare(args)?),
        Planted::Migrate => Box::new(cpu::CpuMigrations::prepare(args)),
        Planted::Hog => Box::new(cpu::start_high_priority_process(args)?),
        Planted::RealTime => Box::new(cpu::start_real_time_thread(args)?),
        Planted::Sibling => Box::new(cpu::start_sibling_batch(args)?),
        Planted::Throttle => Box::new(cpu::Quota::prepare(args)?),
        Planted::Stop => Box::new(others::start_stopping_process(args)?),
        Planted::Freeze => Box::new(others::start_freezing_process(args)?),
        Planted::Downstream => Box::new(downstream::start_plain_service(args)?),
        Planted::DownstreamHttp => Box::new(downstream::SlowHttpService::prepare(args)?),
        Planted::DownstreamGrpc => Box::new(downstream::start_grpc_service(args)?),
        Planted::NoAnswer => Box::new(datagram::SilentUdpService::prepare(args)?),
        Planted::LateAnswer => Box::new(datagram::LateUdpService::prepare(args)?),
        Planted::Connect => Box::new(downstream::FullAcceptQueue::prepare(args)?),
        Planted::UnixSocket => Box::new(local::SlowUnixSocket::prepare(args)?),
        Planted::FullPipe => Box::new(local::LateReadPipe::prepare(args)?),
        Planted::FileLock => Box::new(local::LockedFile::prepare(args)?),
        Planted::Condition => Box::new(threads::ConditionVariablePool::prepare(args)?),
        Planted::Lock => Box::new(threads::HeldLock::prepare(args)?),
        Planted::HandOver => Box::new(threads::BusyThreadPool::prepare(args)?),
    })
}

/// Cause of slowness in the sending of the response: two writes with Nagle's algorithm.
struct Nagle;

impl PlantedCause for Nagle {
    fn disturb_request(&mut self) -> Result<()> {
        Ok(())
    }

    fn sends_response_in_two_writes(&self) -> bool {
        true
    }
}

/// Cause of slowness at the client: a response of this many bytes, which does not fit the client's receive window.
struct LongResponse(usize);

impl PlantedCause for LongResponse {
    fn disturb_request(&mut self) -> Result<()> {
        Ok(())
    }

    fn response_bytes(&self) -> usize {
        self.0
    }
}

/// Sleep of the service's thread, in nanoseconds.
struct Sleep(Nanos);

impl PlantedCause for Sleep {
    fn disturb_request(&mut self) -> Result<()> {
        sleep_until(now_ns() + self.0)
    }
}

/// Cause of slowness that needs no action of the service: the client or the event loop causes the delay.
struct NoAction;

impl PlantedCause for NoAction {
    fn disturb_request(&mut self) -> Result<()> {
        Ok(())
    }
}

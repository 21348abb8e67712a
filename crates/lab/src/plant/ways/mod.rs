//! How each cause is produced.

mod cpu;
mod disk;
mod downstream;
mod http2;
mod memory;
mod others;
mod threads;

use anyhow::Result;

use super::way::{Args, Planted, Way};

/// What `args` ask for. This process must have one thread.
pub fn prepare(args: &Args) -> Result<Box<dyn Way>> {
    Ok(match args.cause {
        Planted::Nagle => Box::new(Nagle),
        Planted::Retransmit => Box::new(Nothing),
        Planted::SlowReader => Box::new(Long),
        Planted::Faults => Box::new(memory::Faults::prepare(args)?),
        Planted::Disk => Box::new(disk::Reads::prepare(args)?),
        Planted::Migrate => Box::new(cpu::Moves::prepare(args)),
        Planted::Hog => Box::new(cpu::hog(args)?),
        Planted::Thief => Box::new(cpu::thief(args)?),
        Planted::Sibling => Box::new(cpu::sibling(args)?),
        Planted::Throttle => Box::new(cpu::Quota::prepare(args)?),
        Planted::Stop => Box::new(others::stop(args)?),
        Planted::Freeze => Box::new(others::freeze(args)?),
        Planted::Downstream => Box::new(downstream::plain(args)?),
        Planted::DownstreamHttp => Box::new(downstream::Http::prepare(args)?),
        Planted::DownstreamGrpc => Box::new(downstream::grpc(args)?),
        Planted::Lock => Box::new(threads::Lock::prepare(args)?),
        Planted::HandOver => Box::new(threads::Pool::prepare(args)?),
    })
}

/// The cause is in how the response goes out.
struct Nagle;

impl Way for Nagle {
    fn strike(&mut self) -> Result<()> {
        Ok(())
    }

    fn in_two_writes(&self) -> bool {
        true
    }
}

/// The cause is at the client, which does not take what is longer than its receive window.
struct Long;

impl Way for Long {
    fn strike(&mut self) -> Result<()> {
        Ok(())
    }

    fn response_bytes(&self) -> usize {
        1 << 20
    }
}

/// The cause is at the client.
struct Nothing;

impl Way for Nothing {
    fn strike(&mut self) -> Result<()> {
        Ok(())
    }
}

//! The causes of slowness that the lab can inject into requests (plant), and the interface of such a cause.

use std::path::PathBuf;

use anyhow::Result;
use clap::ValueEnum;

use crate::clock::{Nanos, now_ns};

/// Options of `sidelane-lab plant`.
#[derive(Debug, clap::Args)]
pub struct PlantArgs {
    /// What slows the planted requests
    #[arg(value_enum)]
    pub cause: Planted,
    /// CPU of the service
    #[arg(long, default_value_t = 0)]
    pub cpu: usize,
    /// CPU of what disturbs it from elsewhere, and to which it is moved
    #[arg(long, default_value_t = 1)]
    pub other_cpu: usize,
    /// How long a planted request is disturbed, at least (the kernel decides for Nagle's algorithm and for a connection:
    /// 40 ms, a second)
    #[arg(long, value_name = "MS", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub delay_ms: u64,
    /// Microseconds of work for each request
    #[arg(long, value_name = "US", default_value_t = 50)]
    pub work_us: u64,
    /// Directory on a disk, for reads from it
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
}

impl PlantArgs {
    /// Returns the shortest time for which a planted request is disturbed.
    pub fn delay_ns(&self) -> Nanos {
        self.delay_ms * 1_000_000
    }
}

/// Cause of slowness that the lab can inject into requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Planted {
    /// The response goes out in two writes, and the client delays its acknowledgement
    Nagle,
    /// Memory is used for the first time
    Faults,
    /// A process of higher priority has the CPU
    Hog,
    /// A real-time thread has the CPU
    RealTime,
    /// Batch works on the other lane of the core, which is emulated
    Sibling,
    /// The group has used up its CPU quota
    Throttle,
    /// Another thread of the service holds a lock
    Lock,
    /// The request reads from a disk
    Disk,
    /// The thread is moved from CPU to CPU
    Migrate,
    /// The process is stopped
    Stop,
    /// The group is frozen
    Freeze,
    /// The request is handed to a thread that is busy
    HandOver,
    /// Another service is asked, which is slow
    Downstream,
    /// Another service is asked by HTTP, on a connection of its own
    DownstreamHttp,
    /// Another service is asked as gRPC does, by HTTP/2
    DownstreamGrpc,
    /// Nothing; the client loses the response (ask --lose-ms)
    Retransmit,
    /// The response is long; the client reads it late (ask --read-after-ms)
    SlowReader,
    /// The response is short; the client has a small receive buffer and reads late (ask --receive-buffer)
    SmallWindow,
    /// The client is far, at 198.18.77.2, and the response takes several round trips (ask --afresh)
    CongestionWindow,
    /// Another service is asked by UDP and does not answer within the delay
    NoAnswer,
    /// Another service is asked by UDP, which is slow
    LateAnswer,
    /// Another service is connected to, whose accept queue is full
    Connect,
    /// Another process is asked at a Unix socket, which is slow
    UnixSocket,
    /// Another process reads late from a pipe that is full
    FullPipe,
    /// Another process holds the lock on a file
    FileLock,
    /// The only thread of a pool is busy, and says by a condition variable that it has answered
    Condition,
    /// The thread sleeps
    Sleep,
    /// The request waits for a timer of an event loop, beside another one (ask --twin)
    EventLoop,
    /// The service takes twice the delay; the client leaves before (ask --leave-after-ms)
    Abandoned,
}

/// Implementation of a cause of slowness that the service injects into planted requests.
pub trait PlantedCause {
    /// Disturbs the request that is being served.
    fn disturb_request(&mut self) -> Result<()>;

    /// Returns whether responses go out in two writes, with Nagle's algorithm.
    fn sends_response_in_two_writes(&self) -> bool {
        false
    }

    /// Returns the body length of planted responses in bytes; 0 for the short default response.
    fn response_bytes(&self) -> usize {
        0
    }
}

/// Spins for `length_ns`, without a system call.
pub fn spin(length_ns: Nanos) {
    let end_ns = now_ns() + length_ns;
    while now_ns() < end_ns {
        std::hint::spin_loop();
    }
}

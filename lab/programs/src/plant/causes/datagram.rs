//! A second service that is asked by UDP, as a DNS resolver is.

use std::net::{Ipv4Addr, UdpSocket};

use anyhow::{Context, Result, ensure};
use rustix::event::{PollFd, PollFlags, poll};

use crate::clock::{Nanos, now_ns, sleep_until, timespec};
use crate::plant::accomplice::Accomplice;
use crate::plant::cause::{PlantArgs, PlantedCause};
use crate::scheduling;

const QUESTION: &[u8] = b"name?";

/// Returns a socket that sends questions, and the socket that receives them.
fn sockets() -> Result<(UdpSocket, UdpSocket)> {
    let open = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot open a UDP socket on 127.0.0.1");
    let (asking, asked) = (open()?, open()?);
    asking.connect(asked.local_addr()?)?;
    Ok((asking, asked))
}

/// Planted cause: a UDP service that does not answer.
pub struct Silent {
    socket: UdpSocket,
    timeout_ns: Nanos,
    /// Receiving socket, which is never read: questions stay in it or are dropped.
    _asked: UdpSocket,
}

impl Silent {
    pub fn prepare(args: &PlantArgs) -> Result<Self> {
        let (socket, asked) = sockets()?;
        Ok(Self { socket, timeout_ns: args.delay_ns(), _asked: asked })
    }
}

impl PlantedCause for Silent {
    fn strike(&mut self) -> Result<()> {
        self.socket.send(QUESTION)?;
        let mut answers = [PollFd::new(&self.socket, PollFlags::IN)];
        let answered = poll(&mut answers, Some(&timespec(self.timeout_ns)))?;
        ensure!(answered == 0, "a socket that is not read has answered");
        Ok(())
    }
}

/// Planted cause: a UDP service that answers late.
pub struct Late {
    socket: UdpSocket,
    process: Accomplice,
}

impl Late {
    pub fn prepare(args: &PlantArgs) -> Result<Self> {
        let ((socket, asked), cpu, length_ns) = (sockets()?, args.other_cpu, args.delay_ns());
        let prepare = move || {
            scheduling::pin_to(cpu)?;
            Ok(move || {
                let mut question = [0; QUESTION.len()];
                let (_, client) = asked.recv_from(&mut question)?;
                sleep_until(now_ns() + length_ns)?;
                asked.send_to(&question, client)?;
                Ok(())
            })
        };
        Ok(Self { socket, process: Accomplice::start(prepare, || ())? })
    }
}

impl PlantedCause for Late {
    fn strike(&mut self) -> Result<()> {
        self.process.call()?;
        self.socket.send(QUESTION)?;
        self.socket.recv(&mut [0; QUESTION.len()])?;
        Ok(())
    }
}

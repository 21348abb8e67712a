//! A second service that is asked by UDP, as a DNS resolver is.

use std::net::{Ipv4Addr, UdpSocket};

use anyhow::{Context, Result, ensure};
use rustix::event::{PollFd, PollFlags, poll};

use crate::clock::{Nanos, now_ns, sleep_until, timespec};
use crate::plant::accomplice::HelperProcess;
use crate::plant::cause::{PlantArgs, PlantedCause};
use crate::scheduling;

const QUESTION: &[u8] = b"name?";

/// Returns a socket that sends questions, and the socket that receives them.
fn open_udp_socket_pair() -> Result<(UdpSocket, UdpSocket)> {
    let open = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot open a UDP socket on 127.0.0.1");
    let (asking, asked) = (open()?, open()?);
    asking.connect(asked.local_addr()?)?;
    Ok((asking, asked))
}

/// Planted cause: a UDP service that does not answer.
pub struct SilentUdpService {
    socket: UdpSocket,
    timeout_ns: Nanos,
    /// Receiving socket, which is never read: questions stay in it or are dropped.
    _asked: UdpSocket,
}

impl SilentUdpService {
    pub fn prepare(args: &PlantArgs) -> Result<Self> {
        let (socket, asked) = open_udp_socket_pair()?;
        Ok(Self { socket, timeout_ns: args.delay_ns(), _asked: asked })
    }
}

impl PlantedCause for SilentUdpService {
    fn disturb_request(&mut self) -> Result<()> {
        self.socket.send(QUESTION)?;
        let mut answers = [PollFd::new(&self.socket, PollFlags::IN)];
        let answered = poll(&mut answers, Some(&timespec(self.timeout_ns)))?;
        ensure!(answered == 0, "a socket that is not read has answered");
        Ok(())
    }
}

/// Planted cause: a UDP service that answers late.
pub struct LateUdpService {
    socket: UdpSocket,
    process: HelperProcess,
}

impl LateUdpService {
    pub fn prepare(args: &PlantArgs) -> Result<Self> {
        let ((socket, asked), cpu, length_ns) = (open_udp_socket_pair()?, args.other_cpu, args.delay_ns());
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
        Ok(Self { socket, process: HelperProcess::start(prepare, || ())? })
    }
}

impl PlantedCause for LateUdpService {
    fn disturb_request(&mut self) -> Result<()> {
        self.process.request_disturbance()?;
        self.socket.send(QUESTION)?;
        self.socket.recv(&mut [0; QUESTION.len()])?;
        Ok(())
    }
}

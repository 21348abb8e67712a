//! A second service that answers late, over three protocols, and one that is slow to accept a connection.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

use anyhow::{Context, Result, ensure};

use super::http2::{self, Frame};
use crate::clock::{Nanos, now_ns, sleep_until};
use crate::plant::accomplice::HelperProcess;
use crate::plant::cause::{PlantArgs, PlantedCause};
use crate::scheduling;

const QUESTION: &[u8] = b"GET / HTTP/1.1\r\nHost: second\r\nConnection: close\r\n\r\n";
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\n\r\nok\n";

fn listen_on_loopback() -> Result<(TcpListener, SocketAddr)> {
    let door = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen on 127.0.0.1")?;
    let address = door.local_addr()?;
    Ok((door, address))
}

fn connect(address: SocketAddr) -> Result<TcpStream> {
    let connection = TcpStream::connect(address).context("cannot reach the second service")?;
    connection.set_nodelay(true)?;
    Ok(connection)
}

/// Starts a second service that answers each byte with one byte, after the delay. The first service asks it on one
/// persistent connection.
pub fn start_plain_service(args: &PlantArgs) -> Result<PersistentConnection> {
    let serve = |mut client: TcpStream, length_ns| {
        let mut question = [0];
        while client.read(&mut question).is_ok_and(|length| length == 1) {
            sleep_until(now_ns() + length_ns)?;
            client.write_all(&question)?;
        }
        Ok(())
    };
    let ask = |connection: &mut TcpStream| {
        connection.write_all(&[1])?;
        connection.read_exact(&mut [0]).context("the second service is gone")
    };
    PersistentConnection::start(args, serve, ask)
}

/// Starts a second service that the first one asks by HTTP/2 on one connection, as in gRPC. The second service sends a
/// ping at once and acknowledges the question. The answer comes later, in two parts.
pub fn start_grpc_service(args: &PlantArgs) -> Result<PersistentConnection> {
    let serve = |mut client: TcpStream, length_ns| {
        http2::exchange_settings(&mut client)?;
        while let Ok(question) = http2::read_until(&mut client, http2::DATA) {
            client.write_all(&Frame::ping(false).into_bytes())?;
            http2::read_until(&mut client, http2::PING)?;
            client.write_all(&Frame::window_update(question.payload_bytes()).into_bytes())?;
            sleep_until(now_ns() + length_ns)?;
            client.write_all(&Frame::response_headers(question.stream).into_bytes())?;
            client.write_all(&Frame::data(question.stream).into_bytes())?;
        }
        Ok(())
    };
    let mut stream = 1;
    let ask = move |connection: &mut TcpStream| {
        if stream == 1 {
            connection.write_all(http2::PREFACE)?;
        }
        connection.write_all(&[Frame::request_headers(stream), Frame::data(stream)].map(Frame::into_bytes).concat())?;
        http2::read_until(connection, http2::PING)?;
        connection.write_all(&Frame::ping(true).into_bytes())?;
        let answer = http2::read_until(connection, http2::DATA)?;
        ensure!(answer.stream == stream, "the second service answered another question");
        stream += 2;
        Ok(())
    };
    PersistentConnection::start(args, serve, ask)
}

type AskQuestion = Box<dyn FnMut(&mut TcpStream) -> Result<()>>;

/// Persistent connection to the second service, and the function that asks one question.
pub struct PersistentConnection {
    connection: TcpStream,
    ask: AskQuestion,
    /// Helper process that runs the second service.
    _process: HelperProcess,
}

impl PersistentConnection {
    /// Starts the second service, which runs `serve` until the first service ends, and connects to the second service.
    fn start(
        args: &PlantArgs,
        serve: impl FnOnce(TcpStream, Nanos) -> Result<()>,
        ask_question: impl FnMut(&mut TcpStream) -> Result<()> + 'static,
    ) -> Result<Self> {
        let ((door, address), cpu, length_ns) = (listen_on_loopback()?, args.other_cpu, args.delay_ns());
        let prepare = move || {
            scheduling::pin_to(cpu)?;
            let (client, _) = door.accept()?;
            client.set_nodelay(true)?;
            serve(client, length_ns)?;
            Ok(|| Ok(()))
        };
        let process = HelperProcess::start(prepare, || ())?;
        Ok(Self { connection: connect(address)?, ask: Box::new(ask_question), _process: process })
    }
}

impl PlantedCause for PersistentConnection {
    fn disturb_request(&mut self) -> Result<()> {
        (self.ask)(&mut self.connection)
    }
}

/// Second service that is asked by HTTP, with a new connection for each question.
pub struct SlowHttpService {
    address: SocketAddr,
    process: HelperProcess,
}

impl SlowHttpService {
    pub fn prepare(args: &PlantArgs) -> Result<Self> {
        let ((door, address), cpu, length_ns) = (listen_on_loopback()?, args.other_cpu, args.delay_ns());
        let prepare = move || {
            scheduling::pin_to(cpu)?;
            Ok(move || {
                let (mut client, _) = door.accept()?;
                client.read_exact(&mut [0; QUESTION.len()])?;
                sleep_until(now_ns() + length_ns)?;
                Ok(client.write_all(ANSWER)?)
            })
        };
        Ok(Self { address, process: HelperProcess::start(prepare, || ())? })
    }
}

impl PlantedCause for SlowHttpService {
    fn disturb_request(&mut self) -> Result<()> {
        self.process.request_disturbance()?;
        let mut connection = connect(self.address)?;
        connection.write_all(QUESTION)?;
        let mut answer = Vec::new();
        connection.read_to_end(&mut answer).context("the second service is gone")?;
        ensure!(answer == ANSWER, "the second service answered something else");
        Ok(())
    }
}

/// Second service that accepts no connection for some time. Its accept queue has room for one. The SYN of the next
/// connection is dropped, and the kernel sends it again after a second.
pub struct FullAcceptQueue {
    address: SocketAddr,
    process: HelperProcess,
}

impl FullAcceptQueue {
    pub fn prepare(args: &PlantArgs) -> Result<Self> {
        let ((door, address), cpu, length_ns) = (listen_on_loopback()?, args.other_cpu, args.delay_ns());
        rustix::net::listen(&door, 0).context("cannot make the accept queue short")?;
        let prepare = move || {
            scheduling::pin_to(cpu)?;
            Ok(move || {
                sleep_until(now_ns() + length_ns)?;
                door.accept()?;
                door.accept()?;
                Ok(())
            })
        };
        Ok(Self { address, process: HelperProcess::start(prepare, || ())? })
    }
}

impl PlantedCause for FullAcceptQueue {
    fn disturb_request(&mut self) -> Result<()> {
        self.process.request_disturbance()?;
        let _in_the_queue = connect(self.address)?;
        connect(self.address)?;
        Ok(())
    }
}

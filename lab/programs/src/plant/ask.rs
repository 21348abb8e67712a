//! `sidelane-lab ask`: a client that sends one request at a time to the service `plant`. It records the truth: which
//! requests were planted, and when each was sent and answered, or abandoned.
//!
//! The client waits for each answer, so that the cause of a planted request slows no other request. A trace identifies
//! each request by its sending time. Twins are two planted requests that wait at the same time.

use std::fs::File;
use std::io::{BufWriter, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddrV4, TcpStream};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::net::sockopt::set_socket_recv_buffer_size;
use rustix::net::{self, AddressFamily, SocketType};

use crate::clock::{Nanos, SECOND_NS, now_ns, sleep_until};
use crate::rng::Rng;
use crate::{numbers, scheduling};

/// Longest time without an answer before the service counts as dead.
const SILENCE_MAX: Duration = Duration::from_secs(20);

/// Time between a planted request and its twin, which is a second planted request on another connection.
const TWIN_AFTER_NS: Nanos = 1_000_000;

/// Options of `sidelane-lab ask`.
#[derive(Debug, clap::Args)]
pub struct AskArgs {
    /// Address of the service
    #[arg(long, value_name = "IP:PORT")]
    target: SocketAddrV4,
    /// Requests in all
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..))]
    requests: u64,
    /// Plant the cause in one of N requests
    #[arg(long, default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    every: u64,
    /// Pause before each request, in microseconds, on average (exponentially distributed)
    #[arg(long, default_value_t = 1000.0, value_name = "US", value_parser = numbers::positive)]
    pause_us: f64,
    /// Path of planted requests
    #[arg(long, default_value = "/planted", value_name = "PATH")]
    planted: String,
    /// Paths of the others, in turn
    #[arg(long = "plain", default_value = "/plain", value_name = "PATH")]
    plain: Vec<String>,
    /// Lose what comes in the first milliseconds of a planted request
    #[arg(long, value_name = "MS")]
    lose_ms: Option<u64>,
    /// Delay, in milliseconds, between a planted request and the read of its response
    #[arg(long, value_name = "MS")]
    read_after_ms: Option<u64>,
    /// Size of the receive buffer, in bytes; one that is not set grows until a response fits
    #[arg(long, value_name = "BYTES")]
    receive_buffer: Option<usize>,
    /// Ask each planted request a second time, on another connection, while the first one waits
    #[arg(long)]
    twin: bool,
    /// Ask each planted request on a connection of its own
    #[arg(long)]
    afresh: bool,
    /// Close the connection this many milliseconds after a planted request, and open a new one
    #[arg(long, value_name = "MS")]
    leave_after_ms: Option<u64>,
    /// File for the truth: number,planted,sent_ns,answered_ns
    #[arg(long, value_name = "FILE")]
    truth: PathBuf,
    /// CPU to run on
    #[arg(long)]
    cpu: Option<usize>,
}

/// Sends all requests, writes the truth to a file and prints `asked=N`.
pub fn run(args: &AskArgs) -> Result<()> {
    scheduling::minimize_timer_slack()?;
    args.cpu.map_or(Ok(()), scheduling::pin_to)?;
    let mut client = Client::connect(args)?;
    let mut twin = args.twin.then(|| Client::connect(args)).transpose()?;
    let mut rng = Rng::new(1, 1);
    let mut truth = Vec::new();
    for number in 1..=args.requests {
        sleep_until(now_ns() + rng.exponential(args.pause_us * 1e3) as Nanos)?;
        let planted = number.is_multiple_of(args.every);
        if planted && args.afresh {
            client.reconnect()?;
        }
        let sent_ns = client.send_request(number, planted)?;
        let mut twin = twin.as_mut().filter(|_| planted);
        let twin_sent_ns = twin.as_deref_mut().map(|twin| twin.send_twin_request(number)).transpose()?;
        truth.push((number, planted, sent_ns, client.finish_request(planted)?));
        if let (Some(twin), Some(sent_ns)) = (twin, twin_sent_ns) {
            truth.push((number, planted, sent_ns, twin.finish_request(planted)?));
        }
    }
    let file = File::create(&args.truth).with_context(|| format!("cannot write {}", args.truth.display()))?;
    let mut file = BufWriter::new(file);
    for (number, planted, sent_ns, answered_ns) in truth {
        writeln!(file, "{number},{},{sent_ns},{answered_ns}", u8::from(planted)).context("cannot write the truth")?;
    }
    file.flush().context("cannot write the truth")?;
    println!("asked={}", args.requests);
    Ok(())
}

struct Client<'a> {
    args: &'a AskArgs,
    stream: TcpStream,
}

impl<'a> Client<'a> {
    fn connect(args: &'a AskArgs) -> Result<Self> {
        let stream = connect(args.target, args.receive_buffer)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE_MAX))?;
        Ok(Self { args, stream })
    }

    /// Sends a request. Returns the time at which it was sent.
    fn send_request(&mut self, number: u64, planted: bool) -> Result<Nanos> {
        let sent_ns = now_ns();
        let plain = &self.args.plain[number as usize % self.args.plain.len()];
        let path = if planted { &self.args.planted } else { plain };
        let request = format!("GET {path} HTTP/1.1\r\nHost: sidelane-lab\r\n\r\n");
        match self.args.lose_ms.filter(|_| planted) {
            Some(lose_ms) => self.send_with_packet_loss(&request, lose_ms)?,
            None => self.send(&request)?,
        }
        Ok(sent_ns)
    }

    /// Sends a second planted request on this connection, after the first has arrived on another connection.
    fn send_twin_request(&mut self, number: u64) -> Result<Nanos> {
        sleep_until(now_ns() + TWIN_AFTER_NS)?;
        self.send_request(number, true)
    }

    /// Reads the whole response, or abandons the request. Returns the time at which that was done.
    fn finish_request(&mut self, planted: bool) -> Result<Nanos> {
        if let Some(leave_after_ms) = self.args.leave_after_ms.filter(|_| planted) {
            return self.abandon_request(leave_after_ms * SECOND_NS / 1000);
        }
        if let Some(read_after_ms) = self.args.read_after_ms.filter(|_| planted) {
            sleep_until(now_ns() + read_after_ms * SECOND_NS / 1000)?;
        }
        self.read_response()?;
        Ok(now_ns())
    }

    /// Closes the connection, and opens another one.
    fn reconnect(&mut self) -> Result<()> {
        self.stream.shutdown(Shutdown::Both).context("cannot close the connection")?;
        *self = Self::connect(self.args)?;
        Ok(())
    }

    /// Closes the connection, opens another one, and waits until twice `after_ns` has passed since the request. The
    /// next request then does not wait until the service has finished the abandoned one.
    fn abandon_request(&mut self, after_ns: Nanos) -> Result<Nanos> {
        sleep_until(now_ns() + after_ns)?;
        let left_ns = now_ns();
        self.reconnect()?;
        sleep_until(left_ns + 2 * after_ns)?;
        Ok(left_ns)
    }

    fn send(&mut self, request: &str) -> Result<()> {
        self.stream.write_all(request.as_bytes()).context("cannot send; did the service close the connection?")
    }

    /// Sends a request, and drops the segments that arrive in the first `lose_ms` milliseconds.
    fn send_with_packet_loss(&mut self, request: &str, lose_ms: u64) -> Result<()> {
        drop_incoming_segments(&self.stream)?;
        let until_ns = now_ns() + lose_ms * SECOND_NS / 1000;
        self.send(request)?;
        sleep_until(until_ns)?;
        set_socket_option(&self.stream, libc::SO_DETACH_FILTER, &0_i32)
    }

    fn read_response(&mut self) -> Result<()> {
        let mut received = Vec::new();
        let mut chunk = [0; 4096];
        while !is_response_complete(&received)? {
            match self.stream.read(&mut chunk) {
                Ok(0) => bail!("the service closed the connection"),
                Ok(length) => received.extend_from_slice(&chunk[..length]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("no answer"),
            }
        }
        Ok(())
    }
}

/// Connects to the service. The receive buffer is sized before the connection is made, because the window of the first
/// segment cannot shrink later.
fn connect(target: SocketAddrV4, receive_buffer: Option<usize>) -> Result<TcpStream> {
    let socket = net::socket(AddressFamily::INET, SocketType::STREAM, None).context("cannot open a socket")?;
    if let Some(bytes) = receive_buffer {
        set_socket_recv_buffer_size(&socket, bytes).context("cannot set the size of the receive buffer")?;
    }
    net::connect(&socket, &target).context("cannot connect; is the service running there?")?;
    Ok(socket.into())
}

/// Returns whether a response is complete, by its `Content-Length`.
fn is_response_complete(received: &[u8]) -> Result<bool> {
    let Some(end) = received.windows(4).position(|bytes| bytes == b"\r\n\r\n") else { return Ok(false) };
    let head = String::from_utf8_lossy(&received[..end]).to_ascii_lowercase();
    ensure!(head.starts_with("http/1.1 200"), "the service answered: {}", head.lines().next().unwrap_or_default());
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    Ok(received.len() >= end + 4 + length.context("a response does not say how long it is")?)
}

/// Makes the kernel drop every segment that arrives for the socket, as if the network had lost it.
fn drop_incoming_segments(stream: &TcpStream) -> Result<()> {
    // Filter of one classic BPF instruction, which accepts 0 bytes of each segment, so that the kernel drops it.
    let mut nothing = libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 };
    set_socket_option(stream, libc::SO_ATTACH_FILTER, &libc::sock_fprog { len: 1, filter: &mut nothing })
}

fn set_socket_option<T>(stream: &TcpStream, option: libc::c_int, value: &T) -> Result<()> {
    let (value, length) = (std::ptr::from_ref(value).cast(), size_of::<T>() as libc::socklen_t);
    // SAFETY: `value` and the memory that it points to are valid during the call; its size is `length`.
    let outcome = unsafe { libc::setsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, option, value, length) };
    ensure!(outcome == 0, "the socket takes no filter: {}", std::io::Error::last_os_error());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    /// Returns the number of bytes that a socket has not sent.
    fn unsent_bytes(stream: &TcpStream) -> libc::c_int {
        const SIOCOUTQNSD: libc::Ioctl = 0x894b;
        let mut bytes = 0;
        // SAFETY: SIOCOUTQNSD writes one int.
        let outcome = unsafe { libc::ioctl(stream.as_raw_fd(), SIOCOUTQNSD, &raw mut bytes) };
        assert_eq!(outcome, 0);
        bytes
    }

    #[test]
    fn first_response_meets_a_small_receive_window() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let target = SocketAddrV4::new(Ipv4Addr::LOCALHOST, listener.local_addr().unwrap().port());
        for (receive_buffer, fits) in [(None, true), (Some(4_096), false)] {
            let _client = connect(target, receive_buffer).unwrap();
            let mut service = listener.accept().unwrap().0;
            service.set_nodelay(true).unwrap();
            service.write_all(&[0; 16 << 10]).unwrap();
            assert_eq!(unsent_bytes(&service) == 0, fits, "{receive_buffer:?}");
        }
    }

    #[test]
    fn response_is_complete_at_its_last_byte() {
        let response = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        for length in 0..response.len() {
            assert!(!is_response_complete(&response[..length]).unwrap(), "{length} bytes");
        }
        assert!(is_response_complete(response).unwrap());
        assert!(is_response_complete(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").is_err());
    }
}

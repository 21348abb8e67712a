//! The two clients of the proxy bench: a closed loop, which sends when an answer arrives, and an open loop, which sends
//! at fixed times.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use sidelane_host::priority::pin_this_thread;

/// Number of connections of the closed-loop client, which sends as fast as possible.
const CONNECTIONS: &str = "32";
/// Number of connections of the open-loop client, each with a thread.
const ON_TIME: u32 = 8;
/// Time without an answer after which a server counts as hanging.
const SILENCE_MAX: Duration = Duration::from_secs(10);
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: bench\r\n\r\n";

/// Runs wrk in a closed loop on this CPU, and returns the number of answered requests.
pub(super) fn run_closed_loop(cpu: u32, server_address: SocketAddr, time: Duration) -> Result<f64> {
    run_wrk(&["taskset", "-c", &cpu.to_string(), "wrk", "-t1"], &format!("http://{server_address}/"), time)
}

/// Runs wrk with TLS in a closed loop with two threads on any CPU, and returns the number of answered requests.
pub(super) fn run_closed_loop_with_tls(server_address: SocketAddr, time: Duration) -> Result<f64> {
    run_wrk(&["wrk", "-t2"], &format!("https://{server_address}/"), time)
}

fn run_wrk(command: &[&str], url: &str, time: Duration) -> Result<f64> {
    let seconds = format!("{}s", time.as_secs().max(1));
    let mut wrk = Command::new(command[0]);
    wrk.args(&command[1..]).args(["-c", CONNECTIONS, "-d", &seconds]);
    let output = wrk.arg(url).output().context("cannot run wrk")?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(!text.contains("Non-2xx") && !text.contains("Socket errors"), "not every request was answered: {text}");
    let line = text.lines().find(|line| line.contains(" requests in ")).context("wrk tells no number of requests")?;
    line.split_whitespace().next().and_then(|count| count.parse().ok()).context("wrk tells no number of requests")
}

/// Returns latencies in nanoseconds, from the intended start of each request.
pub(super) fn run_open_loop(cpu: u32, server_address: SocketAddr, per_s: f64, time: Duration) -> Result<Vec<u64>> {
    let each = Duration::from_secs_f64(f64::from(ON_TIME) / per_s);
    let begin = Instant::now() + Duration::from_millis(5);
    let ask = move |number: u32| -> Result<Vec<u64>> {
        pin_this_thread(&[cpu]).context("cannot pin the client")?;
        let mut stream = TcpStream::connect(server_address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE_MAX))?;
        let first = begin + each * number / ON_TIME;
        let count = (time.as_secs_f64() / each.as_secs_f64()) as u32;
        (0..count).map(|turn| send_request_when_due(&mut stream, first + each * turn)).collect()
    };
    let threads: Vec<_> = (0..ON_TIME).map(|number| thread::spawn(move || ask(number))).collect();
    let mut all = Vec::new();
    for asking in threads {
        all.extend(asking.join().expect("it does not panic")?);
    }
    Ok(all)
}

fn send_request_when_due(stream: &mut TcpStream, due: Instant) -> Result<u64> {
    thread::sleep(due.saturating_duration_since(Instant::now()));
    stream.write_all(REQUEST)?;
    let mut answer = [0; 1024];
    let mut length = 0;
    // Detects the end of a response by its body, which is a repeated `x`; no response head ends with `xx`.
    while !(answer[..length].ends_with(b"xx") && answer[..length].starts_with(b"HTTP/1.1 200")) {
        let count = stream.read(&mut answer[length..]).context("no answer")?;
        ensure!(count > 0, "the connection ended");
        length += count;
    }
    Ok(due.elapsed().as_nanos() as u64)
}

//! Tests of `sidelane trace` on a real server under load: its report, the report of its log, and the traces that it
//! leaves.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use common::agent::SIDELANE;
use common::c_program::compile_text_with;
use common::redis::{PLACE, RATE_PER_S, traceable_redis};
use common::tracing::{Tracing, path_str, read_json, without_line_breaks};
use common::{Footprint, can_observe_requests, lock_lanes};
use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, epoll};
use rustix::net::{AddressFamily, SocketType, sockopt};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use serde_json::Value;

const SECONDS: f64 = 2.0;

fn report(log: &Path, json: &Path) {
    let output = Command::new(SIDELANE).args(["report", path_str(log), "--json", path_str(json)]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_trace_ends_with_a_diagnosis_and_leaves_nothing_behind() {
    let Some((_turn, lab, server)) = traceable_redis() else { return };
    let before = Footprint::capture();
    let dir = tempfile::tempdir().unwrap();
    let [json, page, perfetto] = ["t.json", "t.html", "t.pftrace"].map(|name| dir.path().join(name));
    let files = ["--json", path_str(&json), "--page", path_str(&page), "--perfetto", path_str(&perfetto)];
    // Every request is slower than this objective.
    let options = ["--slo", "1ns", "--for", "100s"];
    let tracing = Tracing::start(&format!("pid:{}", server.pid()), &[&options[..], &files].concat());
    let client = server.run_load(&lab, PLACE, RATE_PER_S, SECONDS).unwrap();
    let told = tracing.stop();
    let result = read_json(&json);
    let row = |key: &str| result["rows"][0][key].as_u64().unwrap();
    let sent = client["requests"].as_u64().unwrap();
    assert!(row("requests_count") + row("broken_requests_count") >= sent, "{sent} were sent: {told}");
    assert_eq!(row("slow_count"), row("requests_count"));
    assert!(told.contains("took longer than 1 ns (objective). Largest cause: "), "{told}");
    assert!(told.contains("What to do: ") && told.contains("Traced for "), "{told}");
    for request in result["trace"]["requests"].as_array().unwrap() {
        let sum: f64 = request["spans"].as_array().unwrap().iter().map(length_us).sum();
        assert!((sum - request["latency_us"].as_f64().unwrap()).abs() < 1e-3, "{request}");
    }
    assert!(std::fs::read_to_string(page).unwrap().contains("What made requests slow"));
    assert!(std::fs::metadata(perfetto).unwrap().len() > 0);
    before.wait_until_restored();
}

fn length_us(span: &Value) -> f64 {
    span["to_us"].as_f64().unwrap() - span["from_us"].as_f64().unwrap()
}

#[test]
fn replayed_log_gives_the_report_of_the_trace() {
    let Some((_turn, lab, server)) = traceable_redis() else { return };
    let dir = tempfile::tempdir().unwrap();
    let [log, json, again] = ["t.log", "t.json", "again.json"].map(|name| dir.path().join(name));
    let options = ["--for", "100s", "--log", path_str(&log), "--json", path_str(&json)];
    let tracing = Tracing::start(&format!("pid:{}", server.pid()), &options);
    server.run_load(&lab, PLACE, RATE_PER_S, SECONDS).unwrap();
    tracing.stop();
    report(&log, &again);
    let (told, again) = (read_json(&json), read_json(&again));
    assert!(told["rows"][0]["requests_count"].as_u64().unwrap() > 0, "{}", told["rows"]);
    assert!(told["rows"] == again["rows"], "{}\n{}", told["rows"], again["rows"]);
    for key in ["limit_us", "found", "cannot_tell", "spread", "causes"] {
        assert!(told["trace"][key] == again["trace"][key], "{key}");
    }
}

#[test]
fn a_flight_recorder_writes_when_the_objective_breaks() {
    let Some((_turn, lab, server)) = traceable_redis() else { return };
    let before = Footprint::capture();
    let dir = tempfile::tempdir().unwrap();
    let options = ["--slo", "1ns", "--record", path_str(dir.path())];
    let mut tracing = Tracing::start(&format!("pid:{}", server.pid()), &options);
    server.run_load(&lab, PLACE, RATE_PER_S, SECONDS).unwrap();
    let broken = tracing.line();
    assert!(broken.starts_with("sidelane: a request took "), "{broken}");
    while !tracing.line().contains("written to ") {}
    tracing.stop();
    let written: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(written.len(), 2, "a log and a page: {written:?}");
    let log = written.iter().find(|path| path.extension().is_some_and(|ending| ending == "log")).unwrap();
    report(log, &dir.path().join("again.json"));
    before.wait_until_restored();
}

#[test]
fn untraceable_service_is_refused_with_advice() {
    let Some(_turn) = lock_lanes() else { return };
    let _socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let service = common::Service::idle();
    let output = Command::new(SIDELANE).args(["trace", "--service", &service.target()]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(said.contains("listens on no TCP port") && said.contains("as in port:8080"), "{said}");
}

#[test]
fn wrong_arguments_of_trace_have_exact_errors() {
    for (arguments, wanted) in [
        (&["trace"][..], "--service <SERVICE>"),
        (&["trace", "--service", "port:8080", "--slo", "10"], "as in p99=10ms"),
        (&["trace", "--service", "port:8080", "--record", ".", "--log", "x"], "cannot be used with"),
        (&["trace", "--service", "port:8080", "--log", "/nowhere/at/all"], "there is no directory /nowhere/at"),
        (&["report", "/dev/null", "--slo", "1ms"], "it is not a log of `sidelane trace`"),
    ] {
        let output = Command::new(SIDELANE).args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(wanted), "{arguments:?}: {said}");
    }
}

/// Asks Redis for an element that does not exist, and waits until Redis has blocked the client.
fn connect_blocked_client(address: SocketAddr) -> TcpStream {
    let mut stuck = TcpStream::connect(address).unwrap();
    stuck.write_all(b"BLPOP nothing 0\r\n").unwrap();
    wait_until_clients_blocked(address, 1);
    stuck
}

/// Waits until this number of clients is blocked.
fn wait_until_clients_blocked(address: SocketAddr, clients: u32) {
    let mut asking = BufReader::new(TcpStream::connect(address).unwrap());
    let mut line = String::new();
    while line.trim() != format!("blocked_clients:{clients}") {
        if line.is_empty() || line == "\r\n" {
            asking.get_mut().write_all(b"INFO clients\r\n").unwrap();
        }
        line.clear();
        asking.read_line(&mut line).unwrap();
    }
}

#[test]
fn request_without_a_response_at_the_end_is_reported() {
    let Some((_turn, _lab, server)) = traceable_redis() else { return };
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("t.json");
    let tracing = Tracing::start(&format!("pid:{}", server.pid()), &["--for", "100s", "--json", path_str(&json)]);
    let _stuck = connect_blocked_client(server.address());
    let told = tracing.stop();
    assert!(told.contains("1 request had no response at the end, the oldest after "), "{told}");
    let row = &read_json(&json)["rows"][0];
    assert_eq!(row["open_requests_count"].as_u64(), Some(1), "{row}");
    assert!(row["oldest_open_ns"].as_u64().is_some_and(|age_ns| age_ns > 0), "{row}");
}

#[test]
fn client_that_closes_while_waiting_abandons_its_request() {
    let Some((_turn, _lab, server)) = traceable_redis() else { return };
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("t.json");
    // Every wait is longer than this objective.
    let options = ["--slo", "1ns", "--for", "100s", "--json", path_str(&json)];
    let tracing = Tracing::start(&format!("pid:{}", server.pid()), &options);
    let stuck = connect_blocked_client(server.address());
    thread::sleep(Duration::from_millis(5));
    drop(stuck);
    wait_until_clients_blocked(server.address(), 0);
    let told = tracing.stop();
    let first = without_line_breaks(told.split(" %  ").next().unwrap());
    assert!(first.contains("1 request was abandoned by the client"), "{told}");
    let row = &read_json(&json)["rows"][0];
    assert_eq!(
        (row["abandoned_requests_count"].as_u64(), row["open_requests_count"].as_u64()),
        (Some(1), Some(0)),
        "{row}"
    );
    assert_eq!(row["abandoned_beyond_objective_count"].as_u64(), Some(1), "{row}");
}

/// A request that waited for less than the objective allows is no reason for a recording.
#[test]
fn an_abandoned_request_breaks_an_objective_if_it_was_late() {
    let Some((_turn, _lab, server)) = traceable_redis() else { return };
    for (slo, is_broken) in [("100s", false), ("2ms", true)] {
        let dir = tempfile::tempdir().unwrap();
        let options = ["--slo", slo, "--record", path_str(dir.path())];
        let mut tracing = Tracing::start(&format!("pid:{}", server.pid()), &options);
        let stuck = connect_blocked_client(server.address());
        thread::sleep(Duration::from_millis(5));
        drop(stuck);
        wait_until_clients_blocked(server.address(), 0);
        if is_broken {
            while !tracing.line().contains("written to ") {}
        }
        tracing.stop();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count() > 0, is_broken, "{slo}");
    }
}

/// Starts a service in this process: one thread that answers each request, of three bytes, by `answer`.
fn start_answering_service(
    requests: u32,
    mut answer: impl FnMut(&mut TcpStream) + Send + 'static,
) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serves = move || {
        let (mut stream, _) = listener.accept().unwrap();
        for _ in 0..requests {
            stream.read_exact(&mut [0; 3]).unwrap();
            answer(&mut stream);
        }
    };
    (address, thread::spawn(serves))
}

/// Returns the first cause of requests that a client sends to a service with this `answer`, and the trace's text on
/// this cause.
fn trace_client_requests(
    answer: impl FnMut(&mut TcpStream) + Send + 'static,
    receive_buffer: Option<usize>,
    read_response: impl Fn(&mut TcpStream),
) -> Option<(String, String)> {
    const REQUESTS: u32 = 3;
    let _turn = lock_lanes()?;
    if !can_observe_requests() {
        return None;
    }
    let (address, served) = start_answering_service(REQUESTS, answer);
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("t.json");
    // The objective of 15 ms is below the planted delays. A request that is as slow by chance cannot be told from a
    // planted one.
    let options = ["--slo", "15ms", "--for", "100s", "--json", path_str(&json)];
    let tracing = Tracing::start(&format!("port:{}", address.port()), &options);
    let client = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    receive_buffer.into_iter().for_each(|bytes| sockopt::set_socket_recv_buffer_size(&client, bytes).unwrap());
    rustix::net::connect(&client, &address).unwrap();
    let mut client = TcpStream::from(client);
    for _ in 0..REQUESTS {
        client.write_all(b"ask").unwrap();
        read_response(&mut client);
    }
    served.join().unwrap();
    drop(client);
    let told = tracing.stop();
    let found = read_json(&json)["trace"]["found"][0]["cause"].as_str().unwrap_or_default().to_owned();
    Some((found, told))
}

#[test]
fn a_client_that_reads_slowly_is_named() {
    const BYTES: usize = 16 << 10;
    let answer = |stream: &mut TcpStream| {
        stream.set_nodelay(true).unwrap();
        stream.write_all(&[b'.'; BYTES]).unwrap();
    };
    let take = |client: &mut TcpStream| {
        for _ in 0..BYTES >> 10 {
            thread::sleep(Duration::from_millis(10));
            client.read_exact(&mut [0; 1 << 10]).unwrap();
        }
    };
    let Some((found, told)) = trace_client_requests(answer, Some(4 << 10), take) else { return };
    assert_eq!(found, "slow-reader", "{told}");
    assert!(told.contains("check the client") && !told.contains("TCP_NODELAY"), "{told}");
}

#[test]
fn nagles_algorithm_is_named_and_not_the_client() {
    let answer = |stream: &mut TcpStream| {
        stream.write_all(b"head").unwrap();
        stream.write_all(b"body").unwrap();
    };
    let take = |client: &mut TcpStream| client.read_exact(&mut [0; 8]).unwrap();
    let Some((found, told)) = trace_client_requests(answer, None, take) else { return };
    assert_eq!(found, "nagle", "{told}");
    assert!(told.contains("Set TCP_NODELAY"), "{told}");
}

#[test]
fn pacing_of_tcp_is_told_from_a_queue() {
    const BYTES: usize = 512 << 10;
    const BYTES_PER_S: libc::c_uint = 5 << 20;
    let answer = |stream: &mut TcpStream| {
        let (bytes_per_s, length) = (BYTES_PER_S, size_of_val(&BYTES_PER_S) as libc::socklen_t);
        let rate = (&raw const bytes_per_s).cast();
        // SAFETY: the rate is valid for `length` bytes.
        let set =
            unsafe { libc::setsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, rate, length) };
        assert_eq!(set, 0);
        stream.write_all(&[b'.'; BYTES]).unwrap();
    };
    let take = |client: &mut TcpStream| client.read_exact(&mut [0; BYTES]).unwrap();
    let Some((found, told)) = trace_client_requests(answer, None, take) else { return };
    assert_eq!(found, "pacing", "{told}");
    assert!(without_line_breaks(&told).contains("TCP sent at a set rate"), "{told}");
}

/// Checks the cause and the text of a trace, for a service whose thread waits by calling `wait`.
fn check_wait_is_named(wait: impl Fn() + Send + 'static, cause: &str, words: &str) {
    let answer = move |stream: &mut TcpStream| {
        wait();
        stream.write_all(b"answer").unwrap();
    };
    let take = |client: &mut TcpStream| client.read_exact(&mut [0; 6]).unwrap();
    let Some((found, told)) = trace_client_requests(answer, None, take) else { return };
    assert_eq!(found, cause, "{told}");
    let told: Vec<&str> = told.split_whitespace().collect();
    assert!(told.join(" ").contains(words), "no `{words}` in {told:?}");
}

const WAIT: Duration = Duration::from_millis(20);

/// The writing thread polls a flag. If the request's thread woke it, the trace would take it for a part of the request.
#[test]
fn an_eventfd_that_another_thread_writes_to_is_named() {
    let event = Arc::new(rustix::event::eventfd(0, EventfdFlags::empty()).unwrap());
    let wanted = Arc::new(AtomicBool::new(false));
    let (its_event, is_wanted) = (Arc::clone(&event), Arc::downgrade(&wanted));
    let writes = move || {
        while let Some(is_wanted) = is_wanted.upgrade() {
            thread::sleep(WAIT / 20);
            if is_wanted.swap(false, Ordering::Relaxed) {
                thread::sleep(WAIT);
                rustix::io::write(&*its_event, &1_u64.to_ne_bytes()).unwrap();
            }
        }
    };
    thread::Builder::new().name("event-writer".to_owned()).spawn(writes).unwrap();
    let wait = move || {
        wanted.store(true, Ordering::Relaxed);
        rustix::io::read(&*event, &mut [0; 8]).unwrap();
    };
    check_wait_is_named(wait, "hand-over", "in read on an eventfd until event-writer");
}

#[test]
fn wait_for_a_timerfd_is_named_a_timer() {
    let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::empty()).unwrap();
    let wait = move || {
        let at = Itimerspec { it_interval: Timespec::default(), it_value: Timespec::try_from(WAIT).unwrap() };
        rustix::time::timerfd_settime(&timer, TimerfdTimerFlags::empty(), &at).unwrap();
        rustix::io::read(&timer, &mut [0; 8]).unwrap();
    };
    check_wait_is_named(wait, "timer", "in read on a timerfd until a time that it had set");
}

/// A process that waits in epoll with one client is no event loop.
#[test]
fn epoll_timeout_with_one_client_is_named_a_timer() {
    let events = epoll::create(epoll::CreateFlags::empty()).unwrap();
    let timeout = Timespec::try_from(WAIT).unwrap();
    let wait =
        move || assert_eq!(epoll::wait(&events, spare_capacity(&mut Vec::with_capacity(1)), Some(&timeout)), Ok(0));
    check_wait_is_named(wait, "timer", "in epoll_wait until a timeout that it had set");
}

/// The service waits for a receive timeout of the same UDP socket, first without and then after it has sent a query.
/// The cause is a missing answer only after a query; otherwise it is a timer.
#[test]
fn receive_timeout_is_a_missing_answer_only_after_a_query() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let asking = UdpSocket::bind("127.0.0.1:0").unwrap();
    asking.connect(silent.local_addr().unwrap()).unwrap();
    asking.set_read_timeout(Some(WAIT)).unwrap();
    let (address, asking) = (silent.local_addr().unwrap(), Arc::new(asking));
    let idle = Arc::clone(&asking);
    let wait = move || assert!(idle.recv(&mut [0; 8]).is_err());
    check_wait_is_named(wait, "timer", "until a time that it had set");
    let ask = move || {
        asking.send(b"name?").unwrap();
        assert!(asking.recv(&mut [0; 8]).is_err());
    };
    check_wait_is_named(ask, "no-answer", &format!("no answer from {address}/udp"));
}

/// Sets a filter of one classic BPF instruction on a socket, which drops all arriving bytes, or removes it.
fn set_drop_filter(socket: &TcpStream, drops_all: bool) {
    let mut nothing = libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 };
    let filter = libc::sock_fprog { len: 1, filter: &raw mut nothing };
    let (option, length) = match drops_all {
        true => (libc::SO_ATTACH_FILTER, size_of_val(&filter) as libc::socklen_t),
        false => (libc::SO_DETACH_FILTER, size_of::<libc::c_int>() as libc::socklen_t),
    };
    let value = (&raw const filter).cast();
    // SAFETY: the filter is valid for `length` bytes, and so is what it points to.
    assert_eq!(unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, value, length) }, 0);
}

/// The network loses a question to another service, and TCP sends it again.
#[test]
fn lost_query_is_named_with_the_address_of_its_server() {
    let door = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = door.local_addr().unwrap();
    let mut asking = TcpStream::connect(address).unwrap();
    let (mut asked, _) = door.accept().unwrap();
    let lossy = asked.try_clone().unwrap();
    thread::spawn(move || {
        while asked.read_exact(&mut [0]).is_ok() {
            asked.write_all(b"!").unwrap();
        }
    });
    // Time for which segments are dropped, shorter than the time after which TCP sends them again.
    const LOSES_FOR: Duration = Duration::from_millis(100);
    let answer = move |stream: &mut TcpStream| {
        set_drop_filter(&lossy, true);
        asking.write_all(b"?").unwrap();
        let hears = lossy.try_clone().unwrap();
        let hears = thread::spawn(move || {
            thread::sleep(LOSES_FOR);
            set_drop_filter(&hears, false);
        });
        asking.read_exact(&mut [0]).unwrap();
        hears.join().unwrap();
        stream.write_all(b"answer").unwrap();
    };
    let take = |client: &mut TcpStream| client.read_exact(&mut [0; 6]).unwrap();
    let Some((found, told)) = trace_client_requests(answer, None, take) else { return };
    assert_eq!(found, "retransmission", "{told}");
    let said = without_line_breaks(&told);
    assert!(said.contains(&format!("a segment of a request to {address}")), "{told}");
    assert!(said.contains("`ss -tin dst 127.0.0.1`"), "{told}");
}

/// Returns the number of segments of this connection that were sent again, and of those that are not acknowledged.
fn retransmitted_segments(stream: &TcpStream) -> (u32, u32) {
    // SAFETY: the kernel's structure has numbers alone.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = size_of_val(&info) as libc::socklen_t;
    let place = (&raw mut info).cast();
    // SAFETY: there is room for `length` bytes.
    let got =
        unsafe { libc::getsockopt(stream.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, place, &raw mut length) };
    assert_eq!(got, 0);
    (info.tcpi_total_retrans, info.tcpi_unacked)
}

/// The client has got the response, and acknowledges it late.
#[test]
fn needless_retransmission_is_no_loss() {
    const TRIES: u32 = 200;
    const WANTED: u32 = 5;
    let Some(_turn) = lock_lanes() else { return };
    if !can_observe_requests() {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("t.json");
    let options = ["--slo", "1ns", "--for", "100s", "--json", path_str(&json)];
    let tracing = Tracing::start(&format!("port:{}", address.port()), &options);
    let mut client = TcpStream::connect(address).unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_nodelay(true).unwrap();
    let watched = stream.try_clone().unwrap();
    let served = thread::spawn(move || {
        while stream.read_exact(&mut [0; 3]).is_ok() {
            [b"head", b"body"].into_iter().for_each(|part| stream.write_all(part).unwrap());
        }
    });
    for _ in 0..TRIES {
        let before = retransmitted_segments(&watched).0;
        sockopt::set_tcp_quickack(&client, false).unwrap();
        client.write_all(b"ask").unwrap();
        client.peek(&mut [0]).unwrap();
        while let (again, 1..) = retransmitted_segments(&watched)
            && again == before
        {
            thread::sleep(Duration::from_millis(1));
        }
        client.read_exact(&mut [0; 8]).unwrap();
        if retransmitted_segments(&watched).0 >= WANTED {
            break;
        }
    }
    drop(client);
    served.join().unwrap();
    let told = tracing.stop();
    if retransmitted_segments(&watched).0 < WANTED {
        return sidelane_testing::skip("needs a TCP that probes for losses");
    }
    assert!(!read_json(&json)["trace"]["found"].to_string().contains("retransmission"), "{told}");
}

const EVENT_LOOP: &str = "
import asyncio, sys
async def serve(reader, writer):
    while await reader.read(3):
        await asyncio.gather(asyncio.sleep(0.03), asyncio.sleep(0.02))
        writer.write(b'.')
async def main():
    server = await asyncio.start_server(serve, '127.0.0.1', 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
";

#[test]
fn wait_of_a_coroutine_is_reported_with_a_note() {
    let Some(_turn) = lock_lanes() else { return };
    if !can_observe_requests() {
        return;
    }
    let server = Command::new("python3").args(["-c", EVENT_LOOP]).stdout(Stdio::piped()).spawn();
    let Ok(mut server) = server else { return sidelane_testing::skip("needs python3") };
    let mut port = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut port).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("t.json");
    let options = ["--slo", "15ms", "--for", "100s", "--json", path_str(&json)];
    let tracing = Tracing::start(&format!("port:{}", port.trim()), &options);
    let connect = || TcpStream::connect(("127.0.0.1", port.trim().parse::<u16>().unwrap())).unwrap();
    let mut clients = [connect(), connect()];
    for _ in 0..3 {
        clients.iter_mut().for_each(|client| client.write_all(b"ask").unwrap());
        clients.iter_mut().for_each(|client| client.read_exact(&mut [0]).unwrap());
    }
    drop(clients);
    let told = tracing.stop();
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!(read_json(&json)["trace"]["found"][0]["cause"], "inside", "{told}");
    let said = without_line_breaks(&told);
    assert!(said.contains("without a thread") && said.contains("coroutines and callbacks is not seen"), "{told}");
}

/// Two threads, each with its own connection, take turns at a permit, as at a connection pool. The permit's futex is
/// that of a condition variable.
#[test]
fn wait_for_a_pool_permit_names_the_lock_holder() {
    const REQUESTS: usize = 3;
    let Some(_turn) = lock_lanes() else { return };
    if !can_observe_requests() {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let pool = std::sync::Arc::new((std::sync::Mutex::new(true), std::sync::Condvar::new()));
    let serve = move |holds: Duration, name: &str| {
        let client = TcpStream::connect(address).unwrap();
        let ((mut stream, _), pool) = (listener.accept().unwrap(), pool.clone());
        let serves = move || {
            while stream.read_exact(&mut [0; 3]).is_ok() {
                let (permit, given_back) = &*pool;
                drop(given_back.wait_while(permit.lock().unwrap(), |free| !std::mem::take(free)).unwrap());
                thread::sleep(holds);
                *permit.lock().unwrap() = true;
                given_back.notify_one();
                stream.write_all(b".").unwrap();
            }
        };
        (thread::Builder::new().name(name.to_owned()).spawn(serves).unwrap(), client)
    };
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("t.json");
    let options = ["--slo", "15ms", "--for", "100s", "--json", path_str(&json)];
    let tracing = Tracing::start(&format!("port:{}", address.port()), &options);
    let (holder, mut first) = serve(Duration::from_millis(40), "holder");
    let (waiter, mut second) = serve(Duration::ZERO, "waiter");
    for _ in 0..REQUESTS {
        first.write_all(b"ask").unwrap();
        thread::sleep(Duration::from_millis(10));
        second.write_all(b"ask").unwrap();
        [&mut first, &mut second].into_iter().for_each(|client| client.read_exact(&mut [0]).unwrap());
    }
    drop((first, second));
    [holder, waiter].into_iter().for_each(|thread| thread.join().unwrap());
    let told = tracing.stop();
    let found = read_json(&json)["trace"]["found"].clone();
    let lock = found.as_array().unwrap().iter().find(|found| found["cause"] == "lock").expect("a lock");
    let evidence = lock["evidence"].to_string();
    assert!(evidence.contains("holder, thread ") && evidence.contains("slept until a set time"), "{told}");
}

/// Runs a service that waits by each of `wait_kinds`. Returns the causes of slow requests, ordered by time, and the
/// text of the report.
fn trace_causes_of_waits(compiler: &[&str], wait_kinds: &[&str]) -> Option<(Vec<String>, String)> {
    let dir = tempfile::tempdir().unwrap();
    let program = compile_text_with(compiler, "waits", include_str!("fixtures/waits.c"), dir.path())?;
    let mut server = Command::new(program).stdout(Stdio::piped()).spawn().unwrap();
    let mut port = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut port).unwrap();
    let json = dir.path().join("t.json");
    let options = ["--slo", "15ms", "--for", "100s", "--json", path_str(&json)];
    let tracing = Tracing::start(&format!("port:{}", port.trim()), &options);
    let mut client = TcpStream::connect(("127.0.0.1", port.trim().parse::<u16>().unwrap())).unwrap();
    for way in wait_kinds.iter().cycle().take(wait_kinds.len() * 3) {
        client.write_all(way.as_bytes()).unwrap();
        client.read_exact(&mut [0]).unwrap();
    }
    drop(client);
    let told = tracing.stop();
    assert!(server.wait().unwrap().success());
    let found = read_json(&json)["trace"]["found"].clone();
    let found = found.as_array().unwrap().iter().filter(|found| found["requests_count"] != 0);
    Some((found.map(|found| found["cause"].as_str().unwrap().to_owned()).collect(), told))
}

/// Checks that the trace names a wait for a mutex as a lock, and none of the waits `others`.
fn check_only_mutex_waits_are_locks(compiler: &[&str], others: &[&str]) {
    let Some(_turn) = lock_lanes() else { return };
    if !can_observe_requests() {
        return;
    }
    let Some((causes, told)) = trace_causes_of_waits(compiler, others) else { return };
    assert_eq!(causes.first().map(String::as_str), Some("hand-over"), "{told}");
    assert!(!causes.iter().any(|cause| cause == "lock"), "{told}");
    let Some((causes, told)) = trace_causes_of_waits(compiler, &["mut"]) else { return };
    assert_eq!(causes.first().map(String::as_str), Some("lock"), "{told}");
}

#[test]
fn only_a_mutex_of_glibc_is_a_lock() {
    check_only_mutex_waits_are_locks(&["cc"], &["con", "sem", "joi"]);
}

#[test]
fn only_a_mutex_of_musl_is_a_lock() {
    check_only_mutex_waits_are_locks(&["musl-gcc"], &["con", "sem", "joi"]);
}

#[test]
fn only_a_mutex_of_cxx_is_a_lock() {
    check_only_mutex_waits_are_locks(&["g++", "-x", "c++", "-std=c++20"], &["fut", "per", "lat", "ato"]);
}

//! Tests of the access log: each request has one entry, however the request ends.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use rustix::net::sockopt::set_socket_linger;
use serde_json::{Value, json};
use sidelane_policy::hedge::{Hazard, Server};
use sidelane_proxy::access::{self, Format, LineFormatter};
use sidelane_proxy::config::{Config, Limits};

use crate::scene::{Proxy, TIMEOUT, http_config, redis_config, with_hedge_timer};
use crate::scripted::{
    read_to_end, read_until, refusing_address, send_answer, send_answer_with_status, start_recording_server,
    start_server,
};

const GET: &str = "GET /a?b HTTP/1.1\r\nHost: h\r\nUser-Agent: test\r\n\r\n";

/// Receiver of a proxy's access log, with the data to format its lines.
struct Log {
    receiver: access::Receiver,
    context: LineFormatter,
}

fn start_logged_proxy(config: Config) -> (Proxy, Log) {
    let (sender, receiver) = access::channel(1 << 20);
    let servers = config.servers.clone().into();
    let context = LineFormatter { format: Format::Json, servers, epoch_ns: 0 };
    (Proxy::start_with(config, Some(sender)), Log { receiver, context })
}

impl Log {
    /// Returns the next line of the log. Waits for it if it has not come.
    fn next_line(&mut self) -> Value {
        let end = Instant::now() + TIMEOUT;
        loop {
            let mut line = Vec::new();
            if self.receiver.receive(|entry| self.context.write_line(&entry, &mut line)).is_some() {
                return serde_json::from_slice(&line).unwrap();
            }
            assert!(Instant::now() < end, "no line comes");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Returns the only line of a proxy's log, and ends the proxy.
    fn only_line(&mut self, proxy: Proxy) -> Value {
        let line = self.next_line();
        proxy.finish();
        assert_eq!(self.receiver.receive(|_| ()), None, "one line after {line}");
        line
    }
}

fn silent_server() -> SocketAddr {
    start_server(|mut stream| {
        read_until(&mut stream, "\r\n\r\n");
        thread::park();
    })
}

fn send_text(client: &mut TcpStream, text: &str) {
    client.write_all(text.as_bytes()).unwrap();
}

fn reset(client: TcpStream) {
    set_socket_linger(&client, Some(Duration::ZERO)).unwrap();
}

/// Returns the fields of a log line for server, end, copies and status.
fn outcome_fields(line: &Value) -> [&Value; 4] {
    ["server", "end", "sent", "status"].map(|name| &line[name])
}

#[test]
fn each_request_of_a_connection_has_its_line() {
    let (address, _heads) = start_recording_server(|stream, head| {
        if head.starts_with("POST") {
            read_until(stream, "hello");
        }
        send_answer(stream, "well")
    });
    let (proxy, mut log) = start_logged_proxy(http_config(address, None));
    let mut client = proxy.connect();
    let port = client.local_addr().unwrap();
    send_text(&mut client, GET);
    let answer = read_until(&mut client, "well");
    let line = log.next_line();
    assert_eq!(outcome_fields(&line), [&json!(address.to_string()), &json!("answered"), &json!("once"), &json!(200)]);
    assert_eq!((&line["client"], &line["won"]), (&json!(port.to_string()), &json!("first")));
    assert_eq!((&line["request"], &line["user_agent"]), (&json!("GET /a?b HTTP/1.1"), &json!("test")));
    let bytes = ["received_bytes", "sent_bytes", "body_bytes"].map(|name| line[name].as_u64().unwrap() as usize);
    assert_eq!(bytes, [GET.len(), answer.len(), 4]);
    let (whole, first) = (line["duration_seconds"].as_f64().unwrap(), line["first_byte_seconds"].as_f64().unwrap());
    assert!(whole >= first && first > 0.0, "{line}");
    assert!(answer.contains(&format!("Sidelane-Request: {}\r\n", line["id"].as_str().unwrap())), "{line}");
    let post = "POST /b HTTP/1.1\r\nHost: h\r\nReferer: http://r\r\nContent-Length: 5\r\n\r\nhello";
    send_text(&mut client, post);
    read_until(&mut client, "well");
    let line = log.only_line(proxy);
    assert_eq!((&line["request"], &line["referer"]), (&json!("POST /b HTTP/1.1"), &json!("http://r")));
    assert_eq!((&line["received_bytes"], line.get("user_agent")), (&json!(post.len()), None));
}

#[test]
fn hedged_request_is_logged_with_reason_and_winner() {
    let (well, _heads) = start_recording_server(|stream, _| send_answer(stream, "well"));
    let (proxy, mut log) =
        start_logged_proxy(with_hedge_timer(http_config(silent_server(), Some(well)), Duration::from_millis(1)));
    assert!(proxy.get("/").ends_with("well"));
    let line = log.only_line(proxy);
    assert_eq!(
        outcome_fields(&line),
        [&json!(well.to_string()), &json!("answered"), &json!("hedged:timer"), &json!(200)]
    );
    assert_eq!(line["won"], "hedge");

    let (told, asked) = channel();
    let silent = start_server(move |mut stream| {
        read_until(&mut stream, "\r\n\r\n");
        told.send(()).unwrap();
        thread::park();
    });
    let (proxy, mut log) = start_logged_proxy(http_config(silent, Some(well)));
    let mut client = proxy.connect();
    send_text(&mut client, GET);
    asked.recv_timeout(TIMEOUT).unwrap();
    proxy.publish_hazards(Server::FIRST, [Hazard::JvmGc]);
    read_until(&mut client, "well");
    let line = log.only_line(proxy);
    assert_eq!((&line["sent"], &line["won"]), (&json!("hedged:jvm-gc"), &json!("hedge")));
}

#[test]
fn request_sent_again_is_logged_as_such() {
    let lost = start_server(|mut stream| drop(read_until(&mut stream, "\r\n\r\n")));
    let (well, _heads) = start_recording_server(|stream, _| send_answer(stream, "well"));
    let (proxy, mut log) = start_logged_proxy(http_config(lost, Some(well)));
    assert!(proxy.get("/").ends_with("well"));
    let line = log.only_line(proxy);
    assert_eq!(outcome_fields(&line), [&json!(well.to_string()), &json!("answered"), &json!("again"), &json!(200)]);
    assert_eq!(line["won"], "again");
}

#[test]
fn request_of_a_departed_client_is_logged_as_abandoned() {
    let (told, asked) = channel();
    let address = start_server(move |mut stream| {
        read_until(&mut stream, "\r\n\r\n");
        told.send(()).unwrap();
        thread::park();
    });
    let (proxy, mut log) = start_logged_proxy(http_config(address, None));
    let mut client = proxy.connect();
    send_text(&mut client, GET);
    asked.recv_timeout(TIMEOUT).unwrap();
    reset(client);
    let line = log.next_line();
    assert_eq!((&line["end"], &line["request"]), (&json!("abandoned"), &json!("GET /a?b HTTP/1.1")));
    assert_eq!((line.get("status"), line.get("won"), &line["sent_bytes"]), (None, None, &json!(0)));
    // This client disconnects in the middle of a request head.
    let mut client = proxy.connect();
    send_text(&mut client, "GET /a");
    proxy.wait_until("the client", |state| state.clients == 1);
    // An answer to a later client shows that the proxy has read the first client's bytes.
    assert!(proxy.get("/.sidelane/trace/0").starts_with("HTTP/1.1 404"));
    assert_eq!(log.next_line()["end"], "own");
    reset(client);
    let line = log.only_line(proxy);
    assert_eq!((&line["end"], &line["sent"]), (&json!("abandoned"), &json!("never")));
}

#[test]
fn interrupted_answer_is_logged_as_cut() {
    let address = start_server(|mut stream| {
        read_until(&mut stream, "\r\n\r\n");
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf").unwrap();
    });
    let (proxy, mut log) = start_logged_proxy(http_config(address, None));
    assert!(proxy.get("/").ends_with("half"));
    let line = log.only_line(proxy);
    assert_eq!(outcome_fields(&line), [&json!(address.to_string()), &json!("cut"), &json!("once"), &json!(200)]);
    assert_eq!(line["body_bytes"], 4);
}

#[test]
fn requests_in_flight_at_proxy_end_are_logged_as_cut() {
    let (proxy, mut log) = start_logged_proxy(http_config(silent_server(), None));
    let mut client = proxy.connect();
    send_text(&mut client, GET);
    proxy.wait_until("the request", |state| state.in_flight == 1);
    let state = proxy.finish();
    let line = log.next_line();
    assert_eq!((&line["end"], &line["request"], state.in_flight), (&json!("cut"), &json!("GET /a?b HTTP/1.1"), 1));
    assert_eq!(log.receiver.receive(|_| ()), None);
}

#[test]
fn late_answers_and_late_heads_are_logged_as_timed_out() {
    let mut config = http_config(silent_server(), None);
    config.limits.answer_time = Duration::from_millis(100);
    let (proxy, mut log) = start_logged_proxy(config);
    assert!(proxy.get("/").starts_with("HTTP/1.1 504"));
    let line = log.only_line(proxy);
    assert_eq!(outcome_fields(&line), [&Value::Null, &json!("timed_out"), &json!("once"), &json!(504)]);

    let mut config = http_config(silent_server(), None);
    config.limits.head_time = Duration::from_millis(100);
    let (proxy, mut log) = start_logged_proxy(config);
    let mut client = proxy.connect();
    send_text(&mut client, "GET / HTTP/1.1\r\nUser-Agent: slow\r\n");
    assert!(read_to_end(&mut client).starts_with("HTTP/1.1 408"));
    drop(client);
    let line = log.only_line(proxy);
    assert_eq!(outcome_fields(&line), [&Value::Null, &json!("timed_out"), &json!("never"), &json!(408)]);
    assert_eq!((&line["request"], &line["user_agent"]), (&json!("GET / HTTP/1.1"), &json!("slow")));
    assert!(line["duration_seconds"].as_f64().unwrap() >= 0.1, "{line}");
}

#[test]
fn answers_of_the_proxy_itself_are_logged() {
    let long = format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "x".repeat(20_000));
    let cases = [
        ("nonsense\r\n\r\n", "refused", 400, "nonsense"),
        ("GET / HTTP/1.1\r\n\r\n", "refused", 400, "GET / HTTP/1.1"),
        ("CONNECT h:1 HTTP/1.1\r\nHost: h:1\r\n\r\n", "refused", 501, "CONNECT h:1 HTTP/1.1"),
        ("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nend", "answered", 200, "POST / HTTP/1.1"),
        ("GET /.sidelane/trace/1 HTTP/1.1\r\nHost: h\r\n\r\n", "own", 404, "GET /.sidelane/trace/1 HTTP/1.1"),
        (&long, "refused", 431, &long[..access::REQUEST_MAX]),
    ];
    let (address, _heads) = start_recording_server(|stream, _| send_answer_with_status(stream, 200, "well"));
    for (text, end, status, request) in cases {
        let (proxy, mut log) = start_logged_proxy(http_config(address, None));
        let mut client = proxy.connect();
        send_text(&mut client, text);
        let head = read_until(&mut client, "\r\n\r\n");
        let length = head.split("Content-Length: ").nth(1).and_then(|rest| rest.split("\r\n").next()).unwrap();
        let body_bytes: usize = length.parse().unwrap();
        client.read_exact(&mut vec![0; body_bytes]).unwrap();
        drop(client);
        let line = log.only_line(proxy);
        assert_eq!((&line["sent_bytes"], &line["body_bytes"]), (&json!(head.len() + body_bytes), &json!(body_bytes)));
        assert_eq!((&line["end"], &line["status"], &line["request"]), (&json!(end), &json!(status), &json!(request)));
        // The proxy reads at most the maximum size of a head, so it counts only these bytes as omitted.
        let omitted = (status == 431).then(|| Limits::default().head_bytes - access::REQUEST_MAX);
        assert_eq!(line["request_omitted_bytes"], json!(omitted));
    }
    let (proxy, mut log) = start_logged_proxy(http_config(refusing_address(), None));
    assert!(proxy.get("/").starts_with("HTTP/1.1 502"));
    assert_eq!(outcome_fields(&log.only_line(proxy)), [&Value::Null, &json!("failed"), &json!("once"), &json!(502)]);
}

#[test]
fn connection_that_switches_protocol_is_logged_once() {
    let address = start_server(|mut stream| {
        read_until(&mut stream, "\r\n\r\n");
        let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
        stream.write_all(switch.as_bytes()).unwrap();
        read_until(&mut stream, "\n");
    });
    let (proxy, mut log) = start_logged_proxy(http_config(address, None));
    let mut client = proxy.connect();
    send_text(&mut client, "GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n");
    read_until(&mut client, "\r\n\r\n");
    send_text(&mut client, "GET / HTTP/1.1\n");
    read_to_end(&mut client);
    let line = log.only_line(proxy);
    assert_eq!(outcome_fields(&line), [&json!(address.to_string()), &json!("answered"), &json!("once"), &json!(101)]);
}

/// Starts a server that answers each command with `+OK`, except `GET silent`.
fn redis_server() -> SocketAddr {
    start_server(|mut stream| {
        loop {
            let head = read_until(&mut stream, "\r\n");
            let Some(count) = head.trim_end().strip_prefix('*') else { return };
            let words: Vec<String> =
                (0..2 * count.parse::<usize>().unwrap()).map(|_| read_until(&mut stream, "\r\n")).collect();
            let is_said = words.iter().any(|word| word.starts_with("silent")) || stream.write_all(b"+OK\r\n").is_ok();
            if !is_said {
                return;
            }
        }
    })
}

#[test]
fn redis_commands_are_logged_without_arguments() {
    let address = redis_server();
    let (proxy, mut log) = start_logged_proxy(redis_config(address, None));
    let mut client = proxy.connect();
    send_text(&mut client, "MGET key key\r\nSET key secret\r\nAUTH secret\r\n");
    (0..3).for_each(|_| assert_eq!(read_until(&mut client, "\r\n"), "+OK\r\n"));
    for (name, keys, end, sent) in [("MGET", 2, "answered", 5), ("SET", 1, "answered", 5), ("AUTH", 0, "tied", 0)] {
        let line = log.next_line();
        assert_eq!(outcome_fields(&line), [&json!(address.to_string()), &json!(end), &json!("once"), &Value::Null]);
        assert_eq!((&line["command"], &line["keys"], &line["sent_bytes"]), (&json!(name), &json!(keys), &json!(sent)));
        assert!(!line.to_string().contains("secret") && !line.to_string().contains("\"key\""), "{line}");
    }
    drop(client);
    proxy.finish();
    assert_eq!(log.receiver.receive(|_| ()), None);
}

#[test]
fn unknown_command_name_is_logged_cut_and_known_upper_case() {
    let (proxy, mut log) = start_logged_proxy(redis_config(redis_server(), None));
    let unknown = format!("no\"\n{}", "x".repeat(1000));
    for (name, told) in [("mGet", "MGET"), (&*unknown, &unknown[..63])] {
        let mut client = proxy.connect();
        send_text(&mut client, &format!("*2\r\n${}\r\n{name}\r\n$3\r\nkey\r\n", name.len()));
        read_until(&mut client, "\r\n");
        assert_eq!(log.next_line()["command"], told);
    }
}

#[test]
fn each_unanswered_command_is_logged() {
    let (proxy, mut log) = start_logged_proxy(redis_config(redis_server(), None));
    assert!(proxy.send_and_read_all("*bad\r\n").starts_with("-ERR sidelane"));
    assert_eq!(log.next_line()["end"], "refused");
    let mut client = proxy.connect();
    send_text(&mut client, "GET silent\r\nGET silent\r\n");
    proxy.wait_until("the commands", |state| state.in_flight == 2);
    reset(client);
    assert_eq!([&log.next_line()["end"], &log.next_line()["end"]], ["abandoned"; 2]);
    proxy.wait_until("their end", |state| state.in_flight == 0);
    let mut client = proxy.connect();
    send_text(&mut client, "GET silent\r\nGET silent\r\n");
    proxy.wait_until("the commands", |state| state.in_flight == 2);
    proxy.finish();
    assert_eq!([&log.next_line()["end"], &log.next_line()["end"]], ["cut"; 2]);
    assert_eq!(log.receiver.receive(|_| ()), None);

    let mut config = redis_config(redis_server(), None);
    config.limits.answer_time = Duration::from_millis(200);
    let (proxy, mut log) = start_logged_proxy(config);
    assert!(proxy.send_and_read_all("GET silent\r\n").starts_with("-ERR sidelane"));
    assert_eq!(log.only_line(proxy)["end"], "timed_out");

    let (proxy, mut log) = start_logged_proxy(redis_config(refusing_address(), None));
    assert!(proxy.send_and_read_all("GET a\r\nQUIT\r\n").starts_with("-ERR sidelane"));
    assert_eq!([log.next_line(), log.only_line(proxy)].map(|line| line["end"].clone()), ["failed"; 2]);
}

#[test]
fn full_log_ring_loses_lines_but_no_request() {
    const REQUESTS: usize = 50;
    let (address, _heads) = start_recording_server(|stream, _| send_answer(stream, "well"));
    let (sender, mut receiver) = access::channel(1024);
    let proxy = Proxy::start_with(http_config(address, None), Some(sender));
    let mut client = proxy.connect();
    for _ in 0..REQUESTS {
        send_text(&mut client, GET);
        read_until(&mut client, "well");
    }
    let state = proxy.finish();
    let lines = std::iter::from_fn(|| receiver.receive(|_| ())).count();
    assert_eq!((state.counts.answered, state.log_lines_lost), (REQUESTS as u64, (REQUESTS - lines) as u64));
    assert!(lines > 0 && state.log_lines_lost > 0, "{state:?}");
}

/// Sends the bytes, closes the sending direction, and waits for the end of the connection.
fn send_and_wait_for_end(mut client: TcpStream, bytes: &[u8]) {
    client.write_all(bytes).unwrap();
    // Ignore an error: the proxy may have closed the connection.
    let _ = client.shutdown(Shutdown::Write);
    read_to_end(&mut client);
}

#[test]
fn any_bytes_of_a_request_are_one_line() {
    let (address, _heads) = start_recording_server(|stream, _| send_answer(stream, "well"));
    let (proxy, log) = start_logged_proxy(http_config(address, None));
    let (redis_proxy, redis_log) = start_logged_proxy(redis_config(redis_server(), None));
    let logs = Mutex::new([log, redis_log]);
    // Leave out line feeds: one could end a request and begin another one.
    let bytes = || prop::collection::vec(any::<u8>().prop_filter("no line feed", |byte| *byte != b'\n'), 1..60);
    let cases = ProptestConfig { cases: 100, ..ProptestConfig::default() };
    proptest!(cases, |(target in bytes(), agent in bytes(), is_bare in any::<bool>())| {
        let parts = [&b"GET /"[..], &target, b" HTTP/1.1\r\nHost: h\r\nUser-Agent: ", &agent, b"\r\n\r\n"];
        let request = if is_bare { target.clone() } else { parts.concat() };
        send_and_wait_for_end(proxy.connect(), &request);
        let [log, redis_log] = &mut *logs.lock().unwrap();
        log.context.format = Format::Text;
        let mut lines = Vec::new();
        while lines.is_empty() {
            log.receiver.receive(|entry| log.context.write_line(&entry, &mut lines));
        }
        let text = std::str::from_utf8(&lines).unwrap();
        prop_assert_eq!(text.matches('\n').count(), 1);
        prop_assert_eq!(text.matches('"').count(), 6, "{}", text);
        prop_assert!(!text.trim_end_matches('\n').chars().any(char::is_control));
        prop_assert_eq!(log.receiver.receive(|_| ()), None);

        send_and_wait_for_end(redis_proxy.connect(), &[b"*x", &target[..], b"\r\n"].concat());
        prop_assert_eq!(&redis_log.next_line()["end"], "refused");
    });
    assert_eq!(proxy.finish().in_flight, 0);
}

//! Tests of the proxy with HTTP.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use sidelane_policy::hedge::{Hazard, Server};
use sidelane_proxy::http::Forwarded;
use sidelane_proxy::resp::Repeatable;

use crate::scene::{Proxy, TIMEOUT, http_config, with_hedge_timer};
use crate::scripted::{
    read_to_end, read_until, send_answer, send_answer_with_status, start_recording_server, start_server,
};

#[test]
fn early_answer_leaves_no_half_sent_request_behind() {
    /// Size of a body that exceeds the buffers of two sockets.
    const LONG: usize = 64 << 20;
    let (told, heads) = channel();
    let address = start_server(move |mut stream| {
        let head = read_until(&mut stream, "\r\n\r\n");
        told.send(head).unwrap();
        send_answer(&mut stream, "well");
        // Keep the connection open without reading from it.
        thread::park();
    });
    let mut config = http_config(address, None);
    config.repeatable = Repeatable::from_names(["GET", "POST"]);
    config.limits.copy_bytes = LONG;
    config.limits.answer_time = Duration::from_secs(2);
    let proxy = Proxy::start(config);
    let mut client = proxy.connect();
    let head = format!("POST /long HTTP/1.1\r\nHost: h\r\nContent-Length: {LONG}\r\n\r\n");
    client.write_all((head + &"x".repeat(LONG)).as_bytes()).unwrap();
    read_until(&mut client, "well");
    assert!(heads.recv().unwrap().starts_with("POST /long "));
    let answer = proxy.get("/next");
    assert!(answer.ends_with("well"), "{answer}");
    assert!(heads.recv().unwrap().starts_with("GET /next "));
}

#[test]
fn malformed_answer_is_ignored_while_the_other_copy_runs() {
    let (second_has_it, tell_first) = channel();
    let (first_is_gone, tell_second) = channel();
    let (tell_first, tell_second) = (Arc::new(Mutex::new(tell_first)), Arc::new(Mutex::new(tell_second)));
    let ill = start_server(move |mut stream| {
        read_until(&mut stream, "\r\n\r\n");
        tell_first.lock().unwrap().recv().unwrap();
        stream.write_all(b"nonsense\r\n\r\n").unwrap();
        // The connection ends here as soon as the proxy has read the malformed answer.
        let _ = stream.read(&mut [0]);
        first_is_gone.send(()).unwrap();
    });
    let (well, _seen) = start_recording_server(move |stream, _| {
        second_has_it.send(()).unwrap();
        tell_second.lock().unwrap().recv().unwrap();
        send_answer(stream, "well")
    });
    let proxy = Proxy::start(with_hedge_timer(http_config(ill, Some(well)), Duration::from_millis(1)));
    let answer = proxy.get("/");
    assert!(answer.ends_with("well"), "{answer}");
    let counts = proxy.finish().counts;
    assert_eq!((counts.answered, counts.hedges, counts.wins, counts.failed), (1, 1, 1, 0), "{counts:?}");
}

#[test]
fn server_that_closes_connections_gets_all_warm_up_requests() {
    const WARM_UP: u32 = 5;
    let address = start_server(|mut stream| {
        read_until(&mut stream, "\r\n\r\n");
        stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nwell").unwrap();
    });
    let (backup, _seen) = start_recording_server(|stream, _| send_answer(stream, "backup"));
    let mut config = http_config(address, Some(backup));
    config.warm_up_requests = WARM_UP;
    let proxy = Proxy::start(config);
    assert!(proxy.get("/").ends_with("well"));
    proxy.publish_hazards(Server::FIRST, [Hazard::Restart]);
    proxy.wait_until("the swap", |state| state.counts.swaps[Hazard::Restart as usize] == 1);
    proxy.publish_hazards(Server::FIRST, []);
    proxy.wait_until("warming up", |state| state.counts.warm_up_requests == u64::from(WARM_UP));
}

#[test]
fn server_without_sampled_requests_is_warmed_up_by_the_next() {
    const WARM_UP: u32 = 3;
    let (address, paths) = start_recording_server(|stream, _| send_answer(stream, "well"));
    let (backup, _seen) = start_recording_server(|stream, _| send_answer(stream, "backup"));
    let mut config = http_config(address, Some(backup));
    config.warm_up_requests = WARM_UP;
    // Use a time longer than the test, so that only requests can end the warm-up.
    config.table.roles.warm_up_ns = 10 * TIMEOUT.as_nanos() as u64;
    let proxy = Proxy::start(config);
    proxy.publish_hazards(Server::FIRST, [Hazard::Restart]);
    proxy.wait_until("the swap", |state| state.counts.swaps[Hazard::Restart as usize] == 1);
    proxy.publish_hazards(Server::FIRST, []);
    proxy.wait_until("the server", |state| state.counts.warm_ups == 1);
    assert!(proxy.get("/first").ends_with("backup"));
    proxy.wait_until("warming up", |state| state.counts.warm_up_requests == u64::from(WARM_UP));
    let asked: Vec<String> = paths.iter().take(WARM_UP as usize).collect();
    assert!(asked.iter().all(|head| head.contains("/first")), "{asked:?}");
}

#[test]
fn trace_of_a_request_needs_its_unguessable_number() {
    let (address, _seen) = start_recording_server(|stream, _| send_answer(stream, "well"));
    let proxy = Proxy::start(http_config(address, None));
    let answer = proxy.get("/?token=secret");
    let number = answer.split("Sidelane-Request: ").nth(1).and_then(|rest| rest.split("\r\n").next()).unwrap();
    assert!(proxy.get(&format!("/.sidelane/trace/{number}")).contains("token=secret"));
    let (id, mark) = number.split_once('-').unwrap_or((number, ""));
    let guessed = u64::from_str_radix(mark, 16).unwrap_or_default() ^ 1;
    for guess in [id.to_owned(), format!("{id}-"), format!("{id}-0"), format!("{id}-{guessed:016x}")] {
        let told = proxy.get(&format!("/.sidelane/trace/{guess}"));
        assert!(told.starts_with("HTTP/1.1 404 "), "{guess}: {told}");
    }
}

#[test]
fn request_ends_when_its_connection_switches_protocol() {
    let address = start_server(|mut stream| {
        read_until(&mut stream, "\r\n\r\n");
        let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
        stream.write_all(switch.as_bytes()).unwrap();
        let said = read_until(&mut stream, "\n");
        stream.write_all(said.to_uppercase().as_bytes()).unwrap();
    });
    let proxy = Proxy::start(http_config(address, None));
    let mut client = proxy.connect();
    client.write_all(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n").unwrap();
    assert!(read_until(&mut client, "\r\n\r\n").starts_with("HTTP/1.1 101 "));
    proxy.wait_until("the end of the request", |state| state.in_flight == 0 && state.counts.answered == 1);
    client.write_all(b"hello\n").unwrap();
    assert_eq!(read_until(&mut client, "\n"), "HELLO\n");
}

#[test]
fn trace_identifies_each_copy_by_the_port_its_server_sees() {
    let (tell, ports) = channel();
    let answer = move |stream: &mut TcpStream, _: &str| {
        tell.send(stream.peer_addr().unwrap().port()).unwrap();
        send_answer(stream, "well")
    };
    let (address, _seen) = start_recording_server(answer);
    let proxy = Proxy::start(http_config(address, None));
    for path in ["/new", "/again"] {
        let answer = proxy.get(path);
        let number = answer.split("Sidelane-Request: ").nth(1).and_then(|rest| rest.split("\r\n").next()).unwrap();
        let told = proxy.get(&format!("/.sidelane/trace/{number}"));
        let wanted = format!("\"at_server\":{{\"port\":{},\"asked\":0}}", ports.recv().unwrap());
        assert!(told.contains(&wanted), "{wanted}: {told}");
    }
}

/// Starts a proxy whose backup answers with `backup_status`, and whose active server then answers with `active_status`.
fn proxy_with_ordered_answers(backup_status: u16, active_status: u16) -> Proxy {
    let (backup_answered, answers) = channel();
    let answers = Arc::new(Mutex::new(answers));
    let active = start_server(move |mut stream| {
        read_until(&mut stream, "\r\n\r\n");
        answers.lock().unwrap().recv().unwrap();
        send_answer_with_status(&mut stream, active_status, "active");
    });
    let backup = start_server(move |mut stream| {
        read_until(&mut stream, "\r\n\r\n");
        send_answer_with_status(&mut stream, backup_status, "backup");
        // Give the proxy time to read the answer, which its kernel has acknowledged already.
        thread::sleep(Duration::from_millis(50));
        backup_answered.send(()).unwrap();
    });
    Proxy::start(with_hedge_timer(http_config(active, Some(backup)), Duration::from_millis(1)))
}

#[test]
fn later_success_wins_against_an_earlier_failure() {
    for failure in [429, 500, 502, 503, 504] {
        let proxy = proxy_with_ordered_answers(failure, 200);
        assert!(proxy.get("/").ends_with("active"), "{failure}");
        let counts = proxy.finish().counts;
        assert_eq!((counts.answered, counts.hedges, counts.wins, counts.failures), (1, 1, 0, 0), "{counts:?}");
    }
    // These statuses are about the request itself, so any server would answer with them.
    for answer in [200, 301, 404, 413] {
        assert!(proxy_with_ordered_answers(answer, 200).get("/").ends_with("backup"), "{answer}");
    }
    assert!(proxy_with_ordered_answers(503, 500).get("/").ends_with("backup"), "of two failures the first counts");
}

#[test]
fn failure_is_forwarded_if_the_other_server_has_no_answer() {
    let (backup_answered, answers) = channel();
    let answers = Arc::new(Mutex::new(answers));
    let ends = start_server(move |mut stream| {
        read_until(&mut stream, "\r\n\r\n");
        let _ = answers.lock().unwrap().recv();
    });
    let (backup, _seen) = start_recording_server(move |stream, _| {
        let goes_on = send_answer_with_status(stream, 503, "backup");
        // Make the active server close its connections: it gets the request twice, and waits for one message each time.
        (0..2).for_each(|_| backup_answered.send(()).unwrap());
        goes_on
    });
    let proxy = Proxy::start(with_hedge_timer(http_config(ends, Some(backup)), Duration::from_millis(1)));
    let answer = proxy.get("/");
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.ends_with("backup"), "{answer}");

    let silent = start_server(|_stream| thread::park());
    let (backup, _seen) = start_recording_server(|stream, _| send_answer_with_status(stream, 503, "backup"));
    let mut config = with_hedge_timer(http_config(silent, Some(backup)), Duration::from_millis(1));
    config.limits.answer_time = Duration::from_millis(300);
    let answer = Proxy::start(config).get("/");
    assert!(answer.ends_with("backup"), "out of time the failure says more than 504: {answer}");
}

#[test]
fn failures_do_not_count_as_warm_up() {
    const WARM_UP: u32 = 3;
    let (fails, failures) = channel();
    let (address, _seen) = start_recording_server(move |stream, _| match fails.send(()) {
        Ok(()) => send_answer_with_status(stream, 503, "loading"),
        Err(_) => send_answer(stream, "well"),
    });
    let (backup, _seen) = start_recording_server(|stream, _| send_answer(stream, "backup"));
    let mut config = http_config(address, Some(backup));
    config.warm_up_requests = WARM_UP;
    // Use a shorter warm-up time than the failures last: the time must start again at each failure.
    config.table.roles.warm_up_ns = Duration::from_millis(300).as_nanos() as u64;
    let proxy = Proxy::start(config);
    proxy.publish_hazards(Server::FIRST, [Hazard::Restart]);
    proxy.wait_until("the swap", |state| state.counts.swaps[Hazard::Restart as usize] == 1);
    proxy.publish_hazards(Server::FIRST, []);
    proxy.wait_until("the server", |state| state.counts.warm_ups == 1);
    assert!(proxy.get("/").ends_with("backup"));
    (0..2 * WARM_UP).for_each(|_| failures.recv().unwrap());
    assert!(proxy.get("/").ends_with("backup"), "it is still cold");
    drop(failures);
    proxy.wait_until("warming up", |state| state.counts.warm_up_requests == u64::from(WARM_UP));
}

/// Starts a server that answers one request per connection, reports it, and resets the connection at the next byte.
fn server_that_closes_idle_connections() -> (SocketAddr, Receiver<()>) {
    let (told, answered) = channel();
    let address = start_server(move |mut stream| {
        let head = read_until(&mut stream, "\r\n\r\n");
        if head.contains("Content-Length: 4") {
            stream.read_exact(&mut [0; 4]).unwrap();
        }
        told.send(()).unwrap();
        send_answer(&mut stream, "well");
        // Unread bytes turn the close of the connection into a reset.
        let _ = stream.peek(&mut [0]);
    });
    (address, answered)
}

#[test]
fn post_is_not_sent_on_a_long_idle_connection() {
    let (address, answered) = server_that_closes_idle_connections();
    let proxy = Proxy::start(http_config(address, None));
    let mut client = proxy.connect();
    for body in ["Content-Length: 4\r\n\r\nbody", "Content-Length: 0\r\n\r\n", "Content-Length: 4\r\n\r\nbody"] {
        client.write_all(format!("POST / HTTP/1.1\r\nHost: h\r\n{body}").as_bytes()).unwrap();
        let answer = read_until(&mut client, "well");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        // Wait until the connection has been idle for too long to count as just used.
        thread::sleep(Duration::from_millis(150));
    }
    assert_eq!(answered.try_iter().count(), 3);
}

#[test]
fn idle_connection_is_closed_before_its_server_closes_it() {
    let (told, connections) = channel();
    let address = start_server(move |mut stream| {
        told.send(()).unwrap();
        loop {
            read_until(&mut stream, "\r\n\r\n");
            stream.write_all(b"HTTP/1.1 200 OK\r\nKeep-Alive: timeout=1\r\nContent-Length: 2\r\n\r\nok").unwrap();
        }
    });
    let proxy = Proxy::start(http_config(address, None));
    for _ in 0..2 {
        assert!(proxy.get("/").ends_with("ok"));
    }
    assert_eq!(connections.try_iter().count(), 2, "a second before the server's own limit, which is at once");
}

#[test]
fn interrupted_answer_without_length_is_seen_as_incomplete() {
    let address = start_server(|mut stream| {
        read_until(&mut stream, "\r\n");
        stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nhalf").unwrap();
        // The rest of the request head stays unread, so the close becomes a reset. Wait until the proxy has forwarded
        // the first part of the answer.
        thread::sleep(Duration::from_millis(50));
    });
    let proxy = Proxy::start(http_config(address, None));
    let mut client = proxy.connect();
    client.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    let end = client.read_to_end(&mut Vec::new());
    assert_eq!(end.map_err(|error| error.kind()), Err(ErrorKind::ConnectionReset));
    assert_eq!(proxy.finish().counts.cut, 1);
}

#[test]
fn orderly_close_before_the_known_length_cuts_the_answer() {
    for (length, answered_and_cut) in [("Content-Length: 10\r\n", (0, 1)), ("", (1, 0))] {
        let address = start_server(move |mut stream| {
            read_until(&mut stream, "\r\n\r\n");
            write!(stream, "HTTP/1.1 200 OK\r\n{length}\r\nhalf").unwrap();
        });
        let proxy = Proxy::start(http_config(address, None));
        let mut client = proxy.connect();
        client.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        client
            .read_to_end(&mut answer)
            .expect("the end is no reset: the client sees by the length whether it is whole");
        assert!(answer.ends_with(b"half"));
        let counts = proxy.finish().counts;
        assert_eq!((counts.answered, counts.cut), answered_and_cut, "{length}");
    }
}

#[test]
fn an_early_answer_to_an_upload_reaches_the_client() {
    /// Size of a body that exceeds the buffers of all sockets on the way.
    const LONG: usize = 32 << 20;
    let address = start_server(|mut stream| {
        read_until(&mut stream, "\r\n\r\n");
        send_answer_with_status(&mut stream, 413, "too long");
    });
    let proxy = Proxy::start(http_config(address, None));
    let body = vec![b'x'; LONG];
    for attempt in 0..20 {
        let mut client = proxy.connect();
        write!(client, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {LONG}\r\n\r\n").unwrap();
        client.write_all(&body).unwrap_or_else(|error| panic!("attempt {attempt}: {error}"));
        let answer = read_until(&mut client, "too long");
        assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("Connection: close"), "{attempt}: {answer}");
    }
}

#[test]
fn long_dropped_answer_is_not_read_to_its_end() {
    let (client_has_it, tell) = channel::<()>();
    let (told, ended) = channel();
    let tell = Arc::new(Mutex::new(tell));
    let loser = start_server(move |mut stream| {
        read_until(&mut stream, "\r\n\r\n");
        tell.lock().unwrap().recv().unwrap();
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let mut goes_on = stream.write_all(head.as_bytes()).is_ok();
        let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
        while goes_on {
            goes_on = stream.write_all(chunk.as_bytes()).is_ok();
        }
        told.send(()).unwrap();
    });
    let (winner, _seen) = start_recording_server(|stream, _| send_answer(stream, "well"));
    let proxy = Proxy::start(with_hedge_timer(http_config(loser, Some(winner)), Duration::from_millis(1)));
    assert!(proxy.get("/").ends_with("well"));
    client_has_it.send(()).unwrap();
    ended.recv_timeout(TIMEOUT).expect("the proxy closes the connection");
}

#[test]
fn connection_of_a_dropped_answer_is_reused() {
    let (connected, connections) = channel();
    let (tell, told) = channel::<()>();
    let told = Arc::new(Mutex::new(told));
    let slow = start_server(move |mut stream| {
        connected.send(()).unwrap();
        loop {
            read_until(&mut stream, "\r\n\r\n");
            told.lock().unwrap().recv().unwrap();
            send_answer(&mut stream, "slow");
        }
    });
    let (winner, _seen) = start_recording_server(|stream, _| send_answer(stream, "well"));
    let proxy = Proxy::start(with_hedge_timer(http_config(slow, Some(winner)), Duration::from_millis(1)));
    for request in 1..=3 {
        assert!(proxy.get("/").ends_with("well"));
        tell.send(()).unwrap();
        proxy.wait_until("the dropped answer", |state| state.by_server[0].counts.responses[1] == request);
    }
    let counts = proxy.finish().counts;
    assert_eq!((connections.try_iter().count(), counts.dropped, counts.wins), (1, 3, 3), "{counts:?}");
}

#[test]
fn the_number_of_awaited_dropped_answers_is_bounded() {
    const AWAITED: usize = 32;
    const MORE: usize = 8;
    let (told, ends) = channel();
    let silent = start_server(move |mut stream| {
        read_until(&mut stream, "\r\n\r\n");
        // This returns at the end of the connection.
        let _ = stream.read(&mut [0]);
        let _ = told.send(());
    });
    let (winner, _seen) = start_recording_server(|stream, _| send_answer(stream, "well"));
    let mut config = with_hedge_timer(http_config(silent, Some(winner)), Duration::from_millis(1));
    config.table.budget.burst = (AWAITED + MORE) as u64;
    let proxy = Proxy::start(config);
    for _ in 0..AWAITED + MORE {
        assert!(proxy.get("/").ends_with("well"));
    }
    (0..MORE).for_each(|_| ends.recv_timeout(TIMEOUT).expect("the proxy closes the connection"));
    assert_eq!(proxy.finish().counts.dropped, MORE as u64);
}

#[test]
fn http_1_0_requests_share_one_server_connection() {
    let (told, connections) = channel();
    let address = start_server(move |mut stream| {
        told.send(()).unwrap();
        loop {
            let head = read_until(&mut stream, "\r\n\r\n");
            let goes_on = head.contains("Connection: keep-alive\r\n");
            let connection = if goes_on { "keep-alive" } else { "close" };
            let answer = format!("HTTP/1.0 200 OK\r\nConnection: {connection}\r\nContent-Length: 4\r\n\r\nwell");
            stream.write_all(answer.as_bytes()).unwrap();
            if !goes_on {
                return;
            }
        }
    });
    let proxy = Proxy::start(http_config(address, None));
    for _ in 0..3 {
        let answer = proxy.send_and_read_all("GET / HTTP/1.0\r\n\r\n");
        assert!(answer.contains("Connection: close\r\n") && answer.ends_with("well"), "{answer}");
    }
    assert_eq!(connections.try_iter().count(), 1);
}

#[test]
fn too_slow_upload_gets_408_and_frees_its_server() {
    let (told, ends) = channel();
    let address = start_server(move |mut stream| {
        read_until(&mut stream, "\r\n\r\n");
        let mut body = Vec::new();
        let _ = stream.read_to_end(&mut body);
        told.send(body.len()).unwrap();
    });
    let mut config = http_config(address, None);
    config.limits.idle_time = Duration::from_secs(1);
    let proxy = Proxy::start(config);
    let mut client = proxy.connect();
    client.write_all(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n").unwrap();
    let mut writer = client.try_clone().unwrap();
    // Send each byte after a short pause, so that the whole body would take more than an hour.
    thread::spawn(move || {
        while writer.write_all(b"x").is_ok() {
            thread::sleep(Duration::from_millis(50));
        }
    });
    let answer = read_until(&mut client, "too slowly");
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(ends.recv_timeout(TIMEOUT).expect("the server's connection ends") > 0);
    let state = proxy.finish();
    assert_eq!((state.counts.failed, state.by_server[0].counts.errors), (1, [0; 4]), "{state:?}");
}

#[test]
fn server_silent_after_expect_100_continue_gives_504() {
    let (silent, _heads) = start_recording_server(|_, _| {
        thread::park();
        true
    });
    let mut config = http_config(silent, None);
    config.limits.answer_time = Duration::from_millis(300);
    config.limits.idle_time = Duration::from_millis(100);
    let proxy = Proxy::start(config);
    let head = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";
    let answer = proxy.send_and_read_all(head);
    assert!(answer.starts_with("HTTP/1.1 504 "), "{answer}");
}

#[test]
fn a_request_that_comes_byte_by_byte_gets_408() {
    let (address, seen) = start_recording_server(|stream, _| send_answer(stream, "well"));
    let mut config = http_config(address, None);
    config.limits.head_time = Duration::from_millis(300);
    let proxy = Proxy::start(config);
    for begin in ["GET / HTTP/1.1\r\nX: ", "GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 60000\r\n\r\n"] {
        let mut client = proxy.connect();
        client.write_all(begin.as_bytes()).unwrap();
        let mut writer = client.try_clone().unwrap();
        // Send each byte long before the time limit, which is for the whole request.
        thread::spawn(move || {
            while writer.write_all(b"x").is_ok() {
                thread::sleep(Duration::from_millis(30));
            }
        });
        let answer = read_until(&mut client, "did not arrive completely");
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    }
    assert_eq!(seen.try_iter().count(), 0);
}

#[test]
fn answers_have_via_unless_forwarding_is_off() {
    let (address, _seen) = start_recording_server(|stream, _| send_answer(stream, "well"));
    for (forwarded, has_via) in [(Forwarded::Set, true), (Forwarded::Add, true), (Forwarded::Off, false)] {
        let mut config = http_config(address, None);
        config.forwarded = forwarded;
        let answer = Proxy::start(config).get("/");
        assert_eq!(answer.contains("\r\nVia: 1.1 sidelane\r\n"), has_via, "{forwarded:?}: {answer}");
    }
}

#[test]
fn a_client_above_the_limit_gets_503() {
    let (address, _seen) = start_recording_server(|stream, _| send_answer(stream, "well"));
    let mut config = http_config(address, None);
    config.limits.clients = Some(1);
    let proxy = Proxy::start(config);
    let mut first = proxy.connect();
    proxy.wait_until("the first client", |state| state.clients == 1);
    for turned_away in 1..=2 {
        let answer = read_to_end(&mut proxy.connect());
        assert!(answer.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{answer}");
        proxy.wait_until("the count", |state| state.turned_away == turned_away);
    }
    first.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    assert!(read_until(&mut first, "well").starts_with("HTTP/1.1 200 "));
}

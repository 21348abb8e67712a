//! Tests of the proxy with Redis commands. The scripted servers read arrays, which are all that the proxy writes, and
//! report them as lines.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use sidelane_policy::hedge::{Hazard, Server};
use sidelane_proxy::request_table::Counts;

use crate::scene::{Proxy, TIMEOUT, redis_config, with_hedge_timer};
use crate::scripted::{read_to_end, read_until, refusing_address, start_server};

/// Starts a server that reports each command on the returned channel, and then calls `answer`.
fn command_server(
    answer: impl Fn(&mut TcpStream, &str) + Send + Sync + Clone + 'static,
) -> (SocketAddr, Receiver<String>) {
    let (told, commands) = channel();
    let address = start_server(move |mut stream| {
        while let Some(command) = read_command(&mut stream) {
            if told.send(command.clone()).is_err() {
                return;
            }
            answer(&mut stream, &command);
        }
    });
    (address, commands)
}

fn read_command(stream: &mut TcpStream) -> Option<String> {
    let line = read_line(stream)?;
    // After a command that ties its connection, all bytes arrive as the client wrote them.
    let Some(count) = line.strip_prefix('*') else { return Some(format!("as it is: {line}")) };
    let count: usize = count.parse().unwrap();
    let words = (0..count).map(|_| {
        let length: usize = read_line(stream)?.strip_prefix('$').expect("a bulk string").parse().unwrap();
        let mut word = vec![0; length + 2];
        stream.read_exact(&mut word).ok()?;
        word.truncate(length);
        Some(String::from_utf8_lossy(&word).into_owned())
    });
    Some(words.collect::<Option<Vec<_>>>()?.join(" "))
}

fn read_line(stream: &mut TcpStream) -> Option<String> {
    let (mut all, mut byte) = (Vec::new(), [0]);
    while !all.ends_with(b"\r\n") {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        all.push(byte[0]);
    }
    Some(String::from_utf8_lossy(&all).trim_end().to_owned())
}

fn reply_ok(stream: &mut TcpStream, _: &str) {
    let _ = stream.write_all(b"+OK\r\n");
}

/// Sends a command as a new client, and returns the first line of the reply.
fn send_command(proxy: &Proxy, command: &str) -> String {
    let mut client = proxy.connect();
    client.write_all(format!("{command}\r\n").as_bytes()).unwrap();
    read_until(&mut client, "\r\n")
}

#[test]
fn commands_that_no_server_answers_in_time_have_failed() {
    let (silent, _commands) = command_server(|_, _| thread::park());
    let mut config = redis_config(silent, None);
    config.limits.answer_time = Duration::from_millis(200);
    let proxy = Proxy::start(config);
    assert!(proxy.send_and_read_all("GET a\r\nGET b\r\n").starts_with("-ERR sidelane: no server answered in time"));
    let counts = proxy.finish().counts;
    assert_eq!((counts.failed, counts.left), (2, 0), "{counts:?}");
}

#[test]
fn commands_before_a_refused_command_are_answered() {
    let (address, commands) = command_server(reply_ok);
    let proxy = Proxy::start(redis_config(address, None));
    let answer = proxy.send_and_read_all("GET a\r\nSET b 1\r\n*x\r\nGET c\r\n");
    assert!(answer.starts_with("+OK\r\n+OK\r\n-ERR sidelane: protocol error"), "{answer}");
    assert!(commands.try_iter().eq(["GET a", "SET b 1"]));
    assert_eq!(proxy.finish().counts.answered, 2);
}

#[test]
fn a_command_that_is_too_long_to_be_kept_is_sent_once() {
    let (second_has_one, tell_first) = channel();
    let tell_first = Arc::new(Mutex::new(tell_first));
    let (first, _at_first) = command_server(move |stream, command| {
        if command.starts_with("GET long") {
            tell_first.lock().unwrap().recv().unwrap();
        } else {
            thread::park();
        }
        reply_ok(stream, command);
    });
    let (second, at_second) = command_server(move |stream, command| {
        reply_ok(stream, command);
        second_has_one.send(()).unwrap();
    });
    let mut config = with_hedge_timer(redis_config(first, Some(second)), Duration::from_millis(1));
    config.limits.copy_bytes = 25;
    let proxy = Proxy::start(config);
    let mut client = proxy.connect();
    client.write_all(b"GET longer_than_ten\r\n").unwrap();
    proxy.wait_until("the command", |state| state.counts.requests == 1);
    let mut other = proxy.connect();
    other.write_all(b"GET b\r\n").unwrap();
    // The hedge of this command shows that the hedge timer of the earlier, long command has expired too.
    assert_eq!(read_until(&mut other, "\r\n"), "+OK\r\n");
    assert_eq!(read_until(&mut client, "\r\n"), "+OK\r\n");
    assert_eq!(at_second.try_iter().collect::<Vec<_>>(), ["GET b"]);
    assert_eq!(proxy.finish().counts.hedges, 1);
}

#[test]
fn unsafe_command_fails_if_its_server_cannot_be_reached() {
    let (second, at_second) = command_server(reply_ok);
    let mut config = redis_config(refusing_address(), Some(second));
    config.table.unsafe_stay = true;
    let proxy = Proxy::start(config);
    assert!(proxy.send_and_read_all("SET a 1\r\nQUIT\r\n").starts_with("-ERR sidelane: "));
    assert_eq!(at_second.try_iter().count(), 0);
}

#[test]
fn half_closed_client_is_answered_and_not_hedged() {
    let (tell, told) = channel::<()>();
    let told = Arc::new(Mutex::new(told));
    let (active, at_active) = command_server(move |stream, command| {
        let _ = told.lock().unwrap().recv();
        reply_ok(stream, command);
    });
    let (backup, at_backup) = command_server(reply_ok);
    let proxy = Proxy::start(redis_config(active, Some(backup)));
    let mut half_closed = proxy.connect();
    half_closed.write_all(b"GET half\r\n").unwrap();
    half_closed.shutdown(Shutdown::Write).unwrap();
    at_active.recv().unwrap();
    // When the server has this client's command, the proxy has also seen the half-close of the first client.
    let mut open = proxy.connect();
    open.write_all(b"GET open\r\n").unwrap();
    at_active.recv().unwrap();
    proxy.publish_hazards(Server::FIRST, [Hazard::JvmGc]);
    assert_eq!(read_until(&mut open, "\r\n"), "+OK\r\n");
    (0..2).for_each(|_| tell.send(()).unwrap());
    assert_eq!(read_until(&mut half_closed, "\r\n"), "+OK\r\n");
    assert_eq!(at_backup.try_iter().collect::<Vec<_>>(), ["GET open"]);
}

#[test]
fn client_that_reads_no_replies_stops_its_server_and_ends() {
    const REPLIES: usize = 200;
    const LONG: usize = 900 << 10;
    let (told, ended) = channel();
    let (address, _commands) = command_server(move |stream, _| {
        let reply = format!("${LONG}\r\n{}\r\n", "x".repeat(LONG));
        if stream.write_all(reply.as_bytes()).is_err() {
            let _ = told.send(());
        }
    });
    let mut config = redis_config(address, None);
    config.limits.answer_time = Duration::from_millis(500);
    let proxy = Proxy::start(config);
    let mut client = proxy.connect();
    client.write_all("GET a\r\n".repeat(REPLIES).as_bytes()).unwrap();
    ended.recv_timeout(TIMEOUT).expect("the server could not write all");
    proxy.wait_until("the end of the client", |state| state.clients == 0);
}

#[test]
fn long_reply_is_forwarded_completely() {
    const LONG: usize = 3 << 20;
    let (address, _commands) = command_server(|stream, _| {
        let _ = stream.write_all(format!("${LONG}\r\n{}\r\n", "x".repeat(LONG)).as_bytes());
    });
    let proxy = Proxy::start(redis_config(address, None));
    let mut client = proxy.connect();
    client.write_all(b"GET a\r\n").unwrap();
    assert_eq!(read_until(&mut client, "\r\n"), format!("${LONG}\r\n"));
    let mut value = vec![0; LONG + 2];
    client.read_exact(&mut value).unwrap();
    assert_eq!(proxy.finish().counts.answered, 1);
}

#[test]
fn malformed_commands_are_refused() {
    let (address, commands) = command_server(reply_ok);
    let proxy = Proxy::start(redis_config(address, None));
    for wrong in ["\"SELECT 1\r\n", "SEL\"E\"CT 1\r\n", "*1\r\n%1\r\n", "*1\r\n$-1\r\n", "a\0b\r\n"] {
        assert!(proxy.send_and_read_all(wrong).starts_with("-ERR sidelane: "), "{wrong:?}");
    }
    assert_eq!(commands.try_iter().count(), 0);
}

#[test]
fn server_gets_commands_as_arrays() {
    let (address, commands) = command_server(reply_ok);
    let proxy = Proxy::start(redis_config(address, None));
    let mut client = proxy.connect();
    let bytes = "  get \"a b\" '' \x0b\n*1\r\n$4\r\nPING\r\n\r\n*0\r\n$8\r\nSELECT 5\r\n";
    client.write_all(bytes.as_bytes()).unwrap();
    let told: Vec<String> = commands.iter().take(4).collect();
    assert_eq!(told, ["get a b ", "PING", "$8", "as it is: SELECT 5"]);
}

#[test]
fn stateful_connection_is_not_used_for_other_clients() {
    let stateful =
        ["SELECT 5", "$17\r\nCLIENT REPLY SKIP", "\"MULTI\"", "FT.CURSOR x", "HELLO 3", "CLIENT SETINFO lib-name x"];
    for first in stateful {
        let (told, ports) = channel();
        let (address, _commands) = command_server(move |stream, command| {
            let _ = told.send((command.to_owned(), stream.peer_addr().unwrap().port()));
            let _ = stream.write_all(b"+OK\r\n");
        });
        let proxy = Proxy::start(redis_config(address, None));
        let mut client = proxy.connect();
        client.write_all(format!("{first}\r\n").as_bytes()).unwrap();
        assert_eq!(read_until(&mut client, "\r\n"), "+OK\r\n");
        let (_, port) = ports.recv().unwrap();
        drop(client);
        proxy.wait_until("its end", |state| state.clients == 0);
        let mut other = proxy.connect();
        other.write_all(b"GET a\r\n").unwrap();
        assert_eq!(read_until(&mut other, "\r\n"), "+OK\r\n");
        let others = ports.iter().find(|(command, _)| command == "GET a").unwrap();
        assert_ne!(others.1, port, "{first}");
    }
}

#[test]
fn blocking_command_of_a_gone_client_ends_at_the_server() {
    for command in ["BLPOP q 0", "XREAD BLOCK 0 STREAMS s $", "BZMPOP 0 1 z MIN"] {
        let (told, ended) = channel();
        let (asked, commands) = channel();
        let address = start_server(move |mut stream| {
            asked.send(read_command(&mut stream)).unwrap();
            let _ = told.send(stream.read(&mut [0]).unwrap_or(0));
        });
        let proxy = Proxy::start(redis_config(address, None));
        let mut client = proxy.connect();
        client.write_all(format!("{command}\r\n").as_bytes()).unwrap();
        assert_eq!(commands.recv().unwrap().as_deref(), Some(command));
        drop(client);
        assert_eq!(ended.recv_timeout(TIMEOUT), Ok(0), "{command}");
    }
}

#[test]
fn blocking_command_of_a_client_that_left_is_not_sent() {
    let (tell, told) = channel::<()>();
    let told = Arc::new(Mutex::new(told));
    let (address, commands) = command_server(move |stream, command| {
        let _ = told.lock().unwrap().recv();
        reply_ok(stream, command);
    });
    let proxy = Proxy::start(redis_config(address, None));
    let mut client = proxy.connect();
    client.write_all(b"GET a\r\nBLPOP q 0\r\n").unwrap();
    assert_eq!(commands.recv_timeout(TIMEOUT).as_deref(), Ok("GET a"));
    client.shutdown(Shutdown::Write).unwrap();
    (0..2).for_each(|_| tell.send(()).unwrap());
    assert_eq!(read_to_end(&mut client), "+OK\r\n");
    proxy.wait_until("its end", |state| state.clients == 0);
    assert_eq!(commands.try_iter().count(), 0);
}

#[test]
fn connection_without_state_serves_the_next_client() {
    let (told, ports) = channel();
    let (address, _commands) = command_server(move |stream, command| {
        let _ = told.send(stream.peer_addr().unwrap().port());
        reply_ok(stream, command);
    });
    let proxy = Proxy::start(redis_config(address, None));
    for _ in 0..3 {
        assert_eq!(send_command(&proxy, "GET a"), "+OK\r\n");
        proxy.wait_until("its end", |state| state.clients == 0);
    }
    let ports: Vec<u16> = ports.try_iter().collect();
    assert!(ports.len() == 3 && ports.iter().all(|port| *port == ports[0]), "{ports:?}");
}

#[test]
fn unrepeatable_commands_have_no_answer_time_limit() {
    const LIMIT: Duration = Duration::from_millis(100);
    for command in ["BLPOP q 0", "LPOP q", "EVAL x 0"] {
        let (address, _commands) = command_server(|stream, _| {
            thread::sleep(10 * LIMIT);
            let _ = stream.write_all(b"$1\r\nx\r\n");
        });
        let mut config = redis_config(address, None);
        config.limits.answer_time = LIMIT;
        let proxy = Proxy::start(config);
        assert_eq!(send_command(&proxy, command), "$1\r\n", "{command}");
    }
}

#[test]
fn client_reads_its_own_writes_despite_the_other_server() {
    let (first, at_first) = command_server(|stream, command| {
        // Answer a GET only after the hedge timer of 1 ms, so that a repeatable GET would be hedged.
        thread::sleep(Duration::from_millis(if command.starts_with("GET") { 200 } else { 0 }));
        let _ = stream.write_all(b"+new\r\n");
    });
    let (second, at_second) = command_server(|stream, _| {
        let _ = stream.write_all(b"+old\r\n");
    });
    let proxy = Proxy::start(with_hedge_timer(redis_config(first, Some(second)), Duration::from_millis(1)));
    let mut client = proxy.connect();
    for command in ["SET a new", "GET a"] {
        client.write_all(format!("{command}\r\n").as_bytes()).unwrap();
        assert_eq!(read_until(&mut client, "\r\n"), "+new\r\n");
    }
    let proxy = Proxy::start(redis_config(first, Some(second)));
    let mut client = proxy.connect();
    client.write_all(b"SET a new\r\n").unwrap();
    assert_eq!(read_until(&mut client, "\r\n"), "+new\r\n");
    proxy.publish_hazards(Server::FIRST, [Hazard::Stopped]);
    proxy.wait_until("the swap", |state| state.active == second);
    for command in ["GET a", "EVALSHA y 0", "GET a"] {
        client.write_all(format!("{command}\r\n").as_bytes()).unwrap();
        assert_eq!(read_until(&mut client, "\r\n"), "+new\r\n", "{command}");
    }
    assert_eq!((at_first.try_iter().count(), at_second.try_iter().count()), (6, 0));
    // A client that has written nothing is answered by the new active server.
    assert_eq!(send_command(&proxy, "GET a"), "+old\r\n");
}

#[test]
fn proxy_stops_reading_client_while_server_reads_nothing() {
    const VALUE: usize = 100 << 10;
    let address = start_server(|stream| {
        let _open = stream;
        thread::park();
    });
    let mut config = redis_config(address, None);
    config.limits.pipeline_bytes = 1 << 20;
    let proxy = Proxy::start(config);
    let mut client = proxy.connect();
    client.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    let command = format!("*3\r\n$3\r\nSET\r\n$1\r\na\r\n${VALUE}\r\n{}\r\n", "x".repeat(VALUE));
    // Try to write 500 MB. Socket buffers accept a part of it.
    let written = (0..5000).take_while(|_| client.write_all(command.as_bytes()).is_ok()).count();
    assert!(written * VALUE < 50 << 20, "{written} commands");
}

#[test]
fn long_reply_is_forwarded_before_it_is_complete() {
    const LONG: usize = 100 << 20;
    let (tell, told) = channel();
    let told = Arc::new(Mutex::new(told));
    let (address, _commands) = command_server(move |stream, command| {
        if command == "PING" {
            let _ = stream.write_all(b"+PONG\r\n");
            return;
        }
        let (begin, end) = ("x".repeat(LONG / 2), "y".repeat(LONG / 2));
        stream.write_all(format!("${LONG}\r\n{begin}").as_bytes()).unwrap();
        told.lock().unwrap().recv().unwrap();
        stream.write_all(format!("{end}\r\n").as_bytes()).unwrap();
    });
    let proxy = Proxy::start(redis_config(address, None));
    let mut client = proxy.connect();
    client.write_all(b"GET a\r\nPING\r\n").unwrap();
    let mut begin = vec![0; LONG / 2];
    assert_eq!(read_until(&mut client, "\r\n"), format!("${LONG}\r\n"));
    // Other clients are still served while the slow client reads nothing.
    assert_eq!(send_command(&proxy, "PING"), "+PONG\r\n");
    client.read_exact(&mut begin).unwrap();
    tell.send(()).unwrap();
    let mut end = vec![0; LONG / 2 + 2];
    client.read_exact(&mut end).unwrap();
    assert!(begin.iter().all(|byte| *byte == b'x') && end.starts_with(b"yy") && end.ends_with(b"yy\r\n"));
    assert_eq!(read_until(&mut client, "\r\n"), "+PONG\r\n");
    assert_eq!(proxy.finish().counts.answered, 3);
}

#[test]
fn no_bytes_follow_an_interrupted_reply() {
    let (address, _commands) = command_server(|stream, _| {
        let _ = stream.write_all(format!("$1000000\r\n{}", "x".repeat(500_000)).as_bytes());
        let _ = stream.shutdown(std::net::Shutdown::Both);
    });
    let proxy = Proxy::start(redis_config(address, None));
    let answer = proxy.send_and_read_all("GET a\r\nGET b\r\n");
    assert!(answer.ends_with('x') || answer.is_empty(), "{}", &answer[answer.len().saturating_sub(100)..]);
}

#[test]
fn wait_command_goes_to_the_server_that_got_the_write() {
    let ((first, at_first), (second, _at_second)) = (command_server(reply_ok), command_server(reply_ok));
    let proxy = Proxy::start(redis_config(first, Some(second)));
    let mut client = proxy.connect();
    client.write_all(b"SET a 1\r\n").unwrap();
    assert_eq!(read_until(&mut client, "\r\n"), "+OK\r\n");
    proxy.publish_hazards(Server::FIRST, [Hazard::Stopped]);
    proxy.wait_until("the swap", |state| state.counts.swaps[Hazard::Stopped as usize] == 1);
    client.write_all(b"WAIT 1 0\r\n").unwrap();
    assert_eq!(read_until(&mut client, "\r\n"), "+OK\r\n");
    assert!(at_first.try_iter().eq(["SET a 1", "WAIT 1 0"]));
}

#[test]
fn greeting_ties_no_connection_and_tied_ones_are_counted() {
    let (address, _commands) = command_server(reply_ok);
    let proxy = Proxy::start(redis_config(address, None));
    let mut client = proxy.connect();
    // Send the first commands of the client libraries go-redis and lettuce.
    let greeting = "HELLO 2\r\nCLIENT SETINFO lib-name x\r\nCLIENT MAINT_NOTIFICATIONS on\r\nGET a\r\n";
    client.write_all(greeting.as_bytes()).unwrap();
    (0..4).for_each(|_| assert_eq!(read_until(&mut client, "\r\n"), "+OK\r\n"));
    client.write_all(b"AUTH secret\r\nGET a\r\n").unwrap();
    assert_eq!(read_until(&mut client, "\r\n") + &read_until(&mut client, "\r\n"), "+OK\r\n+OK\r\n");
    let counts = proxy.finish().counts;
    assert_eq!((counts.requests, counts.answered, counts.tied), (4, 4, 1), "{counts:?}");
}

/// Returns the client's reply and the counts. The backup replies with `backup_reply`, and the active server then with
/// `active_reply`.
fn run_ordered_replies(backup_reply: &'static str, active_reply: &'static str) -> (String, Counts) {
    let (tell, answers) = channel();
    let answers = Arc::new(Mutex::new(answers));
    let (active, _at_active) = command_server(move |stream, _| {
        answers.lock().unwrap().recv().unwrap();
        let _ = stream.write_all(active_reply.as_bytes());
    });
    let (backup, _at_backup) = command_server(move |stream, _| {
        let _ = stream.write_all(backup_reply.as_bytes());
        // Give the proxy time to read the reply, which its kernel has acknowledged already.
        thread::sleep(Duration::from_millis(50));
        tell.send(()).unwrap();
    });
    let proxy = Proxy::start(with_hedge_timer(redis_config(active, Some(backup)), Duration::from_millis(1)));
    (send_command(&proxy, "GET a"), proxy.finish().counts)
}

#[test]
fn later_redis_reply_wins_against_an_earlier_failure() {
    for failure in ["-LOADING wait\r\n", "-MASTERDOWN wait\r\n", "-NOAUTH say who you are\r\n"] {
        let (reply, counts) = run_ordered_replies(failure, "+active\r\n");
        assert_eq!(reply, "+active\r\n", "{failure}");
        assert_eq!((counts.answered, counts.hedges, counts.wins, counts.failures), (1, 1, 0, 0), "{counts:?}");
        assert_eq!(counts.failed_hedges, 1);
    }
    // An error about the command itself is forwarded at once, because any server would return it.
    assert_eq!(run_ordered_replies("-WRONGTYPE a\r\n", "+active\r\n").0, "-WRONGTYPE a\r\n");
    assert_eq!(
        run_ordered_replies("-LOADING first\r\n", "-BUSY last\r\n").0,
        "-LOADING first\r\n",
        "of two failures the first counts"
    );
}

#[test]
fn redis_failure_is_forwarded_if_other_server_is_silent() {
    let silent = start_server(|_stream| thread::park());
    let (backup, _at_backup) = command_server(|stream, _| {
        let _ = stream.write_all(b"-LOADING wait\r\n");
    });
    let mut config = with_hedge_timer(redis_config(silent, Some(backup)), Duration::from_millis(1));
    config.limits.answer_time = Duration::from_millis(300);
    let proxy = Proxy::start(config);
    assert_eq!(send_command(&proxy, "GET a"), "-LOADING wait\r\n");
}

#[test]
fn redis_failure_is_forwarded_if_other_server_is_lost() {
    let (tell, answers) = channel();
    let answers = Arc::new(Mutex::new(answers));
    let ends = start_server(move |mut stream| {
        read_command(&mut stream);
        let _ = answers.lock().unwrap().recv();
    });
    let (backup, _at_backup) = command_server(move |stream, _| {
        let _ = stream.write_all(b"-LOADING wait\r\n");
        // Make the active server close its connections: it gets the command twice, and waits for one message each time.
        (0..2).for_each(|_| tell.send(()).unwrap());
    });
    let proxy = Proxy::start(with_hedge_timer(redis_config(ends, Some(backup)), Duration::from_millis(1)));
    assert_eq!(send_command(&proxy, "GET a"), "-LOADING wait\r\n");
}

/// Starts a server that knows no script until it gets one.
fn script_server() -> (SocketAddr, Receiver<String>) {
    let is_loaded = Arc::new(Mutex::new(false));
    command_server(move |stream, command| {
        let mut is_loaded = is_loaded.lock().unwrap();
        *is_loaded |= command.starts_with("SCRIPT LOAD");
        let is_known = *is_loaded || !command.starts_with("EVALSHA");
        let reply: &[u8] = if is_known { b"+OK\r\n" } else { b"-NOSCRIPT No matching script\r\n" };
        let _ = stream.write_all(reply);
    })
}

#[test]
fn script_load_is_copied_to_all_servers() {
    let [(first, _at_first), (second, at_second), (third, at_third)] = [(); 3].map(|()| script_server());
    let proxy = Proxy::start(redis_config(first, [second, third]));
    let mut client = proxy.connect();
    for command in ["SCRIPT LOAD x", "GET a"] {
        client.write_all(format!("{command}\r\n").as_bytes()).unwrap();
        assert_eq!(read_until(&mut client, "\r\n"), "+OK\r\n");
    }
    for commands in [&at_second, &at_third] {
        assert_eq!(commands.recv_timeout(TIMEOUT).as_deref(), Ok("SCRIPT LOAD x"));
    }
    proxy.publish_hazards(Server::FIRST, [Hazard::Stopped]);
    proxy.wait_until("the swap", |state| state.active == second);
    // Loading a script does not tie the client to its server, so the next command may go to another server.
    client.write_all(b"EVALSHA y 0\r\n").unwrap();
    assert_eq!(read_until(&mut client, "\r\n"), "+OK\r\n");
    assert_eq!(at_second.recv_timeout(TIMEOUT).as_deref(), Ok("EVALSHA y 0"));
    proxy.publish_hazards(Server::ALL[1], [Hazard::Stopped]);
    proxy.wait_until("the next swap", |state| state.active == third);
    assert_eq!(send_command(&proxy, "EVALSHA y 0"), "+OK\r\n");
}

#[test]
fn command_goes_to_the_second_backup_if_the_first_is_lost() {
    let (active, at_active) = command_server(|_, _| thread::park());
    let (first, at_first) = command_server(|stream, _| stream.shutdown(Shutdown::Both).unwrap());
    let (second, _at_second) = command_server(reply_ok);
    let proxy = Proxy::start(redis_config(active, [first, second]));
    let mut client = proxy.connect();
    client.write_all(b"GET a\r\n").unwrap();
    at_active.recv_timeout(TIMEOUT).expect("the active server gets it");
    proxy.publish_hazards(Server::FIRST, [Hazard::Stopped]);
    assert_eq!(read_until(&mut client, "\r\n"), "+OK\r\n");
    assert_eq!(at_first.try_recv().as_deref(), Ok("GET a"));
    let counts = proxy.finish().counts;
    assert_eq!((counts.answered, counts.hedges, counts.sent_again), (1, 1, 1), "{counts:?}");
}

#[test]
fn loading_redis_does_not_count_as_warmed_up() {
    const WARM_UP: u32 = 3;
    let (fails, failures) = channel();
    let (first, _at_first) = command_server(move |stream, _| {
        let reply: &[u8] = if fails.send(()).is_ok() { b"-LOADING wait\r\n" } else { b"+active\r\n" };
        let _ = stream.write_all(reply);
    });
    let (second, _at_second) = command_server(|stream, _| {
        let _ = stream.write_all(b"+backup\r\n");
    });
    let mut config = redis_config(first, Some(second));
    config.warm_up_requests = WARM_UP;
    let warm_up = Duration::from_secs(1);
    config.table.roles.warm_up_ns = warm_up.as_nanos() as u64;
    let proxy = Proxy::start(config);
    proxy.publish_hazards(Server::FIRST, [Hazard::Restart]);
    proxy.wait_until("the swap", |state| state.active == second);
    // The server is warmed up with this command.
    assert_eq!(send_command(&proxy, "GET a"), "+backup\r\n");
    let began = Instant::now();
    proxy.publish_hazards(Server::FIRST, []);
    // The failures last longer than a warm-up: its time must start again at each.
    while began.elapsed() < warm_up {
        failures.recv_timeout(TIMEOUT).unwrap();
    }
    assert_eq!(send_command(&proxy, "GET a"), "+backup\r\n", "it is still cold");
    drop(failures);
    proxy.wait_until("warming up", |state| state.counts.warm_up_requests == u64::from(WARM_UP));
}

#[test]
fn failure_is_forwarded_in_time_before_an_unlimited_command() {
    let (silent, at_silent) = command_server(|_, _| {});
    let (backup, _at_backup) = command_server(|stream, _| {
        let _ = stream.write_all(b"-LOADING wait\r\n");
    });
    let mut config = with_hedge_timer(redis_config(silent, Some(backup)), Duration::from_millis(1));
    config.limits.answer_time = Duration::from_millis(300);
    let proxy = Proxy::start(config);
    let mut client = proxy.connect();
    client.write_all(b"GET a\r\n").unwrap();
    proxy.wait_until("the failure of the hedge", |state| state.counts.failed_hedges == 1);
    client.write_all(b"INCR b\r\n").unwrap();
    assert!(at_silent.iter().take(2).eq(["GET a", "INCR b"]));
    assert_eq!(read_until(&mut client, "\r\n"), "-LOADING wait\r\n");
    // The second command is still in flight.
    proxy.wait_until("the first answer", |state| state.counts.answered == 1);
    assert_eq!((proxy.finish().in_flight), 1);
}

/// Starts a server that accepts HELLO 3. Its other replies name the first command of the connection.
fn hello_server(name: &'static str) -> SocketAddr {
    start_server(move |mut stream| {
        let Some(first) = read_command(&mut stream) else { return };
        let mut next = Some(first.clone());
        while let Some(command) = next {
            let reply = match &*command {
                "HELLO 3" => "%1\r\n+proto\r\n:3\r\n".to_owned(),
                "GET slow" if name == "active" => String::new(),
                _ => format!(">2\r\n+MOVING\r\n:1\r\n+{name} after {first}\r\n"),
            };
            let _ = stream.write_all(reply.as_bytes());
            next = read_command(&mut stream);
        }
    })
}

#[test]
fn resp3_client_is_hedged_on_resp3_connections() {
    let (first, second) = (hello_server("active"), hello_server("backup"));
    let proxy = Proxy::start(with_hedge_timer(redis_config(first, Some(second)), Duration::from_millis(1)));
    let mut client = proxy.connect();
    client.write_all(b"HELLO 3\r\n").unwrap();
    (0..3).for_each(|_| drop(read_until(&mut client, "\r\n")));
    client.write_all(b"CLIENT MAINT_NOTIFICATIONS on\r\n").unwrap();
    assert_eq!(read_until(&mut client, "\r\n"), "+active after HELLO 3\r\n");
    client.write_all(b"GET slow\r\n").unwrap();
    assert_eq!(read_until(&mut client, "\r\n"), "+backup after HELLO 3\r\n");
    drop(client);
    proxy.wait_until("its end", |state| state.clients == 0);
    assert_eq!(send_command(&proxy, "GET slow"), "+backup after GET slow\r\n", "no other client gets its connections");
    assert_eq!(proxy.finish().counts.tied, 0);
}

#[test]
fn a_client_of_resp3_is_tied_to_a_connection_that_speaks_it() {
    for command in ["SUBSCRIBE a", "HELLO 2"] {
        let (first, second) = (hello_server("active"), hello_server("backup"));
        let proxy = Proxy::start(redis_config(first, Some(second)));
        let mut client = proxy.connect();
        client.write_all(b"HELLO 3\r\n").unwrap();
        (0..3).for_each(|_| drop(read_until(&mut client, "\r\n")));
        proxy.publish_hazards(Server::FIRST, [Hazard::Stopped]);
        proxy.wait_until("the swap", |state| state.active == second);
        client.write_all(format!("{command}\r\n").as_bytes()).unwrap();
        // A tied client gets everything that the server sends, except the reply to the greeting.
        let lines: Vec<String> = (0..4).map(|_| read_until(&mut client, "\r\n")).collect();
        assert_eq!(lines.concat(), ">2\r\n+MOVING\r\n:1\r\n+backup after HELLO 3\r\n", "{command}");
    }
}

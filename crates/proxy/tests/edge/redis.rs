//! RESP. Commands are inline, so a server that is a script reads lines.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use sidelane_policy::hedge::{Hazard, Server};

use crate::scene::{Proxy, hedged_after, redis};
use crate::scripted::{nowhere, read_to_end, read_until, server};

/// A server that tells of each command, and then does `answer`.
fn commands(answer: impl Fn(&mut TcpStream, &str) + Send + Sync + Clone + 'static) -> (SocketAddr, Receiver<String>) {
    let (told, commands) = channel();
    let address = server(move |mut stream| {
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
    let (mut all, mut byte) = (Vec::new(), [0]);
    while !all.ends_with(b"\r\n") {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        all.push(byte[0]);
    }
    Some(String::from_utf8_lossy(&all).trim_end().to_owned())
}

fn ok(stream: &mut TcpStream, _: &str) {
    let _ = stream.write_all(b"+OK\r\n");
}

#[test]
fn commands_that_no_server_answers_in_time_have_failed() {
    let (silent, _commands) = commands(|_, _| thread::park());
    let mut config = redis(silent, None);
    config.limits.answer_time = Duration::from_millis(200);
    let proxy = Proxy::start(config);
    assert!(proxy.send("GET a\r\nGET b\r\n").starts_with("-ERR sidelane: no server answered in time"));
    let counts = proxy.finish().counts;
    assert_eq!((counts.failed, counts.left), (2, 0), "{counts:?}");
}

#[test]
fn commands_before_one_that_is_refused_have_failed() {
    let (silent, commands) = commands(|_, _| thread::park());
    let proxy = Proxy::start(redis(silent, None));
    let mut client = proxy.connect();
    client.write_all(b"GET a\r\n").unwrap();
    commands.recv().unwrap();
    client.write_all(b"*x\r\n").unwrap();
    read_to_end(&mut client);
    let counts = proxy.finish().counts;
    assert_eq!((counts.failed, counts.left), (1, 0), "{counts:?}");
}

#[test]
fn a_command_that_is_too_long_to_be_kept_is_sent_once() {
    let (second_has_one, tell_first) = channel();
    let tell_first = Arc::new(Mutex::new(tell_first));
    let (first, _at_first) = commands(move |stream, command| {
        if command.starts_with("GET long") {
            tell_first.lock().unwrap().recv().unwrap();
        } else {
            thread::park();
        }
        ok(stream, command);
    });
    let (second, at_second) = commands(move |stream, command| {
        ok(stream, command);
        second_has_one.send(()).unwrap();
    });
    let mut config = hedged_after(redis(first, Some(second)), Duration::from_millis(1));
    config.limits.copy_bytes = 10;
    let proxy = Proxy::start(config);
    let mut client = proxy.connect();
    client.write_all(b"GET longer_than_ten\r\n").unwrap();
    proxy.wait_until("the command", |state| state.counts.requests == 1);
    let mut other = proxy.connect();
    other.write_all(b"GET b\r\n").unwrap();
    // It is hedged, so the time of the first one is over, too.
    assert_eq!(read_until(&mut other, "\r\n"), "+OK\r\n");
    assert_eq!(read_until(&mut client, "\r\n"), "+OK\r\n");
    assert_eq!(at_second.try_iter().collect::<Vec<_>>(), ["GET b"]);
    assert_eq!(proxy.finish().counts.hedges, 1);
}

#[test]
fn what_has_to_stay_is_not_sent_to_the_other_server_when_the_first_cannot_be_reached() {
    let (second, at_second) = commands(ok);
    let mut config = redis(nowhere(), Some(second));
    config.desk.unsafe_stay = true;
    let proxy = Proxy::start(config);
    assert!(proxy.send("SET a 1\r\nQUIT\r\n").starts_with("-ERR sidelane: "));
    assert_eq!(at_second.try_iter().count(), 0);
}

#[test]
fn a_client_that_does_not_read_stops_its_server() {
    const REPLIES: usize = 200;
    const LONG: usize = 900 << 10;
    let (told, ended) = channel();
    let (address, _commands) = commands(move |stream, _| {
        let reply = format!("${LONG}\r\n{}\r\n", "x".repeat(LONG));
        if stream.write_all(reply.as_bytes()).is_err() {
            let _ = told.send(());
        }
    });
    let mut config = redis(address, None);
    config.limits.answer_time = Duration::from_millis(500);
    let proxy = Proxy::start(config);
    let mut client = proxy.connect();
    client.write_all("GET a\r\n".repeat(REPLIES).as_bytes()).unwrap();
    ended.recv_timeout(crate::scene::TIMEOUT).expect("the server could not write all");
    proxy.wait_until("the end of the client", |state| state.clients == 0);
}

#[test]
fn a_long_reply_is_passed_on() {
    const LONG: usize = 3 << 20;
    let (address, _commands) = commands(|stream, _| {
        let _ = stream.write_all(format!("${LONG}\r\n{}\r\n", "x".repeat(LONG)).as_bytes());
    });
    let proxy = Proxy::start(redis(address, None));
    let mut client = proxy.connect();
    client.write_all(b"GET a\r\n").unwrap();
    assert_eq!(read_until(&mut client, "\r\n"), format!("${LONG}\r\n"));
    let mut value = vec![0; LONG + 2];
    client.read_exact(&mut value).unwrap();
    assert_eq!(proxy.finish().counts.answered, 1);
}

#[test]
fn inline_commands_that_two_readers_could_read_in_two_ways_are_refused() {
    let (address, commands) = commands(ok);
    let proxy = Proxy::start(redis(address, None));
    for wrong in ["\"SELECT\" 1\r\n", " SELECT 1\r\n", "SEL'ECT' 1\r\n", "SELECT\x0b1\r\n"] {
        assert!(proxy.send(wrong).starts_with("-ERR sidelane: "), "{wrong:?}");
    }
    assert_eq!(commands.try_iter().count(), 0);
}

#[test]
fn who_has_what_was_written_is_asked_of_the_server_that_got_it() {
    let ((first, at_first), (second, at_second)) = (commands(ok), commands(ok));
    let proxy = Proxy::start(redis(first, Some(second)));
    let mut client = proxy.connect();
    client.write_all(b"SET a 1\r\n").unwrap();
    assert_eq!(read_until(&mut client, "\r\n"), "+OK\r\n");
    proxy.tell(Server::First, [Hazard::Stopped]);
    proxy.wait_until("the swap", |state| state.counts.swaps[Hazard::Stopped as usize] == 1);
    client.write_all(b"WAIT 1 0\r\n").unwrap();
    assert_eq!(read_until(&mut client, "\r\n"), "+OK\r\n");
    assert!(at_first.try_iter().eq(["SET a 1", "WAIT 1 0"]));
    // Of a client that wrote at both nobody can tell.
    let mut both = proxy.connect();
    for (hazard, server) in [(Hazard::Stopped, Server::First), (Hazard::JvmGc, Server::Second)] {
        proxy.tell(server.other(), []);
        proxy.tell(server, [hazard]);
        proxy.wait_until("the other one", |state| state.active == if server == Server::First { second } else { first });
        both.write_all(b"SET b 1\r\n").unwrap();
        assert_eq!(read_until(&mut both, "\r\n"), "+OK\r\n");
    }
    both.write_all(b"WAIT 1 0\r\n").unwrap();
    assert!(read_to_end(&mut both).contains("several connections"));
    assert!(at_first.try_iter().eq(["SET b 1"]) && at_second.try_iter().eq(["SET b 1"]));
}

#[test]
fn tied_connections_are_counted_and_a_client_that_says_what_it_is_is_not_tied() {
    let (address, _commands) = commands(ok);
    let proxy = Proxy::start(redis(address, None));
    let mut client = proxy.connect();
    client.write_all(b"CLIENT SETINFO lib-name x\r\nGET a\r\n").unwrap();
    assert_eq!(read_until(&mut client, "\r\n") + &read_until(&mut client, "\r\n"), "+OK\r\n+OK\r\n");
    client.write_all(b"AUTH secret\r\nGET a\r\n").unwrap();
    assert_eq!(read_until(&mut client, "\r\n") + &read_until(&mut client, "\r\n"), "+OK\r\n+OK\r\n");
    let counts = proxy.finish().counts;
    assert_eq!((counts.requests, counts.answered, counts.tied), (2, 2, 1), "{counts:?}");
}

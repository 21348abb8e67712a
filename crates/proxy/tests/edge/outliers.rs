//! Tests with servers that fail their requests.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::Duration;

use sidelane_policy::hedge::Hazard;
use sidelane_proxy::config::Config;
use sidelane_proxy::edge::{ServerState, State};
use sidelane_proxy::request_table::ServerError;

use crate::scene::{Proxy, http_config, redis_config, with_hedge_timer};
use crate::scripted::{
    read_until, send_answer, send_answer_with_status, start_answering_server, start_recording_server, start_server,
};

/// Number of consecutive failures that eject a server.
const IN_A_ROW: usize = 5;
/// Number of requests that is large enough for the share of failures to eject a server.
const MANY: usize = 30;

/// Starts a server that answers the text `name` with a status that the returned value sets.
fn server_with_settable_status(name: &'static str) -> (SocketAddr, Arc<AtomicU16>) {
    let status = Arc::new(AtomicU16::new(200));
    let its_status = Arc::clone(&status);
    let address = start_answering_server(move |stream, _| {
        send_answer_with_status(stream, its_status.load(Ordering::Relaxed), name)
    });
    (address, status)
}

fn first_server_state(state: &State) -> &ServerState {
    &state.by_server[0]
}

fn first_server_error_count(state: &State, error: ServerError) -> u64 {
    first_server_state(state).counts.errors[error as usize]
}

fn swap_count_for_failing_server(state: &State) -> u64 {
    state.counts.swaps[Hazard::Failing as usize]
}

fn with_ejection_time(mut config: Config, ejection_time: Duration) -> Config {
    config.table.roles.out_ns = ejection_time.as_nanos() as u64;
    config
}

#[test]
fn failing_server_is_ejected_and_returns_when_it_succeeds() {
    let ((first, status), (second, _)) = (server_with_settable_status("one"), server_with_settable_status("two"));
    let mut config = with_ejection_time(http_config(first, Some(second)), Duration::from_millis(100));
    config.warm_up_requests = 2;
    let proxy = Proxy::start(config);
    status.store(503, Ordering::Relaxed);
    (0..IN_A_ROW).for_each(|_| assert!(proxy.get("/").starts_with("HTTP/1.1 503 ")));
    let answer = proxy.get("/");
    assert!(answer.ends_with("two"), "{answer}");
    // Wait for more ejections. After its time out of service, the server fails its warm-up, without a client's request.
    proxy.wait_until("more ejections", |state| first_server_state(state).counts.ejections > 2);
    proxy.wait_until("the answers", |state| first_server_state(state).counts.responses[4] == IN_A_ROW as u64);
    proxy.wait_until("an ejection", |state| {
        first_server_state(state).ejected.as_ref().is_some_and(|ejected| ejected.why.contains("failed again"))
    });
    status.store(200, Ordering::Relaxed);
    proxy.wait_until("the return", |state| state.active == first);
    let answer = proxy.get("/");
    assert!(answer.ends_with("one"), "{answer}");
    let state = proxy.finish();
    assert_eq!(
        (swap_count_for_failing_server(&state), first_server_state(&state).counts.responses[1]),
        (1, 1),
        "{state:?}"
    );
}

#[test]
fn silent_server_is_ejected() {
    let hung = start_server(|mut stream| {
        read_until(&mut stream, "\r\n\r\n");
        thread::park();
    });
    let (well, _) = server_with_settable_status("two");
    let mut config = http_config(hung, Some(well));
    config.limits.answer_time = Duration::from_millis(300);
    config.table.budget.burst = 0;
    let proxy = Proxy::start(config);
    let get = || proxy.get("/");
    let answers: Vec<String> = thread::scope(|scope| {
        let clients: Vec<_> = (0..IN_A_ROW).map(|_| scope.spawn(get)).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    assert!(answers.iter().all(|answer| answer.starts_with("HTTP/1.1 504 ")), "{answers:?}");
    let answer = get();
    assert!(answer.ends_with("two"), "{answer}");
    let state = proxy.finish();
    assert_eq!(first_server_error_count(&state, ServerError::Timeout), IN_A_ROW as u64, "{state:?}");
    let ejected = first_server_state(&state).ejected.as_ref().expect("it is out");
    assert!(ejected.why.contains("no answer in time") && ejected.seconds == 30, "{ejected:?}");
}

#[test]
fn lost_connection_counts_though_the_backup_answers() {
    let breaks = start_server(|mut stream| drop(read_until(&mut stream, "\r\n\r\n")));
    let (well, _) = server_with_settable_status("two");
    let proxy = Proxy::start(http_config(breaks, Some(well)));
    for _ in 0..MANY {
        assert!(proxy.get("/").ends_with("two"));
    }
    let state = proxy.finish();
    assert_eq!(first_server_error_count(&state, ServerError::Reset), IN_A_ROW as u64, "{state:?}");
    assert_eq!((swap_count_for_failing_server(&state), state.counts.sent_again), (1, IN_A_ROW as u64), "{state:?}");
}

#[test]
fn failed_hedge_counts_and_dropped_hedge_does_not() {
    let (slow, _seen) = start_recording_server(|stream, _| {
        thread::sleep(Duration::from_millis(30));
        send_answer(stream, "one")
    });
    let (fails, status) = server_with_settable_status("two");
    status.store(503, Ordering::Relaxed);
    let proxy = Proxy::start(with_hedge_timer(http_config(slow, Some(fails)), Duration::from_millis(1)));
    for _ in 0..MANY {
        assert!(proxy.get("/").ends_with("one"));
    }
    let state = proxy.finish();
    let hedges = state.counts.hedges;
    assert!(hedges < MANY as u64 && state.by_server[1].ejected.is_some(), "{state:?}");
    assert!(state.by_server[1].counts.responses[4] <= hedges, "each is counted once: {state:?}");

    let hung = start_server(|mut stream| {
        read_until(&mut stream, "\r\n\r\n");
        thread::park();
    });
    let (well, _) = server_with_settable_status("two");
    let proxy = Proxy::start(with_hedge_timer(http_config(hung, Some(well)), Duration::from_millis(1)));
    for _ in 0..MANY {
        assert!(proxy.get("/").ends_with("two"));
    }
    let state = proxy.finish();
    assert_eq!((first_server_state(&state).counts.ejections, state.counts.wins), (0, MANY as u64), "{state:?}");
}

#[test]
fn faults_of_requests_eject_no_server() {
    let ((first, status), (second, _)) = (server_with_settable_status("one"), server_with_settable_status("two"));
    let proxy = Proxy::start(http_config(first, Some(second)));
    for wrong in [404, 429, 501] {
        status.store(wrong, Ordering::Relaxed);
        for _ in 0..MANY {
            assert!(proxy.get("/").starts_with(&format!("HTTP/1.1 {wrong} ")));
        }
    }
    let state = proxy.finish();
    assert_eq!(
        (first_server_state(&state).counts.ejections, swap_count_for_failing_server(&state)),
        (0, 0),
        "{state:?}"
    );
    assert_eq!(first_server_state(&state).counts.responses, [0, 0, 0, 2 * MANY as u64, MANY as u64]);
}

#[test]
fn last_server_and_ejection_time_zero_cause_no_ejection() {
    let fails = |address: SocketAddr, backup, out| {
        let proxy = Proxy::start(with_ejection_time(http_config(address, backup), out));
        for _ in 0..MANY {
            let answer = proxy.get("/");
            assert!(answer.starts_with("HTTP/1.1 500 "), "{answer}");
        }
        proxy.finish()
    };
    let ((first, one), (second, two)) = (server_with_settable_status("one"), server_with_settable_status("two"));
    [one, two].iter().for_each(|status| status.store(500, Ordering::Relaxed));
    let state = fails(first, Some(second), Duration::from_secs(30));
    assert_eq!(state.by_server.iter().filter(|server| server.ejected.is_some()).count(), 1, "{state:?}");
    let state = fails(first, None, Duration::from_secs(30));
    assert_eq!((state.by_server.len(), first_server_state(&state).counts.ejections), (1, 0), "{state:?}");
    let state = fails(first, Some(second), Duration::ZERO);
    assert_eq!((state.active, first_server_state(&state).counts.ejections), (first, 0), "{state:?}");
}

/// Starts a Redis server that sends this reply to each command of two words.
fn server_that_replies(reply: &'static str) -> SocketAddr {
    start_server(move |mut stream| {
        loop {
            // A command consists of `*2`, and a length and a text for each of its two words.
            read_until(&mut stream, "key\r\n");
            if stream.write_all(reply.as_bytes()).is_err() {
                return;
            }
        }
    })
}

fn send_get(proxy: &Proxy) -> String {
    let mut client = proxy.connect();
    client.write_all(b"GET key\r\n").unwrap();
    read_until(&mut client, "\r\n")
}

#[test]
fn loading_redis_is_ejected_and_refusing_redis_is_not() {
    let proxy =
        Proxy::start(redis_config(server_that_replies("-LOADING it loads\r\n"), Some(server_that_replies("+two\r\n"))));
    (0..IN_A_ROW).for_each(|_| assert_eq!(send_get(&proxy), "-LOADING it loads\r\n"));
    assert_eq!(send_get(&proxy), "+two\r\n");
    let state = proxy.finish();
    assert_eq!(
        (first_server_state(&state).counts.replies, swap_count_for_failing_server(&state)),
        ([0, IN_A_ROW as u64], 1),
        "{state:?}"
    );
    for error in ["-NOAUTH a\r\n", "-READONLY a\r\n", "-WRONGTYPE a\r\n", "-MOVED 1 a:1\r\n"] {
        let proxy = Proxy::start(redis_config(server_that_replies(error), Some(server_that_replies("+two\r\n"))));
        (0..MANY).for_each(|_| assert_eq!(send_get(&proxy), error));
        assert_eq!(first_server_state(&proxy.finish()).counts.ejections, 0, "{error}");
    }
}

#[test]
fn lost_connection_with_many_commands_is_one_failure() {
    let breaks = start_server(|mut stream| {
        for _ in 0..MANY {
            read_until(&mut stream, "key\r\n");
        }
    });
    let proxy = Proxy::start(redis_config(breaks, Some(server_that_replies("+two\r\n"))));
    let mut client = proxy.connect();
    client.write_all("GET key\r\n".repeat(MANY).as_bytes()).unwrap();
    (0..MANY).for_each(|_| assert_eq!(read_until(&mut client, "\r\n"), "+two\r\n"));
    let state = proxy.finish();
    assert_eq!(
        (first_server_error_count(&state, ServerError::Reset), first_server_state(&state).counts.ejections),
        (1, 0),
        "{state:?}"
    );
}

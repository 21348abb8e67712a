//! Test of a proxy in a process that has no open files left. It changes the limit of the whole process, so it is the
//! only test in this file.

#[allow(dead_code, reason = "not every test needs all of it")]
#[path = "edge/scene.rs"]
mod scene;
#[allow(dead_code, reason = "not every test needs all of it")]
#[path = "../../sidelane/tests/common/scripted.rs"]
mod scripted;

use std::fs::File;
use std::io::Write;
use std::net::TcpStream;
use std::os::fd::AsRawFd;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use scene::{Proxy, http_config};
use scripted::{read_to_end, send_answer, start_recording_server};

#[test]
fn lack_of_open_files_is_counted_and_not_blamed_on_the_server() {
    const CLIENTS: usize = 2;
    let (address, _seen) = start_recording_server(|stream, _| send_answer(stream, "well"));
    let proxy = Proxy::start(http_config(address, None));
    let mut clients: Vec<TcpStream> = (0..CLIENTS).map(|_| proxy.connect()).collect();
    proxy.wait_until("the clients", |state| state.clients == CLIENTS);
    let limit = getrlimit(Resource::Nofile);
    // The kernel gives each new file the lowest free number, so that no more file can be opened.
    let free = File::open("/dev/null").unwrap().as_raw_fd();
    setrlimit(Resource::Nofile, Rlimit { current: Some(free as u64), ..limit }).unwrap();
    for client in &mut clients {
        client.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
        let answer = read_to_end(client);
        assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    }
    setrlimit(Resource::Nofile, limit).unwrap();
    assert!(proxy.get("/").ends_with("well"));
    let state = proxy.finish();
    assert_eq!((state.local_connect_errors, state.by_server[0].counts.errors), (CLIENTS as u64, [0; 4]), "{state:?}");
}

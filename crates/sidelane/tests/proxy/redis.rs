//! Tests of RESP through the proxy, in front of real Redis servers.

use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use serde_json::json;

use crate::common::process::kill_with_test;
use crate::common::scripted::{read_to_end, read_until, unused_address};
use crate::common::wait_until;
use crate::scene::Proxy;

struct Redis(Child, SocketAddr);

impl Redis {
    fn start() -> Option<Self> {
        let address = unused_address();
        let mut command = Command::new("redis-server");
        command.args([
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
            "--port",
            &address.port().to_string(),
        ]);
        command.stdout(Stdio::null());
        let Ok(child) = kill_with_test(&mut command).spawn() else {
            sidelane_testing::skip("needs redis-server: apt-get install redis-server");
            return None;
        };
        let redis = Self(child, address);
        wait_until("redis listens", || TcpStream::connect(address).is_ok());
        Some(redis)
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const OPTIONS: [&str; 4] = ["--protocol", "redis", "--hazard", "none"];

#[test]
fn pipelined_commands_are_answered_in_order() {
    let Some(redis) = Redis::start() else { return };
    let proxy = Proxy::start(redis.1, None, &OPTIONS);
    let mut client = proxy.connect();
    let commands: String = (0..2000).map(|n| format!("SET k {n}\r\nGET k\r\n")).collect();
    client.write_all(commands.as_bytes()).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let wanted: String = (0..2000).map(|n| format!("+OK\r\n${}\r\n{n}\r\n", n.to_string().len())).collect();
    assert!(read_to_end(&mut client) == wanted);
    assert_eq!(proxy.finish()["counts"]["answered"], json!(4000));
}

#[test]
fn connection_with_state_stays_at_one_server() {
    let Some(redis) = Redis::start() else { return };
    let proxy = Proxy::start(redis.1, None, &OPTIONS);
    let mut client = proxy.connect();
    client.write_all(b"SET a 1\r\nMULTI\r\nINCR a\r\nGET a\r\nEXEC\r\nQUIT\r\n").unwrap();
    assert_eq!(read_to_end(&mut client), "+OK\r\n+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n:2\r\n$1\r\n2\r\n+OK\r\n");
}

#[test]
fn reads_continue_at_the_backup_after_loss_of_the_server() {
    let (Some(mut one), Some(two)) = (Redis::start(), Redis::start()) else { return };
    let proxy = Proxy::start(one.1, Some(two.1), &OPTIONS);
    let mut client = proxy.connect();
    client.write_all(b"GET x\r\n").unwrap();
    assert_eq!(read_until(&mut client, "\r\n"), "$-1\r\n");
    TcpStream::connect(two.1).unwrap().write_all(b"SET x two\r\n").unwrap();
    one.kill();
    wait_until("the other one answers", || {
        client.write_all(b"GET x\r\n").unwrap();
        read_until(&mut client, "\r\n") == "$3\r\n" && read_until(&mut client, "\r\n") == "two\r\n"
    });
}

#[test]
fn malformed_resp_is_refused() {
    let Some(redis) = Redis::start() else { return };
    let proxy = Proxy::start(redis.1, None, &OPTIONS);
    assert!(proxy.send_and_read_to_end(b"*1\r\n$x\r\n").starts_with("-ERR sidelane: protocol error"));
}

//! Real load balancer for tests: HAProxy.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::deadline::wait_until;
use super::process::{kill_with_test, signal};
use super::scripted::unused_address;

const PROGRAM: &str = "/usr/sbin/haproxy";

/// Running HAProxy with a frontend and a backend named `web`.
pub struct Haproxy {
    child: Child,
    pub address: SocketAddr,
    dir: tempfile::TempDir,
}

impl Haproxy {
    /// Starts HAProxy with these lines in its backend; `None` if it is not installed.
    pub fn start(backend: &[String]) -> Option<Self> {
        if !Path::new(PROGRAM).exists() {
            sidelane_testing::skip("needs haproxy: apt-get install haproxy");
            return None;
        }
        let (dir, address) = (tempfile::tempdir().unwrap(), unused_address());
        let config = format!(
            "global\n  stats socket {}/socket mode 600 level admin\ndefaults\n  mode http\n  timeout connect 5s\n  \
             timeout client 60s\n  timeout server 60s\nfrontend f\n  bind {address}\n  default_backend web\n\
             backend web\n  {}\n",
            dir.path().display(),
            backend.join("\n  ")
        );
        std::fs::write(dir.path().join("haproxy.cfg"), config).unwrap();
        let mut command = Command::new(PROGRAM);
        command.arg("-db").arg("-f").arg(dir.path().join("haproxy.cfg")).stdout(Stdio::null()).stderr(Stdio::null());
        let child = kill_with_test(&mut command).spawn().unwrap();
        let haproxy = Self { child, address, dir };
        wait_until("HAProxy listens", || TcpStream::connect(address).is_ok());
        Some(haproxy)
    }

    /// Returns the path of the runtime socket.
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    /// Sends a command, and returns the answer.
    pub fn ask(&self, command: &str) -> String {
        let mut stream = UnixStream::connect(self.socket()).unwrap();
        stream.write_all(format!("{command}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Returns the present weight of a server of the backend.
    pub fn weight(&self, server: &str) -> u32 {
        let answer = self.ask(&format!("get weight web/{server}"));
        answer.split_whitespace().next().and_then(|weight| weight.parse().ok()).unwrap_or_else(|| panic!("{answer}"))
    }

    /// Returns the body of the answer to a request.
    pub fn get(&self) -> String {
        let mut client = TcpStream::connect(self.address).unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer.rsplit("\r\n").next().unwrap_or_default().to_owned()
    }
}

impl Drop for Haproxy {
    fn drop(&mut self) {
        signal(self.child.id(), libc::SIGKILL);
        let _ = self.child.wait();
    }
}

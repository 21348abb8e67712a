//! Real proxy in tests, and clients that send bytes.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::common::TIMEOUT;
use crate::common::process::{kill_with_test, signal};
use crate::common::scripted::read_to_end;

/// Running process of `sidelane proxy`.
pub struct Proxy {
    child: Child,
    pub address: SocketAddr,
    json: tempfile::TempPath,
    /// Lines on standard error after the first.
    said: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    /// Starts the proxy in front of these servers, with further options.
    pub fn start(active: SocketAddr, backups: impl IntoIterator<Item = SocketAddr>, options: &[&str]) -> Self {
        Self::start_with_open_file_limits(active, backups, options, None)
    }

    /// Starts the proxy with these soft and hard limits of open files.
    pub fn start_with_open_file_limits(
        active: SocketAddr,
        backups: impl IntoIterator<Item = SocketAddr>,
        options: &[&str],
        open_file_limits: Option<(u64, u64)>,
    ) -> Self {
        Self::start_with_stdout(Stdio::null(), active, backups, options, open_file_limits)
    }

    /// Starts the proxy with another standard output.
    pub fn start_with_stdout(
        stdout: Stdio,
        active: SocketAddr,
        backups: impl IntoIterator<Item = SocketAddr>,
        options: &[&str],
        open_file_limits: Option<(u64, u64)>,
    ) -> Self {
        let json = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        let mut command = Command::new(env!("CARGO_BIN_EXE_sidelane"));
        command.args(["proxy", "--listen", "127.0.0.1:0", "--active", &active.to_string()]);
        command.args(backups.into_iter().flat_map(|backup| ["--backup".to_owned(), backup.to_string()]));
        command.args(options).arg("--json").arg(&json).stderr(Stdio::piped()).stdout(stdout);
        if let Some((current, maximum)) = open_file_limits {
            let limit = rustix::process::Rlimit { current: Some(current), maximum: Some(maximum) };
            // SAFETY: one async-signal-safe system call between fork and exec.
            unsafe {
                command.pre_exec(move || Ok(rustix::process::setrlimit(rustix::process::Resource::Nofile, limit)?))
            };
        }
        let mut child = kill_with_test(&mut command).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let said = lines.find_map(|line| Some(line.strip_prefix("sidelane: proxy at ")?.parse().unwrap()));
        let address = said.expect("the proxy says where it listens");
        let said = Arc::new(Mutex::new(Vec::new()));
        let its_lines = Arc::clone(&said);
        thread::spawn(move || {
            for line in lines {
                eprintln!("{line}");
                its_lines.lock().unwrap().push(line);
            }
        });
        Self { child, address, json, said }
    }

    /// Returns whether the proxy has printed this text on standard error.
    pub fn has_printed(&self, text: &str) -> bool {
        self.said.lock().unwrap().iter().any(|line| line.contains(text))
    }

    /// Ends the proxy, and returns its summary.
    pub fn finish(self) -> Value {
        self.send_sigterm();
        self.summary()
    }

    /// Sends SIGTERM to the proxy.
    pub fn send_sigterm(&self) {
        self.signal(libc::SIGTERM);
    }

    /// Returns the number of times that the proxy's threads have gone to sleep.
    pub fn sleep_count(&self) -> u64 {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let sleeps = |status: String| {
            let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap().trim();
            line.parse::<u64>().unwrap()
        };
        threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("status")).ok()).map(sleeps).sum()
    }

    /// Sends a POSIX signal to the proxy.
    pub fn signal(&self, number: i32) {
        signal(self.child.id(), number);
    }

    /// Waits for the end of the proxy, and returns its summary.
    pub fn summary(mut self) -> Value {
        assert!(self.child.wait().unwrap().success());
        serde_json::from_slice(&std::fs::read(&self.json).unwrap()).unwrap()
    }

    /// Sends these bytes only, and returns everything that comes back until the end.
    pub fn send_and_read_to_end(&self, bytes: &[u8]) -> String {
        let mut client = self.connect();
        client.write_all(bytes).unwrap();
        read_to_end(&mut client)
    }

    /// Sends a GET of this path on its own connection, and returns the answer.
    pub fn get(&self, path: &str) -> String {
        self.send_and_read_to_end(format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").as_bytes())
    }

    pub fn connect(&self) -> TcpStream {
        let client = TcpStream::connect(self.address).unwrap();
        client.set_read_timeout(Some(TIMEOUT)).unwrap();
        client
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        signal(self.child.id(), libc::SIGKILL);
        let _ = self.child.wait();
    }
}

/// Length of a check that an event does not happen too early.
pub const SHORT: Duration = Duration::from_millis(100);

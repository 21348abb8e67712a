//! Service that is always busy, whose threads are moved by `sidelane hurry`.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};

use sidelane_host::cgroup::BatchGroup;
use sidelane_host::procfs::{thread_cpus, threads};
use tempfile::TempDir;

use super::{can_observe_requests, lab_binary_path, process, wait_until};

/// CPU that the tests declare to be a big core; [`LITTLE`] is the CPU of the little core.
pub const BIG: &str = "0";
pub const LITTLE: &str = "1";
/// Number of clients, one for each CPU, so that each client's thread is bound to one CPU.
pub const CLIENTS: usize = 2;
/// Number of the service's threads that wait for connections, or for the end of its input.
pub const OTHERS: usize = 2;

/// Service with a thread for each connection, and clients that send requests all the time. Requests take 3 ms on
/// average.
pub struct Busy {
    child: Child,
    clients: Vec<JoinHandle<()>>,
    pub address: SocketAddr,
    dir: TempDir,
}

impl Busy {
    /// Starts the service in this cgroup, if one is given. If it cannot be started, prints a message and returns
    /// `None`.
    pub fn start(design: &str, group: Option<&BatchGroup>) -> Option<Self> {
        Self::start_at(0, design, group)
    }

    /// Starts the service at this port, which must be free.
    pub fn start_at(port: u16, design: &str, group: Option<&BatchGroup>) -> Option<Self> {
        let lab = lab_binary_path().filter(|_| can_observe_requests())?;
        let dir = tempfile::tempdir().unwrap();
        let enter = group.map_or(String::new(), |leaf| format!("echo $$ >{}/cgroup.procs;", leaf.dir.display()));
        let script = format!(
            "{enter} exec {} echo-server --design {design} --service-us 3000 --log $LOG --port {port}",
            lab.display()
        );
        let mut command = Command::new("sh");
        let command = process::kill_with_test(&mut command).args(["-c", &script]);
        let mut child =
            command.env("LOG", dir.path().join("log")).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let address = read_address(&mut child);
        let mut busy = Self { child, clients: vec![], address, dir };
        busy.clients = (0..CLIENTS).map(|_| start_client_until_closed(busy.address)).collect();
        wait_until("each client has a thread", || busy.threads().len() >= CLIENTS + OTHERS);
        Some(busy)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn target(&self) -> String {
        format!("pid:{}", self.pid())
    }

    pub fn threads(&self) -> Vec<u32> {
        threads(self.pid())
    }

    /// Returns the CPUs of each thread of the service.
    pub fn cpus_by_thread(&self) -> BTreeMap<u32, String> {
        let cpus = |tid: &u32| Some((*tid, thread_cpus(*tid, *tid)?.to_string()));
        self.threads().iter().filter_map(cpus).collect()
    }

    /// Returns the number of threads of the service that are bound to one CPU.
    pub fn bound_thread_count(&self) -> usize {
        self.cpus_by_thread().values().filter(|cpus| [BIG, LITTLE].contains(&cpus.as_str())).count()
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.clients.drain(..).for_each(|client| client.join().unwrap());
    }
}

/// Waits until the lab's echo service says on which port it listens.
pub fn read_address(service: &mut Child) -> SocketAddr {
    let mut ready = String::new();
    BufReader::new(service.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    let port = ready.trim().rsplit('=').next().and_then(|port| port.parse().ok());
    SocketAddr::from(([127, 0, 0, 1], port.unwrap_or_else(|| panic!("it says {ready}"))))
}

/// Size in bytes of a request of the echo service without a body, and of its answer.
pub const MESSAGE: usize = 16;

pub fn send_request(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(&[0; MESSAGE])
}

/// Starts a client of the echo service that sends one request after the other until the service is gone.
fn start_client_until_closed(address: SocketAddr) -> JoinHandle<()> {
    thread::spawn(move || {
        let Ok(mut stream) = TcpStream::connect(address) else { return };
        while send_request(&mut stream).and_then(|()| stream.read_exact(&mut [0; MESSAGE])).is_ok() {}
    })
}

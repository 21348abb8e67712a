//! Service under a steady load.

use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use super::busy::{MESSAGE, read_address, send_request};
use super::process;
use super::{can_observe_requests, lab_binary_path};

/// Service on the request lane that computes for each request, and a client on the batch lane.
pub struct Loaded {
    child: Child,
    stop: Arc<AtomicBool>,
    client: Option<JoinHandle<()>>,
    address: SocketAddr,
}

impl Loaded {
    /// Starts both; `None` if requests cannot be observed here.
    pub fn start() -> Option<Self> {
        let lab = lab_binary_path().filter(|_| can_observe_requests())?;
        let mut command = Command::new("taskset");
        let arguments =
            ["echo-server", "--design", "event-loop", "--service-us", "500", "--port", "0", "--log", "/dev/null"];
        let command = process::kill_with_test(&mut command).args(["-c", "0"]).arg(lab).args(arguments);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("taskset can be started");
        let address = read_address(&mut child);
        let stop = Arc::new(AtomicBool::new(false));
        let client = thread::spawn({
            let stop = Arc::clone(&stop);
            move || {
                let mut stream = TcpStream::connect(address).expect("it listens");
                while !stop.load(Ordering::Relaxed) {
                    let answered = send_request(&mut stream).and_then(|()| stream.read_exact(&mut [0; MESSAGE]));
                    answered.expect("it answers");
                }
            }
        });
        Some(Self { child, stop, client: Some(client), address })
    }

    /// Returns the id of the service's process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the port of the service.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Returns the service as `--service` takes it.
    pub fn target(&self) -> String {
        format!("port:{}", self.port())
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.client.take().map(JoinHandle::join);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

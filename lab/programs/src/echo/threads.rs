//! The service design with one thread for each connection.

use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use anyhow::Result;

use super::buffer::{Buffer, Received};
use super::journal::Journal;

/// Accepts connections until the process ends, and starts a thread for each.
pub fn run(listener: &TcpListener, journal: &Arc<Journal>) -> Result<()> {
    loop {
        let (stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        let journal = Arc::clone(journal);
        thread::spawn(move || serve_connection(&stream, &journal));
    }
}

fn serve_connection(stream: &TcpStream, journal: &Journal) {
    let mut buffer = Buffer::default();
    while let Received::Requests(asks, read_ns) = buffer.receive(stream) {
        if journal.serve_requests(&asks, read_ns, stream).is_err() {
            return;
        }
    }
}

//! Both ends of a connection, controlled by a test.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

/// Connection with the client's end first and the service's end second.
pub struct Connection(pub TcpStream, pub TcpStream);

impl Connection {
    pub fn open(listener: &TcpListener) -> Self {
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.set_nodelay(true).unwrap();
        Self(client, listener.accept().unwrap().0)
    }

    pub fn send_request(&mut self) {
        self.0.write_all(b"ask").unwrap();
    }

    pub fn receive_request(&mut self) {
        self.1.read_exact(&mut [0; 3]).unwrap();
    }

    pub fn exchange_answer(&mut self) {
        self.1.write_all(b"answer").unwrap();
        self.0.read_exact(&mut [0; 6]).unwrap();
    }
}

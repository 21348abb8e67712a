//! A client of the service: its socket, and the received bytes of its next request.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use super::{AnswerOutcome, ConnectionAction, RequestHandler};
use crate::sibling::Pace;

/// Number of bytes requested by one read; most requests fit into one read.
const READ_BYTES: usize = 4096;

/// Connection of one client.
#[derive(Debug)]
pub struct ServerConnection {
    stream: TcpStream,
    received: Vec<u8>,
    reply: Vec<u8>,
}

impl ServerConnection {
    /// Returns the connection of a new client on a non-blocking socket.
    pub fn new(stream: TcpStream) -> Self {
        ServerConnection { stream, received: Vec::new(), reply: Vec::new() }
    }

    /// Returns the socket, for registration with epoll.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Reads the available bytes and answers the complete requests. `pace` delays each answer as a sibling lane would.
    pub fn serve(&mut self, handler: &mut impl RequestHandler, pace: &mut Option<Pace<'_>>) -> ConnectionAction {
        let mut chunk = [0; READ_BYTES];
        match self.stream.read(&mut chunk) {
            Ok(0) => ConnectionAction::Close,
            Ok(length) => {
                self.received.extend_from_slice(&chunk[..length]);
                self.answer_complete_requests(handler, pace)
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                ConnectionAction::Keep
            }
            Err(_reset) => ConnectionAction::Close,
        }
    }

    fn answer_complete_requests(
        &mut self,
        handler: &mut impl RequestHandler,
        pace: &mut Option<Pace<'_>>,
    ) -> ConnectionAction {
        let mut answered = 0;
        let fate = loop {
            self.reply.clear();
            let AnswerOutcome::Whole { length, fate } =
                handler.answer_first_request(&self.received[answered..], &mut self.reply)
            else {
                break ConnectionAction::Keep;
            };
            answered += length;
            pace.iter_mut().for_each(Pace::spin_for_lost_time);
            // Drops a client that does not read its replies, since a service of one thread cannot wait for the client.
            // The reply to any other client fits into the socket's buffer.
            if self.stream.write_all(&self.reply).is_err() || fate == ConnectionAction::Close {
                break ConnectionAction::Close;
            }
        };
        self.received.drain(..answered);
        fate
    }
}

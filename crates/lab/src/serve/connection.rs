//! One client of the service: its socket, and the bytes of its next request.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use super::http::{self, Head, Response};
use crate::search::{Engine, SearchQuery};
use crate::sibling::Pace;

/// Bytes read at a time; most requests fit.
const READ_BYTES: usize = 4096;

/// Whether a connection stays open.
#[derive(Debug, PartialEq, Eq)]
pub enum Fate {
    Keep,
    Close,
}

/// A client's connection.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Connection {
    /// A new client, on a non-blocking socket.
    pub fn new(stream: TcpStream) -> Self {
        Connection { stream, received: Vec::new() }
    }

    /// Reads what has arrived and answers the requests that are complete. `pace` delays each
    /// answer.
    pub fn serve(&mut self, engine: &Engine, pace: &mut Option<Pace<'_>>) -> Fate {
        let mut chunk = [0; READ_BYTES];
        match self.stream.read(&mut chunk) {
            Ok(0) => Fate::Close,
            Ok(length) => {
                self.received.extend_from_slice(&chunk[..length]);
                self.answer_complete(engine, pace)
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Fate::Keep,
            Err(_reset) => Fate::Close,
        }
    }

    fn answer_complete(&mut self, engine: &Engine, pace: &mut Option<Pace<'_>>) -> Fate {
        let mut answered = 0;
        let fate = loop {
            match http::parse(&self.received[answered..]) {
                Ok(None) => break Fate::Keep,
                Ok(Some(head)) => {
                    answered += head.length;
                    let response = respond(engine, &head);
                    pace.iter_mut().for_each(Pace::look);
                    if !send(&mut self.stream, &response) || !head.keep_alive {
                        break Fate::Close;
                    }
                }
                Err(problem) => {
                    send(&mut self.stream, &Response::bad_request(problem));
                    break Fate::Close;
                }
            }
        };
        self.received.drain(..answered);
        fate
    }
}

/// Whether the whole response was sent. It always fits into the socket's buffer, unless the client
/// does not read its replies. Such a client is dropped, because a service of one thread cannot wait
/// for it.
fn send(stream: &mut TcpStream, response: &Response) -> bool {
    stream.write_all(&response.to_bytes()).is_ok()
}

fn respond(engine: &Engine, head: &Head<'_>) -> Response {
    let Some(text) = http::query_of(head.target) else {
        return Response::not_found();
    };
    let query: SearchQuery = match text.parse() {
        Ok(query) => query,
        Err(error) => return Response::bad_request(&error.to_string()),
    };
    match engine.search(&query) {
        Ok(hits) => Response::json(&serde_json::json!({ "hits": hits.count, "top": hits.top })),
        Err(error) => Response::failure(&format!("{error:#}")),
    }
}

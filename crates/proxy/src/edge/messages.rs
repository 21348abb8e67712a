//! Messages of other threads of the proxy.

use std::rc::Rc;

use tokio::net::TcpStream;
use tokio::sync::mpsc::UnboundedReceiver;

use super::http::describe_request;
use super::listen::serve_client;
use super::shared::Shared;
use super::team::Message;

/// Acts on the messages of other threads. Never returns.
pub(super) async fn read_messages(shared: Rc<Shared>, mut inbox: UnboundedReceiver<Message>) {
    loop {
        match inbox.recv().await {
            Some(Message::Client(socket, slot)) => {
                if let Ok(socket) = TcpStream::from_std(socket) {
                    serve_client(&shared, socket, slot);
                }
            }
            Some(Message::Resend(from, because)) => shared.resend(from, because),
            Some(Message::Describe(number, answer)) => {
                // Ignore an error: the client has gone.
                let _ = answer.send(describe_request(&shared, number));
            }
            Some(Message::Drain) => shared.drain_ordered.notify_one(),
            // The team has a sender to this thread, and this thread is in the team.
            None => unreachable!("this thread can send messages to itself"),
        }
    }
}

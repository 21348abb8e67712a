//! HTTP connections of clients, with one task per client.

mod admin;
mod answer;
mod client;
mod exchange;
mod journal;
mod upload;

use std::rc::Rc;

use tokio::net::TcpStream;

use super::shared::Shared;
use crate::http::Peer;
pub(super) use answer::{read_and_discard_answer, read_more};
pub(super) use client::linger;
use client::{Client, NoRequest};
use exchange::{ConnectionAction, handle_request};
use journal::Journal;

/// Serves a client until the client or the proxy closes the connection.
pub(crate) async fn serve(shared: Rc<Shared>, stream: TcpStream) {
    // A client without an address is gone already.
    let Ok(address) = stream.peer_addr() else { return };
    let peer = Peer::new(shared.config.forwarded, address.ip());
    let journal = Journal::new(Rc::clone(&shared), address);
    let mut client = Client::new(stream, peer, journal, &shared.config.limits);
    for number in 0_u64.. {
        match client.next_request(&shared, number > 0).await {
            Ok((head, class)) => match handle_request(&shared, &mut client, head, class).await {
                ConnectionAction::KeepAlive => {}
                ConnectionAction::Close => return,
                ConnectionAction::CloseAfterClient => return linger(&client.stream, &mut client.deadline).await,
                ConnectionAction::Linger => return client.linger_after_upload().await,
            },
            Err(NoRequest::Closed) => return,
            Err(NoRequest::Error(status, why)) => return client.refuse_request(status, &why).await,
        }
    }
}

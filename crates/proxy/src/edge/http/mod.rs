//! HTTP connections of clients, with one task per client.

mod admin;
mod answer;
mod client;
mod exchange;
mod journal;
mod upload;

use std::rc::Rc;

use super::buffer::Buffer;
use super::client_stream::ClientStream;
use super::shared::Shared;
use crate::http::Peer;
pub(super) use admin::describe_request;
pub(super) use answer::{read_and_discard_answer, read_more};
pub(super) use client::linger;
use client::{Client, NoRequest};
use exchange::{ConnectionAction, handle_request};
use journal::Journal;

/// Serves a client until the client or the proxy closes the connection. `input` has its first bytes.
pub(crate) async fn serve(shared: Rc<Shared>, stream: ClientStream, input: Buffer) {
    // A client without an address is gone already.
    let Ok(address) = stream.socket().peer_addr() else { return };
    let peer = Peer::new(shared.config.forwarded, address.ip(), stream.is_tls());
    let journal = Journal::new(Rc::clone(&shared), address);
    let mut client = Client::new((stream, input), peer, journal, &shared.config.limits);
    for number in 0_u64.. {
        match client.next_request(&shared, number > 0).await {
            Ok((head, class)) => match handle_request(&shared, &mut client, head, class).await {
                ConnectionAction::KeepAlive => {}
                ConnectionAction::Close => return client.stream.finish(),
                ConnectionAction::Abort => return,
                ConnectionAction::CloseAfterClient => {
                    client.stream.finish();
                    return linger(client.stream.socket(), &mut client.deadline).await;
                }
                ConnectionAction::Linger => return client.linger_after_upload().await,
            },
            Err(NoRequest::Closed) => return client.stream.finish(),
            Err(NoRequest::Error(status, why)) => return client.refuse_request(status, &why).await,
        }
    }
}

//! One client: its requests, one after the other.

use std::rc::Rc;

use tokio::net::TcpStream;

use super::super::shared::Shared;
use super::client::{Client, Nothing, linger};
use super::exchange::exchange;
use super::journal::Journal;
use super::outcome::After;
use crate::http::Peer;

/// Serves a client until one of both is done.
pub(crate) async fn serve(shared: Rc<Shared>, stream: TcpStream) {
    // Without an address it is gone already.
    let Ok(address) = stream.peer_addr() else { return };
    let peer = Peer::new(shared.config.forwarded, address.ip());
    let journal = Journal::new(Rc::clone(&shared), address);
    let mut client = Client::new(stream, peer, journal, &shared.config.limits);
    for number in 0_u64.. {
        match client.next_request(&shared, number > 0).await {
            Ok((head, class)) => match exchange(&shared, &mut client, head, class).await {
                After::Goes => {}
                After::Close => return,
                After::Dismiss => return linger(&client.stream, &mut client.patience).await,
                After::Linger => return client.linger_after_upload().await,
            },
            Err(Nothing::Closed) => return,
            Err(Nothing::Error(status, why)) => return client.refuse(status, &why).await,
        }
    }
}

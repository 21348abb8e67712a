//! One client: its requests, one after the other.

use std::rc::Rc;

use tokio::net::TcpStream;

use super::super::shared::Shared;
use super::client::{Client, Nothing};
use super::exchange::exchange;
use super::outcome::After;

/// Serves a client until one of both is done.
pub(crate) async fn serve(shared: Rc<Shared>, stream: TcpStream) {
    let mut client = Client::new(stream, &shared.config.limits);
    loop {
        match client.next_request(&shared).await {
            Ok((head, class)) => match exchange(&shared, &mut client, head, class).await {
                After::Goes => {}
                After::Close => return,
                After::Linger => return client.linger_after_upload().await,
            },
            Err(Nothing::Closed) => return,
            Err(Nothing::Error(status, why)) => return client.refuse(status, &why).await,
        }
    }
}

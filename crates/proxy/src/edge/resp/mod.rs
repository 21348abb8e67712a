//! RESP at sockets: one task a client.

mod client;
mod side;
mod tunnel;

pub(super) use client::serve;

use super::http::more;
use super::link::Link;
use crate::config::Limits;
use crate::desk::Quality;
use crate::resp::Scanner;

/// Reads a whole reply and drops it. Its quality, and the connection if it can be used again.
pub(super) async fn swallow(mut link: Link, limits: &Limits) -> Option<(Quality, Option<Link>)> {
    let mut scanner = Scanner::of_replies(limits.reply_bytes);
    loop {
        match scanner.next(link.input.data()).ok()? {
            Some(length) => {
                link.input.consume(length);
                return Some((Quality::Success, Some(link)));
            }
            None => more(&mut link).await?,
        }
    }
}

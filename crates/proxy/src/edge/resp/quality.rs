//! Whether a reply is an answer, or a failure to give one.

use super::super::http::more;
use super::super::link::Link;
use crate::config::Limits;
use crate::desk::Quality;
use crate::resp::Scanner;

/// Reads a whole reply and drops it. Its quality, and the connection if it can be used again.
pub(crate) async fn swallow(mut link: Link, limits: &Limits) -> Option<(Quality, Option<Link>)> {
    let (mut scanner, mut bytes, mut quality) = (Scanner::default(), 0, Quality::Success);
    loop {
        let (count, is_whole) = scanner.next(link.input.data()).ok()?;
        if bytes == 0 {
            quality = quality_of(&link.input.data()[..count]);
        }
        scanner.take();
        link.input.consume(count);
        bytes += count;
        match is_whole {
            true => return Some((quality, Some(link))),
            false if bytes > limits.reply_bytes => return None,
            false => more(&mut link).await?,
        }
    }
}

/// Errors of a server that cannot answer now, or not this client, as another server may.
const FAILURES: [&[u8]; 8] =
    [b"-LOADING", b"-MASTERDOWN", b"-BUSY ", b"-TRYAGAIN", b"-CLUSTERDOWN", b"-READONLY", b"-NOAUTH", b"-NOREPLICAS"];

/// Whether the reply that begins so is an answer, or a server's failure to give one.
pub(super) fn quality_of(reply: &[u8]) -> Quality {
    match FAILURES.iter().any(|failure| reply.starts_with(failure)) {
        true => Quality::Failure,
        false => Quality::Success,
    }
}

//! Classification of a Redis reply as a sign of its server's health.

use super::super::connection::ServerConnection;
use super::super::http::read_more;
use crate::config::Limits;
use crate::request_table::{ReplyKind, ServerOutcome};
use crate::resp::ReplyScanner;

/// Reads a complete reply and drops it. Returns its classification, and the connection if it can be reused.
pub(crate) async fn read_and_discard_reply(
    mut connection: ServerConnection,
    limits: &Limits,
) -> Option<(ServerOutcome, Option<ServerConnection>)> {
    let (mut scanner, mut bytes, mut outcome) = (ReplyScanner::default(), 0, ServerOutcome::Reply(ReplyKind::Value));
    loop {
        let (count, is_whole) = scanner.scan(connection.input.data()).ok()?;
        if bytes == 0 {
            outcome = classify_reply(&connection.input.data()[..count]);
        }
        scanner.consume_scanned();
        connection.input.consume(count);
        bytes += count;
        match is_whole {
            true => return Some((outcome, Some(connection))),
            false if bytes > limits.reply_bytes => return None,
            false => read_more(&mut connection).await?,
        }
    }
}

/// Beginnings of error replies from a server that cannot work.
const FAILING: [&[u8]; 4] = [b"-LOADING", b"-MASTERDOWN", b"-BUSY ", b"-CLUSTERDOWN"];
/// Beginnings of error replies from a working server, for commands that another server might execute.
const REFUSALS: [&[u8]; 4] = [b"-TRYAGAIN", b"-READONLY", b"-NOAUTH", b"-NOREPLICAS"];

/// Classifies a reply by its first bytes.
pub(super) fn classify_reply(reply: &[u8]) -> ServerOutcome {
    let begins_as = |errors: &[&[u8]]| errors.iter().any(|error| reply.starts_with(error));
    ServerOutcome::Reply(match reply.first() {
        Some(b'-') if begins_as(&FAILING) => ReplyKind::Failing,
        Some(b'-') if begins_as(&REFUSALS) => ReplyKind::Refusal,
        Some(b'-' | b'!') => ReplyKind::Error,
        _ => ReplyKind::Value,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_errors_are_distinguished_from_command_errors() {
        let of = |reply: &str| classify_reply(reply.as_bytes());
        assert_eq!(of("-LOADING Redis is loading the dataset in memory\r\n"), ServerOutcome::Reply(ReplyKind::Failing));
        assert_eq!(
            of("-READONLY You can't write against a read only replica.\r\n"),
            ServerOutcome::Reply(ReplyKind::Refusal)
        );
        for error in ["-WRONGTYPE Operation\r\n", "-ERR unknown command\r\n", "-MOVED 1 a:1\r\n", "!5\r\nERR a\r\n"] {
            assert_eq!(of(error), ServerOutcome::Reply(ReplyKind::Error));
        }
        assert_eq!(of("$8\r\n-LOADING\r\n"), ServerOutcome::Reply(ReplyKind::Value));
    }
}

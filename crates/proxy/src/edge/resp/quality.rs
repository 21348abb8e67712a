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
    use std::io::Write;
    use std::net::TcpListener;
    use std::time::Duration;

    use super::*;

    /// Reads a reply of which the first part has been received, and the second part is in the socket. Returns its
    /// classification, and whether the connection can be reused.
    fn read_in_two_parts(first: &str, second: &str, reply_bytes: usize) -> Option<(ServerOutcome, bool)> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let limits = Limits { reply_bytes, ..Limits::default() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let opened = ServerConnection::open(listener.local_addr().unwrap(), Duration::from_secs(20));
            let mut connection = opened.await.unwrap();
            let (mut server, _) = listener.accept().unwrap();
            connection.input.push(first.as_bytes());
            server.write_all(second.as_bytes()).unwrap();
            let (outcome, reusable) = read_and_discard_reply(connection, &limits).await?;
            Some((outcome, reusable.is_some()))
        })
    }

    #[test]
    fn a_reply_in_parts_is_classified_by_its_begin() {
        let failing = Some((ServerOutcome::Reply(ReplyKind::Failing), true));
        assert_eq!(read_in_two_parts("-LOADING wa", "it\r\n", 100), failing);
        let value = Some((ServerOutcome::Reply(ReplyKind::Value), true));
        assert_eq!(read_in_two_parts("$8\r\n", "-LOADING\r\n", 100), value);
    }

    #[test]
    fn a_reply_is_read_up_to_its_limit() {
        let (first, second) = (format!("$20\r\n{}", "x".repeat(10)), format!("{}\r\n", "x".repeat(10)));
        let value = Some((ServerOutcome::Reply(ReplyKind::Value), true));
        assert_eq!(read_in_two_parts(&first, &second, first.len()), value);
        assert_eq!(read_in_two_parts(&first, &second, first.len() - 1), None);
    }

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

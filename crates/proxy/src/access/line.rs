//! Formatting of the access log. Text from clients is escaped, so that it cannot end a line or a quoted text.

use std::fmt::{self, Display};
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;

use sidelane_policy::Nanos;

use super::entry::{ClientRequest, Dispatch, Entry};
use super::text::Text;

/// Format of the access log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Combined log format of nginx and Apache, followed by `name=value` pairs of the proxy.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Formatter of log lines, with the data that all lines need and that no entry contains.
#[derive(Clone, Debug)]
pub struct LineFormatter {
    /// Format of the log.
    pub format: Format,
    /// Addresses of the servers.
    pub servers: Arc<[SocketAddr]>,
    /// Wall-clock time at which the monotonic clock was 0, in nanoseconds since 1970.
    pub epoch_ns: Nanos,
}

impl LineFormatter {
    /// Appends the line of an entry to `out`, including the line end.
    pub fn write_line(&self, entry: &Entry<'_>, out: &mut Vec<u8>) {
        match self.format {
            Format::Text => self.write_text(entry, out),
            Format::Json => self.write_json(entry, out),
        }
        out.push(b'\n');
    }

    fn write_text(&self, entry: &Entry<'_>, out: &mut Vec<u8>) {
        let time = Moment(self.epoch_ns + entry.arrived_ns);
        append_formatted(out, format_args!("{} - - [", entry.client.ip()));
        time.write_common(out);
        out.extend_from_slice(b"] ");
        let (mut referer, mut agent) = (Text::default(), Text::default());
        match entry.asked {
            ClientRequest::Http { line, referer: of, agent: by } => {
                write_quoted(line, out);
                (referer, agent) = (of, by);
            }
            ClientRequest::Redis { name, keys } => {
                out.push(b'"');
                escape_text(name, out);
                keys.into_iter().for_each(|keys| append_formatted(out, format_args!(" keys={keys}")));
                out.push(b'"');
            }
        }
        append_formatted(out, format_args!(" {} {} ", OrDash(entry.status), entry.body_bytes));
        for text in [referer, agent] {
            if text.bytes.is_empty() {
                out.extend_from_slice(b"\"-\"")
            } else {
                write_quoted(text, out)
            }
            out.push(b' ');
        }
        let (first, server) = (OrDash(entry.first_byte_ns.map(Seconds)), OrDash(self.server_address(entry)));
        append_formatted(out, format_args!("time={} first_byte={first} server={server}", Seconds(entry.duration_ns)));
        append_formatted(out, format_args!(" end={} sent={} won=", entry.outcome.name(), entry.sent));
        append_formatted(out, format_args!("{}", OrDash(entry.winner.name())));
        append_formatted(out, format_args!(" in={} out={} id=", entry.received_bytes, entry.sent_bytes));
        match entry.number {
            Some(number) => number.write(out),
            None => out.push(b'-'),
        }
    }

    fn write_json(&self, entry: &Entry<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"time\":\"");
        Moment(self.epoch_ns + entry.arrived_ns).write_rfc3339(out);
        append_formatted(out, format_args!("\",\"client\":\"{}\"", entry.client));
        match entry.asked {
            ClientRequest::Http { line, referer, agent } => {
                for (name, text) in [("request", line), ("referer", referer), ("user_agent", agent)] {
                    write_json_text(name, text, out);
                }
            }
            ClientRequest::Redis { name, keys } => {
                write_json_text("command", Text { bytes: name, omitted: 0 }, out);
                keys.into_iter().for_each(|keys| append_formatted(out, format_args!(",\"keys\":{keys}")));
            }
        }
        entry.status.into_iter().for_each(|status| append_formatted(out, format_args!(",\"status\":{status}")));
        append_formatted(out, format_args!(",\"duration_seconds\":{}", Seconds(entry.duration_ns)));
        if let Some(first_byte_ns) = entry.first_byte_ns {
            append_formatted(out, format_args!(",\"first_byte_seconds\":{}", Seconds(first_byte_ns)));
        }
        if let Some(server) = self.server_address(entry) {
            append_formatted(out, format_args!(",\"server\":\"{server}\""));
        }
        append_formatted(out, format_args!(",\"end\":\"{}\",\"sent\":\"{}\"", entry.outcome.name(), entry.sent));
        entry.winner.name().into_iter().for_each(|winner| append_formatted(out, format_args!(",\"won\":\"{winner}\"")));
        let (received, sent, body) = (entry.received_bytes, entry.sent_bytes, entry.body_bytes);
        append_formatted(
            out,
            format_args!(",\"received_bytes\":{received},\"sent_bytes\":{sent},\"body_bytes\":{body}"),
        );
        if let Some(number) = entry.number {
            out.extend_from_slice(b",\"id\":\"");
            number.write(out);
            out.push(b'"');
        }
        out.push(b'}');
    }

    fn server_address(&self, entry: &Entry<'_>) -> Option<SocketAddr> {
        entry.server.map(|server| self.servers[server.index()])
    }
}

impl Display for Dispatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Never => f.write_str("never"),
            Self::Once => f.write_str("once"),
            Self::Hazard(hazard) => write!(f, "hedged:{}", hazard.name()),
            Self::Timer => f.write_str("hedged:timer"),
            Self::Again => f.write_str("again"),
        }
    }
}

fn append_formatted(out: &mut Vec<u8>, text: fmt::Arguments<'_>) {
    // Ignore the result: writing to memory cannot fail.
    let _ = out.write_fmt(text);
}

struct OrDash<T>(Option<T>);

impl<T: Display> Display for OrDash<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(value) => value.fmt(f),
            None => f.write_str("-"),
        }
    }
}

fn write_quoted(text: Text<'_>, out: &mut Vec<u8>) {
    out.push(b'"');
    escape_text(text.bytes, out);
    if text.omitted > 0 {
        append_formatted(out, format_args!("...(+{} bytes)", text.omitted));
    }
    out.push(b'"');
}

/// Escapes text as nginx does: quotes, backslashes and all bytes except printable ASCII become `\xHH`.
fn escape_text(bytes: &[u8], out: &mut Vec<u8>) {
    for byte in bytes {
        match byte {
            b'"' | b'\\' | 0..b' ' | 0x7f.. => append_formatted(out, format_args!("\\x{byte:02X}")),
            _ => out.push(*byte),
        }
    }
}

/// Writes a text as a member of a JSON object. Writes nothing if the text is empty.
fn write_json_text(name: &str, text: Text<'_>, out: &mut Vec<u8>) {
    if text.bytes.is_empty() {
        return;
    }
    append_formatted(out, format_args!(",\"{name}\":\""));
    escape_json(text.bytes, out);
    out.push(b'"');
    if text.omitted > 0 {
        append_formatted(out, format_args!(",\"{name}_omitted_bytes\":{}", text.omitted));
    }
}

/// Escapes text for JSON. Bytes that are not valid UTF-8 become U+FFFD.
fn escape_json(bytes: &[u8], out: &mut Vec<u8>) {
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '"' | '\\' => out.extend_from_slice(&[b'\\', letter as u8]),
                // Escape U+2028 and U+2029, because some readers treat them as line ends.
                '\u{2028}' | '\u{2029}' => append_formatted(out, format_args!("\\u{:04x}", u32::from(letter))),
                _ if letter.is_control() => append_formatted(out, format_args!("\\u{:04x}", u32::from(letter))),
                _ => append_formatted(out, format_args!("{letter}")),
            }
        }
        if !chunk.invalid().is_empty() {
            out.extend_from_slice(b"\\ufffd");
        }
    }
}

/// Duration in nanoseconds, formatted as seconds with six decimals.
struct Seconds(Nanos);

impl Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}", self.0 / 1_000_000_000, self.0 % 1_000_000_000 / 1000)
    }
}

/// Time in nanoseconds since 1970, in UTC.
struct Moment(Nanos);

const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

impl Moment {
    /// Writes the time in the format `2026-03-01T14:02:11.123Z`.
    fn write_rfc3339(&self, out: &mut Vec<u8>) {
        let ((year, month, day), (hour, minute, second)) = (self.date(), self.time_of_day());
        let millis = self.0 / 1_000_000 % 1000;
        append_formatted(
            out,
            format_args!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z"),
        );
    }

    /// Writes the time in the format `01/Mar/2026:14:02:11 +0000`.
    fn write_common(&self, out: &mut Vec<u8>) {
        let ((year, month, day), (hour, minute, second)) = (self.date(), self.time_of_day());
        let month = MONTHS[month as usize - 1];
        append_formatted(out, format_args!("{day:02}/{month}/{year:04}:{hour:02}:{minute:02}:{second:02} +0000"));
    }

    /// Returns hour, minute and second.
    fn time_of_day(&self) -> (u64, u64, u64) {
        let second = self.0 / 1_000_000_000 % 86_400;
        (second / 3600, second / 60 % 60, second % 60)
    }

    /// Returns year, month and day. For the computation, a year begins in March, so that a leap day is the last day of
    /// a year.
    fn date(&self) -> (u64, u64, u64) {
        let days = self.0 / (86_400 * 1_000_000_000) + 719_468;
        let (era, day_of_era) = (days / 146_097, days % 146_097);
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        (year_of_era + 400 * era + u64::from(month <= 2), month, day)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};
    use sidelane_policy::hedge::{Hazard, Server};

    use super::super::entry::{RequestOutcome, Winner};
    use super::super::text::{FIELD_MAX, REQUEST_MAX};
    use super::*;
    use crate::http::RequestNumber;

    const EPOCH_NS: Nanos = 1_772_373_731_042_000_000;

    fn text(bytes: &[u8]) -> Text<'_> {
        Text { bytes, omitted: 0 }
    }

    fn http_entry<'a>(line: &'a [u8], agent: &'a [u8]) -> Entry<'a> {
        Entry {
            arrived_ns: 0,
            duration_ns: 2_000_042_999,
            first_byte_ns: Some(1_000),
            client: "192.0.2.1:4711".parse().unwrap(),
            server: Some(Server::ALL[1]),
            outcome: RequestOutcome::Answered,
            sent: Dispatch::Hazard(Hazard::JvmGc),
            winner: Winner::Hedge,
            status: Some(200),
            received_bytes: 78,
            sent_bytes: 310,
            body_bytes: 123,
            number: Some(RequestNumber { id: 17, mark: 0xfe }),
            asked: ClientRequest::Http { line: text(line), referer: text(b""), agent: text(agent) },
        }
    }

    fn format_line(entry: &Entry<'_>, format: Format) -> String {
        let servers = ["127.0.0.1:9001", "[::1]:9002"].map(|server| server.parse().unwrap()).into();
        let mut out = Vec::new();
        LineFormatter { format, servers, epoch_ns: EPOCH_NS }.write_line(entry, &mut out);
        String::from_utf8(out).unwrap()
    }

    fn parse_json_line(line: &str) -> Value {
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    #[test]
    fn text_line_is_combined_log_format_plus_own_fields() {
        let line = format_line(&http_entry(b"GET /a?b HTTP/1.1", b"curl/8"), Format::Text);
        assert_eq!(
            line,
            "192.0.2.1 - - [01/Mar/2026:14:02:11 +0000] \"GET /a?b HTTP/1.1\" 200 123 \"-\" \"curl/8\" time=2.000042 \
             first_byte=0.000001 server=[::1]:9002 end=answered sent=hedged:jvm-gc won=hedge in=78 out=310 \
             id=17-00000000000000fe\n"
        );
        let refused = Entry {
            first_byte_ns: None,
            server: None,
            outcome: RequestOutcome::Refused,
            sent: Dispatch::Never,
            winner: Winner::None,
            status: None,
            number: None,
            ..http_entry(b"", b"")
        };
        let line = format_line(&refused, Format::Text);
        assert!(line.contains("] \"\" - 123 \"-\" \"-\" time=2.000042 first_byte=- server=- end=refused"), "{line}");
        assert!(line.ends_with(" sent=never won=- in=78 out=310 id=-\n"), "{line}");
    }

    #[test]
    fn json_line_is_one_object() {
        let value =
            parse_json_line(&format_line(&http_entry(b"GET /a?b HTTP/1.1", "caf\u{e9}".as_bytes()), Format::Json));
        let wanted = json!({
            "time": "2026-03-01T14:02:11.042Z", "client": "192.0.2.1:4711", "request": "GET /a?b HTTP/1.1",
            "user_agent": "caf\u{e9}", "status": 200, "duration_seconds": 2.000042, "first_byte_seconds": 0.000001,
            "server": "[::1]:9002", "end": "answered", "sent": "hedged:jvm-gc", "won": "hedge", "received_bytes": 78,
            "sent_bytes": 310, "body_bytes": 123, "id": "17-00000000000000fe",
        });
        assert_eq!(value, wanted);
    }

    #[test]
    fn line_of_a_redis_command_has_its_name_and_number_of_keys() {
        let command = Entry { asked: ClientRequest::Redis { name: b"MGET", keys: Some(3) }, ..http_entry(b"", b"") };
        assert!(format_line(&command, Format::Text).contains("] \"MGET keys=3\" 200 "));
        let value = parse_json_line(&format_line(&command, Format::Json));
        assert_eq!((&value["command"], &value["keys"]), (&json!("MGET"), &json!(3)));
        let unknown = Entry { asked: ClientRequest::Redis { name: b"FT.SEARCH", keys: None }, ..http_entry(b"", b"") };
        assert!(format_line(&unknown, Format::Text).contains("] \"FT.SEARCH\" 200 "));
        assert_eq!(parse_json_line(&format_line(&unknown, Format::Json)).get("keys"), None);
    }

    #[test]
    fn long_target_is_cut_and_marked_as_cut() {
        let long = [&b"GET /"[..], &[b'a'; 3000], b" HTTP/1.1"].concat();
        let asked = ClientRequest::Http { line: Text::cut(&long, REQUEST_MAX), referer: text(b""), agent: text(b"") };
        let entry = Entry { asked, ..http_entry(b"", b"") };
        let omitted = long.len() - REQUEST_MAX;
        assert!(format_line(&entry, Format::Text).contains(&format!("aaa...(+{omitted} bytes)\" 200")));
        let value = parse_json_line(&format_line(&entry, Format::Json));
        assert_eq!(value["request_omitted_bytes"], json!(omitted));
        assert_eq!(value["request"].as_str().map(str::len), Some(REQUEST_MAX));
    }

    #[test]
    fn text_of_a_client_is_escaped_in_log_lines() {
        let entry = http_entry(b"GET /\n1.1.1.1 \"GET\" \\ \x1b[2J\xff\0", b"\r\n\xe2\x80\xa8\xc2\x85");
        let line = format_line(&entry, Format::Text);
        let wanted =
            r#""GET /\x0A1.1.1.1 \x22GET\x22 \x5C \x1B[2J\xFF\x00" 200 123 "-" "\x0D\x0A\xE2\x80\xA8\xC2\x85""#;
        assert!(line.contains(wanted), "{line}");
        let line = format_line(&entry, Format::Json);
        assert!(line.is_ascii());
        assert_eq!(parse_json_line(&line)["request"], "GET /\n1.1.1.1 \"GET\" \\ \u{1b}[2J\u{fffd}\0");
        assert_eq!(parse_json_line(&line)["user_agent"], "\r\n\u{2028}\u{85}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_one_line_without_control_characters(
            line in prop::collection::vec(any::<u8>(), 0..3000),
            referer in prop::collection::vec(any::<u8>(), 0..600),
            agent in "\\PC*",
        ) {
            let asked = ClientRequest::Http {
                line: Text::cut(&line, REQUEST_MAX),
                referer: Text::cut(&referer, FIELD_MAX),
                agent: Text::cut(agent.as_bytes(), FIELD_MAX),
            };
            let entry = Entry { asked, ..http_entry(b"", b"") };
            for format in [Format::Text, Format::Json] {
                let line = format_line(&entry, format);
                let (last, others) = line.as_bytes().split_last().unwrap();
                prop_assert_eq!(*last, b'\n');
                prop_assert!(!std::str::from_utf8(others).unwrap().chars().any(char::is_control));
                match format {
                    Format::Text => prop_assert_eq!(line.matches('"').count(), 6),
                    Format::Json => prop_assert!(serde_json::from_str::<Value>(&line).is_ok()),
                }
            }
        }
    }

    #[test]
    fn unix_times_become_calendar_dates() {
        for (day, wanted) in
            [(0, (1970, 1, 1)), (11_016, (2000, 2, 29)), (11_017, (2000, 3, 1)), (20_453, (2025, 12, 31))]
        {
            assert_eq!(Moment(day * 86_400 * 1_000_000_000).date(), wanted);
        }
    }
}

//! What a command is: safe to repeat, or not, or one that gives its connection a state of its own.

/// Commands that only read, as they are listed without a word of the user's.
const READING: [&str; 39] = [
    "GET",
    "MGET",
    "EXISTS",
    "STRLEN",
    "GETRANGE",
    "TTL",
    "PTTL",
    "TYPE",
    "HGET",
    "HMGET",
    "HGETALL",
    "HEXISTS",
    "HLEN",
    "HKEYS",
    "HVALS",
    "HSTRLEN",
    "LRANGE",
    "LLEN",
    "LINDEX",
    "SMEMBERS",
    "SISMEMBER",
    "SMISMEMBER",
    "SCARD",
    "ZRANGE",
    "ZREVRANGE",
    "ZRANGEBYSCORE",
    "ZSCORE",
    "ZMSCORE",
    "ZCARD",
    "ZCOUNT",
    "ZRANK",
    "ZREVRANK",
    "GETBIT",
    "BITCOUNT",
    "PING",
    "ECHO",
    "DBSIZE",
    "XRANGE",
    "XLEN",
];

/// Commands that tie a connection to one server: what follows depends on them, or they say something that means nothing
/// to the other server, as a cursor, or how many replicas have what was written on this connection.
const STATEFUL: [&str; 27] = [
    "AUTH",
    "SELECT",
    "HELLO",
    "CLIENT",
    "MULTI",
    "EXEC",
    "DISCARD",
    "WATCH",
    "UNWATCH",
    "SUBSCRIBE",
    "PSUBSCRIBE",
    "SSUBSCRIBE",
    "UNSUBSCRIBE",
    "PUNSUBSCRIBE",
    "SUNSUBSCRIBE",
    "MONITOR",
    "RESET",
    "SYNC",
    "PSYNC",
    "READONLY",
    "ASKING",
    "SCAN",
    "SSCAN",
    "HSCAN",
    "ZSCAN",
    "WAIT",
    "WAITAOF",
];

/// Which commands are safe to repeat.
#[derive(Clone, Debug)]
pub struct Repeatable(Vec<Vec<u8>>);

impl Default for Repeatable {
    /// Those that only read.
    fn default() -> Self {
        Self::of(READING)
    }
}

impl Repeatable {
    /// Commands, or methods, by name.
    pub fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        Self(names.into_iter().map(|name| name.to_ascii_uppercase().into_bytes()).collect())
    }

    /// Whether it is listed.
    pub fn contains(&self, name: &[u8]) -> bool {
        self.0.iter().any(|listed| listed.eq_ignore_ascii_case(name))
    }
}

/// What a command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It is listed as safe to repeat.
    Repeatable,
    /// It is sent once.
    Once,
    /// It is sent once, and its connection keeps a state from then on, or ends.
    Stateful,
}

/// What a whole command is.
pub fn kind_of(command: &[u8], repeatable: &Repeatable) -> Kind {
    let name = name_of(command);
    let is_stateful = STATEFUL.iter().any(|stateful| name.eq_ignore_ascii_case(stateful.as_bytes()));
    match () {
        // Clients say so at the start what they are: that changes nothing of what they ask.
        () if name.eq_ignore_ascii_case(b"CLIENT") && word(command, 1).eq_ignore_ascii_case(b"SETINFO") => Kind::Once,
        () if is_stateful || name.eq_ignore_ascii_case(b"QUIT") => Kind::Stateful,
        () if repeatable.contains(name) => Kind::Repeatable,
        () => Kind::Once,
    }
}

/// The name of a whole command; nothing if it has none.
pub fn name_of(command: &[u8]) -> &[u8] {
    word(command, 0)
}

/// Whether the answer is about what was written on the same connection before.
pub fn asks_of_writes(command: &[u8]) -> bool {
    [&b"WAIT"[..], b"WAITAOF"].iter().any(|name| name_of(command).eq_ignore_ascii_case(name))
}

/// A word of a command, of those without line ends; nothing if it has fewer.
fn word(command: &[u8], place: usize) -> &[u8] {
    let mut lines = command.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    match command.first() {
        // A line with the length comes before each.
        Some(b'*') => lines.nth(2 * (place + 1)).unwrap_or_default(),
        _ => lines.next().unwrap_or_default().split(u8::is_ascii_whitespace).nth(place).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_their_name_in_both_forms() {
        assert_eq!(name_of(b"*2\r\n$3\r\nget\r\n$1\r\nx\r\n"), b"get");
        assert_eq!(name_of(b"PING hello\r\n"), b"PING");
        assert_eq!((name_of(b"\r\n"), name_of(b"*0\r\n")), (&b""[..], &b""[..]));
    }

    #[test]
    fn only_listed_commands_are_repeated_and_stateful_ones_never() {
        let listed = Repeatable::of(["get", "select"]);
        let kinds = [&b"Get"[..], b"SET", b"select", b"quit", b""].map(|name| kind_of(name, &listed));
        assert_eq!(kinds, [Kind::Repeatable, Kind::Once, Kind::Stateful, Kind::Stateful, Kind::Once]);
    }

    #[test]
    fn a_client_that_says_what_it_is_ties_nothing() {
        let kinds =
            ["CLIENT SETINFO lib-name x\r\n", "*2\r\n$6\r\nclient\r\n$7\r\nsetinfo\r\n", "CLIENT REPLY OFF\r\n"]
                .map(|command| kind_of(command.as_bytes(), &Repeatable::default()));
        assert_eq!(kinds, [Kind::Once, Kind::Once, Kind::Stateful]);
    }

    #[test]
    fn what_means_something_to_one_server_alone_ties_to_it() {
        for name in ["SCAN", "SSCAN", "HSCAN", "ZSCAN", "WAIT", "WAITAOF"] {
            assert_eq!(kind_of(name.as_bytes(), &Repeatable::default()), Kind::Stateful, "{name}");
        }
    }
}

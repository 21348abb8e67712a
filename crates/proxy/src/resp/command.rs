//! Effects of Redis commands on their connection and on data.
//!
//! A connection to a server is used by several clients, one after the other. It returns to the pool only if each
//! command on it is listed here as one that leaves no state on the connection. All other commands, also of modules and
//! of later versions of Redis, get a separate connection, which is closed at the end.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::reader::Command;

/// Commands that only read data, and leave no state on their connection. They are the default of repeatable commands.
const READING: &str = "\
    BITCOUNT BITFIELD_RO BITPOS DBSIZE ECHO EXISTS EXPIRETIME GEODIST GEOHASH GEOPOS GEORADIUSBYMEMBER_RO \
    GEORADIUS_RO GEOSEARCH GET GETBIT GETRANGE HEXISTS HEXPIRETIME HGET HGETALL HKEYS HLEN HMGET HPEXPIRETIME HPTTL \
    HRANDFIELD HSTRLEN HTTL HVALS LCS LINDEX LLEN LPOS LRANGE MGET PEXPIRETIME PING PTTL RANDOMKEY SCARD SDIFF \
    SINTER SINTERCARD SISMEMBER SMEMBERS SMISMEMBER SORT_RO SRANDMEMBER STRLEN SUBSTR SUNION TTL TYPE XINFO XLEN \
    XPENDING XRANGE XREAD XREVRANGE ZCARD ZCOUNT ZDIFF ZINTER ZINTERCARD ZLEXCOUNT ZMSCORE ZRANDMEMBER ZRANGE \
    ZRANGEBYLEX ZRANGEBYSCORE ZRANK ZREVRANGE ZREVRANGEBYLEX ZREVRANGEBYSCORE ZREVRANK ZSCORE ZUNION";

/// Commands that change no data and leave no state on their connection, but are not repeated. Their answers are about
/// the server, or they use much of its time.
const OTHER: &str = "\
    COMMAND EVALSHA_RO EVAL_RO FCALL_RO INFO KEYS LASTSAVE LOLWUT MEMORY OBJECT PFCOUNT PUBLISH PUBSUB SPUBLISH TIME";

/// Commands that may change data, and leave no state on their connection.
const WRITING: &str = "\
    APPEND BITFIELD BITOP COPY DECR DECRBY DEL EVAL EVALSHA EXPIRE EXPIREAT FCALL FLUSHALL FLUSHDB GEOADD GEORADIUS \
    GEORADIUSBYMEMBER GEOSEARCHSTORE GETDEL GETEX GETSET HDEL HEXPIRE HEXPIREAT HGETDEL HGETEX HINCRBY HINCRBYFLOAT \
    HMSET HPERSIST HPEXPIRE HPEXPIREAT HSET HSETEX HSETNX INCR INCRBY INCRBYFLOAT LINSERT LMOVE LMPOP LPOP LPUSH \
    LPUSHX LREM LSET LTRIM MOVE MSET MSETNX PERSIST PEXPIRE PEXPIREAT PFADD PFMERGE PSETEX RENAME RENAMENX RESTORE \
    RPOP RPOPLPUSH RPUSH RPUSHX SADD SCRIPT SDIFFSTORE SET SETBIT SETEX SETNX SETRANGE SINTERSTORE SMOVE SORT SPOP \
    SREM SUNIONSTORE SWAPDB TOUCH UNLINK XACK XACKDEL XADD XAUTOCLAIM XCLAIM XDEL XDELEX XGROUP XREADGROUP XSETID \
    XTRIM ZADD ZDIFFSTORE ZINCRBY ZINTERSTORE ZMPOP ZPOPMAX ZPOPMIN ZRANGESTORE ZREM ZREMRANGEBYLEX ZREMRANGEBYRANK \
    ZREMRANGEBYSCORE ZUNIONSTORE";

/// Commands that the option `--repeat` cannot make repeatable. They leave state on their connection, or their answer is
/// only valid at one server, such as a cursor.
const TYING: &str = "\
    ASKING AUTH CLIENT DEBUG DISCARD EXEC FAILOVER HELLO HSCAN MONITOR MULTI PSUBSCRIBE PSYNC PUNSUBSCRIBE QUIT \
    READONLY READWRITE REPLCONF RESET SCAN SELECT SHUTDOWN SSCAN SSUBSCRIBE SUBSCRIBE SUNSUBSCRIBE SYNC UNSUBSCRIBE \
    UNWATCH WAIT WAITAOF WATCH ZSCAN";

/// Commands that block at the server until data comes.
const BLOCKING: &str = "\
    BLMOVE BLMPOP BLPOP BRPOP BRPOPLPUSH BZMPOP BZPOPMAX BZPOPMIN";

/// Length of the longest command name in the lists of this file.
const NAME_MAX: usize = 20;

/// Effect of a command on its connection and on data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    Reads,
    ChangesNoData,
    Writes,
    Ties,
    Blocks,
}

static EFFECTS: LazyLock<HashMap<&[u8], Effect>> = LazyLock::new(|| {
    let lists = [
        (READING, Effect::Reads),
        (OTHER, Effect::ChangesNoData),
        (WRITING, Effect::Writes),
        (TYING, Effect::Ties),
        (BLOCKING, Effect::Blocks),
    ];
    let names = |list: &'static str| list.split_ascii_whitespace().map(str::as_bytes);
    lists.into_iter().flat_map(|(list, effect)| names(list).map(move |name| (name, effect))).collect()
});

/// Returns the effect of a command name; `None` if it is not listed.
fn effect_of(name: &[u8]) -> Option<Effect> {
    look_up(&EFFECTS, name)
}

/// Returns the name of a command for output: in capitals if it is listed, else as the client wrote it.
pub fn display_name(command: &Command) -> &[u8] {
    find(&EFFECTS, command.name()).map_or(command.name(), |(name, _)| name)
}

/// Looks up a name in any mix of capital and small letters.
pub(super) fn look_up<T: Copy>(names: &HashMap<&[u8], T>, name: &[u8]) -> Option<T> {
    find(names, name).map(|(_, value)| value)
}

/// Looks up a name, and returns it as it is listed, with its value.
fn find<'a, T: Copy>(names: &HashMap<&'a [u8], T>, name: &[u8]) -> Option<(&'a [u8], T)> {
    let mut upper = [0; NAME_MAX];
    let upper = upper.get_mut(..name.len())?;
    upper.copy_from_slice(name);
    upper.make_ascii_uppercase();
    names.get_key_value(&*upper).map(|(name, value)| (*name, *value))
}

/// Returns whether the command is in one of the lists.
pub(super) fn is_listed_command(name: &[u8]) -> bool {
    effect_of(name).is_some()
}

/// Names of the commands or methods that are safe to repeat.
#[derive(Clone, Debug)]
pub struct Repeatable(Vec<Vec<u8>>);

impl Default for Repeatable {
    /// Returns the commands that only read data.
    fn default() -> Self {
        Self::from_names(READING.split_ascii_whitespace())
    }
}

impl Repeatable {
    /// Creates the set from names of commands or methods.
    pub fn from_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        Self(names.into_iter().map(|name| name.to_ascii_uppercase().into_bytes()).collect())
    }

    /// Returns whether the set contains the name, in any mix of capital and small letters.
    pub fn contains(&self, name: &[u8]) -> bool {
        self.0.iter().any(|listed| listed.eq_ignore_ascii_case(name))
    }
}

/// Way of sending a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendMode {
    /// The command may be sent twice.
    Repeatable,
    /// The command is sent once.
    Once,
    /// The command is sent once, and the client's connection then belongs to that server.
    Tied,
}

/// Returns how the command is sent: repeatable, once, or on a tied connection.
pub fn send_mode(command: &Command, repeatable: &Repeatable) -> SendMode {
    let name = command.name();
    match effect_of(name) {
        _ if leaves_connection_state(command) || asks_for_resp2(command) => SendMode::Once,
        Some(Effect::Ties | Effect::Blocks) => SendMode::Tied,
        _ if may_block(command) || may_leave_script_state(command) => SendMode::Tied,
        _ if repeatable.contains(name) => SendMode::Repeatable,
        Some(_) => SendMode::Once,
        None => SendMode::Tied,
    }
}

/// Returns whether the command may block at the server. Its answer then has no time limit, and a client that is gone
/// must not consume data.
pub fn may_block(command: &Command) -> bool {
    let name = command.name();
    let is_stream = is_one_of(name, &["XREAD", "XREADGROUP"]);
    // A key or group named BLOCK also ties the connection, which is slower but not wrong.
    let waits = || command.arguments().skip(1).any(|argument| argument.eq_ignore_ascii_case(b"BLOCK"));
    effect_of(name) == Some(Effect::Blocks) || is_one_of(name, &["WAIT", "WAITAOF"]) || (is_stream && waits())
}

/// Returns whether the command may change data that a later command reads, on any connection to the same server.
pub fn may_write(command: &Command) -> bool {
    effect_of(command.name()) == Some(Effect::Writes) && !loads_script(command)
}

/// Returns whether the command loads a script into a server, without changing data. All servers get it, so that
/// EVALSHA finds the script at each.
pub fn loads_script(command: &Command) -> bool {
    let mut words = command.arguments();
    words.next().is_some_and(|name| name.eq_ignore_ascii_case(b"SCRIPT"))
        && words.next().is_some_and(|word| word.eq_ignore_ascii_case(b"LOAD"))
}

/// Returns whether the command leaves state on its connection that no reply depends on. Examples are a name (CLIENT
/// SETINFO), and a request for notifications that the client does not get (CLIENT MAINT_NOTIFICATIONS). All later
/// commands may go to either server, but no other client gets the connection.
pub fn leaves_connection_state(command: &Command) -> bool {
    let mut words = command.arguments();
    words.next().is_some_and(|name| name.eq_ignore_ascii_case(b"CLIENT"))
        && words.next().is_some_and(|word| is_one_of(word, &["SETINFO", "MAINT_NOTIFICATIONS"]))
}

/// Returns whether the command is HELLO for RESP2. It changes nothing, unless its client has asked for RESP3 before.
pub fn asks_for_resp2(command: &Command) -> bool {
    is_hello(command) && command.arguments().nth(1).is_none_or(|version| version == b"2")
}

/// Returns whether the command switches its connection to RESP3, and does nothing else.
pub fn asks_for_resp3(command: &Command) -> bool {
    is_hello(command) && command.arguments().nth(1).is_some_and(|version| version == b"3")
}

/// Returns whether the command is HELLO without a password and a name.
fn is_hello(command: &Command) -> bool {
    command.name().eq_ignore_ascii_case(b"HELLO") && command.arguments().nth(2).is_none()
}

/// Returns whether the answer depends on earlier writes on the same connection.
pub fn depends_on_writes(command: &Command) -> bool {
    is_one_of(command.name(), &["WAIT", "WAITAOF"])
}

/// Returns whether the command is SCRIPT DEBUG or another SCRIPT command that may leave state on its connection.
fn may_leave_script_state(command: &Command) -> bool {
    let mut words = command.arguments();
    let is_script = words.next().is_some_and(|name| name.eq_ignore_ascii_case(b"SCRIPT"));
    is_script && !words.next().is_some_and(|word| is_one_of(word, &["LOAD", "EXISTS", "FLUSH"]))
}

fn is_one_of(name: &[u8], names: &[&str]) -> bool {
    names.iter().any(|listed| name.eq_ignore_ascii_case(listed.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command_from_line(line: &str) -> Command {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        Command::from_arguments(words.into_iter())
    }

    fn default_send_mode(line: &str) -> SendMode {
        send_mode(&command_from_line(line), &Repeatable::default())
    }

    #[test]
    fn only_commands_named_as_repeatable_are_repeated() {
        let listed = Repeatable::from_names(["get", "select", "blpop", "ft.search"]);
        let kinds = ["Get", "SET", "MGET", "select", "quit", "BLPOP", "FT.SEARCH", "XREAD BLOCK 0 STREAMS a 0"]
            .map(|line| send_mode(&command_from_line(line), &listed));
        let (again, once, tied) = (SendMode::Repeatable, SendMode::Once, SendMode::Tied);
        assert_eq!(kinds, [again, once, once, tied, tied, tied, again, tied]);
    }

    #[test]
    fn unknown_and_stateful_commands_are_tied_to_a_connection() {
        for line in ["FT.SEARCH i q", "GETS a", "", "a name that is longer than all others", "CONFIG SET a b", "$8"] {
            assert_eq!(default_send_mode(line), SendMode::Tied, "{line}");
        }
        for line in ["client reply off", "CLIENT TRACKING on", "CLIENT", "RESET", "ASKING", "multi", "WATCH a"] {
            assert_eq!(default_send_mode(line), SendMode::Tied, "{line}");
        }
        for line in ["script debug yes", "SCRIPT", "SCRIPT KILL", "SCAN 0", "HSCAN a 0", "WAIT 1 0", "MONITOR"] {
            assert_eq!(default_send_mode(line), SendMode::Tied, "{line}");
        }
        for line in ["SCRIPT load x", "EVALSHA a 0", "CLIENT SETINFO lib-name x", "client setinfo a b", "FLUSHALL"] {
            assert_eq!(default_send_mode(line), SendMode::Once, "{line}");
        }
    }

    #[test]
    fn greeting_without_effect_does_not_tie_the_connection() {
        for line in ["HELLO", "hello 2", "CLIENT MAINT_NOTIFICATIONS on moving-endpoint-type none"] {
            assert_eq!(default_send_mode(line), SendMode::Once, "{line}");
        }
        assert!(
            asks_for_resp3(&command_from_line("hello 3")) && !asks_for_resp3(&command_from_line("HELLO 3 SETNAME a"))
        );
        for line in ["HELLO 3", "HELLO 2 AUTH a b", "HELLO 2 SETNAME a", "HELLO x", "HELLO 02", "CLIENT SETNAME a"] {
            assert_eq!(default_send_mode(line), SendMode::Tied, "{line}");
        }
    }

    #[test]
    fn blocking_commands_are_tied_to_a_connection() {
        for line in BLOCKING.split_ascii_whitespace() {
            assert!(default_send_mode(line) == SendMode::Tied && may_block(&command_from_line(line)), "{line}");
        }
        for line in ["xread block 0 streams a 0", "XREADGROUP GROUP STREAMS c BLOCK 0 STREAMS a >", "WAITAOF 1 0 0"] {
            assert!(default_send_mode(line) == SendMode::Tied && may_block(&command_from_line(line)), "{line}");
        }
        assert_eq!(
            (default_send_mode("XREAD STREAMS a 0"), default_send_mode("XREADGROUP GROUP g c STREAMS a >")),
            (SendMode::Repeatable, SendMode::Once)
        );
        assert!(!may_block(&command_from_line("LPOP BLOCK")));
    }

    #[test]
    fn each_command_is_listed_once() {
        let lists = [READING, OTHER, WRITING, TYING, BLOCKING];
        let names: Vec<&str> = lists.iter().flat_map(|list| list.split_ascii_whitespace()).collect();
        assert_eq!(EFFECTS.len(), names.len());
        assert_eq!(names.iter().map(|name| name.len()).max(), Some(NAME_MAX));
    }

    #[test]
    fn reading_commands_do_not_count_as_writes() {
        assert!(
            ["SET a 1", "eval x 0", "SCRIPT FLUSH", "XREADGROUP GROUP g c STREAMS a >"]
                .iter()
                .all(|line| may_write(&command_from_line(line)))
        );
        assert!(
            !["GET a", "INFO", "PUBLISH a b", "CLIENT SETINFO a b", "EVAL_RO x 0", "script load x"]
                .iter()
                .any(|line| may_write(&command_from_line(line)))
        );
    }
}

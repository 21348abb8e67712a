//! Number of keys in a Redis command, for the access log, which contains no arguments.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::command::{is_listed_command, look_up};
use super::reader::Command;

/// Rule for the number of keys in a command.
#[derive(Clone, Copy)]
enum KeyCountRule {
    /// The number of keys is fixed.
    Fixed(u32),
    /// All arguments are keys, except this number of them.
    AllBut(usize),
    /// Every second argument is a key.
    Pairs,
    /// An argument tells the number of keys. The values are the index of this argument, and a number of keys to add.
    CountInArgument(usize, u32),
    /// Half of the arguments after STREAMS are keys.
    Streams,
}

const TABLE: [(&str, KeyCountRule); 9] = [
    (
        "ACL ASKING AUTH CLIENT CLUSTER COMMAND CONFIG DBSIZE DEBUG DISCARD ECHO EXEC FAILOVER FLUSHALL FLUSHDB HELLO INFO \
         KEYS LASTSAVE LATENCY LOLWUT MEMORY MODULE MONITOR MULTI PING PSUBSCRIBE PSYNC PUBLISH PUBSUB PUNSUBSCRIBE QUIT \
         RANDOMKEY READONLY READWRITE REPLCONF REPLICAOF RESET ROLE SAVE SCAN SCRIPT SELECT SHUTDOWN SLAVEOF SLOWLOG \
         SPUBLISH SSUBSCRIBE SUBSCRIBE SUNSUBSCRIBE SWAPDB SYNC TIME UNSUBSCRIBE UNWATCH WAIT WAITAOF",
        KeyCountRule::Fixed(0),
    ),
    (
        "BLMOVE BRPOPLPUSH COPY GEOSEARCHSTORE LCS LMOVE RENAME RENAMENX RPOPLPUSH SMOVE ZRANGESTORE",
        KeyCountRule::Fixed(2),
    ),
    (
        "DEL EXISTS MGET PFCOUNT PFMERGE SDIFF SDIFFSTORE SINTER SINTERSTORE SUNION SUNIONSTORE TOUCH UNLINK WATCH",
        KeyCountRule::AllBut(0),
    ),
    ("BITOP BLPOP BRPOP BZPOPMAX BZPOPMIN", KeyCountRule::AllBut(1)),
    ("MSET MSETNX", KeyCountRule::Pairs),
    ("LMPOP SINTERCARD ZDIFF ZINTER ZINTERCARD ZMPOP ZUNION", KeyCountRule::CountInArgument(1, 0)),
    ("BLMPOP BZMPOP EVAL EVALSHA EVALSHA_RO EVAL_RO FCALL FCALL_RO", KeyCountRule::CountInArgument(2, 0)),
    ("ZDIFFSTORE ZINTERSTORE ZUNIONSTORE", KeyCountRule::CountInArgument(2, 1)),
    ("XREAD XREADGROUP", KeyCountRule::Streams),
];

static KEYS: LazyLock<HashMap<&[u8], KeyCountRule>> = LazyLock::new(|| {
    let names = |list: &'static str| list.split_ascii_whitespace().map(str::as_bytes);
    TABLE.into_iter().flat_map(|(list, keys)| names(list).map(move |name| (name, keys))).collect()
});

/// Returns the number of keys in the command; `None` if it is unknown.
pub fn count_keys(command: &Command) -> Option<u32> {
    let name = command.name();
    let arguments = command.arguments().count().saturating_sub(1);
    let keys = look_up(&KEYS, name).or_else(|| is_listed_command(name).then_some(KeyCountRule::Fixed(1)))?;
    let said = |at: usize| -> Option<u32> { std::str::from_utf8(command.arguments().nth(at)?).ok()?.parse().ok() };
    let count = match keys {
        KeyCountRule::Fixed(count) => count as usize,
        KeyCountRule::AllBut(others) => arguments.saturating_sub(others),
        KeyCountRule::Pairs => arguments / 2,
        KeyCountRule::CountInArgument(at, more) => said(at)?.saturating_add(more) as usize,
        KeyCountRule::Streams => {
            let before = command.arguments().position(|argument| argument.eq_ignore_ascii_case(b"STREAMS"))?;
            (arguments - before) / 2
        }
    };
    // Limit the number to the arguments, because a client may claim any number of keys.
    u32::try_from(count.min(arguments)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_counted_by_the_rule_of_the_command() {
        let count = |line: &str| {
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            count_keys(&Command::from_arguments(words.into_iter()))
        };
        let none = ["PING", "info all", "SCAN 0 MATCH a", "AUTH secret", "MULTI", "GET"];
        let one = ["get a", "SET a 1 EX 5", "HSET h a 1 b 2", "EVAL x 1 a 7", "XREAD COUNT 2 STREAMS a 0", "TTL a"];
        let two = ["MGET a b", "MSET a 1 b 2", "BLPOP a b 0", "RENAME a b", "ZINTERSTORE to 1 a", "BITOP NOT to a"];
        let three = ["DEL a b c", "XREADGROUP GROUP g c STREAMS a b c > > >", "SINTERCARD 3 a b c LIMIT 1"];
        for (lines, wanted) in [(&none[..], 0), (&one, 1), (&two, 2), (&three, 3)] {
            lines.iter().for_each(|line| assert_eq!(count(line), Some(wanted), "{line}"));
        }
        for line in ["FT.SEARCH i q", "EVAL x many", "XREAD"] {
            assert_eq!(count(line), None, "{line}");
        }
        assert_eq!(count("EVAL x 4000000000 a"), Some(3), "no more than arguments");
    }
}

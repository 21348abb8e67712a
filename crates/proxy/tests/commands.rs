//! Tests with arbitrary bytes from clients: the proxy reads the same commands as Redis, or refuses.

use proptest::prelude::*;
use sidelane_proxy::resp::CommandReader;

mod redis_model;

/// Generates fragments of inline commands and arrays, valid and broken.
fn command_fragment() -> impl Strategy<Value = Vec<u8>> {
    let words =
        ["GET", "SELECT 5", "CLIENT REPLY SKIP", "a", "\"", "'", "\\", "\\x41", "\\n", "x", " ", "\t", "\x0b", "\0"];
    let ends = ["\r\n", "\n", "\r", "\r\n\r\n", "\n\n"];
    let kinds = ["*", "$", "=", "!", "~", ">", "%", "|", "+", "-", ":", "_", "#", ",", "("];
    let numbers = ["0", "1", "2", "3", "8", "-1", "01", "+1", "-0", "2147483648", "99999999999999999999", " 1"];
    let text =
        |words: &'static [&'static str]| proptest::sample::select(words).prop_map(|word| word.as_bytes().to_vec());
    prop_oneof![
        4 => (0..words.len()).prop_map(move |at| words[at].as_bytes().to_vec()),
        4 => (0..ends.len()).prop_map(move |at| ends[at].as_bytes().to_vec()),
        2 => (0..kinds.len(), 0..numbers.len())
            .prop_map(move |(kind, number)| format!("{}{}\r\n", kinds[kind], numbers[number]).into_bytes()),
        2 => text(&["*1\r\n", "*2\r\n", "$1\r\n", "$3\r\n", "$0\r\n\r\n", "$8\r\nSELECT 5\r\n"]),
        4 => proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..6), 1..4).prop_map(resp_array),
        1 => proptest::collection::vec(any::<u8>(), 0..8),
    ]
}

fn resp_array(arguments: Vec<Vec<u8>>) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        bytes.extend_from_slice(&argument);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn any_bytes_are_read_as_redis_reads_them_or_refused(pieces in proptest::collection::vec(command_fragment(), 0..12)) {
        redis_model::check_reader(&pieces.concat(), || CommandReader::new(200));
    }
}

#[test]
fn other_types_are_inline_commands_at_the_top_level() {
    for bytes in
        ["$17\r\nCLIENT REPLY SKIP\r\n", "$5\r\nMULTI\r\n", ">1\r\n$4\r\nPING\r\n", "%1\r\n", "$0\r\n\r\n", "\"$\"\r\n"]
    {
        assert!(redis_model::check_reader(bytes.as_bytes(), || CommandReader::new(200)) >= 1, "{bytes:?}");
    }
}

//! Tests of the key-value server with the real libraries, and of the request mixes against it.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Service, lab_command, read_json, run_failing, run_ok};
use sidelane_testing::skip;

const ENGINES: [(&str, &str); 2] = [("rocksdb", "librocksdb-dev"), ("wiredtiger", "libwiredtiger-dev")];

/// Starts `engine` in `dir`; skips the test and returns `None` if its library is missing.
fn start_store(engine: &str, dir: &Path) -> Option<Service> {
    let dir = dir.join(engine).display().to_string();
    let args = ["kv", engine, "--dir", &dir, "--port", "0"];
    // Starts a server that opens its store and then ends, because its sibling does not exist.
    let probe = lab_command(&["kv", engine, "--dir", &format!("{dir}-probe"), "--port", "1", "--sibling", "1:9999"]);
    let said = { probe }.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    if said.contains("cannot load a library") || said.contains("the lab knows the layout of") {
        skip(said);
        return None;
    }
    Some(Service::start(&args))
}

fn send_command(stream: &mut TcpStream, words: &[&str], reply_length: usize) -> String {
    let arguments: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
    stream.write_all(format!("*{}\r\n{arguments}", words.len()).as_bytes()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut reply = vec![0; reply_length];
    stream.read_exact(&mut reply).unwrap();
    String::from_utf8(reply).unwrap()
}

#[track_caller]
fn assert_answer(stream: &mut TcpStream, words: &[&str], answer: &str) {
    assert_eq!(send_command(stream, words, answer.len()), answer, "{words:?}");
}

/// Returns the size of the table files, without logs and memory.
fn table_bytes(dir: &Path) -> u64 {
    let files = std::fs::read_dir(dir).unwrap().map(Result::unwrap);
    let of_tables = files.filter(|file| file.path().extension().is_some_and(|kind| kind == "sst" || kind == "wt"));
    of_tables.map(|file| file.metadata().unwrap().len()).sum()
}

/// Writes records, reads them and scans them in the order of their keys; scans the records again after a restart.
fn check_round_trip(engine: &str) {
    let folder = tempfile::tempdir().unwrap();
    let Some(service) = start_store(engine, folder.path()) else { return };
    let mut stream = TcpStream::connect(service.address()).unwrap();
    assert_answer(&mut stream, &["GET", "b"], "$-1\r\n");
    for (key, value) in [("b", "2"), ("d", "4"), ("a", "1"), ("b", "two")] {
        assert_answer(&mut stream, &["SET", key, value], "+OK\r\n");
    }
    assert_answer(&mut stream, &["ZADD", "records", "0", "c:3"], ":1\r\n");
    assert_answer(&mut stream, &["GET", "b"], "$3\r\ntwo\r\n");
    let scan = |start, count| ["ZRANGEBYLEX", "records", start, "+", "LIMIT", "0", count];
    let before = table_bytes(&folder.path().join(engine));
    assert_answer(&mut stream, &["SAVE"], "+OK\r\n");
    assert!(table_bytes(&folder.path().join(engine)) > before, "{engine}");
    assert_answer(&mut stream, &scan("[b", "2"), "*2\r\n$5\r\nb:two\r\n$3\r\nc:3\r\n");
    assert_answer(&mut stream, &scan("[bb", "9"), "*2\r\n$3\r\nc:3\r\n$3\r\nd:4\r\n");
    assert_answer(&mut stream, &scan("[e", "9"), "*0\r\n");
    assert_answer(&mut stream, &scan("[a", "0"), "*0\r\n");
    drop((stream, service));
    let Some(service) = start_store(engine, folder.path()) else { return };
    let mut stream = TcpStream::connect(service.address()).unwrap();
    assert_answer(&mut stream, &scan("[a", "9"), "*4\r\n$3\r\na:1\r\n$5\r\nb:two\r\n$3\r\nc:3\r\n$3\r\nd:4\r\n");
}

#[test]
fn rocksdb_reads_back_written_values() {
    check_round_trip("rocksdb");
}

#[test]
fn wiredtiger_reads_back_written_values() {
    check_round_trip("wiredtiger");
}

fn load_command(target: &str, mix: &str, folder: &Path) -> Command {
    let mut command =
        lab_command(&["load", "--target", target, "--protocol", "redis", "--mix", mix, "--records", "2000"]);
    command.args(["--rate", "800", "--seconds", "1", "--warmup-seconds", "0", "--burst-scale", "0.005"]);
    command.arg("--json").arg(folder.join("result.json"));
    command
}

/// Runs all request mixes of the papers in bursts. Every request is answered without an error, and counted by its kind.
#[test]
fn mixes_are_answered_by_every_store() {
    for (engine, _) in ENGINES {
        let folder = tempfile::tempdir().unwrap();
        let Some(service) = start_store(engine, folder.path()) else { continue };
        for (mix, kinds) in [("a", ["read", "update"]), ("b", ["read", "update"]), ("e", ["insert", "scan"])] {
            run_ok(load_command(&service.address(), mix, folder.path()));
            let result = read_json(&folder.path().join("result.json").display().to_string());
            assert_eq!(result["errors"], 0, "{result}");
            let of = |kind: &str| result["kinds"][kind]["requests"].as_u64().unwrap_or(0);
            assert!(kinds.iter().all(|kind| of(kind) > 0), "{engine} {mix}: {}", result["kinds"]);
            assert_eq!(kinds.iter().map(|kind| of(kind)).sum::<u64>(), result["requests"].as_u64().unwrap());
            let on_s = result["bursts"]["on_s"].as_f64().unwrap();
            assert!(result["bursts"]["count"].as_u64() >= Some(2) && on_s < 1.0, "{}", result["bursts"]);
        }
    }
}

#[test]
fn folder_that_cannot_be_made_is_an_error() {
    let said = run_failing(lab_command(&["kv", "rocksdb", "--dir", "/proc/none", "--port", "0"]), 125);
    assert!(said.contains("/proc/none"), "{said}");
}

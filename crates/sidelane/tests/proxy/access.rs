//! Tests of the access log's file: rotated, full, and written to its end.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::common::scripted::{read_until, send_answer, start_recording_server};
use crate::common::wait_until;
use crate::scene::Proxy;

const GET: &[u8] = b"GET /path HTTP/1.1\r\nHost: h\r\n\r\n";

fn start_healthy_server() -> std::net::SocketAddr {
    let (address, seen) = start_recording_server(|stream, _| send_answer(stream, "well"));
    // The server would end if its receiver were dropped, so the receiver is leaked.
    std::mem::forget(seen);
    address
}

fn options<'a>(log: &'a Path, format: &'a str) -> [&'a str; 6] {
    ["--hazard", "none", "--access-log", log.to_str().unwrap(), "--log-format", format]
}

/// Counts the lines of a file, and checks that each is whole JSON.
fn count(file: &Path) -> usize {
    let text = fs::read_to_string(file).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'), "the last line is whole");
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!((&line["request"], &line["end"]), (&"GET /path HTTP/1.1".into(), &"answered".into()));
    }
    text.lines().count()
}

#[test]
fn rotation_by_rename_and_sighup_loses_no_line() {
    const CLIENTS: usize = 4;
    const ROTATIONS: usize = 5;
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("access.log");
    let proxy = Proxy::start(start_healthy_server(), None, &options(&log, "json"));
    let (ends, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut client = proxy.connect();
                while !ends.load(Ordering::Relaxed) {
                    client.write_all(GET).unwrap();
                    read_until(&mut client, "well");
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for number in 0..ROTATIONS {
            wait_until("the log has lines", || fs::metadata(&log).is_ok_and(|file| file.len() > 1000));
            fs::rename(&log, dir.path().join(format!("access.log.{number}"))).unwrap();
            proxy.signal(libc::SIGHUP);
            wait_until("the log is there again", || log.exists());
        }
        ends.store(true, Ordering::Relaxed);
    });
    let summary = proxy.finish();
    let lines: usize = fs::read_dir(dir.path()).unwrap().map(|file| count(&file.unwrap().path())).sum();
    assert_eq!((lines, summary["log_lines_lost"].as_u64()), (asked.into_inner(), Some(0)));
    assert!(count(&log) > 0 && count(&dir.path().join("access.log.0")) > 0);
}

#[test]
fn access_log_is_private_appends_and_is_complete_at_the_end() {
    const REQUESTS: usize = 20;
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("access.log");
    for run in 1..=2 {
        let proxy = Proxy::start(start_healthy_server(), None, &options(&log, "json"));
        let mut client = proxy.connect();
        for _ in 0..REQUESTS {
            client.write_all(GET).unwrap();
            read_until(&mut client, "well");
        }
        proxy.finish();
        assert_eq!(count(&log), run * REQUESTS);
    }
    let mode = fs::metadata(&log).unwrap().permissions().mode();
    assert_eq!(mode & 0o777 & !0o640, 0, "{mode:o}");
}

#[test]
fn a_proxy_that_has_nothing_to_do_sleeps() {
    /// Largest number of sleeps per second.
    const SLEEPS_MAX: u64 = 10;
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("access.log");
    let metrics = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let proxy =
        Proxy::start(start_healthy_server(), None, &[&options(&log, "json")[..], &["--metrics", &metrics]].concat());
    let mut client = proxy.connect();
    for number in 1..=3 {
        wait_until("it sleeps", || {
            let before = proxy.sleep_count();
            thread::sleep(Duration::from_secs(1));
            proxy.sleep_count() - before <= SLEEPS_MAX
        });
        client.write_all(GET).unwrap();
        read_until(&mut client, "well");
        wait_until("the line", || count(&log) == number);
    }
    proxy.signal(libc::SIGHUP);
    proxy.finish();
}

#[test]
fn full_disk_loses_log_lines_and_no_request() {
    const REQUESTS: u64 = 100;
    let proxy = Proxy::start(start_healthy_server(), None, &options(Path::new("/dev/full"), "text"));
    let mut client = proxy.connect();
    for _ in 0..REQUESTS {
        client.write_all(GET).unwrap();
        read_until(&mut client, "well");
    }
    let note = "access log /dev/full: lines are lost: No space left on device";
    wait_until("the loss is said", || proxy.has_printed(note));
    let summary = proxy.finish();
    assert_eq!(
        (summary["counts"]["answered"].as_u64(), summary["log_lines_lost"].as_u64()),
        (Some(REQUESTS), Some(REQUESTS))
    );
}

#[test]
fn lost_lines_are_counted_for_prometheus() {
    let metrics = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let log = options(Path::new("/dev/full"), "json");
    let proxy = Proxy::start(start_healthy_server(), None, &[&log[..], &["--metrics", &metrics]].concat());
    assert!(proxy.get("/").ends_with("well"));
    wait_until("the count", || {
        let mut reader = std::net::TcpStream::connect(&metrics).unwrap();
        reader.write_all(b"GET /metrics HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
        crate::common::scripted::read_to_end(&mut reader).contains("sidelane_proxy_log_lines_lost_total 1.0\n")
    });
}

#[test]
fn failed_reopen_keeps_the_old_log_and_is_noted() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, kept) = (dir.path().join("logs"), dir.path().join("kept"));
    fs::create_dir(&folder).unwrap();
    let log = folder.join("access.log");
    let proxy = Proxy::start(start_healthy_server(), None, &options(&log, "json"));
    fs::rename(&log, &kept).unwrap();
    fs::remove_dir(&folder).unwrap();
    proxy.signal(libc::SIGHUP);
    let note = "cannot reopen it after SIGHUP: No such file or directory (os error 2); lines still go to the old file";
    wait_until("the failure is said", || proxy.has_printed(note));
    let mut client = proxy.connect();
    client.write_all(GET).unwrap();
    read_until(&mut client, "well");
    proxy.finish();
    assert_eq!(count(&kept), 1);
}

#[test]
fn without_a_log_sighup_ends_the_proxy() {
    let proxy = Proxy::start(start_healthy_server(), None, &["--hazard", "none"]);
    proxy.signal(libc::SIGHUP);
    assert_eq!(proxy.summary()["counts"]["requests"], 0);
}

#[test]
fn access_log_on_stdout_moves_the_summary_to_stderr() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let out = File::options().append(true).open(file.path()).unwrap();
    let proxy =
        Proxy::start_with_stdout(out.into(), start_healthy_server(), None, &options(Path::new("-"), "json"), None);
    let mut client = proxy.connect();
    client.write_all(GET).unwrap();
    read_until(&mut client, "well");
    proxy.finish();
    assert_eq!(count(file.path()), 1);
}

#[test]
fn a_log_that_cannot_be_opened_is_an_error_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("none/access.log");
    for (file, why) in [(&*missing, "No such file"), (dir.path(), "Is a directory")] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sidelane"));
        command.args(["proxy", "--listen", "127.0.0.1:0", "--active", "127.0.0.1:1"]).args(options(file, "text"));
        let output = command.stdin(Stdio::null()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains(why), "{text}");
        assert!(text.contains(&format!("cannot open the access log {}", file.display())), "{text}");
        assert!(text.contains("name a file in a directory"), "{text}");
    }
}

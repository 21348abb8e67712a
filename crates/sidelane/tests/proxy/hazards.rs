//! Tests of servers that are stopped, killed and started again.

use std::net::Ipv4Addr;
use std::process::Command;

use serde_json::json;

use crate::common::nginx::Nginx;
use crate::common::scripted::{send_answer, start_recording_server, unused_address};
use crate::common::wait_until;
use crate::scene::Proxy;

fn start_two_servers() -> Option<(Nginx, Nginx)> {
    Some((Nginx::start("one")?, Nginx::start("two")?))
}

#[test]
fn stopped_server_is_replaced_without_waiting_for_it() {
    let Some((one, two)) = start_two_servers() else { return };
    let proxy = Proxy::start(one.address, Some(two.address), &["--hazard", "stopped"]);
    assert!(proxy.get("/").ends_with("one"));
    one.signal(libc::SIGSTOP);
    // Some of these requests are in flight at the stopped server when the proxy notices the stop.
    for _ in 0..20 {
        assert!(proxy.get("/").ends_with("two"));
    }
    one.signal(libc::SIGCONT);
    wait_until("requests went back", || proxy.get("/").ends_with("one"));
    two.signal(libc::SIGSTOP);
    assert!(proxy.get("/").ends_with("one"));
    two.signal(libc::SIGCONT);
    let summary = proxy.finish();
    assert_eq!(summary["swaps"], json!({"stopped": 1}), "{summary}");
    assert_eq!(summary["counts"]["answered"], summary["counts"]["requests"], "{summary}");
}

#[test]
fn second_backup_answers_while_two_servers_are_stopped() {
    let Some((one, two)) = start_two_servers() else { return };
    let Some(three) = Nginx::start("three") else { return };
    let proxy = Proxy::start(one.address, [two.address, three.address], &["--hazard", "stopped"]);
    assert!(proxy.get("/").ends_with("one"));
    one.signal(libc::SIGSTOP);
    assert!(proxy.get("/").ends_with("two"));
    two.signal(libc::SIGSTOP);
    for _ in 0..20 {
        assert!(proxy.get("/").ends_with("three"));
    }
    one.signal(libc::SIGCONT);
    wait_until("requests went back", || proxy.get("/").ends_with("one"));
    two.signal(libc::SIGCONT);
    let summary = proxy.finish();
    assert_eq!((&summary["hazards_begun"], &summary["swaps"]), (&json!([1, 1, 0]), &json!({"stopped": 2})));
    assert_eq!(summary["counts"]["answered"], summary["counts"]["requests"], "{summary}");
}

#[test]
fn servers_at_one_port_of_two_addresses_are_told_apart() {
    let here = unused_address();
    let there = (Ipv4Addr::new(127, 0, 0, 2), here.port()).into();
    let (Some(one), Some(two)) = (Nginx::start_at("one", here), Nginx::start_at("two", there)) else { return };
    let options = ["--hazard", "stopped", "--answer-time", "10s"];
    let proxy = Proxy::start(one.address, Some(two.address), &options);
    assert!(proxy.get("/").ends_with("one"));
    one.signal(libc::SIGSTOP);
    let answer = proxy.get("/");
    let summary = proxy.finish();
    one.signal(libc::SIGCONT);
    assert!(answer.ends_with("two"), "{answer}");
    assert_eq!(summary["hazards_begun"], json!([1, 0]), "{summary}");
}

#[test]
fn server_behind_docker_proxy_has_no_observed_hazard() {
    let behind = |name| Nginx::start_with_program_name(name, unused_address(), Some("docker-proxy"));
    let (Some(mut one), Some(two)) = (behind("one"), behind("two")) else { return };
    let proxy = Proxy::start(one.address, Some(two.address), &[]);
    assert!(proxy.get("/").ends_with("one"));
    one.kill();
    let answer = proxy.get("/");
    assert!(answer.ends_with("two"), "{answer}");
    let summary = proxy.finish();
    assert_eq!((&summary["hazards_begun"], &summary["swaps"]), (&json!([0, 0]), &json!({"unreachable": 1})));
}

#[test]
fn named_hazard_that_is_not_observable_is_an_error() {
    let Some(behind) = Nginx::start_with_program_name("one", unused_address(), Some("docker-proxy")) else { return };
    let address = behind.address.to_string();
    let command = ["proxy", "--listen", "127.0.0.1:0", "--active", &address, "--hazard", "stopped"];
    let ended = Command::new(env!("CARGO_BIN_EXE_sidelane")).args(command).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success() && said.contains("docker-proxy (process "), "{said}");
}

#[test]
fn a_killed_server_is_replaced_comes_back_and_is_warmed_up() {
    let Some((mut one, mut two)) = start_two_servers() else { return };
    let proxy = Proxy::start(one.address, Some(two.address), &["--hazard", "restart", "--warm-up", "5"]);
    assert!(proxy.get("/").ends_with("one"));
    one.kill();
    assert!(proxy.get("/").ends_with("two"));
    one.restart();
    two.kill();
    wait_until("the proxy asks it again", || proxy.get("/").ends_with("one"));
    let summary = proxy.finish();
    assert!(summary["counts"]["warm_ups"].as_u64() >= Some(1), "{summary}");
}

#[test]
fn clients_get_502_until_a_server_is_back() {
    let Some((mut one, mut two)) = start_two_servers() else { return };
    let proxy = Proxy::start(one.address, Some(two.address), &["--hazard", "none"]);
    assert!(proxy.get("/").ends_with("one"));
    two.kill();
    assert!(proxy.get("/").ends_with("one"), "the backup is of no concern");
    one.kill();
    assert!(proxy.get("/").starts_with("HTTP/1.1 502 "));
    two.restart();
    wait_until("it is found", || proxy.get("/").ends_with("two"));
    let summary = proxy.finish();
    assert_eq!(
        summary["counts"]["requests"],
        json!(summary["counts"]["answered"].as_u64().unwrap() + summary["counts"]["failed"].as_u64().unwrap())
    );
}

#[test]
fn late_request_is_hedged_and_the_first_answer_counts() {
    let (slow, seen) = start_recording_server(|_, _| {
        std::thread::park();
        true
    });
    let (fast, _seen_too) = start_recording_server(|stream, _| send_answer(stream, "fast"));
    let proxy = Proxy::start(slow, Some(fast), &["--hedge", "timer:10ms", "--hazard", "none"]);
    let answer = proxy.get("/");
    assert!(answer.ends_with("fast"), "{answer}");
    seen.recv().expect("the slow server has it, too");
    let number = answer.split("Sidelane-Request: ").nth(1).and_then(|rest| rest.split("\r\n").next()).unwrap();
    let trace = proxy.get(&format!("/.sidelane/trace/{number}"));
    let trace: serde_json::Value = serde_json::from_str(trace.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert_eq!((&trace["answered_by"], &trace["ended"]), (&json!(fast.to_string()), &json!("answered")), "{trace}");
    assert_eq!(trace["copies"][1]["why"], "no answer in time", "{trace}");
    let summary = proxy.finish();
    assert_eq!((&summary["counts"]["hedges"], &summary["counts"]["wins"]), (&json!(1), &json!(1)));
}

#[test]
fn without_a_budget_nothing_is_hedged() {
    let (slow, _seen) = start_recording_server(|stream, _| {
        std::thread::sleep(crate::scene::SHORT);
        send_answer(stream, "slow")
    });
    let (fast, seen) = start_recording_server(|stream, _| send_answer(stream, "fast"));
    let none = ["--hedge", "timer:1ms", "--budget", "0%", "--burst", "0", "--hazard", "none"];
    let proxy = Proxy::start(slow, Some(fast), &none);
    assert!(proxy.get("/").ends_with("slow"));
    assert_eq!((seen.try_iter().count(), &proxy.finish()["counts"]["refused"]), (0, &json!(1)));
}

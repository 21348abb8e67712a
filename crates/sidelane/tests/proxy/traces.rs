//! Tests of the trace of a request, with the causes at its server.

use std::thread;
use std::time::Duration;

use serde_json::Value;
use sidelane_lab::programs::{LabBinary, LabProcess};

use crate::common::collector::{Collector, root_of_whole_trace};
use crate::common::scripted::{send_answer, start_recording_server};
use crate::common::{TIMEOUT, can_observe_requests, lab_binary_path, lock_lanes};
use crate::scene::Proxy;

/// Interval at which a trace is requested again, if its result comes later.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// Sends a GET of this path, and returns the number of its request.
fn send_and_read_request_number(proxy: &Proxy, path: &str) -> String {
    request_number(&proxy.get(path))
}

/// Returns the number of the request that has this answer.
fn request_number(answer: &str) -> String {
    let field = answer.lines().find_map(|line| line.strip_prefix("Sidelane-Request: "));
    field.unwrap_or_else(|| panic!("no number in {answer}")).to_owned()
}

/// Returns what the proxy knows now about the only copy of this request at its server.
fn server_trace(proxy: &Proxy, number: &str) -> Value {
    let answer = proxy.get(&format!("/.sidelane/trace/{number}"));
    let body = answer.split("\r\n\r\n").nth(1).expect("a body");
    let trace: Value = serde_json::from_str(body).expect(body);
    trace["copies"][0]["at_server"].clone()
}

/// Waits until the causes of the request at its server are known, and returns them.
fn wait_for_server_trace(proxy: &Proxy, number: &str) -> Value {
    let began = std::time::Instant::now();
    loop {
        let told = server_trace(proxy, number);
        if told["state"] != "later" {
            return told;
        }
        assert!(began.elapsed() < TIMEOUT, "{told}");
        thread::sleep(ASK_EVERY);
    }
}

/// Starts a service of the lab with this cause, behind a proxy that traces it.
fn start_planted_service(lab: &LabBinary, cause: &str, options: &[&str]) -> (LabProcess, Proxy) {
    let words = ["plant", cause, "--cpu", "0", "--other-cpu", "1", "--delay-ms", "60"];
    let service = lab.start(words).unwrap();
    let port = service.ready_number("port").unwrap() as u16;
    let proxy =
        Proxy::start(([127, 0, 0, 1], port).into(), None, &[&["--hazard", "none", "--trace"][..], options].concat());
    let began = std::time::Instant::now();
    while wait_for_server_trace(&proxy, &send_and_read_request_number(&proxy, "/plain"))["state"] != "known" {
        assert!(began.elapsed() < TIMEOUT, "the trace does not begin");
    }
    (service, proxy)
}

/// Number of planted requests, most of which have to be named: a busy machine delays some of them for longer than the
/// planted time.
const PLANTED: usize = 5;

#[test]
fn trace_of_a_slow_request_names_the_cause_at_its_server() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(lab) = lab_binary_path().filter(|_| can_observe_requests()).map(LabBinary::with_path) else { return };
    for (planted_cause, cause) in [("hog", "run-queue"), ("stop", "frozen"), ("downstream", "downstream")] {
        let (_service, proxy) = start_planted_service(&lab, planted_cause, &[]);
        let ask =
            |_| [send_and_read_request_number(&proxy, "/plain"), send_and_read_request_number(&proxy, "/planted")];
        let numbers: Vec<[String; 2]> = (0..PLANTED).map(ask).collect();
        let told: Vec<[Value; 2]> =
            numbers.iter().map(|pair| pair.each_ref().map(|one| wait_for_server_trace(&proxy, one))).collect();
        let is_named = |plain: &Value, planted: &Value| {
            let are_told = [plain, planted].iter().all(|told| told["state"] == "known");
            are_told && planted["time"][0]["cause"] == cause && cause_ns(planted, cause) > cause_ns(plain, cause)
        };
        let named = told.iter().filter(|[plain, planted]| is_named(plain, planted)).count();
        assert!(named * 2 > PLANTED, "{planted_cause} was named {named} times: {told:#?}");
    }
}

/// Returns the part of this cause in the request's time at its server, and checks that the sum of all parts is that
/// time.
fn cause_ns(told: &Value, cause: &str) -> u64 {
    let ns = |value: &Value| value.as_u64().expect("a time");
    let parts = told["time"].as_array().unwrap();
    let sum: u64 = parts.iter().map(|part| ns(&part["ns"])).sum();
    assert_eq!(sum, ns(&told["left_ns"]) - ns(&told["arrived_ns"]), "{told}");
    parts.iter().find(|part| part["cause"] == cause).map_or(0, |part| ns(&part["ns"]))
}

#[test]
fn traceparent_of_a_client_is_the_parent_of_its_trace() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(lab) = lab_binary_path().filter(|_| can_observe_requests()).map(LabBinary::with_path) else { return };
    let collector = Collector::start();
    let options = ["--slo", "30ms", "--otlp", &collector.url];
    let (_service, proxy) = start_planted_service(&lab, "stop", &options);
    let parents: Vec<[String; 2]> =
        (1..=PLANTED).map(|number| [format!("{number:032x}"), format!("{number:016x}")]).collect();
    for [trace, span] in &parents {
        let field = format!("traceparent: 00-{trace}-{span}-01\r\n");
        let head = format!("GET /planted HTTP/1.1\r\nHost: h\r\n{field}Connection: close\r\n\r\n");
        let number = request_number(&proxy.send_and_read_to_end(head.as_bytes()));
        assert_eq!(wait_for_server_trace(&proxy, &number)["state"], "known");
    }
    send_and_read_request_number(&proxy, "/planted");
    let counted = proxy.finish()["slow_requests"].clone();
    let mut traces = collector.take_traces();
    assert_eq!(counted, serde_json::json!({ "exported": traces.len(), "not_exported": 0 }));
    for [trace, span] in parents {
        let spans = traces.remove(&trace).unwrap_or_else(|| panic!("{trace} in {:?}", traces.keys()));
        assert_eq!(root_of_whole_trace(&spans)["parentSpanId"], span);
        assert!(spans.len() > 3, "it has its server's part: {spans:#?}");
    }
    assert!(!traces.is_empty(), "the last request has a trace of its own");
    traces.values().for_each(|own| assert_eq!(root_of_whole_trace(own).get("parentSpanId"), None, "{own:#?}"));
}

#[test]
fn missing_trace_is_answered_with_advice() {
    let (address, _seen) = start_recording_server(|stream, _| send_answer(stream, "well"));
    let proxy = Proxy::start(address, None, &["--hazard", "none"]);
    let told = server_trace(&proxy, &send_and_read_request_number(&proxy, "/"));
    assert_eq!(told["why"], "the proxy's servers are not traced");
    assert!(told["what_to_do"].as_str().unwrap().contains("--trace"), "{told}");
}

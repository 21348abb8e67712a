//! Tests of the export of slow requests as OpenTelemetry traces, from a real server under load.

mod common;

use std::process::Command;

use common::agent::SIDELANE;
use common::collector::{Collector, length_ns, root_of_whole_trace, traces_in_lines};
use common::redis::{PLACE, RATE_PER_S, traceable_redis};
use common::scripted::refusing_address;
use common::tracing::{Tracing, path_str, read_json, without_line_breaks};
use sidelane_lab::bench::workload::RealServer;
use sidelane_lab::programs::LabBinary;

const SECONDS: f64 = 1.0;

/// Runs `sidelane trace` with these options while the server is under load. Every request is slow. Returns the output.
fn trace_under_load(server: &RealServer, lab: &LabBinary, options: &[&str]) -> String {
    let service = format!("pid:{}", server.pid());
    let tracing = Tracing::start(&service, &[&["--slo", "1ns", "--for", "100s"][..], options].concat());
    server.run_load(lab, PLACE, RATE_PER_S, SECONDS).unwrap();
    tracing.stop()
}

#[test]
fn slow_requests_reach_a_collector_as_whole_traces() {
    let Some((_turn, lab, server)) = traceable_redis() else { return };
    let (collector, dir) = (Collector::start(), tempfile::tempdir().unwrap());
    let json = dir.path().join("t.json");
    let told = trace_under_load(&server, &lab, &["--otlp", &collector.url, "--json", path_str(&json)]);
    let result = read_json(&json);
    let (slow, requests) = (&result["rows"][0]["slow_count"], result["trace"]["requests"].as_array().unwrap());
    assert!(requests.len() > 100, "{}", requests.len());
    let traces = collector.take_traces();
    let told = without_line_breaks(&told);
    assert!(told.contains(&format!("exported {} of {slow} slow requests to http://", requests.len())), "{told}");
    let mut exported: Vec<u64> = traces.values().map(|spans| length_ns(root_of_whole_trace(spans))).collect();
    let mut shown: Vec<u64> =
        requests.iter().map(|request| (request["latency_us"].as_f64().unwrap() * 1e3).round() as u64).collect();
    exported.sort_unstable();
    shown.sort_unstable();
    assert_eq!(exported, shown);
}

#[test]
fn log_gives_the_same_traces_as_its_trace() {
    let Some((_turn, lab, server)) = traceable_redis() else { return };
    let dir = tempfile::tempdir().unwrap();
    let [log, first, again] = ["t.log", "first.jsonl", "again.jsonl"].map(|name| dir.path().join(name));
    trace_under_load(&server, &lab, &["--otlp", path_str(&first), "--log", path_str(&log)]);
    let arguments = ["report", path_str(&log), "--otlp", path_str(&again)];
    assert!(Command::new(SIDELANE).args(arguments).output().unwrap().status.success());
    let [first, again] = [first, again].map(|path| traces_in_lines(&std::fs::read_to_string(path).unwrap()));
    assert!(!first.is_empty() && first == again);
}

#[test]
fn flight_recorder_exports_the_slow_requests() {
    let Some((_turn, lab, server)) = traceable_redis() else { return };
    let (collector, dir) = (Collector::start(), tempfile::tempdir().unwrap());
    let options = ["--slo", "1ns", "--record", path_str(dir.path()), "--otlp", &collector.url];
    let mut tracing = Tracing::start(&format!("pid:{}", server.pid()), &options);
    server.run_load(&lab, PLACE, RATE_PER_S, SECONDS).unwrap();
    while !tracing.line().contains("slow requests to http://") {}
    tracing.stop();
    let traces = collector.take_traces();
    assert!(traces.len() > 100, "{}", traces.len());
    traces.values().for_each(|spans| assert!(length_ns(root_of_whole_trace(spans)) > 0));
}

#[test]
fn lost_collector_is_an_error_after_the_report() {
    let Some((_turn, lab, server)) = traceable_redis() else { return };
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("t.log");
    trace_under_load(&server, &lab, &["--log", path_str(&log)]);
    let url = format!("http://{}", refusing_address());
    let output = Command::new(SIDELANE).args(["report", path_str(&log), "--otlp", &url]).output().unwrap();
    let [told, said] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(told.contains("Largest cause: "), "{told}");
    let said = without_line_breaks(&said);
    assert!(
        said.contains("cannot send") && said.contains("Connection refused") && said.contains("name a file"),
        "{said}"
    );
}

#[test]
fn wrong_destinations_have_exact_errors() {
    let trace = |otlp: &'static str| vec!["trace", "--service", "port:8080", "--otlp", otlp];
    let proxy = ["proxy", "--listen", ":0", "--active", "127.0.0.1:1", "--otlp", "a"];
    for (arguments, wanted) in [
        (trace("https://127.0.0.1:4318"), "only http is supported; write http://HOST:4318"),
        (trace("127.0.0.1:4318"), "is not the address of a collector; write http://HOST:PORT"),
        (trace("http://127.0.0.1"), "is not the address of a collector; write http://HOST:PORT"),
        (trace("/nowhere/at/all"), "there is no directory /nowhere/at"),
        (proxy.to_vec(), "--trace"),
        ([&proxy[..], &["--trace"]].concat(), "--slo <OBJECTIVE>"),
        (vec!["report", "/dev/null", "--otlp", "a"], "it is not a log of `sidelane trace`"),
    ] {
        let output = Command::new(SIDELANE).args(&arguments).output().unwrap();
        let said = without_line_breaks(&String::from_utf8_lossy(&output.stderr));
        assert!(!output.status.success() && said.contains(wanted), "{arguments:?}: {said}");
    }
}

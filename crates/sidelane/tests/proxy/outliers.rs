//! Tests of a server that fails its requests: output of the proxy, and its metrics.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::common::scripted::{send_answer_with_status, start_answering_server, unused_address};
use crate::common::wait_until;
use crate::scene::Proxy;

/// Starts a server that answers with this status.
fn start_server_with_status(status: u16) -> SocketAddr {
    start_answering_server(move |stream, _| send_answer_with_status(stream, status, "said"))
}

fn metrics(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn ejected_server_is_reported_and_counted() {
    let (fails, well, at) = (start_server_with_status(503), start_server_with_status(200), unused_address());
    let proxy = Proxy::start(fails, Some(well), &["--hazard", "none", "--metrics", &at.to_string()]);
    (0..5).for_each(|_| assert!(proxy.get("/").starts_with("HTTP/1.1 503 ")));
    (0..2).for_each(|_| assert!(proxy.get("/").starts_with("HTTP/1.1 200 ")));
    let said = format!(
        "server {fails} is out of service for 30 s: 5 requests in a row failed (the last one: status 503); see its log"
    );
    wait_until("it was said", || proxy.has_printed(&said));
    // The metrics contain the counts at the proxy's last check.
    let answered = "sidelane_proxy_request_duration_seconds_count 2";
    wait_until("both answers were counted", || metrics(at).contains(answered));
    let told = metrics(at);
    for line in [
        &format!("sidelane_proxy_server_responses_total{{server=\"{fails}\",class=\"5xx\"}} 5"),
        &format!("sidelane_proxy_server_responses_total{{server=\"{well}\",class=\"2xx\"}} 2"),
        &format!("sidelane_proxy_server_errors_total{{server=\"{fails}\",error=\"timeout\"}} 0"),
        &format!("sidelane_proxy_server_ejections_total{{server=\"{fails}\"}} 1"),
        &format!("sidelane_proxy_server_ejected{{server=\"{fails}\"}} 1"),
        &format!("sidelane_proxy_server_ejected{{server=\"{well}\"}} 0"),
        &format!("sidelane_proxy_server_response_time_seconds_count{{server=\"{well}\"}} 2"),
        "sidelane_proxy_request_duration_seconds_bucket{le=\"+Inf\"} 2",
        "sidelane_proxy_swaps_total{hazard=\"failing\"} 1",
        "sidelane_proxy_draining 0",
    ] {
        assert!(told.contains(line), "no {line} in {told}");
    }
    let summary = proxy.finish();
    assert_eq!(summary["by_server"][0]["ejections"], 1, "{summary}");
}

#[test]
fn server_is_kept_without_outlier_detection() {
    let proxy = Proxy::start(
        start_server_with_status(503),
        Some(start_server_with_status(200)),
        &["--hazard", "none", "--no-outlier-detection"],
    );
    (0..30).for_each(|_| assert!(proxy.get("/").starts_with("HTTP/1.1 503 ")));
}

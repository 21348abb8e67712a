//! Tests of the agent's proxies. A proxy serves requests, and is in status and metrics. A reload that does not change a
//! proxy's settings leaves it alone. Proxies end with the agent.

use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use sidelane_host::clock::now_ns;
use sidelane_host::cpulist::CpuSet;
use sidelane_host::procfs::threads;

use crate::common::agent::guardians;
use crate::common::lanes::REQUEST_LANE;
use crate::common::nginx::Nginx;
use crate::common::process::{allowed_cpus, scheduling_class, threads_named};
use crate::common::scripted::{
    read_to_end, read_until, send_answer, send_answer_with_status, start_answering_server, start_recording_server,
    unused_address,
};
use crate::common::tls::Certificate;
use crate::common::{Footprint, TIMEOUT, lock_lanes, wait_until};
use crate::daemon::{Daemon, File, status};
use crate::metrics::http_get;
use crate::service::Program;

/// Numbers of the ordinary scheduling class and of SCHED_FIFO in the kernel.
const ORDINARY: &str = "0";
const FIFO: &str = "1";

/// Starts a server that answers with its name.
fn start_named_server(name: &'static str) -> SocketAddr {
    start_answering_server(move |stream, _| send_answer(stream, name))
}

/// Starts a server that never answers.
fn silent_server() -> SocketAddr {
    start_answering_server(|_, _| {
        std::thread::park();
        true
    })
}

fn proxy_config_section(listen: SocketAddr, active: SocketAddr, more: &str) -> String {
    format!("[[proxy]]\nlisten = \"{listen}\"\nactive = \"{active}\"\nhazard = \"none\"\n{more}")
}

/// Client that sends all its requests on one connection.
struct Client(TcpStream);

impl Client {
    fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the proxy listens");
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        Self(stream)
    }

    /// Sends a request, and waits until the server `name` has answered.
    fn expect_answer_from(&mut self, name: &str) {
        self.0.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
        let answer = read_until(&mut self.0, &format!("\r\n\r\n{name}"));
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
}

fn proxy_status(listen: SocketAddr) -> Value {
    let status = status();
    let all = status["proxies"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|proxy| proxy["listen"] == listen.to_string()).unwrap_or_default()
}

#[test]
fn proxy_has_own_threads_metrics_and_status() {
    let Some(_turn) = lock_lanes() else { return };
    let before = Footprint::capture();
    let (listen, metrics) = (unused_address(), unused_address());
    let more = format!("backups = [\"{}\"]\nhedge = \"timer:1ms\"", start_named_server("two"));
    let file = File::with_absent_targets().with_lines(&proxy_config_section(listen, silent_server(), &more));
    let daemon = Daemon::start(&file.with_lines(&format!("[metrics]\nlisten = \"{metrics}\"")), 0, 0);
    let mut client = Client::connect(listen);
    (0..3).for_each(|_| client.expect_answer_from("two"));
    wait_until("the status told of it", || proxy_status(listen)["answered"] == 3);
    let told = proxy_status(listen);
    assert_eq!((&told["requests"], &told["hedges"], &told["hedge_wins"]), (&3.into(), &3.into(), &3.into()), "{told}");
    let counted = format!("sidelane_proxy_requests_total{{listen=\"{listen}\",end=\"answered\"}} 3");
    let answer = http_get(metrics.port(), "/metrics");
    assert!(answer.contains(&counted), "no {counted} in {answer}");
    let pid = daemon.run.pid();
    assert_eq!(scheduling_class(pid).as_deref(), Some(FIFO), "the agent itself");
    let threads = threads_named(pid, "sidelane-proxy");
    assert_eq!(threads.iter().filter_map(|tid| scheduling_class(*tid)).collect::<Vec<_>>(), [ORDINARY]);
    daemon.end();
    assert!(TcpStream::connect(listen).is_err(), "it has ended with the agent");
    before.wait_until_restored();
}

#[test]
fn ejected_server_of_a_proxy_is_reported() {
    let Some(_turn) = lock_lanes() else { return };
    let (listen, metrics) = (unused_address(), unused_address());
    let (fails, _seen) = start_recording_server(|stream, _| send_answer_with_status(stream, 503, "fails"));
    let table = proxy_config_section(listen, fails, &format!("backups = [\"{}\"]", start_named_server("two")));
    let file = File::with_absent_targets().with_lines(&table).with_lines(&format!("[metrics]\nlisten = \"{metrics}\""));
    let mut daemon = Daemon::start(&file, 0, 0);
    let mut client = Client::connect(listen);
    for _ in 0..5 {
        client.0.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
        assert!(read_until(&mut client.0, "\r\n\r\nfails").starts_with("HTTP/1.1 503 "));
    }
    client.expect_answer_from("two");
    daemon.run.wait_until_audited("proxy", 0);
    wait_until("the status told of it", || {
        let told = proxy_status(listen)["out_of_service"][0].as_str().unwrap_or_default().to_owned();
        told.starts_with(&format!("{fails} is out of service")) && told.contains("status 503")
    });
    let counted = format!("sidelane_proxy_server_ejected{{listen=\"{listen}\",server=\"{fails}\"}} 1");
    let answer = http_get(metrics.port(), "/metrics");
    assert!(answer.contains(&counted), "no {counted} in {answer}");
    daemon.end();
}

#[test]
fn hazards_are_watched_by_threads_in_sched_other() {
    let Some(_turn) = lock_lanes() else { return };
    let Some((one, two)) = Nginx::start("one").zip(Nginx::start("two")) else { return };
    let listen = unused_address();
    let more = format!("backups = [\"{}\"]", two.address);
    let table = proxy_config_section(listen, one.address, &more).replace("hazard = \"none\"", "hazard = \"stopped\"");
    let daemon = Daemon::start(&File::with_absent_targets().with_lines(&table), 0, 0);
    Client::connect(listen).expect_answer_from("one");
    one.signal(libc::SIGSTOP);
    Client::connect(listen).expect_answer_from("two");
    wait_until("the status told of it", || proxy_status(listen)["swaps"] == 1);
    assert_eq!(proxy_status(listen)["active"], two.address.to_string());
    one.signal(libc::SIGCONT);
    let watches = threads_named(daemon.run.pid(), "sidelane-watch");
    assert_eq!(watches.iter().filter_map(|tid| scheduling_class(*tid)).collect::<Vec<_>>(), [ORDINARY; 2]);
    daemon.end();
}

#[test]
fn reload_restarts_only_changed_proxies() {
    let Some(_turn) = lock_lanes() else { return };
    let (kept, changed, new) = (unused_address(), unused_address(), unused_address());
    let file = File::with_absent_targets().with_lines(&proxy_config_section(kept, start_named_server("one"), ""));
    let mut daemon =
        Daemon::start(&file.clone().with_lines(&proxy_config_section(changed, start_named_server("two"), "")), 0, 0);
    let (mut at_kept, mut at_changed) = (Client::connect(kept), Client::connect(changed));
    at_kept.expect_answer_from("one");
    at_changed.expect_answer_from("two");
    let file = file
        .with_lines(&proxy_config_section(changed, start_named_server("three"), ""))
        .with_lines(&proxy_config_section(new, start_named_server("four"), ""));
    daemon.reload(&file);
    daemon.run.wait_until_audited("reload", 0);
    at_kept.expect_answer_from("one");
    assert_eq!(read_to_end(&mut at_changed.0), "", "its proxy has ended");
    Client::connect(changed).expect_answer_from("three");
    Client::connect(new).expect_answer_from("four");
    daemon.end();
}

#[test]
fn a_reload_opens_the_access_log_again() {
    let Some(_turn) = lock_lanes() else { return };
    let (listen, folder) = (unused_address(), tempfile::tempdir().unwrap());
    let (log, before) = (folder.path().join("access.log"), folder.path().join("access.log.1"));
    let table = proxy_config_section(listen, start_named_server("one"), &format!("access_log = \"{}\"", log.display()));
    let file = File::with_absent_targets().with_lines(&table);
    let daemon = Daemon::start(&file, 0, 0);
    let has_one_line = |log: &Path| fs::read_to_string(log).is_ok_and(|text| text.lines().count() == 1);
    let mut client = Client::connect(listen);
    client.expect_answer_from("one");
    wait_until("the line is written", || has_one_line(&log));
    fs::rename(&log, &before).unwrap();
    daemon.reload(&file);
    wait_until("the file is there again", || log.exists());
    client.expect_answer_from("one");
    wait_until("the next line is in the new file", || has_one_line(&log));
    assert!(has_one_line(&before));
    daemon.end();
}

#[test]
fn requests_of_a_proxy_changed_by_a_reload_are_answered() {
    const CLIENTS: usize = 10;
    let Some(_turn) = lock_lanes() else { return };
    let listen = unused_address();
    let (answers, answer) = channel::<()>();
    let answer = Arc::new(Mutex::new(answer));
    let (held, seen) = start_recording_server(move |stream, _| {
        let _ = answer.lock().unwrap().recv();
        send_answer(stream, "held")
    });
    let metrics = unused_address();
    let file = File::with_absent_targets().with_lines(&format!("[metrics]\nlisten = \"{metrics}\""));
    let old = proxy_config_section(listen, held, "threads = 2");
    let mut daemon = Daemon::start(&file.clone().with_lines(&old), 0, 0);
    answers.send(()).unwrap();
    Client::connect(listen).expect_answer_from("held");
    seen.recv().expect("the server had it");
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| Client::connect(listen)).collect();
    for client in &mut clients {
        client.0.write_all(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n").unwrap();
        seen.recv().expect("the server has it");
    }
    daemon.reload(&file.clone().with_lines(&proxy_config_section(listen, start_named_server("new"), "threads = 3")));
    daemon.run.wait_until_audited("reload", 0);
    let drains = |proxy: &Value| proxy["draining"] == true && proxy["in_flight"] == CLIENTS;
    wait_until("the old one drains", || status()["proxies"].as_array().is_some_and(|all| all.iter().any(drains)));
    let told = |draining: usize, answered: usize| {
        let lines = [
            format!("sidelane_proxy_draining{{listen=\"{listen}\"}} {draining}.0\n"),
            format!("sidelane_proxy_requests_total{{listen=\"{listen}\",end=\"answered\"}} {answered}.0\n"),
        ];
        wait_until(&lines.concat(), || {
            let answer = http_get(metrics.port(), "/metrics");
            lines.iter().all(|line| answer.contains(line))
        });
    };
    told(1, 1);
    (0..5).for_each(|_| Client::connect(listen).expect_answer_from("new"));
    told(1, 6);
    (0..CLIENTS).for_each(|_| answers.send(()).unwrap());
    for client in &mut clients {
        let answer = read_to_end(&mut client.0);
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("held"), "{answer}");
    }
    drop(clients);
    // The counts of the old proxy are still in the metrics after it has drained.
    told(0, 6 + CLIENTS);
    // The end of the agent drains requests, too.
    let since_ns = now_ns();
    daemon.reload(&file.with_lines(&proxy_config_section(listen, held, "")));
    daemon.run.wait_until_audited("reload", since_ns);
    let mut last = Client::connect(listen);
    last.0.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    seen.recv().expect("the server has it");
    daemon.run.signal(libc::SIGTERM);
    wait_until("it takes no more clients", || TcpStream::connect(listen).is_err());
    answers.send(()).unwrap();
    let answer = read_to_end(&mut last.0);
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("held"), "{answer}");
    drop(last);
    daemon.run.wait_for_end().expect_exit_code(0);
}

#[test]
fn renewed_certificate_of_a_proxy_is_read_at_a_reload() {
    let Some(_turn) = lock_lanes() else { return };
    let dir = tempfile::tempdir().unwrap();
    let Some((present, new)) = Certificate::issue(dir.path(), "present").zip(Certificate::issue(dir.path(), "new"))
    else {
        return;
    };
    let listen = unused_address();
    let files = format!("tls_cert = \"{}\"\ntls_key = \"{}\"", present.cert.display(), present.key.display());
    let table = proxy_config_section(listen, start_named_server("one"), &files);
    let file = File::with_absent_targets().with_lines(&table);
    let mut daemon = Daemon::start(&file, 0, 0);
    let mut kept = present.connect(listen);
    let mut expect_answer = || {
        kept.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
        read_until(&mut kept, "\r\n\r\none");
    };
    expect_answer();
    fs::copy(&new.cert, &present.cert).unwrap();
    fs::copy(&new.key, &present.key).unwrap();
    daemon.reload(&file);
    daemon.run.wait_until_audited("reload", 0);
    new.connect(listen).write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").expect("the new certificate is in use");
    expect_answer();
    daemon.end();
}

#[test]
fn proxy_added_by_a_reload_may_run_on_all_cpus() {
    let Some(_turn) = lock_lanes() else { return };
    let all = allowed_cpus(std::process::id()).expect("this process is there");
    let (program, mut service) = Program::start_working_on_command();
    let file = File::with_holmes_policy().with_service(&program.service_match_line()).with_batch("/nobody");
    let mut daemon = Daemon::start(&file, 1, 0);
    let pid = daemon.run.pid();
    service.work();
    wait_until("the agent kept off the service's CPU", || allowed_cpus(pid).is_some_and(|cpus| cpus != all));
    daemon.reload(&file.with_lines(&proxy_config_section(unused_address(), start_named_server("one"), "")));
    daemon.run.wait_until_audited("reload", 0);
    // Until the proxy's thread runs, it has no name yet and only the CPUs of the agent.
    wait_until("the proxy's thread had all CPUs", || {
        let threads = threads_named(pid, "sidelane-proxy");
        threads.iter().filter_map(|tid| allowed_cpus(*tid)).eq([all.clone()])
    });
    service.rest();
    daemon.end();
}

#[test]
fn all_threads_of_the_agent_keep_off_a_busy_service() {
    let Some(_turn) = lock_lanes() else { return };
    let (program, mut service) = Program::start_working_on_command();
    let file = File::with_holmes_policy().with_service(&program.service_match_line()).with_batch("/nobody");
    let daemon =
        Daemon::start(&file.with_lines(&proxy_config_section(unused_address(), start_named_server("one"), "")), 1, 0);
    service.work();
    let is_on = |cpus: CpuSet| cpus.contains(REQUEST_LANE.parse().expect("a number"));
    let is_off = |tid: &u32| allowed_cpus(*tid).and_then(|cpus| cpus.parse().ok()).is_none_or(|cpus| !is_on(cpus));
    let pids = || [vec![daemon.run.pid()], guardians()].concat();
    // The proxy's thread that forwards requests is left out: it counts as a service.
    let own = || pids().into_iter().flat_map(threads).filter(|tid| !is_proxy_thread(daemon.run.pid(), *tid));
    wait_until("all had left the service's CPU", || own().all(|tid| is_off(&tid)));
    service.rest();
    daemon.end();
}

fn is_proxy_thread(pid: u32, tid: u32) -> bool {
    threads_named(pid, "sidelane-proxy").contains(&tid)
}

#[test]
fn reload_with_a_failing_proxy_changes_no_proxy() {
    let Some(_turn) = lock_lanes() else { return };
    let (kept, taken) = (unused_address(), TcpListener::bind("127.0.0.1:0").unwrap());
    let taken_at = taken.local_addr().unwrap();
    let mut daemon = Daemon::start(
        &File::with_absent_targets().with_lines(&proxy_config_section(kept, start_named_server("one"), "")),
        0,
        0,
    );
    let mut client = Client::connect(kept);
    client.expect_answer_from("one");
    let changed = proxy_config_section(kept, start_named_server("two"), "");
    daemon.reload(&File::with_absent_targets().with_lines(&changed).with_lines(&proxy_config_section(
        taken_at,
        start_named_server("three"),
        "",
    )));
    daemon.run.wait_until_audited("reload", 0);
    client.expect_answer_from("one");
    Client::connect(kept).expect_answer_from("one");
    let told = status()["notes"].to_string();
    let why = format!(
        "cannot apply the [[proxy]] tables; all proxies keep their old settings; correct the tables, and send SIGHUP \
         again: cannot start the proxy at {taken_at}: cannot listen at {taken_at}; choose another address, or find the \
         process that listens there with `ss -ltnp`"
    );
    assert!(told.contains(&why), "{told}");
    daemon.end();
}

#[test]
fn agent_is_refused_if_its_proxy_cannot_listen() {
    let Some(_turn) = lock_lanes() else { return };
    let before = Footprint::capture();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap();
    let file = File::with_absent_targets().with_lines(&proxy_config_section(at, start_named_server("one"), ""));
    let refused =
        Daemon::launch(&file, crate::common::Run::with_arguments(&[])).run.wait_for_end().expect_exit_code(125);
    refused.expect_stderr_contains(&[&format!("cannot start the proxy at {at}: cannot listen at {at}"), "ss -ltnp"]);
    before.wait_until_restored();
}

#[test]
fn a_killed_agent_leaves_no_proxy_behind() {
    let Some(_turn) = lock_lanes() else { return };
    let before = Footprint::capture();
    let listen = unused_address();
    let mut daemon = Daemon::start(
        &File::with_absent_targets().with_lines(&proxy_config_section(listen, start_named_server("one"), "")),
        0,
        0,
    );
    let mut client = Client::connect(listen);
    client.expect_answer_from("one");
    daemon.run.kill();
    assert_eq!(read_to_end(&mut client.0), "");
    assert!(TcpStream::connect(listen).is_err());
    before.wait_until_restored();
}

//! Tests of TLS to clients: a renewed certificate, files that cannot be used, and curl.

use std::fs;
use std::io::Write;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::common::scripted::{read_until, send_answer, start_answering_server, unused_address};
use crate::common::tls::{Certificate, HOST, TlsClient};
use crate::common::wait_until;
use crate::scene::Proxy;

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";

fn start_with(certificate: &Certificate, options: &[&str]) -> Proxy {
    let server = start_answering_server(|stream, _| send_answer(stream, "well"));
    let (cert, key) = (certificate.cert.to_str().unwrap(), certificate.key.to_str().unwrap());
    Proxy::start(server, None, &[&["--hazard", "none", "--tls-cert", cert, "--tls-key", key], options].concat())
}

fn expect_answer(client: &mut TlsClient) {
    client.write_all(GET).unwrap();
    assert!(read_until(client, "\r\n\r\nwell").starts_with("HTTP/1.1 200 "));
}

/// Copies the files of another certificate over those of `present`.
fn renew(present: &Certificate, by: &Certificate) {
    fs::copy(&by.cert, &present.cert).unwrap();
    fs::copy(&by.key, &present.key).unwrap();
}

/// Returns whether a new client that trusts this certificate alone is served.
fn is_in_use(certificate: &Certificate, proxy: &Proxy) -> bool {
    let mut client = certificate.connect(proxy.address);
    let is_accepted = client.write_all(GET).is_ok();
    if is_accepted {
        read_until(&mut client, "\r\n\r\nwell");
    }
    is_accepted
}

#[test]
fn renewed_certificate_is_used_and_no_connection_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let issue = |name: &str| Certificate::issue(dir.path(), name);
    let Some(((present, old), new)) = issue("present").zip(issue("old")).zip(issue("new")) else { return };
    renew(&present, &old);
    let proxy = start_with(&present, &[]);
    let mut kept = old.connect(proxy.address);
    expect_answer(&mut kept);
    let mut client = old.connect(proxy.address);
    expect_answer(&mut client);
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        // A client that asks all the time, on one connection.
        let asking = scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                expect_answer(&mut client);
            }
        });
        renew(&present, &new);
        assert!(is_in_use(&old, &proxy), "nothing changes before SIGHUP");
        proxy.signal(libc::SIGHUP);
        wait_until("new clients get the new certificate", || is_in_use(&new, &proxy));
        assert!(!is_in_use(&old, &proxy));
        fs::write(&present.cert, "not a certificate").unwrap();
        proxy.signal(libc::SIGHUP);
        wait_until("the user is told", || proxy.has_printed("new clients still get the old certificate"));
        assert!(proxy.has_printed("it has no section CERTIFICATE"));
        assert!(is_in_use(&new, &proxy), "the last good one stays in use");
        ends.store(true, Ordering::Relaxed);
        asking.join().expect("all its requests are answered");
    });
    expect_answer(&mut kept);
    drop(kept);
    let summary = proxy.finish();
    assert_eq!((&summary["counts"]["failed"], &summary["counts"]["cut"]), (&0.into(), &0.into()), "{summary}");
}

#[test]
fn unusable_certificates_are_refused_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let issue = |name: &str| Certificate::issue(dir.path(), name);
    let Some((own, other)) = issue("own").zip(issue("other")) else { return };
    let absent = dir.path().join("absent.pem");
    let (cert, key, other) = (own.cert.display(), own.key.display(), other.key.display());
    for (files, error) in [
        ([&own.cert, &absent], format!("cannot read the private key {}: No such file", absent.display())),
        ([&absent, &own.key], format!("cannot read the certificate {}: No such file", absent.display())),
        ([&own.key, &own.key], format!("cannot use the certificate {key}: it has no section CERTIFICATE")),
        ([&own.cert, &own.cert], format!("cannot use the private key {cert}: it has no section PRIVATE KEY")),
        (
            [&own.cert, &dir.path().join("other.key")],
            format!("cannot use the private key {other} with the certificate {cert}: they do not belong together"),
        ),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sidelane"));
        let (listen, active) = (unused_address().to_string(), unused_address().to_string());
        command.args(["proxy", "--listen", &listen, "--active", &active, "--hazard", "none", "--tls-cert"]);
        let output = command.arg(files[0]).arg("--tls-key").arg(files[1]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).replace('\n', " ");
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(!output.status.success() && said.contains(&error), "no `{error}` in {said}");
    }
}

#[test]
fn curl_is_served_over_tls() {
    let dir = tempfile::tempdir().unwrap();
    let Some(certificate) = Certificate::issue(dir.path(), "own") else { return };
    let proxy = start_with(&certificate, &[]);
    let port = proxy.address.port();
    for version in ["1.2", "1.3"] {
        let mut command = Command::new("curl");
        command.args(["-sS", "--cacert"]).arg(&certificate.cert).args([
            &format!("--tlsv{version}"),
            "--tls-max",
            version,
        ]);
        command.args(["--resolve", &format!("{HOST}:{port}:127.0.0.1"), "-w", " %{http_version}"]);
        let Ok(output) = command.arg(format!("https://{HOST}:{port}/")).output() else {
            return sidelane_testing::skip("needs curl: apt-get install curl");
        };
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(said, "well 1.1", "{}", String::from_utf8_lossy(&output.stderr));
    }
}

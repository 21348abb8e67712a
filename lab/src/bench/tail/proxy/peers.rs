//! The compared proxies in front of the same server: on one CPU and one thread each, or with TLS and two threads.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::programs::{find_program, find_sidelane, kill_with_parent, require_program};

const START_TIMEOUT: Duration = Duration::from_secs(10);
/// Length of the server's response body, as for a small object.
const BODY_BYTES: usize = 100;

/// Compared proxy program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProxyProgram {
    Sidelane,
    Haproxy,
    Nginx,
}

impl ProxyProgram {
    pub(super) const ALL: [Self; 3] = [Self::Sidelane, Self::Haproxy, Self::Nginx];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Sidelane => "sidelane proxy",
            Self::Haproxy => "haproxy",
            Self::Nginx => "nginx",
        }
    }

    /// Returns the name of a required program that is missing on this machine, if there is one.
    pub(super) fn missing_program() -> Option<&'static str> {
        ["haproxy", "nginx", "wrk", "openssl"].into_iter().find(|program| find_program(program).is_none())
    }

    /// Starts the proxy in front of a server. Each proxy writes an access log to a file, forwards the client's address to
    /// the server, and keeps connections on both sides.
    pub(super) fn start(self, setup: &ProxySetup, server: SocketAddr, scratch: &Path) -> Result<ListeningProcess> {
        let at = free_address()?;
        let log = scratch.join(format!("{}.log", self.name()));
        let log_text = log.to_string_lossy();
        match self {
            Self::Sidelane => {
                let own = find_sidelane()?;
                let (at_text, server, threads) = (at.to_string(), server.to_string(), setup.threads.to_string());
                let addresses = ["proxy", "--listen", &at_text, "--active", &server, "--hazard", "none"];
                let told = ["--access-log", &log_text, "--forwarded", "add", "--threads", &threads];
                let files = setup.certificate.as_ref().map(Certificate::texts);
                let tls = files.iter().flat_map(|[cert, key]| ["--tls-cert", cert, "--tls-key", key]);
                let options: Vec<&str> = addresses.into_iter().chain(told).chain(tls).collect();
                ListeningProcess::start(&setup.cpus, &own, &options, at, Some(Log::OfProgram(log.clone())))
            }
            Self::Haproxy => {
                let file = scratch.join("haproxy.cfg");
                fs::write(&file, haproxy_config(at, server, setup))?;
                let options = ["-db", "-f", &file.to_string_lossy()];
                ListeningProcess::start(
                    &setup.cpus,
                    &require_program("haproxy")?,
                    &options,
                    at,
                    Some(Log::OnStdout(log.clone())),
                )
            }
            Self::Nginx => start_nginx(setup, at, &nginx_forwarding_config(server), Some(log), scratch),
        }
    }
}

/// Setup that all compared proxies have.
pub(super) struct ProxySetup {
    /// CPUs of the proxy, as `taskset` reads them.
    cpus: String,
    threads: usize,
    /// Certificate for TLS to clients; `None` for no TLS.
    certificate: Option<Certificate>,
}

impl ProxySetup {
    /// Returns the setup with one thread on one CPU, and without TLS.
    pub(super) fn plain(cpu: u32) -> Self {
        Self { cpus: cpu.to_string(), threads: 1, certificate: None }
    }

    /// Returns the setup with TLS and two threads on these CPUs.
    pub(super) fn with_tls(cpus: [u32; 2], scratch: &Path) -> Result<Self> {
        let [first, second] = cpus;
        Ok(Self { cpus: format!("{first},{second}"), threads: 2, certificate: Some(Certificate::issue(scratch)?) })
    }
}

/// PEM files of a certificate that certifies itself.
struct Certificate {
    cert: PathBuf,
    key: PathBuf,
    /// Both in one file, as haproxy reads them.
    both: PathBuf,
}

impl Certificate {
    fn issue(scratch: &Path) -> Result<Self> {
        let [cert, key, both] = ["cert.pem", "key.pem", "both.pem"].map(|name| scratch.join(name));
        let mut command = Command::new(require_program("openssl")?);
        command.args(["req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]);
        command.args(["-days", "30", "-subj", "/CN=bench", "-out"]).arg(&cert).arg("-keyout").arg(&key);
        ensure!(command.stderr(Stdio::null()).status()?.success(), "openssl issues no certificate");
        fs::write(&both, [fs::read(&cert)?, fs::read(&key)?].concat())?;
        Ok(Self { cert, key, both })
    }

    fn texts(&self) -> [String; 2] {
        [&self.cert, &self.key].map(|path| path.to_string_lossy().into_owned())
    }
}

/// Starts the server behind the proxies.
pub(super) fn start_server(cpu: u32, scratch: &Path) -> Result<ListeningProcess> {
    let body = "x".repeat(BODY_BYTES);
    let setup = ProxySetup::plain(cpu);
    start_nginx(&setup, free_address()?, &format!("location / {{ return 200 \"{body}\"; }}"), None, scratch)
}

fn start_nginx(
    setup: &ProxySetup,
    listen_address: SocketAddr,
    location: &str,
    log: Option<PathBuf>,
    scratch: &Path,
) -> Result<ListeningProcess> {
    let dir = scratch.join(format!("nginx-{}", listen_address.port()));
    fs::create_dir(&dir)?;
    let (upstream, location) = location.split_once('|').unwrap_or(("", location));
    // Buffers log lines in nginx, since the other proxies do not write each line at once either.
    let access_log =
        log.as_ref().map_or("off".to_owned(), |log| format!("\"{}\" combined buffer=64k flush=1s", log.display()));
    let (tls, files) = setup.certificate.as_ref().map_or(("", String::new()), |own| {
        let (cert, key) = (own.cert.display(), own.key.display());
        (" ssl", format!("ssl_certificate {cert}; ssl_certificate_key {key}; ssl_protocols TLSv1.2 TLSv1.3;"))
    });
    let workers = match setup.threads {
        1 => "master_process off;".to_owned(),
        count => format!("worker_processes {count};"),
    };
    let config = format!(
        "daemon off; {workers} pid pid; error_log stderr crit; events {{ worker_connections 4096; }}\n\
         http {{ access_log {access_log}; keepalive_requests 1000000000; keepalive_timeout 600s; client_body_temp_path b;\n\
         proxy_temp_path p; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s; {upstream}\n\
         server {{ listen {listen_address}{tls}; {files} {location} }} }}\n"
    );
    fs::write(dir.join("conf"), config)?;
    let options = ["-c", "conf", "-p", &dir.to_string_lossy()];
    ListeningProcess::start(&setup.cpus, &require_program("nginx")?, &options, listen_address, log.map(Log::OfProgram))
}

/// Returns the configuration by which nginx forwards requests over kept connections: the part outside the server block,
/// then the part inside it.
fn nginx_forwarding_config(server: SocketAddr) -> String {
    format!(
        "upstream u {{ server {server}; keepalive 256; keepalive_requests 1000000000; }}|location / {{ \
         proxy_pass http://u; proxy_http_version 1.1; proxy_set_header Connection \"\"; \
         proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; }}"
    )
}

fn haproxy_config(listen_address: SocketAddr, server: SocketAddr, setup: &ProxySetup) -> String {
    let threads = setup.threads;
    let tls = setup
        .certificate
        .as_ref()
        .map_or(String::new(), |own| format!(" ssl crt {} alpn http/1.1 ssl-min-ver TLSv1.2", own.both.display()));
    format!(
        "global\n  nbthread {threads}\n  maxconn 4096\n  log stdout format raw local0 info\ndefaults\n  mode http\n  log global\n  \
         option httplog\n  option forwardfor\n  timeout connect 5s\n  timeout client 60s\n  \
         timeout server 60s\n  http-reuse always\nfrontend f\n  bind {listen_address}{tls}\n  default_backend b\nbackend b\n  \
         server s {server}\n"
    )
}

/// Process that listens. It is ended when this is dropped.
pub(super) struct ListeningProcess {
    child: Child,
    pub(super) address: SocketAddr,
    log: Option<PathBuf>,
}

/// Access-log file, and how lines reach it.
enum Log {
    /// The program writes the file itself.
    OfProgram(PathBuf),
    /// The file is the program's standard output.
    OnStdout(PathBuf),
}

impl ListeningProcess {
    fn start(cpus: &str, program: &Path, options: &[&str], address: SocketAddr, log: Option<Log>) -> Result<Self> {
        let mut command = Command::new("taskset");
        command.args(["-c", cpus]).arg(program).args(options);
        let stdout = match &log {
            Some(Log::OnStdout(file)) => File::options().create(true).append(true).open(file)?.into(),
            _ => Stdio::null(),
        };
        command.stdin(Stdio::null()).stdout(stdout).stderr(Stdio::null());
        let child = kill_with_parent(command).spawn().with_context(|| format!("cannot start {}", program.display()))?;
        let log = log.map(|(Log::OfProgram(file) | Log::OnStdout(file))| file);
        let running = Self { child, address, log };
        let began = Instant::now();
        while TcpStream::connect(address).is_err() {
            let is_time = began.elapsed() < START_TIMEOUT;
            ensure!(is_time, "{} does not listen at {address} after {START_TIMEOUT:?}", program.display());
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(running)
    }

    /// Returns the number of access-log lines since the last call. It empties the file, so that the disk need not write
    /// it.
    pub(super) fn take_log_lines(&self) -> Result<u64> {
        let Some(log) = &self.log else { return Ok(0) };
        let text = fs::read(log).with_context(|| format!("cannot read {}", log.display()))?;
        File::options().write(true).open(log)?.set_len(0)?;
        Ok(text.iter().filter(|byte| **byte == b'\n').count() as u64)
    }

    /// Returns the CPU time that the process has used, as the scheduler counts it.
    pub(super) fn cpu_ns(&self) -> u64 {
        let threads = fs::read_dir(format!("/proc/{}/task", self.child.id())).into_iter().flatten().flatten();
        let used = |path: PathBuf| -> Option<u64> {
            fs::read_to_string(path.join("schedstat")).ok()?.split(' ').next()?.parse().ok()
        };
        threads.filter_map(|thread| used(thread.path())).sum()
    }
}

impl Drop for ListeningProcess {
    fn drop(&mut self) {
        // The workers of nginx end with it if it is asked to end, and not if it is killed.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

fn free_address() -> Result<SocketAddr> {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
    Ok((Ipv4Addr::LOCALHOST, port).into())
}

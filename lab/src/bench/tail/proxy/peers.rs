//! The compared proxies, on one CPU and one thread each, in front of the same server.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

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
        ["haproxy", "nginx", "wrk"].into_iter().find(|program| find_program(program).is_none())
    }

    /// Starts the proxy on a CPU in front of a server. Each proxy writes an access log to a file, forwards the client's
    /// address to the server, and keeps connections on both sides.
    pub(super) fn start(self, cpu: u32, server: SocketAddr, scratch: &Path) -> Result<ListeningProcess> {
        let at = free_address()?;
        let log = scratch.join(format!("{}.log", self.name()));
        let log_text = log.to_string_lossy();
        match self {
            Self::Sidelane => {
                let own = find_sidelane()?;
                let (at_text, server) = (at.to_string(), server.to_string());
                let addresses = ["proxy", "--listen", &at_text, "--active", &server, "--hazard", "none"];
                let told = ["--access-log", &log_text, "--forwarded", "add"];
                ListeningProcess::start(
                    cpu,
                    &own,
                    &[&addresses[..], &told].concat(),
                    at,
                    Some(Log::OfProgram(log.clone())),
                )
            }
            Self::Haproxy => {
                let file = scratch.join("haproxy.cfg");
                fs::write(&file, haproxy_config(at, server))?;
                let options = ["-db", "-f", &file.to_string_lossy()];
                ListeningProcess::start(
                    cpu,
                    &require_program("haproxy")?,
                    &options,
                    at,
                    Some(Log::OnStdout(log.clone())),
                )
            }
            Self::Nginx => start_nginx(cpu, at, &nginx_forwarding_config(server), Some(log), scratch),
        }
    }
}

/// Starts the server behind the proxies.
pub(super) fn start_server(cpu: u32, scratch: &Path) -> Result<ListeningProcess> {
    let body = "x".repeat(BODY_BYTES);
    start_nginx(cpu, free_address()?, &format!("location / {{ return 200 \"{body}\"; }}"), None, scratch)
}

fn start_nginx(
    cpu: u32,
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
    let config = format!(
        "daemon off; master_process off; pid pid; error_log stderr crit; events {{ worker_connections 4096; }}\n\
         http {{ access_log {access_log}; keepalive_requests 1000000000; keepalive_timeout 600s; client_body_temp_path b;\n\
         proxy_temp_path p; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s; {upstream}\n\
         server {{ listen {listen_address}; {location} }} }}\n"
    );
    fs::write(dir.join("conf"), config)?;
    let options = ["-c", "conf", "-p", &dir.to_string_lossy()];
    ListeningProcess::start(cpu, &require_program("nginx")?, &options, listen_address, log.map(Log::OfProgram))
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

fn haproxy_config(listen_address: SocketAddr, server: SocketAddr) -> String {
    format!(
        "global\n  nbthread 1\n  maxconn 4096\n  log stdout format raw local0 info\ndefaults\n  mode http\n  log global\n  \
         option httplog\n  option forwardfor\n  timeout connect 5s\n  timeout client 60s\n  \
         timeout server 60s\n  http-reuse always\nfrontend f\n  bind {listen_address}\n  default_backend b\nbackend b\n  \
         server s {server}\n"
    )
}

/// Process that listens. It is killed when this is dropped.
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
    fn start(cpu: u32, program: &Path, options: &[&str], address: SocketAddr, log: Option<Log>) -> Result<Self> {
        let mut command = Command::new("taskset");
        command.args(["-c", &cpu.to_string()]).arg(program).args(options);
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
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_address() -> Result<SocketAddr> {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
    Ok((Ipv4Addr::LOCALHOST, port).into())
}

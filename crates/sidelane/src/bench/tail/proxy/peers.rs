//! The proxies that are compared, on one CPU and one thread each, in front of the same server.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::lab::dying_with_us;

const START_TIMEOUT: Duration = Duration::from_secs(10);
/// What the server answers: as long as a small object.
const BODY_BYTES: usize = 100;

/// Who passes requests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    Sidelane,
    Haproxy,
    Nginx,
}

impl Peer {
    pub(super) const ALL: [Self; 3] = [Self::Sidelane, Self::Haproxy, Self::Nginx];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Sidelane => "sidelane proxy",
            Self::Haproxy => "haproxy",
            Self::Nginx => "nginx",
        }
    }

    /// The program that is missing here, if one is.
    pub(super) fn missing() -> Option<&'static str> {
        ["haproxy", "nginx", "wrk"].into_iter().find(|program| find(program).is_none())
    }

    /// Starts it on a CPU in front of a server.
    pub(super) fn start(self, cpu: u32, server: SocketAddr, scratch: &Path) -> Result<Running> {
        let at = free_address()?;
        match self {
            Self::Sidelane => {
                let own = std::env::current_exe().context("cannot find this program")?;
                let (at_text, server) = (at.to_string(), server.to_string());
                let options = ["proxy", "--listen", &at_text, "--active", &server, "--hazard", "none"];
                Running::start(cpu, &own, &options, at)
            }
            Self::Haproxy => {
                let file = scratch.join("haproxy.cfg");
                fs::write(&file, haproxy(at, server))?;
                Running::start(cpu, &program("haproxy")?, &["-db", "-f", &file.to_string_lossy()], at)
            }
            Self::Nginx => nginx(cpu, at, &passing(server), scratch),
        }
    }
}

/// The server behind them.
pub(super) fn start_server(cpu: u32, scratch: &Path) -> Result<Running> {
    let body = "x".repeat(BODY_BYTES);
    nginx(cpu, free_address()?, &format!("location / {{ return 200 \"{body}\"; }}"), scratch)
}

fn nginx(cpu: u32, at: SocketAddr, location: &str, scratch: &Path) -> Result<Running> {
    let dir = scratch.join(format!("nginx-{}", at.port()));
    fs::create_dir(&dir)?;
    let (upstream, location) = location.split_once('|').unwrap_or(("", location));
    let config = format!(
        "daemon off; master_process off; pid pid; error_log stderr crit; events {{ worker_connections 4096; }}\n\
         http {{ access_log off; keepalive_requests 1000000000; keepalive_timeout 600s; client_body_temp_path b;\n\
         proxy_temp_path p; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s; {upstream}\n\
         server {{ listen {at}; {location} }} }}\n"
    );
    fs::write(dir.join("conf"), config)?;
    Running::start(cpu, &program("nginx")?, &["-c", "conf", "-p", &dir.to_string_lossy()], at)
}

/// How nginx passes requests on over connections that it keeps: what is around the server, then what is in it.
fn passing(server: SocketAddr) -> String {
    format!(
        "upstream u {{ server {server}; keepalive 256; keepalive_requests 1000000000; }}|location / {{ \
         proxy_pass http://u; proxy_http_version 1.1; proxy_set_header Connection \"\"; }}"
    )
}

fn haproxy(at: SocketAddr, server: SocketAddr) -> String {
    format!(
        "global\n  nbthread 1\n  maxconn 4096\ndefaults\n  mode http\n  timeout connect 5s\n  timeout client 60s\n  \
         timeout server 60s\n  http-reuse always\nfrontend f\n  bind {at}\n  default_backend b\nbackend b\n  \
         server s {server}\n"
    )
}

/// A process that listens. Ended when dropped.
pub(super) struct Running {
    child: Child,
    pub(super) address: SocketAddr,
}

impl Running {
    fn start(cpu: u32, program: &Path, options: &[&str], address: SocketAddr) -> Result<Self> {
        let mut command = Command::new("taskset");
        command.args(["-c", &cpu.to_string()]).arg(program).args(options);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = dying_with_us(command).spawn().with_context(|| format!("cannot start {}", program.display()))?;
        let running = Self { child, address };
        let began = Instant::now();
        while TcpStream::connect(address).is_err() {
            let is_time = began.elapsed() < START_TIMEOUT;
            ensure!(is_time, "{} does not listen at {address} after {START_TIMEOUT:?}", program.display());
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(running)
    }

    /// CPU time that it has used, as the scheduler counts it.
    pub(super) fn cpu_ns(&self) -> u64 {
        let threads = fs::read_dir(format!("/proc/{}/task", self.child.id())).into_iter().flatten().flatten();
        let used = |path: PathBuf| -> Option<u64> {
            fs::read_to_string(path.join("schedstat")).ok()?.split(' ').next()?.parse().ok()
        };
        threads.filter_map(|thread| used(thread.path())).sum()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_address() -> Result<SocketAddr> {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
    Ok((Ipv4Addr::LOCALHOST, port).into())
}

pub(super) fn program(name: &str) -> Result<PathBuf> {
    find(name).with_context(|| format!("{name} is not installed"))
}

/// In the folders for programs, and those for administrators.
fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    dirs.map(|dir| dir.join(name)).find(|file| file.is_file())
}

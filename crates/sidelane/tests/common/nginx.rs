//! Real HTTP server for tests: nginx.

use std::fs::File;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::deadline::wait_until;
use super::process::{copy_program, is_alive, kill_with_test, signal};
use super::scripted::unused_address;

/// Length of the file /long: more than all buffers on the way hold.
pub const LONG_LEN: usize = 64 << 20;

/// Running nginx that answers with its name, or with the file /long.
pub struct Nginx {
    child: Child,
    pub address: SocketAddr,
    dir: tempfile::TempDir,
    program: PathBuf,
}

impl Nginx {
    /// Starts nginx; `None` if it is not installed.
    pub fn start(name: &str) -> Option<Self> {
        Self::start_at(name, unused_address())
    }

    /// Starts nginx at this address.
    pub fn start_at(name: &str, address: SocketAddr) -> Option<Self> {
        Self::start_with_program_name(name, address, None)
    }

    /// Starts nginx at this address, as a program with another file name if one is given.
    pub fn start_with_program_name(name: &str, address: SocketAddr, program: Option<&str>) -> Option<Self> {
        const PROGRAM: &str = "/usr/sbin/nginx";
        if !Path::new(PROGRAM).exists() {
            sidelane_testing::skip("needs nginx: apt-get install nginx-light");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let program = program.map_or(PROGRAM.into(), |program| dir.path().join(program));
        if program != Path::new(PROGRAM) {
            copy_program(PROGRAM, &program);
        }
        let config = format!(
            "daemon off; master_process off; pid pid; error_log stderr crit; events {{}}\n\
             http {{ access_log off; client_body_temp_path b; proxy_temp_path p; fastcgi_temp_path f;\n\
             uwsgi_temp_path u; scgi_temp_path s;\n\
             server {{ listen {address}; location / {{ return 200 \"{name}\"; }} location /long {{ root .; }} }} }}\n"
        );
        std::fs::write(dir.path().join("conf"), config).unwrap();
        File::create(dir.path().join("long")).unwrap().set_len(LONG_LEN as u64).unwrap();
        let child = Self::spawn(&program, dir.path());
        let nginx = Self { child, address, dir, program };
        nginx.wait_until_listening();
        Some(nginx)
    }

    fn spawn(program: &Path, dir: &Path) -> Child {
        let mut command = Command::new(program);
        command.args(["-c", "conf", "-p"]).arg(dir).stderr(Stdio::null());
        kill_with_test(&mut command).spawn().unwrap()
    }

    fn wait_until_listening(&self) {
        wait_until("nginx listens", || TcpStream::connect(self.address).is_ok());
    }

    pub fn kill(&mut self) {
        self.signal(libc::SIGKILL);
        let _ = self.child.wait();
    }

    pub fn restart(&mut self) {
        self.child = Self::spawn(&self.program, self.dir.path());
        self.wait_until_listening();
    }

    pub fn signal(&self, number: i32) {
        assert!(is_alive(self.child.id()));
        signal(self.child.id(), number);
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        signal(self.child.id(), libc::SIGKILL);
        let _ = self.child.wait();
    }
}

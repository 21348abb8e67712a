//! Running `sidelane requests` in tests.

use std::io::Read;
use std::process::{Child, Command, Stdio};

use super::agent::SIDELANE;

/// Running process of `sidelane requests`, ended by [`Watching::stop`].
pub struct Watching(Child);

impl Watching {
    /// Starts `sidelane requests`; the first of the arguments is the service.
    pub fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(SIDELANE);
        command.args(["requests", "--service"]).args(arguments);
        Self(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("sidelane starts"))
    }

    /// Waits until `sidelane requests` observes.
    pub fn wait_until_observing(&mut self) {
        let mut said = Vec::new();
        let errors = self.0.stderr.as_mut().expect("standard error is a pipe");
        while !said.ends_with(b"\n") {
            let mut byte = [0];
            assert_eq!(errors.read(&mut byte).unwrap(), 1, "it ended: {}", String::from_utf8_lossy(&said));
            said.extend(byte);
        }
    }

    /// Ends `sidelane requests`, and returns its output.
    pub fn stop(self) -> String {
        super::process::signal(self.0.id(), libc::SIGINT);
        let output = self.0.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

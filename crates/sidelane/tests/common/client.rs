//! Client that sends a service requests.

use std::process::{Child, Stdio};

use sidelane_lab::programs::LabBinary;

use super::lanes::BATCH_LANE;

/// Client that sends requests all the time, from the batch lane. Dropping it ends it.
pub struct Client(Child);

impl Client {
    /// Starts a client with 500 requests a second.
    pub fn start(lab: &LabBinary, protocol: &str, target: &str, extra_arguments: &[&str]) -> Self {
        let what = ["--protocol", protocol, "--target", target, "--rate", "500", "--seconds", "300"];
        let how = ["--warmup-seconds", "0", "--cpu", BATCH_LANE, "--fifo", "80", "--json", "/dev/null"];
        let mut load = lab.command(["load"]);
        load.args(what).args(how).args(extra_arguments);
        Self(load.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the client starts"))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

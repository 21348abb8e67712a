//! `sidelane status`: asks the running agent.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::{SOCKET, Snapshot};
use sidelane_report::terminal::{print, print_fitted};

/// An agent answers between two looks, which come every few milliseconds.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// What `sidelane status` was asked.
#[derive(Clone, Copy, Debug)]
pub struct StatusOptions {
    /// As JSON, for programs.
    pub json: bool,
}

/// Prints what the running agent says.
pub fn run(options: StatusOptions) -> Result<u8> {
    let snapshot = ask()?;
    match options.json {
        true => print(&format!("{}\n", serde_json::to_string_pretty(&snapshot)?))?,
        false => print_fitted(&snapshot.to_string())?,
    }
    Ok(0)
}

fn ask() -> Result<Snapshot> {
    let mut stream = match UnixStream::connect(SOCKET) {
        Ok(stream) => stream,
        Err(error) if [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused].contains(&error.kind()) => {
            bail!("no agent runs on this machine: start one with `sidelane agent --config FILE`")
        }
        Err(error) => return Err(error).with_context(|| format!("cannot ask the agent at {SOCKET}, which takes root")),
    };
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    let mut text = String::new();
    stream.read_to_string(&mut text).context("the agent does not answer")?;
    serde_json::from_str(&text).context("the agent's answer is not of this version: restart the agent")
}

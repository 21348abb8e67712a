//! Node of Slurm, asked and changed by Slurm's own commands.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::decision::NodeState;

/// Node of Slurm that stands for the lanes of this machine.
#[derive(Clone, Debug)]
pub struct Node {
    /// `NodeName` in slurm.conf.
    name: String,
}

impl Node {
    /// Makes a handle of the node with this name.
    pub fn new(name: String) -> Self {
        Self { name }
    }

    /// Returns the node's state.
    ///
    /// # Errors
    /// If Slurm does not answer, or has no such node.
    pub fn state(&self) -> Result<NodeState> {
        let shown = output("sinfo", &["--noheader", "--nodes", &self.name, "--format", "%T|%E"])?;
        let Some(line) = shown.lines().next() else {
            bail!("Slurm has no node {} in a partition; compare NodeName and PartitionName in slurm.conf", self.name);
        };
        parse_state(line)
            .with_context(|| format!("sinfo said '{line}' of node {}; use Slurm 22.05 or later", self.name))
    }

    /// Lets no new job start.
    ///
    /// # Errors
    /// If Slurm refuses.
    pub fn drain(&self, reason: &str) -> Result<()> {
        self.update("drain", &[&format!("Reason={reason}")])
    }

    /// Lets new jobs start.
    ///
    /// # Errors
    /// If Slurm refuses.
    pub fn resume(&self) -> Result<()> {
        self.update("resume", &[])
    }

    fn update(&self, state: &str, more: &[&str]) -> Result<()> {
        let (name, state) = (format!("NodeName={}", self.name), format!("State={state}"));
        let arguments: Vec<&str> = ["update", &name, &state].into_iter().chain(more.iter().copied()).collect();
        output("scontrol", &arguments).map(drop)
    }

    /// Returns the jobs on the node that have started and have not ended.
    ///
    /// # Errors
    /// If Slurm does not answer.
    pub fn jobs(&self) -> Result<Vec<String>> {
        let states = "RUNNING,CONFIGURING,SUSPENDED";
        let shown = output("squeue", &["--noheader", "--nodelist", &self.name, "--states", states, "--format", "%A"])?;
        Ok(shown.lines().map(|line| line.trim().to_owned()).collect())
    }
}

/// Puts a running job back into the queue.
///
/// # Errors
/// If Slurm refuses: the job has ended, or it was submitted with `--no-requeue`.
pub fn requeue(job: &str) -> Result<()> {
    output("scontrol", &["requeue", job]).map(drop)
}

/// Parses a line of `sinfo --format %T|%E`.
fn parse_state(line: &str) -> Option<NodeState> {
    let (state, reason) = line.trim().split_once('|')?;
    Some(if state.starts_with("drain") {
        NodeState::Drained((reason != "none").then(|| reason.to_owned()))
    } else if state.starts_with("down") || state.starts_with("unk") {
        NodeState::Down
    } else {
        NodeState::Open
    })
}

/// Returns what a command prints.
fn output(program: &str, arguments: &[&str]) -> Result<String> {
    let ended = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let ended =
        ended.with_context(|| format!("cannot start {program}; install Slurm's commands, or add them to PATH"))?;
    if !ended.status.success() {
        let stderr = String::from_utf8_lossy(&ended.stderr);
        bail!("`{program} {}` failed: {}", arguments.join(" "), stderr.trim());
    }
    Ok(String::from_utf8_lossy(&ended.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_of_sinfo_are_parsed() {
        let drained = |reason: &str| Some(NodeState::Drained(Some(reason.into())));
        assert_eq!(parse_state("idle|none"), Some(NodeState::Open));
        assert_eq!(parse_state("mixed|none\n"), Some(NodeState::Open));
        assert_eq!(parse_state("drained|none"), Some(NodeState::Drained(None)));
        assert_eq!(parse_state("draining|sidelane: a | b"), drained("sidelane: a | b"));
        assert_eq!(parse_state("drained*|new disk"), drained("new disk"));
        assert_eq!(parse_state("down*|Not responding"), Some(NodeState::Down));
        assert_eq!(parse_state("idle"), None);
    }
}

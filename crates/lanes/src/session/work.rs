//! What borrows the lanes: a command that was started for it, or batch that was adopted.

use std::ffi::OsString;
use std::process::ExitStatus;

use anyhow::{Context, Result};

use crate::adopt::{Adopted, Adoptee};
use crate::batch::Batch;
use sidelane_tracker::tracking::BatchTracking;

/// What is to borrow the lanes.
pub(super) enum Wanted<'command> {
    Command(&'command [OsString]),
    Adoptee(Adoptee),
}

/// What borrows the lanes.
pub(super) enum Work {
    Command(Batch),
    Adopted(Box<Adopted>),
}

impl Work {
    pub(super) fn has_ended(&self, job: &BatchTracking) -> bool {
        match self {
            Work::Command(batch) => batch.has_ended(),
            Work::Adopted(adopted) => adopted.has_ended(job),
        }
    }

    /// Sends a command a signal. What others started is theirs to signal.
    pub(super) fn signal(&self, signal: i32) {
        if let Work::Command(batch) = self {
            batch.signal(signal);
        }
    }

    /// How it ended, and what is to be said of that in the log.
    pub(super) fn finish(self) -> Result<(Ending, String)> {
        match self {
            Work::Command(batch) => {
                let status = batch.reap().context("cannot learn how the batch command ended")?;
                let why =
                    format!("the batch command has ended: {status}; its groups are gone, affinities are given back");
                Ok((Ending::Command(status), why))
            }
            Work::Adopted(adopted) => {
                let why = format!("{} was given back as it was found", adopted.in_words());
                Ok((Ending::GivenBack(adopted.in_words()), why))
            }
        }
    }
}

/// How a session's batch ended.
#[derive(Clone, Debug)]
pub enum Ending {
    /// The command ended, by itself or not.
    Command(ExitStatus),
    /// Adopted batch was given back. What it was, in words.
    GivenBack(String),
}

//! The right to move the threads of processes, which one Sidelane has at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;

use anyhow::{Context, Result};

use super::{Claim, ClaimError, Claimant};
use crate::ChangeId;
use crate::guardian::Guardian;

/// What is claimed, each with what the guardian was told of it.
pub struct ThreadClaims {
    claimant: Claimant,
    taken: BTreeMap<u32, (Claim, ChangeId)>,
    /// Processes whose threads another process moves.
    refused: BTreeSet<u32>,
    /// Some were taken since the guardian was started: it does not hold their locks.
    are_new: bool,
}

impl ThreadClaims {
    /// Nothing is claimed yet.
    pub fn none(claimant: Claimant) -> Self {
        let (taken, refused) = Default::default();
        Self { claimant, taken, refused, are_new: false }
    }

    /// Claims these processes, and starts a guardian that holds the claims, too.
    ///
    /// # Errors
    /// If another process has one of them, or there can be no guardian.
    pub fn take(pids: &BTreeSet<u32>) -> Result<(Self, Guardian)> {
        let claim = |pid: &u32| Ok((*pid, Claim::to_move_threads(*pid, Claimant::Run)?));
        let claims: Vec<(u32, Claim)> = pids.iter().map(claim).collect::<Result<_, ClaimError>>()?;
        let locks = with_locks_of(Vec::new(), claims.iter().map(|(_, claim)| claim))?;
        let mut guardian = Guardian::start(&locks, None).context("cannot start the guardian process")?;
        let tickets = guardian.add(claims.iter().map(|(_, claim)| claim.undo()))?;
        claims.iter().try_for_each(|(_, claim)| claim.announce())?;
        let taken = claims.into_iter().zip(tickets).map(|((pid, claim), ticket)| (pid, (claim, ticket))).collect();
        Ok((Self { taken, ..Self::none(Claimant::Run) }, guardian))
    }

    /// Claims a process that came later. Returns the owner of the claim, if another process has it.
    pub fn add(&mut self, pid: u32, guardian: &mut Guardian) -> Result<Option<ClaimError>> {
        if self.taken.contains_key(&pid) {
            return Ok(None);
        }
        let claim = match Claim::to_move_threads(pid, self.claimant) {
            Ok(claim) => claim,
            Err(error) => return Ok(Some(self.was_refused(pid, error))),
        };
        let ticket = guardian.add([claim.undo()])?[0];
        if let Err(error) = claim.announce() {
            guardian.withdraw([ticket]).context("cannot register an undo with the guardian")?;
            return Ok(Some(self.was_refused(pid, error)));
        }
        self.taken.insert(pid, (claim, ticket));
        self.refused.remove(&pid);
        self.are_new = true;
        Ok(None)
    }

    fn was_refused(&mut self, pid: u32, error: ClaimError) -> ClaimError {
        self.refused.insert(pid);
        error
    }

    /// Whether the process is claimed here.
    pub fn has(&self, pid: u32) -> bool {
        self.taken.contains_key(&pid)
    }

    /// Gives up those of all other processes.
    pub fn keep(&mut self, pids: &[u32], guardian: &mut Guardian) -> Result<()> {
        self.refused.retain(|pid| pids.contains(pid));
        let all = std::mem::take(&mut self.taken).into_iter();
        let (kept, gone): (BTreeMap<_, _>, BTreeMap<_, _>) = all.partition(|(pid, _)| pids.contains(pid));
        self.taken = kept;
        guardian.withdraw(gone.values().map(|(_, ticket)| *ticket)).context("cannot register an undo with the guardian")
    }

    /// Processes whose threads another process moves.
    pub fn refused(&self) -> usize {
        self.refused.len()
    }

    /// Whether no guardian holds the locks of some.
    pub fn are_new(&self) -> bool {
        self.are_new
    }

    /// Another guardian takes over, and holds these locks and those of all that is claimed here.
    pub fn replace_guardian(&mut self, locks: Vec<OwnedFd>, guardian: &mut Guardian) -> Result<()> {
        let locks = with_locks_of(locks, self.taken.values().map(|(claim, _)| claim))?;
        guardian.restart(&locks).context("cannot replace the guardian process")?;
        self.are_new = false;
        Ok(())
    }
}

/// Second handles on the locks of the claims, after `locks`.
fn with_locks_of<'c>(mut locks: Vec<OwnedFd>, claims: impl Iterator<Item = &'c Claim>) -> Result<Vec<OwnedFd>> {
    let shared = claims.map(Claim::share).collect::<io::Result<Vec<_>>>().context(
        "cannot pass the claims on to the \
                                                                                   guardian",
    )?;
    locks.extend(shared);
    Ok(locks)
}

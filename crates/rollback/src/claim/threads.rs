//! Claims of the right to move the threads of processes, which one Sidelane has at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;

use anyhow::{Context, Result};

use super::{Claim, ClaimError, Claimant};
use crate::ChangeId;
use crate::guardian::{CANNOT_RESTART, CANNOT_START, CANNOT_WITHDRAW, Guardian};

/// Claims of processes, each with the id of its undo.
pub struct ThreadClaims {
    claimant: Claimant,
    taken: BTreeMap<u32, (Claim, ChangeId)>,
    /// Processes whose threads another Sidelane moves.
    refused: BTreeSet<u32>,
    /// Whether claims were taken after the guardian was started, so that the guardian does not hold their locks.
    are_new: bool,
}

impl ThreadClaims {
    /// Returns an empty set of claims.
    pub fn empty(claimant: Claimant) -> Self {
        let (taken, refused) = Default::default();
        Self { claimant, taken, refused, are_new: false }
    }

    /// Claims these processes, and starts a guardian that also holds the claims.
    ///
    /// # Errors
    /// If another process has one of the claims, or no guardian can be started.
    pub fn take_with_guardian(pids: &BTreeSet<u32>) -> Result<(Self, Guardian)> {
        let claim = |pid: &u32| Ok((*pid, Claim::take_threads(*pid, Claimant::Run)?));
        let claims: Vec<(u32, Claim)> = pids.iter().map(claim).collect::<Result<_, ClaimError>>()?;
        let locks = append_claim_locks(Vec::new(), claims.iter().map(|(_, claim)| claim))?;
        let mut guardian = Guardian::start(&locks, None).context(CANNOT_START)?;
        let change_ids = guardian.add(claims.iter().map(|(_, claim)| claim.undo()))?;
        claims.iter().try_for_each(|(_, claim)| claim.announce())?;
        let taken =
            claims.into_iter().zip(change_ids).map(|((pid, claim), change_id)| (pid, (claim, change_id))).collect();
        Ok((Self { taken, ..Self::empty(Claimant::Run) }, guardian))
    }

    /// Claims one more process. If another Sidelane has the claim, returns the error that names this owner.
    pub fn add_process(&mut self, pid: u32, guardian: &mut Guardian) -> Result<Option<ClaimError>> {
        if self.taken.contains_key(&pid) {
            return Ok(None);
        }
        let claim = match Claim::take_threads(pid, self.claimant) {
            Ok(claim) => claim,
            Err(error) => return Ok(Some(self.record_refusal(pid, error))),
        };
        let change_id = guardian.add([claim.undo()])?[0];
        if let Err(error) = claim.announce() {
            guardian.withdraw([change_id]).context(CANNOT_WITHDRAW)?;
            return Ok(Some(self.record_refusal(pid, error)));
        }
        self.taken.insert(pid, (claim, change_id));
        self.refused.remove(&pid);
        self.are_new = true;
        Ok(None)
    }

    fn record_refusal(&mut self, pid: u32, error: ClaimError) -> ClaimError {
        self.refused.insert(pid);
        error
    }

    /// Returns whether this set has a claim of the process.
    pub fn has(&self, pid: u32) -> bool {
        self.taken.contains_key(&pid)
    }

    /// Gives up the claims of all processes except `pids`.
    pub fn retain_processes(&mut self, pids: &[u32], guardian: &mut Guardian) -> Result<()> {
        self.refused.retain(|pid| pids.contains(pid));
        let all = std::mem::take(&mut self.taken).into_iter();
        let (kept, gone): (BTreeMap<_, _>, BTreeMap<_, _>) = all.partition(|(pid, _)| pids.contains(pid));
        self.taken = kept;
        guardian.withdraw(gone.values().map(|(_, change_id)| *change_id)).context(CANNOT_WITHDRAW)
    }

    /// Returns the number of processes whose threads another Sidelane moves.
    pub fn refused_count(&self) -> usize {
        self.refused.len()
    }

    /// Returns whether the guardian does not hold the locks of some claims.
    pub fn has_new_claims(&self) -> bool {
        self.are_new
    }

    /// Replaces the guardian by one that holds `locks` and the locks of all claims.
    pub fn replace_guardian(&mut self, locks: Vec<OwnedFd>, guardian: &mut Guardian) -> Result<()> {
        let locks = append_claim_locks(locks, self.taken.values().map(|(claim, _)| claim))?;
        guardian.restart(&locks).context(CANNOT_RESTART)?;
        self.are_new = false;
        Ok(())
    }
}

/// Appends second handles on the locks of the claims to `locks`.
fn append_claim_locks<'c>(mut locks: Vec<OwnedFd>, claims: impl Iterator<Item = &'c Claim>) -> Result<Vec<OwnedFd>> {
    let shared = claims
        .map(Claim::duplicate_lock)
        .collect::<io::Result<Vec<_>>>()
        .context("cannot pass the claims on to the guardian process; raise the limit of open files (ulimit -n)")?;
    locks.extend(shared);
    Ok(locks)
}

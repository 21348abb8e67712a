//! The right to move the threads of processes, which one Sidelane has at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use anyhow::{Context, Result};

use crate::claim::{Claim, ClaimError};
use crate::undo::Ticket;
use crate::undo::guardian::Guardian;

/// What is claimed, each with what the guardian was told of it.
pub struct Claims {
    taken: BTreeMap<u32, (Claim, Ticket)>,
    /// Processes whose threads somebody else moves.
    refused: BTreeSet<u32>,
    /// Some were taken since the guardian was started: it does not hold their locks.
    are_new: bool,
}

impl Claims {
    /// Claims these processes, and starts a guardian that holds the claims, too.
    ///
    /// # Errors
    /// If somebody else has one of them, or there can be no guardian.
    pub fn take(pids: &BTreeSet<u32>) -> Result<(Self, Guardian)> {
        let claim = |pid: &u32| Ok((*pid, Claim::to_move_threads(*pid)?));
        let claims: Vec<(u32, Claim)> = pids.iter().map(claim).collect::<Result<_, ClaimError>>()?;
        let mut guardian = start_guardian(claims.iter().map(|(_, claim)| claim))?;
        let tickets = guardian.add(claims.iter().map(|(_, claim)| claim.undo()))?;
        claims.iter().try_for_each(|(_, claim)| claim.announce())?;
        let taken = claims.into_iter().zip(tickets).map(|((pid, claim), ticket)| (pid, (claim, ticket))).collect();
        Ok((Self { taken, refused: BTreeSet::new(), are_new: false }, guardian))
    }

    /// Claims a process that came later. Whether nobody else has it.
    pub fn add(&mut self, pid: u32, guardian: &mut Guardian) -> Result<bool> {
        if self.taken.contains_key(&pid) {
            return Ok(true);
        }
        let Ok(claim) = Claim::to_move_threads(pid) else {
            self.refused.insert(pid);
            return Ok(false);
        };
        let ticket = guardian.add([claim.undo()])?[0];
        if claim.announce().is_err() {
            guardian.withdraw([ticket]).context("cannot tell the guardian")?;
            self.refused.insert(pid);
            return Ok(false);
        }
        self.taken.insert(pid, (claim, ticket));
        self.refused.remove(&pid);
        self.are_new = true;
        Ok(true)
    }

    /// Gives up those of all other processes, which have ended.
    pub fn keep(&mut self, pids: &[u32], guardian: &mut Guardian) -> Result<()> {
        self.refused.retain(|pid| pids.contains(pid));
        let all = std::mem::take(&mut self.taken).into_iter();
        let (kept, gone): (BTreeMap<_, _>, BTreeMap<_, _>) = all.partition(|(pid, _)| pids.contains(pid));
        self.taken = kept;
        guardian.withdraw(gone.values().map(|(_, ticket)| *ticket)).context("cannot tell the guardian")
    }

    /// Processes whose threads somebody else moves.
    pub fn refused(&self) -> usize {
        self.refused.len()
    }

    /// Whether no guardian holds the locks of some.
    pub fn are_new(&self) -> bool {
        self.are_new
    }

    /// Another guardian takes over, and holds the locks of all.
    pub fn replace_guardian(&mut self, guardian: &mut Guardian) -> Result<()> {
        let new = start_guardian(self.taken.values().map(|(claim, _)| claim))?;
        guardian.hand_over_to(new).context("cannot tell the guardian")?;
        self.are_new = false;
        Ok(())
    }
}

fn start_guardian<'c>(claims: impl Iterator<Item = &'c Claim>) -> Result<Guardian> {
    let locks = claims.map(Claim::share).collect::<io::Result<Vec<_>>>().context("cannot share the claims")?;
    Guardian::start(&locks).context("cannot start the guardian process")
}

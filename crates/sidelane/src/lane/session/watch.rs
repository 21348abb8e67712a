//! What a session looks after while batch runs, besides what is decided lane by lane.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use sidelane_policy::borrow::Budget;
use sidelane_policy::borrow::headroom::Standing;

use super::super::gate::LaneKeeper;
use super::Session;
use super::start::{start_guardian, tell};
use super::work::Work;
use crate::note::{Note, Slo};
use crate::request::RequestSource;
use crate::undo::{Ticket, Undo, affinity};
use sidelane_host::procfs::allowed_cpus;
use sidelane_host::thread::Thread;

/// How often a service that has gone is looked for, one that strayed is looked at, and who joined adopted batch.
const SERVICE_LOOK_EVERY: Duration = Duration::from_millis(500);

impl Session {
    /// Looks after everything that is not decided lane by lane; to be called a few times a second.
    pub fn supervise(&mut self) -> Result<()> {
        if let Some(log) = &mut self.log {
            log.drain().context("cannot write the audit log")?;
        }
        self.keep_terms()?;
        self.look_after_scheduler()?;
        self.put_strays_back();
        self.look_after_guardian()?;
        if self.service_looked_at.elapsed() >= SERVICE_LOOK_EVERY {
            self.service_looked_at = Instant::now();
            self.look_after_service()?;
            if let Work::Adopted(adopted) = &mut self.work {
                adopted.look(&self.cage, &self.job, &mut self.guardian)?;
            }
        }
        Ok(())
    }

    /// Learns from the requests that have finished, and agrees new terms.
    fn keep_terms(&mut self) -> Result<()> {
        let Some(terms) = &mut self.terms else { return Ok(()) };
        if let Some(requests) = &mut self.requests {
            terms.learn(requests)?;
        }
        let (budget, standing) = (terms.budget(), terms.keep());
        let Budget::Slo(slo) = budget else { return Ok(()) };
        let slo = Slo(slo);
        match standing {
            Some(Standing::MissedAlone) => self.note(Note::MissedAlone { slo }),
            Some(Standing::Late) => self.note(Note::Late { slo }),
            _ => {}
        }
        Ok(())
    }

    /// Says once that batch's scheduler was put out, and puts back who has left its class.
    fn look_after_scheduler(&mut self) -> Result<()> {
        if let Some(error) = self.keepers.iter().find_map(LaneKeeper::forsaken) {
            bail!("batch's scheduler was put out, and its lanes cannot be held instead ({error}): batch was ended");
        }
        let Some(scheduler) = &self.scheduler else { return Ok(()) };
        if let Some(why) = scheduler.ejection() {
            self.note(Note::SchedulerPutOut { why: why.to_string() });
            self.scheduler = None;
        } else if scheduler.has_outsiders() && self.cage.make_ext() {
            self.note(Note::LeftSchedulerClass);
        }
        Ok(())
    }

    fn put_strays_back(&mut self) {
        let strays = self.memory().batch_strays();
        if strays > self.strays_seen {
            self.strays_seen = strays;
            self.cage.put_back();
        }
    }

    fn look_after_guardian(&mut self) -> Result<()> {
        if self.guardian.is_alive() {
            return Ok(());
        }
        self.note(Note::GuardianEnded);
        let list = self.guardian.list().clone();
        self.guardian = start_guardian(&self.claims)?;
        self.guardian.succeed(list).context("cannot brief the guardian")
    }

    /// Finds a service that was restarted, and lets lanes be held again that it had visited.
    fn look_after_service(&mut self) -> Result<()> {
        let mut pids: BTreeSet<u32> = self.tracking.processes().into_iter().collect();
        if pids.is_empty() {
            pids = self.beside.target.find().map(|service| service.pids).unwrap_or_default();
            self.tracking.take_in(&pids);
            if let Some(requests) = &mut self.requests {
                requests.look_again(&pids)?;
            }
            let target = self.beside.target.clone();
            self.note(match pids.is_empty() {
                true => Note::ServiceEnded { target },
                false => Note::ServiceCameBack { target },
            });
        }
        if let Some(requests @ RequestSource::Emitted(_)) = &mut self.requests {
            // A process may emit its first request at any time.
            requests.look_again(&pids)?;
        }
        if self.keepers.iter().any(LaneKeeper::visited) {
            self.receive_visitors(pids)?;
        }
        Ok(())
    }

    fn receive_visitors(&mut self, pids: BTreeSet<u32>) -> Result<()> {
        self.beside.service.pids = pids;
        self.note(Note::ServiceVisited);
        let pins = self.beside.pins();
        let moved: BTreeSet<Thread> = pins.iter().filter_map(Undo::thread).collect();
        let is_older = |undo: &Undo| undo.thread().is_some_and(|thread| moved.contains(&thread));
        let older = self.guardian.list().iter().filter(|(_, undo)| is_older(undo)).map(|(ticket, _)| ticket);
        let older: Vec<Ticket> = older.collect();
        tell(&mut self.guardian, pins.iter().cloned())?;
        // A thread that was moved again gets back what its owner gave it last.
        self.guardian.withdraw(older)?;
        affinity::pin(&pins, &self.beside.lanes.requests)?;
        let allowed = allowed_cpus(&self.beside.service.pids);
        for keeper in self.keepers.iter().filter(|keeper| !allowed.contains(keeper.cpu())) {
            keeper.visitors_gone();
        }
        Ok(())
    }
}

//! The policy, told what threads do, and its answers, carried out.

use anyhow::Result;
use sidelane_host::cpulist::CpuSet;
use sidelane_policy::Policy;
use sidelane_policy::cpus::{self, CpuMask};
use sidelane_policy::hurryup::{Action, Actions, Config, Cores, HurryUp, Request, Seen, sizes_of_lanes};

use super::figures::Figures;
use super::log::{AtWork, ThreadAudit};
use super::pace::{Next, Pace};
use super::pool::{NotMoved, Pool};
use super::settings::Sizes;
use super::work::Work;
use crate::audit::Decision;
use crate::cpu_mask::mask;

/// Which cores are big.
enum Sizing {
    Fixed(Cores),
    /// A lane is big while its siblings are idle: all lanes, and who they are.
    Lanes(CpuMask, Box<cpus::Cores>),
}

impl Sizing {
    fn of(sizes: &Sizes) -> Self {
        match sizes {
            Sizes::Cores(cores) => Self::Fixed(Cores { big: mask(&cores.big), little: mask(&cores.little) }),
            Sizes::Lanes(cores) => {
                let cores = || cores.iter().map(mask);
                Self::Lanes(cores().fold(CpuMask::EMPTY, |all, core| all.or(&core)), Box::new(cpus::Cores::of(cores())))
            }
        }
    }
}

/// Who maps threads to cores.
pub struct Mapper {
    policy: Box<HurryUp>,
    pace: Pace,
    sizes: Sizing,
    online: CpuMask,
    /// What the policy was told of sizes.
    told: Option<Cores>,
    pool: Pool,
    actions: Box<Actions>,
    /// Those of `actions` that are being carried out.
    todo: Vec<Action>,
    last_request: Request,
    figures: Figures,
    audit: ThreadAudit,
}

impl Mapper {
    /// Nobody is bound before it is heard of a thread.
    pub fn new(config: Config, sizes: &Sizes, pool: Pool, audit: ThreadAudit) -> Self {
        let (policy, sizes) = (Box::new(HurryUp::new(config)), Sizing::of(sizes));
        let (actions, todo, figures) = Default::default();
        Self {
            policy,
            pace: Pace::new(config.looks),
            sizes,
            online: CpuMask::EMPTY,
            told: None,
            pool,
            actions,
            todo,
            last_request: 0,
            figures,
            audit,
        }
    }

    /// These CPUs are online.
    pub fn use_online(&mut self, now_ns: u64, online: &CpuSet) {
        self.online = mask(online);
        self.tell_sizes(now_ns);
    }

    /// Which cores are big, where that has changed.
    fn tell_sizes(&mut self, now_ns: u64) {
        let sizes = match &self.sizes {
            Sizing::Fixed(cores) => Cores { big: cores.big.and(&self.online), little: cores.little.and(&self.online) },
            Sizing::Lanes(lanes, siblings) => {
                sizes_of_lanes(&lanes.and(&self.online), siblings, &self.policy.working())
            }
        };
        if self.told != Some(sizes) {
            self.told = Some(sizes);
            self.book(now_ns, Seen::Cores(sizes));
        }
    }

    /// A thread does something, or has done it.
    pub fn hear(&mut self, work: Work) -> Result<()> {
        let (Work::Working { tid, .. } | Work::Served { tid, .. } | Work::Line { tid, .. }) = work;
        let at_ns = match work {
            Work::Working { since_ns, .. } => since_ns,
            Work::Served { at_ns, .. } | Work::Line { at_ns, .. } => at_ns,
        };
        if let Some(allowed) = self.pool.join(tid)? {
            let allowed = mask(allowed);
            self.book(at_ns, Seen::Joined { thread: tid, allowed });
        }
        if !self.pool.has(tid) {
            self.figures.strangers += 1;
            return Ok(());
        }
        match work {
            Work::Working { tid, since_ns } => self.works(tid, since_ns),
            Work::Served { tid, since_ns, at_ns } => self.served(tid, since_ns, at_ns),
            Work::Line { tid, request, at_ns } => self.line(tid, request, at_ns),
        }
        Ok(())
    }

    fn works(&mut self, tid: u32, since_ns: u64) {
        if self.policy.request_of(tid).is_none_or(|(_, since)| since != since_ns) {
            self.last_request += 1;
            self.book(since_ns, Seen::Began { thread: tid, request: self.last_request, since: since_ns });
        }
    }

    /// A request may have begun and ended between two looks.
    fn served(&mut self, tid: u32, since_ns: Option<u64>, at_ns: u64) {
        let known = self.policy.request_of(tid).filter(|(_, since)| *since < at_ns);
        let Some(since_ns) = since_ns.or(known.map(|(_, since)| since)) else { return };
        if known.is_none() {
            self.works(tid, since_ns);
        }
        let request = known.map_or(self.last_request, |(request, _)| request);
        self.book(at_ns, Seen::Ended { request });
        self.figures.served(at_ns.saturating_sub(since_ns));
    }

    fn line(&mut self, tid: u32, request: Request, at_ns: u64) {
        let begun = self.policy.since(request);
        self.book(at_ns, Seen::Noted { thread: tid, request, at: at_ns });
        if let Some(since_ns) = begun {
            self.figures.served(at_ns.saturating_sub(since_ns));
        }
    }

    /// Threads have ended.
    pub fn ended(&mut self, now_ns: u64, tids: &[u32]) {
        tids.iter().for_each(|tid| self.book(now_ns, Seen::Left { thread: *tid }));
    }

    /// A look begins. On which CPUs a begin is to ring, if any is to.
    pub fn begins(&mut self, now_ns: u64, can_ring: bool) -> Option<CpuMask> {
        let wants_bell = self.pace.begins(now_ns, self.policy.threshold_ns(), can_ring);
        self.told.map(|sizes| sizes.little).filter(|_| wants_bell)
    }

    /// So many looks have taken so much CPU time.
    pub fn spent(&mut self, cpu_ns: u64, looks: u64) {
        self.pace.spent(cpu_ns, looks);
    }

    /// Moves whoever is to be moved now, and says when to look again.
    pub fn decide(&mut self, now_ns: u64) -> Next {
        self.tell_sizes(now_ns);
        self.actions.clear();
        self.policy.observe(now_ns, &Seen::Nothing, &mut self.actions);
        self.carry_out(now_ns);
        let little = self.told.map_or(CpuMask::EMPTY, |sizes| sizes.little);
        let is_quiet = self.policy.working().and(&little).is_empty();
        self.pace.next(now_ns, self.policy.threshold_ns(), self.policy.next_wakeup(), is_quiet)
    }

    fn book(&mut self, at_ns: u64, seen: Seen) {
        self.actions.clear();
        self.policy.book(at_ns, &seen, &mut self.actions);
        self.carry_out(at_ns);
    }

    fn carry_out(&mut self, now_ns: u64) {
        let mut todo = std::mem::take(&mut self.todo);
        todo.extend(self.actions.iter());
        todo.drain(..).for_each(|action| self.act(now_ns, action));
        self.todo = todo;
    }

    fn act(&mut self, now_ns: u64, action: Action) {
        let (Action::Map { thread, .. } | Action::Restore { thread }) = action;
        let since_ns = self.policy.request_of(thread).map(|(_, since)| since);
        let outcome = match action {
            Action::Map { thread, cpu } => self.pool.bind(thread, cpu as u32),
            Action::Restore { thread } => {
                self.pool.free(thread);
                Ok(())
            }
        };
        let seen = AtWork { since_ns, threshold_ns: self.policy.threshold_ns() };
        self.audit.record(now_ns, Decision { on: ("thread", thread), action, why: self.policy.why(), seen });
        match (outcome, action) {
            (Ok(()), _) | (Err(NotMoved::Refused), Action::Restore { .. }) => {}
            (Err(NotMoved::Ended), _) => {
                self.pool.forget(thread);
                self.undone(now_ns, Seen::Left { thread });
            }
            (Err(NotMoved::Refused), Action::Map { thread, cpu }) => {
                self.figures.refused += 1;
                self.undone(now_ns, Seen::Refused { thread, cpu });
            }
        }
    }

    /// Tells the policy that an action came to nothing; what it answers is for the next look.
    fn undone(&mut self, now_ns: u64, seen: Seen) {
        self.policy.book(now_ns, &seen, &mut Actions::default());
    }

    /// What has come of it so far.
    pub fn figures(&self) -> Figures {
        let mut figures = self.figures.clone();
        figures.threads = self.pool.workers();
        figures.threshold_ns = self.policy.threshold_ns();
        figures.lost = self.policy.lost();
        figures.moved = self.policy.moved();
        figures
    }

    /// The threads.
    pub fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }

    /// Gives all threads their CPUs back.
    pub fn end(self) -> Result<()> {
        self.pool.end()
    }
}

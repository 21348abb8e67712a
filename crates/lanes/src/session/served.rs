//! One service of a session: how it is tracked, where its requests are learned from, and on what terms its lanes are
//! lent.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use anyhow::Result;
use sidelane_policy::borrow::Lending;
use sidelane_policy::borrow::harm::HarmSource;

use super::options::SessionOptions;
use super::pinned::Pinned;
use crate::beside::Beside;
use crate::note::LaneNote;
use crate::terms::{FinalTerms, TermsKeeper};
use sidelane_diagnostics::note::Note;
use sidelane_requests::RequestNote;
use sidelane_requests::emitted::Emitters;
use sidelane_requests::{RequestSource, Requests, can_track, unseen};
use sidelane_rollback::guardian::Guardian;
use sidelane_rollback::threads::Whose;
use sidelane_tracker::counters::EventPair;
use sidelane_tracker::tracker::{Features, LaneMemory, Tracker};
use sidelane_tracker::tracking::{LaneUse, ServiceTracking};

/// A service that was found, and what the tracker has to be able to do for it.
pub(super) struct Guest {
    beside: Beside,
    emitters: Option<Emitters>,
    lane_use: LaneUse,
    requests: Wanted,
}

/// What the requests of a service are wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    /// Nothing.
    No,
    /// To see what batch costs them. It can be done without.
    ForTheirSlowdown,
    /// The policy lends by them.
    ForThePolicy,
}

impl Guest {
    pub(super) fn new(beside: Beside, options: &SessionOptions) -> Self {
        let lending = options.hold;
        let requests = match lending {
            Some(lending) if lending.policy.needs_requests() => Wanted::ForThePolicy,
            _ if options.max_slowdown.is_some() => Wanted::ForTheirSlowdown,
            _ => Wanted::No,
        };
        // The service's own word is better than what its sockets show.
        let emitters = (requests != Wanted::No).then(|| Emitters::find(&beside.service.pids)).flatten();
        let counting = lending.filter(|lending| lending.policy.needs_harm());
        let lane_use = LaneUse {
            lends_to_waited: lending.is_some_and(|lending| !lending.policy.spares_waited()),
            ..counting.map_or_else(LaneUse::default, |_| LaneUse::counting(EventPair::HARDWARE, &beside.lanes))
        };
        Self { beside, emitters, lane_use, requests }
    }

    fn is_seen_at_sockets(&self) -> bool {
        self.requests != Wanted::No && self.emitters.is_none()
    }

    fn emits_for_the_policy(&self) -> bool {
        self.requests == Wanted::ForThePolicy && self.emitters.is_some()
    }

    /// A tracker for all of them.
    pub(super) fn load_tracker(guests: &[Self], options: &SessionOptions, scheduler: bool) -> Result<Rc<Tracker>> {
        let any = |needs: &dyn Fn(&Self) -> bool| guests.iter().any(needs);
        let can_track = can_track();
        let features = Features {
            requests: any(&Self::is_seen_at_sockets) && can_track.is_ok(),
            threads: false,
            turns: any(&Self::emits_for_the_policy),
            counters: any(&|guest| matches!(guest.lane_use.counters, Some(Ok(_)))),
            interference: false,
            self_checking: options.gate.is_instrumented(),
            groups: any(&|guest| guest.beside.service.group.is_some()),
            scheduler,
            single_places: guests.iter().all(|guest| guest.beside.has_one_place_a_thread()),
            shares: false,
            only_watched: false,
            without_lanes: false,
            trace: None,
        };
        if any(&|guest| guest.is_seen_at_sockets() && guest.requests == Wanted::ForThePolicy) {
            can_track?;
        }
        Ok(Rc::new(Tracker::load(features)?))
    }

    /// Begins to track the service.
    pub(super) fn track(self, tracker: &Rc<Tracker>) -> Result<Served> {
        let (at_sockets, for_the_policy) = (self.is_seen_at_sockets(), self.requests == Wanted::ForThePolicy);
        let Self { beside, emitters, lane_use, .. } = self;
        let tracking = ServiceTracking::start(tracker, &beside.service, &beside.lanes, lane_use)?;
        let mut unseen = None;
        let requests = match emitters {
            Some(emitters) if !for_the_policy => Some(RequestSource::Emitted(emitters)),
            Some(mut emitters) => {
                let words = emitters.words(tracking.number(), &beside.lanes.request_lanes);
                tracker.memory().hear_from(tracking.number(), Box::new(words));
                Some(RequestSource::Emitted(emitters))
            }
            None if !at_sockets => None,
            None => {
                let track = || Requests::track(&tracking, &beside.target.to_string(), &beside.service.pids);
                match can_track().and_then(|()| track()) {
                    Ok(requests) => Some(RequestSource::Sockets(requests)),
                    Err(error) if for_the_policy => return Err(error.into()),
                    Err(error) => {
                        unseen =
                            Some(LaneNote::CostUnknown { service: beside.target.to_string(), why: error.to_string() });
                        None
                    }
                }
            }
        };
        Ok(Served { beside, tracking, requests, unseen, terms: None, pinned: None })
    }
}

/// A service that is tracked.
pub(super) struct Served {
    pub(super) beside: Beside,
    pub(super) tracking: ServiceTracking,
    /// Its requests, if the policy has to know them.
    pub(super) requests: Option<RequestSource>,
    /// Why what batch costs its requests cannot be known, if it was to be.
    unseen: Option<LaneNote>,
    /// On what terms its lanes are lent, if they are held at all.
    pub(super) terms: Option<TermsKeeper>,
    /// How it is confined, if it is to be.
    pinned: Option<Pinned>,
}

impl Served {
    /// Agrees the first terms.
    pub(super) fn agree(&mut self, lending: Lending, memory: Arc<LaneMemory>) {
        self.terms = Some(TermsKeeper::new(lending, &self.beside.lanes, memory));
    }

    /// Its processes whose threads will be confined.
    pub(super) fn to_be_pinned(&self) -> Vec<u32> {
        if self.beside.pin_service { self.tracking.processes() } else { Vec::new() }
    }

    /// Confines it to its request lanes, if it is to be.
    pub(super) fn pin(&mut self, guardian: &mut Guardian) -> Result<()> {
        if self.beside.pin_service {
            let group = self.beside.service.group.as_ref().map(|group| group.dir.clone());
            let whose = Whose { pids: self.tracking.processes(), group };
            self.pinned = Some(Pinned::begin(whose, self.beside.lanes.request_lanes.clone(), guardian)?);
        }
        Ok(())
    }

    /// It consists of these processes now: who was born to it is to get back, too, what it had. One that has come back is
    /// confined anew.
    pub(super) fn follow_pinned(&mut self, pids: &BTreeSet<u32>, guardian: &mut Guardian) -> Result<()> {
        match &mut self.pinned {
            Some(pinned) if pinned.shares(pids) => pinned.follow(pids, guardian),
            Some(_) if !pids.is_empty() => self.pin(guardian),
            _ => Ok(()),
        }
    }

    /// Confines it once more, if it is to be: it was moved.
    pub(super) fn pin_again(&mut self, guardian: &mut Guardian) -> Result<()> {
        self.pinned.as_mut().map_or(Ok(()), |pinned| pinned.confine_again(guardian))
    }

    /// What was lost or not told apart of its requests, and why harm was worked out from server times, if it was.
    pub(super) fn notes(&mut self) -> Vec<Note> {
        let window = self.requests.as_mut().map(RequestSource::take_window).unwrap_or_default();
        let events = window.counts.dropped;
        let lost = (events > 0).then_some(LaneNote::RequestEventsLost { events });
        let harm = self.terms.as_ref().map(TermsKeeper::present).and_then(|terms| harm_note(&self.tracking, &terms));
        // Where nobody looks now and then, some of a connection is not told apart from the rest: nobody lends by that.
        let lends_by_requests =
            self.terms.as_ref().is_some_and(|terms| terms.present().lending.policy.needs_requests());
        let source = self.requests.as_ref().filter(|_| window.count() > 0).map(RequestSource::name);
        let vague = window.notes().chain(source.and_then(|source| source.note())).filter(|_| lends_by_requests);
        let vague = vague.chain(self.elsewhere()).map(Note::from);
        lost.into_iter().chain(harm).chain(self.unseen.take()).map(Note::from).chain(vague).collect()
    }

    /// Where else the service may take requests, if its sockets are looked at.
    fn elsewhere(&self) -> Option<RequestNote> {
        let at_sockets = matches!(self.requests, Some(RequestSource::Sockets(_)));
        let pids = self.tracking.processes().into_iter().collect();
        at_sockets.then(|| unseen(&self.beside.target.to_string(), &pids, self.tracking.port())).flatten()
    }
}

fn harm_note(tracking: &ServiceTracking, terms: &FinalTerms) -> Option<LaneNote> {
    if terms.source != HarmSource::ServerTimes {
        return None;
    }
    Some(match tracking.counts()? {
        Err(lack) => LaneNote::HarmWithoutCounters { cpu: lack.cpu, error: lack.source.to_string() },
        Ok(()) => LaneNote::HarmCountedTooRarely,
    })
}

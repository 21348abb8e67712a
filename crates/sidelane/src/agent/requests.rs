//! What a service's requests take, where they can be seen.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use sidelane_kernel::histogram::Histogram;
use sidelane_kernel::requests::Room;
use sidelane_kernel::tracking::ServiceTracking;
use sidelane_policy::borrow::Objective;
use sidelane_policy::cpus::Served as ServerTimes;

use super::discover::FoundService;
use crate::lane::terms::TermsKeeper;
use crate::note::Note;
use crate::request::emitted::Emitters;
use crate::request::{Request, RequestSource, Requests, can_track, unseen};

/// Figures of some requests.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// From arrival to finish.
    pub latency: Histogram,
    /// Together, so that a mean can be told.
    pub latency_sum_ns: u64,
    /// From start to finish.
    pub server: ServerTimes,
    /// Where there is an objective: how many were in time, of how many since it is so.
    in_time: u64,
    judged: u64,
}

impl Figures {
    fn add(&mut self, request: &Request, objective: Option<Objective>) {
        self.latency.record(request.latency_ns());
        self.latency_sum_ns += request.latency_ns();
        self.server.count += 1;
        self.server.sum_ns += request.server_ns();
        self.judged += u64::from(objective.is_some());
        self.in_time += u64::from(objective.is_some_and(|objective| request.latency_ns() <= objective.limit_ns));
    }

    fn join(&mut self, other: &Self) {
        self.latency.add(&other.latency);
        self.latency_sum_ns += other.latency_sum_ns;
        self.server.count += other.server.count;
        self.server.sum_ns += other.server.sum_ns;
        self.judged += other.judged;
        self.in_time += other.in_time;
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.server.count
    }

    /// The share that was in time.
    pub fn attainment(&self) -> Option<f64> {
        (self.judged > 0).then(|| self.in_time as f64 / self.judged as f64)
    }
}

/// Where the lanes beside it are kept, the request words are the service's own.
fn emitted(mut emitters: Emitters, tracking: &ServiceTracking) -> RequestSource {
    if tracking.tracker().features().turns && !tracking.lanes().batch.is_empty() {
        let words = emitters.words(tracking.number(), &tracking.lanes().request_lanes);
        tracking.tracker().memory().hear_from(tracking.number(), Box::new(words));
    }
    RequestSource::Emitted(emitters)
}

const NOBODY_ASKS: &str = "no objective, no [metrics] and no metric asks for them";

/// Where the requests of these processes can be seen, or why they cannot. What the service emits is preferred.
fn find(tracking: &ServiceTracking, name: &str, pids: &BTreeSet<u32>) -> std::result::Result<RequestSource, String> {
    if let Some(emitters) = Emitters::find(pids) {
        return Ok(emitted(emitters, tracking));
    }
    match tracking.tracker().features().requests {
        true => Requests::track_in(Room::Half, tracking, name, pids)
            .map(RequestSource::Sockets)
            .map_err(|why| why.to_string()),
        false => Err(can_track().err().map_or_else(|| NOBODY_ASKS.to_owned(), |why| why.to_string())),
    }
}

/// Requests that it may take where they are not seen.
fn elsewhere(source: &RequestSource, tracking: &ServiceTracking, name: &str, pids: &BTreeSet<u32>) -> Option<Note> {
    let at_sockets = matches!(source, RequestSource::Sockets(_));
    at_sockets.then(|| unseen(name, pids, tracking.port())).flatten()
}

/// The requests of one service.
pub struct Measured {
    source: Option<RequestSource>,
    /// Why they cannot be seen, if so.
    why_not: Option<String>,
    /// Where else it may take requests, if its sockets are looked at.
    elsewhere: Option<Note>,
    objective: Option<Objective>,
    /// Somebody wants figures of them: not only what batch costs them.
    asked: bool,
    /// Since the last look.
    coming: Figures,
    recent: Figures,
    /// Since the agent began to look.
    pub all: Figures,
    /// Requests whose records were lost.
    pub lost: u64,
}

impl Measured {
    /// Begins to look, if the tracker was loaded for it.
    pub fn of(tracking: &ServiceTracking, found: &FoundService, asked: bool) -> Self {
        let (source, why_not, elsewhere, coming, recent, all) = Default::default();
        let objective = found.terms.slo;
        let mut measured = Self { source, why_not, elsewhere, objective, asked, coming, recent, all, lost: 0 };
        measured.look_again(tracking, &found.name, &found.service.pids);
        measured
    }

    /// The service consists of these processes now. Whether its requests could not be seen before, and can be now.
    pub fn look_again(&mut self, tracking: &ServiceTracking, name: &str, pids: &BTreeSet<u32>) -> bool {
        if let Some(source) = &mut self.source {
            // Ports that are not found today are tomorrow.
            let _ = source.look_again(pids);
            return false;
        }
        match find(tracking, name, pids) {
            Ok(source) => {
                self.elsewhere = elsewhere(&source, tracking, name, pids);
                (self.source, self.why_not) = (Some(source), None);
            }
            Err(why) => self.why_not = Some(why),
        }
        self.source.is_some()
    }

    /// Its objective is this from now on: requests of before were not judged by it. Figures are `asked` for, or not.
    pub fn agree_on(&mut self, objective: Option<Objective>, asked: bool) {
        self.asked = asked;
        if objective != self.objective {
            self.objective = objective;
            (self.all.judged, self.all.in_time) = (0, 0);
        }
    }

    /// Looks at them from now on, or only if figures are asked for.
    pub fn see(&self, wanted: bool) {
        let Some(source) = &self.source else { return };
        if wanted || self.asked { source.resume() } else { source.pause() }
    }

    /// Whether figures are kept of its requests: what it emits costs nobody anything.
    fn is_told(&self) -> bool {
        self.asked || matches!(self.source, Some(RequestSource::Emitted(_)))
    }

    /// Why nothing is told of its requests, if so.
    pub fn why_not(&self) -> Option<&str> {
        if self.is_told() { self.why_not.as_deref() } else { Some(NOBODY_ASKS) }
    }

    /// Why its requests cannot be seen, if so.
    pub fn unseen(&self) -> Option<&str> {
        self.why_not.as_deref()
    }

    /// Where else it may take requests, which are not seen.
    pub fn elsewhere(&self) -> Option<&Note> {
        self.elsewhere.as_ref()
    }

    /// Whether its objective was told.
    pub fn objective(&self) -> Option<Objective> {
        self.objective
    }

    /// What the last look fetched.
    pub fn recent(&self) -> &Figures {
        &self.recent
    }

    /// Fetches what has finished since the last call; `terms` learns from it, and `each` is told of it, too.
    pub fn fetch(&mut self, terms: Option<&mut TermsKeeper>, mut each: impl FnMut(&Request)) -> Result<()> {
        let told = self.is_told();
        let Some(source) = &mut self.source else { return Ok(()) };
        let (coming, objective) = (&mut self.coming, self.objective);
        let take = |request: &Request| {
            if told {
                coming.add(request, objective);
            }
            each(request);
        };
        let fetched = match terms {
            Some(terms) => terms.learn(source, take),
            None => source.drain(take),
        };
        fetched.context("cannot read a service's requests")?;
        self.lost += source.take_window().counts.dropped;
        Ok(())
    }

    /// A look begins: what was fetched since the last one is recent.
    pub fn look(&mut self) {
        self.recent = std::mem::take(&mut self.coming);
        self.all.join(&self.recent);
    }
}

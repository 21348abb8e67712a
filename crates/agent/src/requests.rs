//! What a service's requests take, where they can be seen.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use sidelane_host::ports::Listener;
use sidelane_policy::borrow::Objective;
use sidelane_policy::cpus::Served as ServerTimes;
use sidelane_tracker::histogram::Histogram;
use sidelane_tracker::requests::Room;
use sidelane_tracker::tracking::ServiceTracking;

use super::discover::FoundService;
use sidelane_lanes::terms::TermsKeeper;
use sidelane_requests::RequestNote;
use sidelane_requests::emitted::Emitters;
use sidelane_requests::search::{Answer, Known};
use sidelane_requests::{EmitFile, Request, RequestError, RequestSource, Requests, can_track};

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

const STILL_LOOKED_FOR: &str = "where they can be seen is still looked for";

/// Follows the requests at the place that was found, or says why they cannot be seen. What the service emits is preferred.
fn follow(
    tracking: &ServiceTracking,
    name: &str,
    emitting: Vec<(u32, EmitFile)>,
    listeners: BTreeSet<Listener>,
) -> std::result::Result<RequestSource, String> {
    if !emitting.is_empty() {
        return Ok(emitted(Emitters::of(emitting), tracking));
    }
    if !tracking.tracker().features().requests {
        return Err(can_track().err().map_or_else(|| NOBODY_ASKS.to_owned(), |why| why.to_string()));
    }
    if listeners.is_empty() {
        return Err(RequestError::NoPort { service: name.to_owned() }.to_string());
    }
    let requests = Requests::track_at(listeners, Room::Half, tracking);
    requests.map(RequestSource::Sockets).map_err(|why| why.to_string())
}

/// What an answer has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learned {
    /// Nothing that has to be told.
    Nothing,
    /// For the first time, that requests cannot be seen, at least not yet.
    Unseen,
    /// Requests can be seen from now on.
    Seen,
}

/// The requests of one service.
pub struct Measured {
    source: Option<RequestSource>,
    /// Why they cannot be seen, if so.
    why_not: Option<String>,
    /// It is not known yet whether they can be seen.
    is_looked_for: bool,
    /// Where else it may take requests, if its sockets are looked at.
    elsewhere: Option<RequestNote>,
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
    pub fn of(found: &FoundService, asked: bool) -> Self {
        let (source, elsewhere, coming, recent, all) = Default::default();
        let (objective, why_not) = (found.terms.slo, Some(STILL_LOOKED_FOR.to_owned()));
        Self { source, why_not, is_looked_for: true, elsewhere, objective, asked, coming, recent, all, lost: 0 }
    }

    /// What is known of where its requests can be seen.
    pub fn known(&self) -> Known {
        match &self.source {
            None => Known::Nothing,
            Some(RequestSource::Sockets(_)) => Known::Sockets,
            Some(RequestSource::Emitted(emitters)) => Known::Emitted(emitters.emitting()),
        }
    }

    /// Takes in where its requests can be seen.
    pub fn learn(&mut self, tracking: &ServiceTracking, name: &str, answer: Answer) -> Learned {
        let Answer { pids, listeners, emitting, elsewhere, .. } = answer;
        match &mut self.source {
            Some(RequestSource::Sockets(requests)) => {
                // A port that cannot be listened at now can be later.
                let _ = requests.listen(listeners);
                Learned::Nothing
            }
            Some(RequestSource::Emitted(emitters)) => {
                emitters.follow(&pids, emitting);
                Learned::Nothing
            }
            None => {
                let was_looked_for = std::mem::take(&mut self.is_looked_for);
                match follow(tracking, name, emitting, listeners) {
                    Ok(source) => {
                        self.elsewhere = elsewhere.filter(|_| matches!(source, RequestSource::Sockets(_)));
                        (self.source, self.why_not) = (Some(source), None);
                        Learned::Seen
                    }
                    Err(why) => {
                        self.why_not = Some(why);
                        if was_looked_for { Learned::Unseen } else { Learned::Nothing }
                    }
                }
            }
        }
    }

    /// Whether it is not known yet if they can be seen.
    pub fn is_looked_for(&self) -> bool {
        self.is_looked_for
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
    pub fn elsewhere(&self) -> Option<&RequestNote> {
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
        self.lost += source.take_lost();
        Ok(())
    }

    /// A look begins: what was fetched since the last one is recent.
    pub fn look(&mut self) {
        self.recent = std::mem::take(&mut self.coming);
        self.all.join(&self.recent);
    }
}

//! A tracked service, as `run` and the agent have it: where its requests are seen, and the batch lanes beside it.

use std::collections::BTreeSet;

use sidelane_host::ports::Listener;
use sidelane_requests::emitted::Emitters;
use sidelane_requests::search::{Answer, Known, Question};
use sidelane_requests::{EmitFile, Request, RequestError, RequestNote, RequestSource, Requests, can_track};
use sidelane_tracker::requests::Room;
use sidelane_tracker::tracking::ServiceTracking;

use super::kept_lanes::KeptLanes;

/// A service that is tracked.
pub struct TrackedService {
    /// The lanes beside it that are kept, if any are. They end before it is tracked no more.
    pub kept: Option<KeptLanes>,
    /// As the user or the file names it.
    pub name: String,
    /// The kernel program's side.
    pub tracking: ServiceTracking,
    /// Where its requests are seen.
    pub requests: ServiceRequests,
}

impl TrackedService {
    /// A service without lanes.
    pub fn new(name: String, tracking: ServiceTracking, requests: ServiceRequests) -> Self {
        Self { kept: None, name, tracking, requests }
    }

    /// Its processes now.
    pub fn processes(&self) -> BTreeSet<u32> {
        self.tracking.processes().into_iter().collect()
    }

    /// What has to be looked for to see its requests; `None` if no process of it lives. `service` is its number in the
    /// answer.
    pub fn question(&self, service: u64) -> Option<Question> {
        let (pids, known) = (self.processes(), self.requests.known());
        let (name, port) = (self.name.clone(), self.tracking.port());
        (!pids.is_empty()).then_some(Question { service, name, pids, port, known })
    }

    /// Follows its requests where they were found.
    pub fn take_answer(&mut self, answer: Answer) -> Sight {
        let Answer { pids, listeners, emitting, elsewhere, .. } = answer;
        let requests = &mut self.requests;
        match &mut requests.source {
            Some(RequestSource::Sockets(sockets)) => {
                // A port that cannot be listened at now can be later.
                let _ = sockets.listen(listeners);
                return Sight::Same;
            }
            Some(RequestSource::Emitted(emitters)) => {
                emitters.follow(&pids, emitting);
                return Sight::Same;
            }
            None => {}
        }
        let was_looked_for = std::mem::take(&mut requests.is_looked_for);
        match follow(&self.tracking, &self.name, emitting, listeners) {
            Ok(source) => {
                requests.elsewhere = elsewhere.filter(|_| matches!(source, RequestSource::Sockets(_)));
                (requests.source, requests.why_not) = (Some(source), None);
                Sight::Seen
            }
            Err(why) => {
                requests.why_not = Some(why);
                if was_looked_for { Sight::Unseen } else { Sight::Same }
            }
        }
    }

    /// Fetches requests that have finished since the last call. The terms of its lanes learn from them.
    pub fn fetch_requests(&mut self, each: impl FnMut(&Request)) -> Result<(), RequestError> {
        match (&mut self.kept, &mut self.requests.source) {
            (_, None) => Ok(()),
            (Some(kept), Some(source)) => kept.terms.learn(source, each),
            (None, Some(source)) => source.drain(each),
        }
    }
}

/// How an answer has changed what is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// As before.
    Same,
    /// The first answer: requests are not seen, at least not yet.
    Unseen,
    /// Requests are seen from now on.
    Seen,
}

/// Where the requests of a service are seen.
#[derive(Default)]
pub struct ServiceRequests {
    /// The source, if they are seen.
    pub source: Option<RequestSource>,
    /// Why they are not seen, if they were looked for.
    pub why_not: Option<String>,
    /// No answer has come yet.
    pub is_looked_for: bool,
    /// Where else the service may take requests, if its sockets are looked at.
    pub elsewhere: Option<RequestNote>,
}

impl ServiceRequests {
    /// Requests that are looked for; [`TrackedService::take_answer`] says where they are.
    pub fn looked_for() -> Self {
        Self { why_not: Some(STILL_LOOKED_FOR.to_owned()), is_looked_for: true, ..Self::default() }
    }

    /// Whether the service emits them.
    pub fn are_emitted(&self) -> bool {
        matches!(self.source, Some(RequestSource::Emitted(_)))
    }

    /// Looks at them, or looks away where looking costs the service anything.
    pub fn look(&self, wanted: bool) {
        let Some(source) = &self.source else { return };
        if wanted { source.resume() } else { source.pause() }
    }

    fn known(&self) -> Known {
        match &self.source {
            None => Known::Nothing,
            Some(RequestSource::Sockets(_)) => Known::Sockets,
            Some(RequestSource::Emitted(emitters)) => Known::Emitted(emitters.emitting()),
        }
    }
}

const STILL_LOOKED_FOR: &str = "where they can be seen is still looked for";

/// Why requests are not looked at that only batch's cost is wanted of.
pub const NOBODY_ASKS: &str = "no objective, no [metrics] and no metric asks for them";

/// Follows the requests at the place that was found, or says why they cannot be seen. What the service emits is preferred.
fn follow(
    tracking: &ServiceTracking,
    name: &str,
    emitting: Vec<(u32, EmitFile)>,
    listeners: BTreeSet<Listener>,
) -> Result<RequestSource, String> {
    if !emitting.is_empty() {
        return Ok(emitted(Emitters::of(emitting), tracking));
    }
    if !tracking.tracker().purpose().has_requests() {
        return Err(can_track().err().map_or_else(|| NOBODY_ASKS.to_owned(), |why| why.to_string()));
    }
    if listeners.is_empty() {
        return Err(RequestError::NoPort { service: name.to_owned() }.to_string());
    }
    let requests = Requests::track_at(listeners, Room::Half, tracking);
    requests.map(RequestSource::Sockets).map_err(|why| why.to_string())
}

/// What the service emits. If lanes are lent by it, the request words are the service's own.
pub fn emitted(mut emitters: Emitters, tracking: &ServiceTracking) -> RequestSource {
    if tracking.tracker().purpose().lends(|lent| lent.turns) && !tracking.lanes().batch.is_empty() {
        let words = emitters.words(tracking.number(), &tracking.lanes().request_lanes);
        tracking.tracker().memory().refresh_from(tracking.number(), Box::new(words));
    }
    RequestSource::Emitted(emitters)
}

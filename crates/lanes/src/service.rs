//! A tracked service, as `run` and the agent have it: the source of its requests, and the batch lanes beside it.

use std::collections::BTreeSet;

use sidelane_host::ports::Listener;
use sidelane_requests::emitted::Emitters;
use sidelane_requests::search::{KnownSource, SearchAnswer, SearchQuery};
use sidelane_requests::{EmitFile, Request, RequestError, RequestNote, RequestSource, Requests, can_track};
use sidelane_tracker::requests::RingCapacity;
use sidelane_tracker::tracking::ServiceTracking;

use super::kept_lanes::KeptLanes;

pub struct TrackedService {
    /// Batch lanes beside the service with their keepers, if there are any. They are released before the service's
    /// tracking ends.
    pub kept: Option<KeptLanes>,
    /// Name of the service, as the user or the file gives it.
    pub name: String,
    /// Tracking of the service by the kernel program.
    pub tracking: ServiceTracking,
    /// Source of the service's requests.
    pub requests: ServiceRequests,
}

impl TrackedService {
    /// Makes a tracked service without lanes.
    pub fn new(name: String, tracking: ServiceTracking, requests: ServiceRequests) -> Self {
        Self { kept: None, name, tracking, requests }
    }

    /// Returns the present processes of the service.
    pub fn processes(&self) -> BTreeSet<u32> {
        self.tracking.processes().into_iter().collect()
    }

    /// Returns the query for the search of the service's requests; `None` if none of its processes lives. The answer
    /// contains `service_number`.
    pub fn search_question(&self, service_number: u64) -> Option<SearchQuery> {
        let (pids, known) = (self.processes(), self.requests.known_source());
        let (name, port) = (self.name.clone(), self.tracking.port());
        (!pids.is_empty()).then_some(SearchQuery { service: service_number, name, pids, port, known })
    }

    /// Observes the service's requests at the place where the search has found them.
    pub fn apply_search_answer(&mut self, answer: SearchAnswer) -> RequestVisibility {
        let SearchAnswer { pids, listeners, emitting, elsewhere, .. } = answer;
        let requests = &mut self.requests;
        match &mut requests.source {
            Some(RequestSource::Sockets(sockets)) => {
                // An error is ignored: a socket that cannot be observed now may be at the next search.
                let _ = sockets.add_listeners(listeners);
                return RequestVisibility::Same;
            }
            Some(RequestSource::Emitted(emitters)) => {
                emitters.set_processes(&pids, emitting);
                return RequestVisibility::Same;
            }
            None => {}
        }
        let was_looked_for = std::mem::take(&mut requests.is_search_running);
        match open_request_source(&self.tracking, &self.name, emitting, listeners) {
            Ok(source) => {
                requests.elsewhere = elsewhere.filter(|_| matches!(source, RequestSource::Sockets(_)));
                (requests.source, requests.unseen_reason) = (Some(source), None);
                RequestVisibility::Seen
            }
            Err(why) => {
                requests.unseen_reason = Some(why);
                if was_looked_for { RequestVisibility::Unseen } else { RequestVisibility::Same }
            }
        }
    }

    /// Fetches requests that have finished since the last call, and passes each to `on_request`. The lending limits of
    /// the service's lanes learn from them.
    pub fn fetch_requests(&mut self, on_request: impl FnMut(&Request)) -> Result<(), RequestError> {
        match (&mut self.kept, &mut self.requests.source) {
            (_, None) => Ok(()),
            (Some(kept), Some(source)) => kept.limits.learn_from_source(source, on_request),
            (None, Some(source)) => source.drain(on_request),
        }
    }
}

/// Effect of one answer of the search for a service's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestVisibility {
    /// No change by the answer.
    Same,
    /// First answer: requests are not seen, at least not yet.
    Unseen,
    /// Requests are seen after this answer.
    Seen,
}

/// Source of the requests of a service.
#[derive(Default)]
pub struct ServiceRequests {
    /// Source of the requests, if they are seen.
    pub source: Option<RequestSource>,
    /// Reason why requests are not seen; `None` if requests are seen, or were not searched for.
    pub unseen_reason: Option<String>,
    /// Whether the search for requests still goes on.
    pub is_search_running: bool,
    /// Another place where the service may take requests, if its sockets are observed.
    pub elsewhere: Option<RequestNote>,
}

impl ServiceRequests {
    /// Makes a source that is still looked for; [`TrackedService::apply_search_answer`] sets it.
    pub fn still_searching() -> Self {
        Self { unseen_reason: Some(STILL_LOOKED_FOR.to_owned()), is_search_running: true, ..Self::default() }
    }

    /// Returns whether the service emits its requests.
    pub fn are_emitted(&self) -> bool {
        matches!(self.source, Some(RequestSource::Emitted(_)))
    }

    /// Starts or stops the observation of requests at sockets, which costs the service time. Has no effect on requests
    /// that the service emits.
    pub fn set_observing(&self, is_wanted: bool) {
        let Some(source) = &self.source else { return };
        if is_wanted { source.resume() } else { source.pause() }
    }

    fn known_source(&self) -> KnownSource {
        match &self.source {
            None => KnownSource::Nothing,
            Some(RequestSource::Sockets(_)) => KnownSource::Sockets,
            Some(RequestSource::Emitted(emitters)) => KnownSource::Emitted(emitters.emitting_pids()),
        }
    }
}

const STILL_LOOKED_FOR: &str = "its requests are not found yet";

/// Text for a service whose requests are not observed, because no setting of the agent needs them.
pub const NOBODY_ASKS: &str = "no setting needs them (slo, [metrics], or latency as metric)";

/// Observes the requests at the place that was found, or returns why they cannot be seen. Requests that the service
/// emits are preferred.
fn open_request_source(
    tracking: &ServiceTracking,
    name: &str,
    emitting: Vec<(u32, EmitFile)>,
    listeners: BTreeSet<Listener>,
) -> Result<RequestSource, String> {
    if !emitting.is_empty() {
        return Ok(emitted_request_source(Emitters::from_files(emitting), tracking));
    }
    if !tracking.tracker().purpose().has_requests() {
        return Err(can_track().err().map_or_else(|| NOBODY_ASKS.to_owned(), |why| why.to_string()));
    }
    if listeners.is_empty() {
        return Err(RequestError::NoPort { service: name.to_owned() }.to_string());
    }
    let requests = Requests::track_listeners(listeners, RingCapacity::Half, tracking);
    requests.map(RequestSource::Sockets).map_err(|why| why.to_string())
}

/// Returns the source of requests that the service emits. If lanes are lent by these requests, the service writes the
/// request words itself.
pub fn emitted_request_source(mut emitters: Emitters, tracking: &ServiceTracking) -> RequestSource {
    if tracking.tracker().purpose().lends_with(|lent| lent.turns) && !tracking.lanes().batch.is_empty() {
        let words = emitters.create_word_writer(tracking.number(), &tracking.lanes().request_lanes);
        tracking.tracker().memory().set_request_writer(tracking.number(), Box::new(words));
    }
    RequestSource::Emitted(emitters)
}

//! Periodic search for the places where requests of services can be observed, at a bounded cost.
//!
//! A search reads each open file of each process of a service. So it looks for sockets only if the listening sockets in
//! the service's network namespaces have changed, or in new processes. After a search of a service, a pause follows
//! that lasts [`PAUSE_TIMES`] as long as the search.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use sidelane_host::ports::{Listener, ListeningSockets, Sockets};

use super::emit_file::EmitFile;
use super::tracked::unobserved_socket_note;
use crate::note::RequestNote;

/// Ratio of the pause after the search of a service to the duration of that search. It limits the cost to 5 % of a CPU.
const PAUSE_TIMES: u32 = 20;
/// Interval of complete searches of all processes: a process may receive a listening socket from another process.
const ALL_AGAIN: Duration = Duration::from_secs(60);

/// Knowledge about the requests of a service before the search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KnownSource {
    /// No source of requests is known: the search looks for all kinds.
    Nothing,
    /// Requests are observed at sockets: the search looks for further listening sockets.
    Sockets,
    /// These processes emit requests: the search looks for further processes that emit.
    Emitted(BTreeSet<u32>),
}

/// Query for the places where requests of one service can be observed.
#[derive(Clone, Debug)]
pub struct SearchQuery {
    /// Number of the service, repeated in the answer.
    pub service: u64,
    /// Name of the service, for notes.
    pub name: String,
    /// Process ids of the service.
    pub pids: BTreeSet<u32>,
    /// TCP port to which the search is limited, if any.
    pub port: Option<u16>,
    /// Knowledge from earlier searches about the service's source of requests.
    pub known: KnownSource,
}

/// Result of the search for the requests of one service.
pub struct SearchAnswer {
    /// Number of the service.
    pub service: u64,
    /// Process ids of the service, copied from the query.
    pub pids: BTreeSet<u32>,
    /// TCP sockets at which the service listens. Sockets that were known before may be missing.
    pub listeners: BTreeSet<Listener>,
    /// Process id and file of each process that emits requests and was not known.
    pub emitting: Vec<(u32, EmitFile)>,
    /// Warning about other places where the service may take requests; only if it is observed at sockets.
    pub elsewhere: Option<RequestNote>,
}

/// State of the last search of a service.
struct SearchedService {
    pids: BTreeSet<u32>,
    /// Listening sockets in the service's network namespaces.
    sockets: Sockets,
    /// Whether the search found a source of requests.
    has_found: bool,
    all_again: Instant,
    again: Instant,
}

/// Searcher for requests of services, with the state of the last searches.
#[derive(Default)]
pub struct Search {
    looked: BTreeMap<u64, SearchedService>,
}

impl Search {
    /// Answers the queries that are due, and passes each answer to `report` at once. Forgets services without a query.
    pub fn run_due_searches(&mut self, queries: Vec<SearchQuery>, mut report: impl FnMut(SearchAnswer)) {
        let asked: BTreeSet<u64> = queries.iter().map(|question| question.service).collect();
        self.looked.retain(|service, _| asked.contains(service));
        let now = Instant::now();
        let is_due =
            |question: &SearchQuery| self.looked.get(&question.service).is_none_or(|looked| now >= looked.again);
        let due: Vec<SearchQuery> = queries.into_iter().filter(is_due).collect();
        // Read each network namespace only once for all services and processes in it.
        let listening = ListeningSockets::read_for_processes(due.iter().flat_map(|question| &question.pids).copied());
        due.into_iter().for_each(|question| report(self.search_service(question, &listening)));
    }

    fn search_service(&mut self, query: SearchQuery, listening: &ListeningSockets) -> SearchAnswer {
        let began = Instant::now();
        let SearchQuery { service, name, pids, port, known } = query;
        let sockets = listening.sockets_in_namespaces_of(&pids);
        let last = self.looked.get(&service);
        let is_same = last.is_some_and(|last| {
            // Search again if the last result could not be used by the caller.
            let is_used = known != KnownSource::Nothing || !last.has_found;
            is_used && began < last.all_again && last.sockets == sockets
        });
        let is_known = |pid: &u32| is_same && last.is_some_and(|last| last.pids.contains(pid));
        let (mut listeners, mut elsewhere) = (BTreeSet::new(), None);
        let emitting = find_emitting(&pids, &known);
        if !matches!(known, KnownSource::Emitted(_)) && emitting.is_empty() {
            let unknown = pids.iter().filter(|pid| !is_known(pid));
            listeners = unknown.flat_map(|pid| listening.listeners_of_process(*pid, port)).collect();
        }
        if known == KnownSource::Nothing && !listeners.is_empty() {
            elsewhere = unobserved_socket_note(&name, &pids, port);
        }
        let all_again = match last {
            Some(last) if began < last.all_again => last.all_again,
            _ => began + ALL_AGAIN,
        };
        let again = Instant::now() + began.elapsed() * PAUSE_TIMES;
        let has_found = !listeners.is_empty() || !emitting.is_empty();
        self.looked.insert(service, SearchedService { pids: pids.clone(), sockets, has_found, all_again, again });
        SearchAnswer { service, pids, listeners, emitting, elsewhere }
    }
}

/// Finds processes that emit requests. Emitted requests are preferred to requests at sockets.
fn find_emitting(pids: &BTreeSet<u32>, known: &KnownSource) -> Vec<(u32, EmitFile)> {
    let none = BTreeSet::new();
    let emits = match known {
        KnownSource::Sockets => return Vec::new(),
        KnownSource::Nothing => &none,
        KnownSource::Emitted(emits) => emits,
    };
    pids.difference(emits).filter_map(|pid| Some((*pid, EmitFile::find(*pid)?))).collect()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn query_for_this_process(known: KnownSource) -> SearchQuery {
        let pids = BTreeSet::from([std::process::id()]);
        SearchQuery { service: 1, name: "me".to_owned(), pids, port: None, known }
    }

    /// Searches for this process's listeners at once, without the pause after the last search.
    fn search_this_process(search: &mut Search, known: KnownSource) -> Option<BTreeSet<Listener>> {
        search.looked.values_mut().for_each(|looked| looked.again = Instant::now());
        let mut found = None;
        search.run_due_searches(vec![query_for_this_process(known)], |answer| found = Some(answer.listeners));
        found
    }

    #[test]
    fn socket_that_listens_later_is_found_by_a_new_search() {
        let (mut search, first) = (Search::default(), TcpListener::bind("127.0.0.1:0").unwrap());
        let has = |found: &BTreeSet<Listener>, socket: &TcpListener| {
            found.iter().any(|listener| listener.port == socket.local_addr().unwrap().port())
        };
        assert!(has(&search_this_process(&mut search, KnownSource::Nothing).unwrap(), &first));
        let second = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(has(&search_this_process(&mut search, KnownSource::Sockets).unwrap(), &second));
    }

    #[test]
    fn pause_after_a_search_delays_the_next_search() {
        let mut search = Search::default();
        let mut answers = 0;
        let began = Instant::now();
        search.run_due_searches(vec![query_for_this_process(KnownSource::Sockets)], |_| answers += 1);
        let looked = &search.looked[&1];
        assert!(looked.again > began);
        search.looked.get_mut(&1).unwrap().again = Instant::now() + ALL_AGAIN;
        search.run_due_searches(vec![query_for_this_process(KnownSource::Sockets)], |_| answers += 1);
        assert_eq!(answers, 1);
        search.run_due_searches(vec![], |_| unreachable!("no thread asks"));
        assert!(search.looked.is_empty(), "a service that is gone is forgotten");
    }
}

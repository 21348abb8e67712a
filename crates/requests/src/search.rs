//! Where requests of services can be seen: looked for again and again, at a bounded cost.
//!
//! To find it takes a look at each open file of each process of a service. So sockets are looked for only if others listen
//! than before in the service's network namespaces, or in processes that are new; and a look is followed by a pause of
//! [`PAUSE_TIMES`] its own length.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use sidelane_host::ports::{Listener, Listening, Sockets};

use super::emit_file::EmitFile;
use super::tracked::unseen;
use crate::note::RequestNote;

/// Pause after a look at a service, in lengths of that look: at most 5 % of a CPU.
const PAUSE_TIMES: u32 = 20;
/// Interval at which all processes are searched: a socket may be passed on to any of them.
const ALL_AGAIN: Duration = Duration::from_secs(60);

/// What is known of a service already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    /// Nothing: all that there is is looked for.
    Nothing,
    /// Its requests are seen at sockets: others may listen.
    Sockets,
    /// These processes emit them: others may, too.
    Emitted(BTreeSet<u32>),
}

/// Where requests of a service are to be looked for.
#[derive(Clone, Debug)]
pub struct Question {
    /// The service's number, for the answer.
    pub service: u64,
    /// Its name, for notes.
    pub name: String,
    /// Its processes.
    pub pids: BTreeSet<u32>,
    /// Only at this port.
    pub port: Option<u16>,
    /// What is known.
    pub known: Known,
}

/// What was found.
pub struct Answer {
    /// The service's number.
    pub service: u64,
    /// Its processes, as they were asked about.
    pub pids: BTreeSet<u32>,
    /// TCP sockets at which it listens; those that are known may be left out.
    pub listeners: BTreeSet<Listener>,
    /// The files of processes that emit, and were not known.
    pub emitting: Vec<(u32, EmitFile)>,
    /// Where else it may take requests, if it is seen at sockets.
    pub elsewhere: Option<RequestNote>,
}

/// What was looked at of a service.
struct Looked {
    pids: BTreeSet<u32>,
    /// What listened in its network namespaces.
    sockets: Sockets,
    /// Something was found.
    has_found: bool,
    all_again: Instant,
    again: Instant,
}

/// Looks for requests, and remembers what it has looked at.
#[derive(Default)]
pub struct Search {
    looked: BTreeMap<u64, Looked>,
}

impl Search {
    /// Answers those questions that are due, each as soon as it is answered. Services that are not asked about are
    /// forgotten.
    pub fn answer(&mut self, questions: Vec<Question>, mut tell: impl FnMut(Answer)) {
        let asked: BTreeSet<u64> = questions.iter().map(|question| question.service).collect();
        self.looked.retain(|service, _| asked.contains(service));
        let now = Instant::now();
        let is_due = |question: &Question| self.looked.get(&question.service).is_none_or(|looked| now >= looked.again);
        let due: Vec<Question> = questions.into_iter().filter(is_due).collect();
        // Each network namespace is read once, however many services and processes are in it.
        let listening = Listening::of(due.iter().flat_map(|question| &question.pids).copied());
        due.into_iter().for_each(|question| tell(self.look(question, &listening)));
    }

    fn look(&mut self, question: Question, listening: &Listening) -> Answer {
        let began = Instant::now();
        let Question { service, name, pids, port, known } = question;
        let sockets = listening.beside(&pids);
        let last = self.looked.get(&service);
        let is_same = last.is_some_and(|last| {
            // What was found, and could not be used, is found again.
            let is_used = known != Known::Nothing || !last.has_found;
            is_used && began < last.all_again && last.sockets == sockets
        });
        let is_known = |pid: &u32| is_same && last.is_some_and(|last| last.pids.contains(pid));
        let (mut listeners, mut elsewhere) = (BTreeSet::new(), None);
        let emitting = find_emitting(&pids, &known);
        if !matches!(known, Known::Emitted(_)) && emitting.is_empty() {
            let unknown = pids.iter().filter(|pid| !is_known(pid));
            listeners = unknown.flat_map(|pid| listening.of_process(*pid, port)).collect();
        }
        if known == Known::Nothing && !listeners.is_empty() {
            elsewhere = unseen(&name, &pids, port);
        }
        let all_again = match last {
            Some(last) if began < last.all_again => last.all_again,
            _ => began + ALL_AGAIN,
        };
        let again = Instant::now() + began.elapsed() * PAUSE_TIMES;
        let has_found = !listeners.is_empty() || !emitting.is_empty();
        self.looked.insert(service, Looked { pids: pids.clone(), sockets, has_found, all_again, again });
        Answer { service, pids, listeners, emitting, elsewhere }
    }
}

/// Looks for processes that emit: the service's own word is better than what its sockets show.
fn find_emitting(pids: &BTreeSet<u32>, known: &Known) -> Vec<(u32, EmitFile)> {
    let nobody = BTreeSet::new();
    let emits = match known {
        Known::Sockets => return Vec::new(),
        Known::Nothing => &nobody,
        Known::Emitted(emits) => emits,
    };
    pids.difference(emits).filter_map(|pid| Some((*pid, EmitFile::find(*pid)?))).collect()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn about_me(known: Known) -> Question {
        let pids = BTreeSet::from([std::process::id()]);
        Question { service: 1, name: "me".to_owned(), pids, port: None, known }
    }

    /// Asks, however soon after the last time, and returns the listeners of the answer.
    fn ask(search: &mut Search, known: Known) -> Option<BTreeSet<Listener>> {
        search.looked.values_mut().for_each(|looked| looked.again = Instant::now());
        let mut found = None;
        search.answer(vec![about_me(known)], |answer| found = Some(answer.listeners));
        found
    }

    #[test]
    fn a_socket_that_listens_later_is_found() {
        let (mut search, first) = (Search::default(), TcpListener::bind("127.0.0.1:0").unwrap());
        let has = |found: &BTreeSet<Listener>, socket: &TcpListener| {
            found.iter().any(|listener| listener.port == socket.local_addr().unwrap().port())
        };
        assert!(has(&ask(&mut search, Known::Nothing).unwrap(), &first));
        let second = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(has(&ask(&mut search, Known::Sockets).unwrap(), &second));
    }

    #[test]
    fn a_look_is_followed_by_a_pause_of_many_times_its_length() {
        let mut search = Search::default();
        let mut answers = 0;
        let began = Instant::now();
        search.answer(vec![about_me(Known::Sockets)], |_| answers += 1);
        let looked = &search.looked[&1];
        assert!(looked.again > began);
        search.looked.get_mut(&1).unwrap().again = Instant::now() + ALL_AGAIN;
        search.answer(vec![about_me(Known::Sockets)], |_| answers += 1);
        assert_eq!(answers, 1);
        search.answer(vec![], |_| unreachable!("nobody asks"));
        assert!(search.looked.is_empty(), "a service that is gone is forgotten");
    }
}

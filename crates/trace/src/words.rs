//! Causes, spans and threads in words.

use std::collections::BTreeMap;

use sidelane_report::trace::CauseWords;
use sidelane_timeline::cause::Cause;
use sidelane_timeline::diagnoser::Known;
use sidelane_timeline::record::Task;
use sidelane_timeline::timeline::Span;
use sidelane_timeline::wait::Peer;
use sidelane_tracker::requests::own_number;

use super::objects::Objects;

/// The key of a cause in results: `run-queue`.
pub fn key(cause: Cause) -> String {
    let value = serde_json::to_value(cause).expect("a cause is a word");
    value.as_str().expect("a cause is a word").to_owned()
}

/// What a cause means.
fn meaning(cause: Cause) -> &'static str {
    match cause {
        Cause::OnCpu => "a thread of the service worked on the request",
        Cause::NetworkReceive => "from its first segment until its data was at the socket",
        Cause::ServiceQueue => "all threads that could take it worked on other requests",
        Cause::RunQueue => "its thread could run, and another thread had the CPU",
        Cause::Tracer => "its thread could run, and a thread of the tracer had the CPU",
        Cause::Migration => "its thread moved to another CPU and had not started there",
        Cause::IdleExit => "the CPU came out of an idle state",
        Cause::Interrupt => "an interrupt or softirq had the CPU",
        Cause::Stolen => "the hypervisor had taken the CPU from this machine",
        Cause::Sibling => "a thread worked on it while batch ran on a lane of the same core",
        Cause::PageFault => "the kernel filled in memory that had not been touched",
        Cause::Collection => "the runtime stopped all threads to collect garbage",
        Cause::Safepoint => "the runtime stopped all threads, not for a collection",
        Cause::Lock => "another thread held a lock that it needed",
        Cause::HandOver => "its thread slept until another one woke it",
        Cause::Timer => "its thread slept until a time that the program had set",
        Cause::Disk => "its thread waited for a disk",
        Cause::Reclaim => "the kernel freed memory before it gave any",
        Cause::Throttled => "its group had used up its quota of CPU time",
        Cause::Frozen => "its group was frozen, or its process stopped",
        Cause::SendBuffer => "the response waited in the socket, whose state does not tell why",
        Cause::Nagle => "Nagle's algorithm held the response back until the client acknowledged what came before",
        Cause::SlowReader => "the client's receive window was full",
        Cause::CongestionWindow => "as much was in flight as the congestion window allows",
        Cause::Pacing => "the response waited in a queueing discipline, or TCP sent it at a set rate",
        Cause::SendSpace => "the send buffer had no room for the rest of the response",
        Cause::Retransmission => "a segment was lost and sent again",
        Cause::Downstream => "it waited for the answer of another service",
        Cause::Connect => "it waited for a connection to another service",
        Cause::NoAnswer => "another service did not answer within the time that the program allows",
        Cause::Full => "another process did not read from a pipe or socket that was full",
        Cause::Inside => "its event loop had no work, and the request waited for something inside the program",
        Cause::NotExplained => "no record tells where this time went",
    }
}

/// A cause as the page's legend has it.
pub fn words(cause: Cause) -> CauseWords {
    CauseWords { cause: key(cause), name: cause.words().to_owned(), meaning: meaning(cause).to_owned() }
}

/// Names of threads, by their numbers, and what they wait for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    threads: BTreeMap<u32, String>,
    objects: Objects,
}

impl Names {
    /// Adds one, or gives it its new name.
    pub fn put(&mut self, tid: u32, name: impl Into<String>) {
        self.threads.insert(tid, name.into());
    }

    /// The name of a thread.
    pub fn name(&self, tid: u32) -> Option<&str> {
        self.threads.get(&tid).map(String::as_str)
    }

    /// What a thread is called, or a process: as its first thread.
    pub fn of_task(&self, task: Task) -> Option<String> {
        let tid = if task.tid == 0 { task.pid } else { task.tid };
        self.name(tid).map(str::to_owned)
    }

    /// A thread in words: "redis-server (1234)".
    pub fn words(&self, tid: u32) -> String {
        self.name(tid).map_or_else(|| format!("thread {tid}"), |name| format!("{name} ({tid})"))
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = (u32, &str)> {
        self.threads.iter().map(|(tid, name)| (*tid, name.as_str()))
    }

    /// Adds what was found of the objects of waits.
    pub fn found(&mut self, objects: Objects) {
        self.objects = objects;
    }

    /// What was found of the objects of waits.
    pub fn objects(&self) -> &Objects {
        &self.objects
    }
}

impl Known for Names {
    fn name(&self, task: Task) -> Option<String> {
        self.of_task(task)
    }

    fn process_at(&self, peer: Peer) -> Option<u32> {
        self.objects.process_at(peer)
    }

    fn path_at(&self, peer: Peer) -> Option<String> {
        self.objects.path_at(peer).map(str::to_owned)
    }

    fn reader_of(&self, pipe: u32) -> Option<u32> {
        self.objects.reader_of(pipe)
    }

    fn path_of(&self, inode: u32) -> Option<String> {
        self.objects.path_of(inode).map(str::to_owned)
    }
}

/// What a span says beside its cause: which thread, where, and whom it waited for.
pub fn of_span(span: &Span, names: &Names) -> String {
    let thread = (span.tid != 0).then(|| names.words(span.tid));
    let lane = span.cpu.map(|cpu| format!("on lane {cpu}"));
    let by = (span.by_tid != 0).then(|| format!("{} {}", role_of_by(span.cause), names.words(span.by_tid)));
    let behind = (span.behind != 0).then(|| format!("for request {}", own_number(span.behind)));
    [thread, lane, by, behind].into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// What the other thread of a span did.
fn role_of_by(cause: Cause) -> &'static str {
    match cause {
        Cause::RunQueue | Cause::Tracer => "behind",
        Cause::Lock => "held by",
        Cause::Sibling => "beside",
        Cause::ServiceQueue => "after",
        _ => "woken by",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_as_style_sheets_have_them() {
        assert_eq!((key(Cause::RunQueue), key(Cause::OnCpu)), ("run-queue".to_owned(), "on-cpu".to_owned()));
    }

    #[test]
    fn a_span_says_whom_it_waited_for() {
        let mut names = Names::default();
        names.put(7, "server");
        names.put(9, "stress-ng");
        let span = |cause, by_tid| Span {
            from_ns: 0,
            to_ns: 1,
            cause,
            tid: 7,
            cpu: Some(1),
            by_tid,
            by_pid: by_tid,
            detail: 0,
            behind: 0,
            wait: None,
        };
        assert_eq!(of_span(&span(Cause::RunQueue, 9), &names), "server (7) on lane 1 behind stress-ng (9)");
        assert_eq!(of_span(&span(Cause::Lock, 8), &names), "server (7) on lane 1 held by thread 8");
        assert_eq!(of_span(&span(Cause::OnCpu, 0), &names), "server (7) on lane 1");
        assert_eq!(of_span(&Span { tid: 0, cpu: None, ..span(Cause::NetworkReceive, 0) }, &names), "");
    }
}

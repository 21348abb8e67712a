//! Descriptions of spans and threads as text.

use std::collections::BTreeMap;

use sidelane_timeline::cause::Cause;
use sidelane_timeline::diagnoser::NameSource;
use sidelane_timeline::record::Task;
use sidelane_timeline::timeline::Span;
use sidelane_timeline::wait::Peer;
use sidelane_tracker::requests::number_within_service;

use super::objects::Objects;

/// Names of threads, by thread id, and of the objects for which they waited.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    threads: BTreeMap<u32, String>,
    objects: Objects,
}

impl Names {
    /// Sets the name of a thread.
    pub fn set_name(&mut self, tid: u32, name: impl Into<String>) {
        self.threads.insert(tid, name.into());
    }

    /// Returns the name of the thread; `None` if unknown.
    pub fn name(&self, tid: u32) -> Option<&str> {
        self.threads.get(&tid).map(String::as_str)
    }

    /// Returns the name of a thread or, if that is unknown, of its process's first thread.
    pub fn task_name(&self, task: Task) -> Option<String> {
        let tid = if task.tid == 0 { task.pid } else { task.tid };
        self.name(tid).map(str::to_owned)
    }

    /// Returns the name and number of a thread as text: "redis-server (1234)".
    pub fn name_and_number(&self, tid: u32) -> String {
        self.name(tid).map_or_else(|| format!("thread {tid}"), |name| format!("{name} ({tid})"))
    }

    /// Returns all threads with their names.
    pub fn all(&self) -> impl Iterator<Item = (u32, &str)> {
        self.threads.iter().map(|(tid, name)| (*tid, name.as_str()))
    }

    /// Sets the processes and paths of the objects for which threads waited.
    pub fn set_objects(&mut self, objects: Objects) {
        self.objects = objects;
    }

    /// Returns the processes and paths of the objects for which threads waited.
    pub fn objects(&self) -> &Objects {
        &self.objects
    }
}

impl NameSource for Names {
    fn name(&self, task: Task) -> Option<String> {
        self.task_name(task)
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

/// Returns the details of a span besides its cause, as text: the thread, the CPU, and the thread for which it waited.
pub fn describe_span(span: &Span, names: &Names) -> String {
    let thread = (span.tid != 0).then(|| names.name_and_number(span.tid));
    let lane = span.cpu.map(|cpu| format!("on lane {cpu}"));
    let by = (span.by_tid != 0)
        .then(|| format!("{} {}", role_of_other_thread(span.cause), names.name_and_number(span.by_tid)));
    let behind = (span.behind != 0).then(|| format!("for request {}", number_within_service(span.behind)));
    [thread, lane, by, behind].into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// Returns the role of a span's other thread, as text: "behind", for example.
fn role_of_other_thread(cause: Cause) -> &'static str {
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
    fn span_names_the_thread_it_waited_for() {
        let mut names = Names::default();
        names.set_name(7, "server");
        names.set_name(9, "stress-ng");
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
        assert_eq!(describe_span(&span(Cause::RunQueue, 9), &names), "server (7) on lane 1 behind stress-ng (9)");
        assert_eq!(describe_span(&span(Cause::Lock, 8), &names), "server (7) on lane 1 held by thread 8");
        assert_eq!(describe_span(&span(Cause::OnCpu, 0), &names), "server (7) on lane 1");
        assert_eq!(describe_span(&Span { tid: 0, cpu: None, ..span(Cause::NetworkReceive, 0) }, &names), "");
    }
}

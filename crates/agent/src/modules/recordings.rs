//! Recordings for `sidelane estimate`, which an agent that only observes keeps: a folder for each service, with the last
//! of its recordings.
//!
//! A thread of its own compresses and writes them, so that a slow disk delays no check of the agent.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow};

use crate::config::ObserveRule;
use crate::note::AgentNote;
use sidelane_rollback::own_threads::PatientThread;
use sidelane_sim::recording::{EXTENSION, Head, RecordingWriter, Second, SizedOutput};
use sidelane_trace::flight::to_file_name_part;

/// Size at which a recording ends: a minute of 10,000 requests a second.
const SIZE_MAX_BYTES: u64 = 4 << 20;
/// Ending of the name of a recording that is not complete.
const PARTIAL: &str = "partial";
/// Number of orders that may wait for the thread: seconds of all services while the disk is slow.
const ORDERS_MAX: usize = 1024;

/// Recordings of all services.
pub struct Recordings {
    rule: ObserveRule,
    orders: Option<SyncSender<(String, Order)>>,
    events: Receiver<(String, Event)>,
    counts: BTreeMap<String, usize>,
    thread: Option<JoinHandle<()>>,
}

/// Order to the thread that writes, for one service.
enum Order {
    Begin(Box<Head>),
    Add(Second),
    End,
}

/// Event of the thread that writes.
enum Event {
    /// A recording is complete; the folder has this number of them.
    Written(usize),
    Failed(String),
}

impl Recordings {
    /// Starts the thread that writes.
    pub fn start(rule: ObserveRule) -> Result<Self> {
        let (orders, received) = sync_channel(ORDERS_MAX);
        let (tell, events) = channel();
        let writer = Writer { rule: rule.clone(), open: BTreeMap::new(), tell };
        let thread = thread::Builder::new().name("sidelane-record".into()).spawn(move || writer.run(&received));
        let thread = thread.context("cannot start the thread that writes recordings; raise the limit of processes")?;
        Ok(Self { rule, orders: Some(orders), events, counts: BTreeMap::new(), thread: Some(thread) })
    }

    /// Begins a recording of a service. Returns whether it will be written: the thread may be too slow.
    pub fn begin(&self, service: &str, head: Head) -> bool {
        self.send(service, Order::Begin(Box::new(head)))
    }

    /// Adds a second to the recording of a service. Returns whether it will be written.
    pub fn add(&self, service: &str, second: Second) -> bool {
        self.send(service, Order::Add(second))
    }

    /// Completes the recording of a service, if there is one. If the thread is too slow, its next recording does.
    pub fn complete(&self, service: &str) {
        self.send(service, Order::End);
    }

    fn send(&self, service: &str, order: Order) -> bool {
        let sent = self.orders.as_ref().map(|orders| orders.try_send((service.to_owned(), order)));
        !matches!(sent, None | Some(Err(TrySendError::Full(_) | TrySendError::Disconnected(_))))
    }

    /// Returns notes on what failed since the last call.
    pub fn take_notes(&mut self) -> Vec<AgentNote> {
        let mut failed = Vec::new();
        for (service, event) in self.events.try_iter() {
            match event {
                Event::Written(count) => drop(self.counts.insert(service, count)),
                Event::Failed(why) => failed.push(AgentNote::RecordingUnwritten { service, why }),
            }
        }
        failed
    }

    /// Returns the number of complete recordings of a service, as of the last call of `take_notes`, with their folder.
    pub fn of_service(&self, service: &str) -> Option<(usize, PathBuf)> {
        self.counts.get(service).map(|count| (*count, folder_of(&self.rule, service)))
    }

    /// Completes all recordings, and ends the thread.
    pub fn end(&mut self) -> Result<()> {
        self.orders = None;
        let ended = self.thread.take().map_or(Ok(()), JoinHandle::join);
        ended.map_err(|_| anyhow!("the thread that writes recordings panicked; report the message above as a bug"))
    }
}

fn folder_of(rule: &ObserveRule, service: &str) -> PathBuf {
    rule.dir.join(to_file_name_part(service))
}

/// The thread that writes.
struct Writer {
    rule: ObserveRule,
    open: BTreeMap<String, OpenRecording>,
    tell: Sender<(String, Event)>,
}

/// Recording that is being written.
struct OpenRecording {
    writer: RecordingWriter<SizedOutput<BufWriter<File>>>,
    partial: PathBuf,
}

impl Writer {
    fn run(mut self, orders: &Receiver<(String, Order)>) {
        let _bulk = PatientThread::for_bulk_work();
        for (service, order) in orders {
            let done = match order {
                Order::Begin(head) => self.begin(&service, &head),
                Order::Add(second) => self.add(&service, &second),
                Order::End => self.complete(&service),
            };
            self.report(&service, done);
        }
        for service in self.open.keys().cloned().collect::<Vec<_>>() {
            let done = self.complete(&service);
            self.report(&service, done);
        }
    }

    /// Reports a failure. The next recording is tried all the same: the disk may have room again.
    fn report(&mut self, service: &str, done: Result<()>) {
        if let Err(error) = done {
            if let Some(OpenRecording { partial, .. }) = self.open.remove(service) {
                let _ = fs::remove_file(partial);
            }
            let _ = self.tell.send((service.to_owned(), Event::Failed(format!("{error:#}"))));
        }
    }

    fn begin(&mut self, service: &str, head: &Head) -> Result<()> {
        self.complete(service)?;
        let folder = folder_of(&self.rule, service);
        let create = || -> io::Result<OpenRecording> {
            fs::create_dir_all(&folder)?;
            // An agent that was killed has left these.
            files_in(&folder, PARTIAL)?.iter().try_for_each(fs::remove_file)?;
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let partial = folder.join(format!("{}.{PARTIAL}", since.as_secs()));
            let output = SizedOutput::new(BufWriter::new(File::create(&partial)?));
            Ok(OpenRecording { writer: RecordingWriter::new(output, head)?, partial })
        };
        let open = create().with_context(|| cannot_write(&folder))?;
        self.open.insert(service.to_owned(), open);
        Ok(())
    }

    fn add(&mut self, service: &str, second: &Second) -> Result<()> {
        // A recording that was full, or that failed, has ended before.
        let Some(open) = self.open.get_mut(service) else { return Ok(()) };
        open.writer.write(second).with_context(|| cannot_write(&open.partial))?;
        if open.writer.get_ref().size_bytes() > SIZE_MAX_BYTES {
            self.complete(service)?;
        }
        Ok(())
    }

    fn complete(&mut self, service: &str) -> Result<()> {
        let Some(OpenRecording { writer, partial }) = self.open.remove(service) else { return Ok(()) };
        let folder = folder_of(&self.rule, service);
        let finish = || -> io::Result<usize> {
            writer.end()?;
            fs::rename(&partial, partial.with_extension(EXTENSION))?;
            remove_oldest(&folder, self.rule.recordings as usize)
        };
        let count = finish().with_context(|| cannot_write(&folder))?;
        let _ = self.tell.send((service.to_owned(), Event::Written(count)));
        Ok(())
    }
}

/// Removes the oldest recordings in a folder beyond `limit`. Returns the number of those that stay.
fn remove_oldest(folder: &Path, limit: usize) -> io::Result<usize> {
    let mut files = files_in(folder, EXTENSION)?;
    files.sort();
    let surplus = files.len().saturating_sub(limit);
    files.iter().take(surplus).try_for_each(fs::remove_file)?;
    Ok(files.len() - surplus)
}

fn files_in(folder: &Path, extension: &str) -> io::Result<Vec<PathBuf>> {
    let paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    Ok(paths.into_iter().filter(|path| path.extension().is_some_and(|own| own == extension)).collect())
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write recordings to {}", path.display())
}

#[cfg(test)]
mod tests {
    use sidelane_diagnostics::machine;
    use sidelane_host::topology::PairKind;
    use sidelane_sim::recording::Recording;

    use super::*;

    fn head() -> Head {
        Head {
            service: "port:1".to_owned(),
            request_lanes: vec![0],
            batch_lanes: vec![1],
            declared: None,
            source: "seen at its sockets".to_owned(),
            machine: machine::describe(PairKind::Declared),
        }
    }

    fn second() -> Second {
        Second { length: 10_000_000, lanes: vec![Default::default()], ..Second::default() }
    }

    #[test]
    fn only_the_last_recordings_of_a_service_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("default-web");
        fs::create_dir(&folder).unwrap();
        for name in ["1.sidelane", "2.sidelane", "3.partial", "notes.txt"] {
            fs::write(folder.join(name), "").unwrap();
        }
        let rule = ObserveRule { dir: dir.path().to_owned(), recordings: 2 };
        let mut recordings = Recordings::start(rule).unwrap();
        assert!(recordings.begin("default/web", head()) && recordings.add("default/web", second()));
        recordings.end().unwrap();
        assert_eq!(recordings.take_notes(), []);
        assert_eq!(recordings.of_service("default/web"), Some((2, folder.clone())));
        let mut names: Vec<String> =
            fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        assert!(names.len() == 3 && names[1..] == ["2.sidelane", "notes.txt"], "{names:?}");
        let recording = Recording::load(&folder.join(&names[0])).unwrap();
        assert_eq!((recording.seconds.len(), recording.is_cut), (1, false));
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_noted() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let mut recordings = Recordings::start(ObserveRule { dir: file, recordings: 2 }).unwrap();
        assert!(recordings.begin("web", head()) && recordings.add("web", second()));
        recordings.end().unwrap();
        let notes = recordings.take_notes();
        assert!(matches!(&notes[..], [AgentNote::RecordingUnwritten { service, .. }] if service == "web"), "{notes:?}");
        assert_eq!(recordings.of_service("web"), None);
    }
}

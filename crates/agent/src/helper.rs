//! The agent's helper: a thread in the ordinary class that finds services and containers, and where requests of
//! services can be seen.
//!
//! Both take time that grows with the machine: processes, open files, network namespaces. The agent's own thread is in
//! a real-time class, and only takes in the helper's reports.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::event::{PollFd, PollFlags, poll};
use sidelane_host::clock::now_ns;
use sidelane_host::eventfd::EventFd;
use sidelane_requests::search::{Search, SearchAnswer, SearchQuery};

use super::config::Config;
use super::discover::{
    Changes, Container, ContainerId, DiscoveryProblem, Finder, FoundService, NewBatchGroup, ServiceId,
};

/// Pause after the kernel had no memory for a wait.
const PAUSE: Duration = Duration::from_millis(100);

pub enum Report {
    /// Scan of the machine that found changes.
    Scanned(Box<MachineScan>),
    /// First scan after another file was read, with all services and containers.
    Reloaded(Box<Reloaded>),
    /// Place where requests of a service can be seen.
    Requests(SearchAnswer),
}

/// Result of a scan of the machine.
pub struct MachineScan {
    /// Services and containers that came and went since the last report.
    pub changes: Changes,
    /// Things that the file names and the machine lacks.
    pub lacks: Vec<DiscoveryProblem>,
    /// Cgroups in which new batch is made.
    pub new_batch_groups: Vec<NewBatchGroup>,
}

/// Everything that the new file names and the machine has.
pub struct Reloaded {
    /// Result of the first scan after the new file was read.
    pub scan: MachineScan,
    /// All services that the new file names.
    pub services: BTreeMap<ServiceId, FoundService>,
    /// All containers that the new file names.
    pub containers: BTreeMap<ContainerId, Container>,
}

/// Orders of the agent's thread for the helper.
#[derive(Default)]
struct Orders {
    looks: bool,
    reload: Option<Box<Config>>,
    questions: Option<Vec<SearchQuery>>,
    held: Vec<ContainerId>,
    ends: bool,
}

#[derive(Default)]
struct SharedOrders(Mutex<Orders>);

impl SharedOrders {
    fn orders(&self) -> MutexGuard<'_, Orders> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Handle of the helper thread. Dropping it ends the helper.
pub struct Helper {
    board: Arc<SharedOrders>,
    /// Event that wakes the helper.
    ordered: Arc<EventFd>,
    /// Event that wakes the agent.
    reported: Arc<EventFd>,
    reports: Receiver<Report>,
    thread: Option<JoinHandle<()>>,
}

impl Helper {
    /// Starts the helper thread.
    pub fn start(config: &Config) -> Result<Self> {
        let event = || EventFd::new().map(Arc::new);
        let (ordered, reported) = (event()?, event()?);
        let board = Arc::new(SharedOrders::default());
        let (sender, reports) = channel();
        let worker = Worker {
            finder: Finder::new(config),
            search: Search::default(),
            board: Arc::clone(&board),
            ordered: Arc::clone(&ordered),
            reported: Arc::clone(&reported),
            reports: sender,
            told: Default::default(),
        };
        let thread = thread::Builder::new().name("sidelane-helper".to_owned()).spawn(move || worker.run());
        let thread = Some(thread.context("cannot start the helper thread")?);
        Ok(Self { board, ordered, reported, reports, thread })
    }

    /// Returns a descriptor that becomes readable when there is a report.
    pub fn eventfd(&self) -> BorrowedFd<'_> {
        self.reported.as_fd()
    }

    /// Orders a scan for services and containers.
    ///
    /// # Errors
    /// If the helper has ended by itself: the agent would see no changes any more.
    pub fn order_scan(&self) -> Result<()> {
        ensure!(
            self.thread.as_ref().is_some_and(|thread| !thread.is_finished()),
            "the thread that finds services ended early; restart the agent, and report its last messages"
        );
        self.order(|orders| orders.looks = true);
        Ok(())
    }

    /// Orders a search for the places where requests of these services can be seen. It replaces earlier searches.
    pub fn order_request_search(&self, questions: Vec<SearchQuery>) {
        self.order(|orders| orders.questions = Some(questions));
    }

    /// Tells the helper that a container is managed.
    pub fn note_managed(&self, id: &ContainerId) {
        self.order(|orders| orders.held.push(id.clone()));
    }

    /// Returns the reports of the helper since the last call.
    pub fn reports(&self) -> Vec<Report> {
        self.reported.clear();
        self.reports.try_iter().collect()
    }

    /// Orders the helper to continue with another file. The next [`Report::Reloaded`] is the result.
    pub fn reload(&self, config: &Config) {
        self.order(|orders| orders.reload = Some(Box::new(config.clone())));
    }

    /// Waits for a report. Returns `None` if none comes within this time.
    ///
    /// # Errors
    /// If the helper has ended by itself.
    pub fn next_report(&self, timeout: Duration) -> Result<Option<Report>> {
        match self.reports.recv_timeout(timeout) {
            Ok(report) => Ok(Some(report)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(error) => Err(error).context("the thread that finds services ended early"),
        }
    }

    fn order(&self, order: impl FnOnce(&mut Orders)) {
        order(&mut self.board.orders());
        self.ordered.notify();
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // The thread is not joined: it may be reading a large machine, and it changes nothing.
        self.order(|orders| orders.ends = true);
    }
}

/// State of the helper thread.
struct Worker {
    finder: Finder,
    search: Search,
    board: Arc<SharedOrders>,
    ordered: Arc<EventFd>,
    reported: Arc<EventFd>,
    reports: Sender<Report>,
    /// Problems of discovery, and cgroups of new batch, that the last scan found.
    told: (Vec<DiscoveryProblem>, Vec<NewBatchGroup>),
}

impl Worker {
    fn run(mut self) {
        loop {
            let groups_changed = self.wait().unwrap_or_else(|_| {
                thread::sleep(PAUSE);
                false
            });
            let orders = std::mem::take(&mut *self.board.orders());
            if orders.ends {
                return;
            }
            orders.held.iter().for_each(|id| self.finder.note_managed(id));
            if let Some(config) = &orders.reload {
                self.reload(config);
            } else if groups_changed || orders.looks {
                self.scan_and_report();
            }
            if let Some(questions) = orders.questions {
                let Self { search, reports, reported, .. } = &mut self;
                search.run_due_searches(questions, |answer| send_report(reports, reported, Report::Requests(answer)));
            }
        }
    }

    /// Waits for an order, or until a cgroup comes or goes. Returns whether a cgroup came or went.
    fn wait(&self) -> io::Result<bool> {
        let mut fds = vec![PollFd::from_borrowed_fd(self.ordered.as_fd(), PollFlags::IN)];
        fds.extend(self.finder.fd().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let groups_changed = fds.get(1).is_some_and(|fd| !fd.revents().is_empty());
        self.ordered.clear();
        Ok(groups_changed)
    }

    fn scan_and_report(&mut self) {
        let told = std::mem::take(&mut self.told);
        let looked = self.scan();
        if !looked.changes.is_empty() || self.told != told {
            send_report(&self.reports, &self.reported, Report::Scanned(Box::new(looked)));
        }
    }

    fn scan(&mut self) -> MachineScan {
        let changes = self.finder.scan(now_ns());
        let (lacks, birthplaces) = (self.finder.problems(), self.finder.new_batch_groups().to_vec());
        self.told = (lacks.clone(), birthplaces.clone());
        MachineScan { changes, lacks, new_batch_groups: birthplaces }
    }

    fn reload(&mut self, config: &Config) {
        self.finder.reload(config);
        let looked = self.scan();
        let services = self.finder.services().map(|service| (service.id, service.clone())).collect();
        let containers = self.finder.containers().map(|container| (container.id.clone(), container.clone())).collect();
        send_report(
            &self.reports,
            &self.reported,
            Report::Reloaded(Box::new(Reloaded { scan: looked, services, containers })),
        );
    }
}

fn send_report(reports: &Sender<Report>, reported: &EventFd, report: Report) {
    // The agent may have ended, so a report may have no receiver.
    if reports.send(report).is_ok() {
        reported.notify();
    }
}

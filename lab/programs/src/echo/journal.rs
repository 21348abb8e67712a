//! The service's own record of the start and the end of its work on each request.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Mutex;

use anyhow::{Context, Result};
use rustix::thread::gettid;

use super::wire::{EchoRequest, encode_reply};
use crate::clock::{Nanos, now_ns};
use crate::rng::Rng;

/// Record of one request: its start, its end and its thread.
#[derive(Clone, Copy, Debug)]
struct Entry {
    id: u64,
    started_ns: Nanos,
    finished_ns: Nanos,
    tid: i32,
}

/// Record of all requests, kept in memory until it is written to a file.
#[derive(Debug)]
pub struct Journal {
    entries: Mutex<Vec<Entry>>,
    demand: Mutex<Rng>,
    demand_mean_ns: f64,
}

impl Journal {
    /// Returns an empty record. Requests take `mean_us` microseconds of work on average, exponentially distributed.
    pub fn new(mean_us: f64) -> Self {
        let (entries, demand) = (Mutex::default(), Mutex::new(Rng::new(1, 0)));
        Journal { entries, demand, demand_mean_ns: mean_us * 1e3 }
    }

    /// Spins for a random time that stands for the work of one request.
    pub fn spin_for_random_work(&self) {
        let demand_ns =
            self.demand.lock().expect("no thread panics while it holds the lock").exponential(self.demand_mean_ns);
        let end_ns = now_ns() + demand_ns as Nanos;
        while now_ns() < end_ns {
            std::hint::spin_loop();
        }
    }

    /// Sends the reply to a request whose work began at `started_ns`, and records it. Returns the time after the send.
    pub fn send_reply(&self, request: EchoRequest, started_ns: Nanos, mut out: impl Write) -> std::io::Result<Nanos> {
        for part in encode_reply(request) {
            out.write_all(&part)?;
        }
        let finished_ns = now_ns();
        let tid = gettid().as_raw_nonzero().get();
        let entry = Entry { id: request.id, started_ns, finished_ns, tid };
        self.entries.lock().expect("no thread panics while it holds the lock").push(entry);
        Ok(finished_ns)
    }

    /// Works on requests that arrived together, and answers each before the next one starts.
    pub fn serve_requests(
        &self,
        requests: &[EchoRequest],
        mut started_ns: Nanos,
        mut out: impl Write,
    ) -> std::io::Result<()> {
        for ask in requests {
            self.spin_for_random_work();
            started_ns = self.send_reply(*ask, started_ns, &mut out)?;
        }
        Ok(())
    }

    /// Writes one line per request: id, start, finish and thread. Returns the number of lines.
    pub fn write(&self, path: &Path) -> Result<usize> {
        let entries = self.entries.lock().expect("no thread panics while it holds the lock").clone();
        let failed = || format!("cannot write {}", path.display());
        let mut file = BufWriter::new(File::create(path).with_context(failed)?);
        for entry in &entries {
            let Entry { id, started_ns, finished_ns, tid } = entry;
            writeln!(file, "{id},{started_ns},{finished_ns},{tid}").with_context(failed)?;
        }
        file.flush().with_context(failed)?;
        Ok(entries.len())
    }
}

//! The observers of the service during a measurement of their cost.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use super::peer::{PeerTool, RunningPeer};
use crate::bench::floor::EmptyPrograms;
use crate::bench::workload::RealServer;
use sidelane_host::service::Target;
use sidelane_tracker::trace::{Recorder, TraceOptions};

/// Observer of the service while it works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Setting {
    /// No tool observes the service.
    Untraced,
    /// Programs that do nothing, at the tracepoints of a trace.
    Empty,
    /// A trace of Sidelane observes the service.
    Traced,
    /// Empty programs at the tracepoints of `--light`, and a trace with `--light`.
    EmptyLight,
    Light,
    /// Another tool that records the same events.
    Peer(PeerTool),
}

impl Setting {
    /// Returns the name of the observer in a row.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Untraced => "untraced",
            Self::Empty => "empty_programs",
            Self::Traced => "traced",
            Self::EmptyLight => "light/empty_programs",
            Self::Light => "light/traced",
            Self::Peer(peer) => peer.name(),
        }
    }
}

/// Kernel programs of all observers, loaded once.
pub(super) struct Observers {
    traces: [Recorder; 2],
    floors: [EmptyPrograms; 2],
    lost: u64,
}

impl Observers {
    /// Loads the kernel programs without attaching them.
    pub(super) fn load(server: &RealServer) -> Result<Self> {
        let service = Target::Pid(server.pid()).find()?;
        let trace = |options: TraceOptions| -> Result<Recorder> {
            let recorder = Recorder::start(&options, std::slice::from_ref(&service)).context("cannot trace")?;
            recorder.tracker().detach();
            Ok(recorder)
        };
        let (full, light) = (TraceOptions::default(), TraceOptions { light: true, ..TraceOptions::default() });
        let floors = [EmptyPrograms::for_trace(&full)?, EmptyPrograms::for_trace(&light)?];
        Ok(Self { traces: [trace(full)?, trace(light)?], floors, lost: 0 })
    }

    /// Runs `work` on a new thread while `setting` observes.
    pub(super) fn run_observed<T: Send>(
        &mut self,
        setting: Setting,
        work: impl FnOnce() -> Result<T> + Send,
    ) -> Result<T> {
        match setting {
            Setting::Untraced => run_unobserved(work),
            Setting::Empty | Setting::EmptyLight => {
                let _links = self.floors[usize::from(setting == Setting::EmptyLight)].attach()?;
                run_unobserved(work)
            }
            Setting::Traced | Setting::Light => self.run_traced(usize::from(setting == Setting::Light), work),
            Setting::Peer(peer) => {
                let _running = RunningPeer::start(peer)?;
                run_unobserved(work)
            }
        }
    }

    fn run_traced<T: Send>(&mut self, trace_index: usize, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        let recorder = &mut self.traces[trace_index];
        recorder.tracker().attach()?;
        let (lost, mut records) = (recorder.lost_records(), Vec::new());
        let period = recorder.read_interval_max().min(Duration::from_millis(10));
        let done = thread::scope(|scope| {
            let work = scope.spawn(work);
            while !work.is_finished() {
                thread::sleep(period);
                recorder.read(&mut records);
                records.clear();
            }
            work.join().expect("the work does not panic")
        });
        recorder.finish(&mut records);
        self.lost += recorder.lost_records() - lost;
        done
    }

    /// Returns the number of records that were lost in all turns.
    pub(super) fn lost_records(&self) -> u64 {
        self.lost
    }
}

/// Runs `work` on a new thread without a trace, so that settings with and without a trace run `work` in the same way.
fn run_unobserved<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    thread::scope(|scope| scope.spawn(work).join().expect("the work does not panic"))
}

//! Environment of the comparison: the user's service with its traffic, and the batch sessions beside it.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::CompareOptions;
use super::figures::{BatchFigures, Figures, Round, Setting};
use super::obstacle::Stop;
use super::traffic::Traffic;
use sidelane_channels::SyscallReader;
use sidelane_channels::file::FileNumber;
use sidelane_diagnostics::note::Note;
use sidelane_host::posix_signals::stop_this_process;
use sidelane_host::shutdown::{Shutdown, StopRequest};
use sidelane_host::topology::Lanes;
use sidelane_lanes::gate::{Gate, GateReason};
use sidelane_lanes::lending_limits::LearnedLimits;
use sidelane_lanes::note::LaneNote;
use sidelane_lanes::placement::Placement;
use sidelane_lanes::plan::Plan;
use sidelane_lanes::session::{Outcome, Session, SessionOptions};
use sidelane_lanes::slowdown::SlowdownKeeper;
use sidelane_requests::watch::DRAIN_EVERY;
use sidelane_stats::rounds::Turn;
use sidelane_tracker::accounting::Accounting;

/// Service that is measured, and the settings of batch beside it.
pub(super) struct Environment<'a> {
    options: &'a CompareOptions,
    until: Shutdown,
    lanes: Lanes,
    gate: Gate,
    gate_reason: GateReason,
    /// Bound on the slowdown of requests by batch, as for `sidelane run`; `None` without a bound.
    max_slowdown: Option<f64>,
    traffic: Traffic,
    /// Limits that the last session learned for the service, with which the next session starts.
    learned: Option<LearnedLimits>,
    /// Slowdown of requests by batch as the last session measured it.
    slowdown: Option<SlowdownKeeper>,
    notes: BTreeSet<Note>,
}

impl<'a> Environment<'a> {
    /// Begins to observe the requests of the plan's service.
    pub(super) fn start(options: &'a CompareOptions, plan: Plan, shutdown: Shutdown) -> Result<Self> {
        let Plan { mut services, gate, gate_reason, max_slowdown, .. } = plan;
        let beside = services.pop().expect("a plan has a service");
        let traffic = Traffic::watch(&options.target, &beside.service)?;
        Ok(Self {
            options,
            until: shutdown,
            lanes: beside.lanes,
            gate,
            gate_reason,
            max_slowdown,
            traffic,
            learned: None,
            slowdown: None,
            notes: BTreeSet::new(),
        })
    }

    pub(super) fn lanes(&self) -> &Lanes {
        &self.lanes
    }

    pub(super) fn gate(&self) -> &Gate {
        &self.gate
    }

    pub(super) fn request_source(&self) -> String {
        self.traffic.source()
    }

    pub(super) fn lost_records(&self) -> u64 {
        self.traffic.lost_records()
    }

    pub(super) fn notes(&self) -> &BTreeSet<Note> {
        &self.notes
    }

    /// Returns the requests per second before the first round. See [`Traffic::measure_request_rate`].
    pub(super) fn requests_per_s(&mut self) -> Result<Option<f64>> {
        self.traffic.measure_request_rate(&self.until)
    }

    /// Measures a round: one run in each setting.
    pub(super) fn measure_round(&mut self, turn: &Turn<'_>, run: Duration) -> Result<Round> {
        let mut round = Round::default();
        for setting in Setting::order_in_round(turn.round) {
            turn.bar.set_message(setting.in_words());
            let figures = match setting {
                Setting::Alone => self.measure(None, run),
                Setting::Unmanaged | Setting::Sidelane => self.measure_with_batch(setting, run),
            };
            round.put(setting, figures?);
        }
        Ok(round)
    }

    fn measure_with_batch(&mut self, setting: Setting, run: Duration) -> Result<Figures> {
        let managed = setting == Setting::Sidelane;
        let (target, lanes) = (self.options.target.clone(), self.options.lanes.as_deref());
        let beside =
            Placement { pin_service: self.options.pin_service && managed, ..Placement::find(target, lanes, true)? };
        let mut session = Session::start(vec![beside], &self.options.command, self.session_options(managed))?;
        self.learned.iter().filter(|_| managed).for_each(|learned| session.restore_learned(learned));
        self.slowdown.iter().for_each(|earlier| session.resume_measurements_from(earlier));
        let measured = self.measure(Some(&mut session), run);
        self.learned = session.learned().or(self.learned);
        self.slowdown = session.slowdown().cloned().or(self.slowdown.take());
        let outcome = self.end(session)?;
        if managed {
            // If holders have taken over, they keep the lanes of later sessions from the start.
            (self.gate, self.gate_reason) = (outcome.gate.clone(), outcome.gate_reason.clone());
        }
        let ended = measured.as_ref().is_err_and(|error| matches!(error.downcast_ref(), Some(Stop::BatchEnded { .. })));
        if ended && outcome.exit_code() != 0 {
            bail!(
                "the batch command ended by itself, with exit code {}; name one that runs until SIGTERM",
                outcome.exit_code()
            );
        }
        if managed {
            // Batch is ended with all processes that it started, so notes on them are dropped.
            let of_leftovers = |note: &LaneNote| matches!(note, LaneNote::LeftoversEnded { .. });
            self.notes.extend(outcome.notes.into_iter().filter(|note| !note.matches(of_leftovers)));
        }
        measured
    }

    fn session_options(&self, managed: bool) -> SessionOptions {
        let unmanaged = SessionOptions {
            class: self.options.unmanaged,
            hold: None,
            gate: Gate::Holder,
            gate_reason: GateReason::Asked,
            max_overlap_ppm: None,
            audit: None,
            max_slowdown: None,
            quiet: true,
            allow_realtime: false,
        };
        if !managed {
            return unmanaged;
        }
        SessionOptions {
            class: self.gate.batch_class(),
            hold: Some(self.options.lending),
            gate: self.gate.clone(),
            gate_reason: self.gate_reason.clone(),
            max_slowdown: self.max_slowdown,
            ..unmanaged
        }
    }

    /// Returns the figures of one run. Repeats the run if the comparison was stopped during it.
    fn measure(&mut self, mut session: Option<&mut Session>, run: Duration) -> Result<Figures> {
        let started = Instant::now();
        loop {
            if let Some(figures) = self.try_to_measure(session.as_deref_mut(), run, started)? {
                return Ok(figures);
            }
        }
    }

    /// Returns the figures of one run after its settling time; `None` if the comparison was stopped.
    fn try_to_measure(
        &mut self,
        mut session: Option<&mut Session>,
        run: Duration,
        started: Instant,
    ) -> Result<Option<Figures>> {
        if !self.supervise_for(self.options.settle, session.as_deref_mut(), started)? {
            return Ok(None);
        }
        self.traffic.begin()?;
        let (began, before) = (Instant::now(), self.read_counters(session.as_deref())?);
        if !self.supervise_for(run, session.as_deref_mut(), started)? {
            return Ok(None);
        }
        let (length, after) = (began.elapsed(), self.read_counters(session.as_deref())?);
        let batch = before.zip(after).map(|(before, after)| after.figures_since(&before, &self.lanes));
        Ok(Some(Figures { length, seen: self.traffic.end()?, batch }))
    }

    /// Supervises batch and collects requests for this time. Returns false if this process was stopped during it
    /// (Ctrl-Z).
    fn supervise_for(
        &mut self,
        duration: Duration,
        mut session: Option<&mut Session>,
        started: Instant,
    ) -> Result<bool> {
        let began = Instant::now();
        while let Some(left) = duration.checked_sub(began.elapsed()).filter(|left| !left.is_zero()) {
            match self.until.wait_for_request(left.min(DRAIN_EVERY))? {
                Some(StopRequest::End) => bail!(Stop::Asked),
                Some(StopRequest::Stop) => {
                    session.as_deref().map_or_else(stop_this_process, Session::stop_batch_then_self);
                    return Ok(false);
                }
                None => {}
            }
            self.traffic.collect_requests()?;
            let Some(session) = session.as_deref_mut() else { continue };
            if session.has_ended() {
                bail!(Stop::BatchEnded { after: started.elapsed() });
            }
            session.supervise()?;
        }
        Ok(true)
    }

    fn read_counters(&self, session: Option<&Session>) -> Result<Option<CounterValues>> {
        let Some(session) = session else { return Ok(None) };
        let work = self.options.work_counter.as_ref().map(WorkCounter::read).transpose()?;
        Ok(Some(CounterValues { accounting: session.memory().accounting(), work }))
    }

    /// Asks batch to end, and kills it when its grace is over, or at a second signal.
    fn end(&mut self, mut session: Session) -> Result<Outcome> {
        session.signal(libc::SIGTERM);
        let began = Instant::now();
        while !session.has_ended() && began.elapsed() < self.options.grace && self.until.wait(DRAIN_EVERY)? {
            self.traffic.collect_requests()?;
            session.supervise()?;
        }
        session.kill();
        session.end()
    }
}

/// Values of the counters at one moment.
struct CounterValues {
    accounting: Accounting,
    work: Option<u64>,
}

impl CounterValues {
    fn figures_since(&self, before: &Self, lanes: &Lanes) -> BatchFigures {
        let accounting = self.accounting.since(&before.accounting);
        BatchFigures {
            cpu: Duration::from_nanos(accounting.batch_ns(lanes)),
            work: self.work.zip(before.work).and_then(|(after, before)| after.checked_sub(before)),
            overlap: accounting.overlap(lanes),
            paid_wake_ups: accounting.sum(|lane| lane.lc_summons),
            ledger: accounting.ledger(&lanes.batch_cpus()),
        }
    }
}

/// File in which batch counts its work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkCounter {
    /// Place of the counter: `PATH`, or `PATH#FIELD`, as `sidelane observe` reads `counter:file:`.
    pub place: String,
}

impl WorkCounter {
    /// Reads the counter. The file is opened each time, since batch may create it at each start.
    fn read(&self) -> Result<u64> {
        let (path, field) = match self.place.split_once('#') {
            Some((path, field)) => (path, Some(field)),
            None => (self.place.as_str(), None),
        };
        let what = || format!("cannot read the work counter {path}; let batch write this file as soon as it starts");
        let mut number = FileNumber::open(path.as_ref(), field).with_context(what)?;
        number.read().ok().with_context(what)
    }
}

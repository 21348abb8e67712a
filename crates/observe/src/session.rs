//! The coordinator: prepares an observation, runs it, and collects its results.

use std::ffi::OsString;
use std::io::{IsTerminal, stderr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::analysis::{Analysis, Recipe};
use super::channel_list::{ChannelList, any_needs_lane, any_needs_same_core, default_signals};
use super::cost::{CostMeter, ObserverOrder, Progress};
use super::handover::{BufferReceiver, buffer_channel};
use super::lane_choice::{ChosenLanes, LaneRequirements, choose_lanes};
use super::log::{self, LogFeed, LogFoot, LogHead, LogWriter, LoggedSignal};
use super::observed::{ObservationEnd, Observed, SignalNames};
use super::observed_program::ObservedProgram;
use super::observer::{Controls, Observer, ObserverEnd};
use super::period::{Period, SampleTimer};
use crate::note::ObserveNote;
use crate::show::view::LiveView;
use sidelane_channels::perf::check_period;
use sidelane_channels::signal::Signal;
use sidelane_channels::{Channel, ChannelEnd, Reader};
use sidelane_diagnostics::note::Note;
use sidelane_host::cpulist::CpuSet;
use sidelane_host::posix_signals::PosixSignals;
use sidelane_host::priority::pin_this_thread;
use sidelane_host::procfs::own_cpus;
use sidelane_host::service::Target;
use sidelane_host::topology::Topology;
use sidelane_host::tsc::{Clock, is_invariant};
use sidelane_report::terminal::eprint_fitted;
use sidelane_rollback::own_threads;
use sidelane_rollback::own_threads::SelfPlacedThread;

/// Interval at which the coordinator checks whether the observation has to end.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Interval at which the analysis is fetched from the observer and shown.
const FETCH_EVERY: Duration = Duration::from_millis(500);

/// Options of `sidelane observe`.
pub struct ObserveOptions {
    /// Target of the observation; `None` if a command is started.
    pub target: Option<Target>,
    /// Command to start, with its arguments; empty if there is a target.
    pub command: Vec<OsString>,
    /// Signals to observe. If none is named: the lane, requests, and a JVM's counters, as far as the target has them.
    pub signals: Vec<Signal>,
    /// Counter of the target's progress, for the slowdown. `None`: the first observed counter that counts enough.
    pub progress: Option<Signal>,
    /// Duration; `None`: until the target ends or a POSIX signal arrives.
    pub length: Option<Duration>,
    /// Time between samples.
    pub period: Period,
    /// Observed lane, if the user names it.
    pub cpu: Option<u32>,
    /// Observer's lane, if the user names it.
    pub observer_cpu: Option<u32>,
    /// Allowed deviation of CPC (cycles per cycle) from 1.
    pub tolerance: f64,
    /// File for all samples; `None` without a log.
    pub log: Option<PathBuf>,
    /// Whether to draw histograms during the observation, if there is a terminal.
    pub live: bool,
}

/// Runs an observation to its end.
pub fn run(options: &ObserveOptions) -> Result<Observed> {
    let signals = PosixSignals::listen()
        .context("cannot open the descriptor for POSIX signals; check the limit of open files (ulimit -n)")?;
    let Setup { mut program, signals: asked, places, notes: left_out } = set_up(options)?;
    let clock = Clock::calibrate();
    let mut wanted = ChannelList::find(&asked, &mut program, &places)?;
    check_period(&wanted.counters, options.period.ns(&clock))?;
    let progress = progress_counters(options, &wanted, &mut program, &places)?;
    let left_out = left_out.into_iter().map(Note::from);
    let notes: Vec<Note> = left_out.chain(notes(&wanted, &places, &program)).collect();
    let names = SignalNames::from_channels(&wanted);
    let (feed, writer) = open_log(options, &wanted, &clock, program.name())?.unzip();
    let recipe = wanted.recipe(options.tolerance);
    let crew = ObserverThread::start(&mut wanted, &recipe, options.period, &clock, &places, feed)?;
    // Scripts wait for the line that is printed here before they continue.
    if options.live {
        let length = options.length.map_or_else(String::new, |length| format!(" for {length:?}"));
        let (name, from) = (program.name(), places.observer);
        eprint_fitted(&format!("sidelane: observing {name}, from CPU {from}{length}; Ctrl-C ends it"));
    }
    let mut watch = ObservationLoop {
        cost: (!progress.is_empty()).then(|| CostMeter::new(progress)),
        whole: Analysis::new(recipe),
        live: LiveView::new(options.live && stderr().is_terminal()),
        crew,
        clock,
        names,
    };
    let began = Instant::now();
    let ended = watch.run_until_end(options, &mut program, &signals, began)?;
    let (analysis, names, slowdown, ended) = watch.end(ended);
    let exit = program.end_if_launched();
    let notes = notes.into_iter().chain(own_threads::overhead_note()).collect();
    Ok(Observed {
        target: program.name().to_owned(),
        period: options.period,
        tolerance: options.tolerance,
        wall_s: began.elapsed().as_secs_f64(),
        logged: writer
            .map(|writer| writer.join(&LogFoot { names: names.stored_value_names(), slowdown: slowdown.clone() })),
        log: options.log.clone(),
        places: Some(places),
        analysis,
        turns: None,
        names,
        slowdown,
        ended,
        exit,
        clock,
        notes,
    })
}

/// Target, signals and lanes of an observation.
struct Setup {
    program: ObservedProgram,
    signals: Vec<Signal>,
    places: ChosenLanes,
    /// Notes on signals that are observed by default but are left out for this target.
    notes: Vec<ObserveNote>,
}

/// Finds or starts the target, and finds the signals and the lanes.
fn set_up(options: &ObserveOptions) -> Result<Setup> {
    let allowed = own_cpus();
    match &options.target {
        Some(target) => {
            let program = ObservedProgram::find(target)?;
            own_threads::keep_off_service_cpus(program.name(), program.pids());
            let (signals, notes) = signals_to_observe(options, Some(&program))?;
            let places = choose_lanes(
                &lane_requirements(options, &signals),
                &read_topology()?,
                &allowed,
                Some(&program.cpus()),
            )?;
            Ok(Setup { program, signals, places, notes })
        }
        None => {
            ensure!(
                !options.command.is_empty(),
                "nothing to observe; name a service with --service, or put a command after --"
            );
            let (signals, notes) = signals_to_observe(options, None)?;
            let lane_requirements = lane_requirements(options, &signals);
            let mut places = choose_lanes(&lane_requirements, &read_topology()?, &allowed, None)?;
            let on_one = lane_requirements.needs_lane || options.cpu.is_some();
            let not_the_observers = allowed.difference(&CpuSet::from_iter([places.observer]));
            let cpus = if on_one { CpuSet::from_iter(places.observed) } else { not_the_observers };
            places.observed = places.observed.filter(|_| on_one);
            let program = ObservedProgram::launch(&options.command, &cpus)?;
            own_threads::keep_off_service_cpus(program.name(), program.pids());
            Ok(Setup { program, signals, places, notes })
        }
    }
}

fn read_topology() -> Result<Topology> {
    Ok(Topology::read(Path::new("/sys"))?)
}

fn lane_requirements(options: &ObserveOptions, signals: &[Signal]) -> LaneRequirements {
    LaneRequirements {
        observed: options.cpu,
        observer: options.observer_cpu,
        needs_lane: any_needs_lane(signals),
        same_core: any_needs_same_core(signals),
    }
}

/// Returns the signals that the user named, or else the default ones.
fn signals_to_observe(
    options: &ObserveOptions,
    program: Option<&ObservedProgram>,
) -> Result<(Vec<Signal>, Vec<ObserveNote>)> {
    match options.signals.as_slice() {
        [] => default_signals(program, options.cpu),
        asked => Ok((asked.to_vec(), Vec::new())),
    }
}

/// Returns readers of the target's progress, separate from the observer's readers.
fn progress_counters(
    options: &ObserveOptions,
    wanted: &ChannelList,
    program: &mut ObservedProgram,
    places: &ChosenLanes,
) -> Result<Vec<Progress>> {
    if let Some(signal) = &options.progress {
        let found = ChannelList::find(std::slice::from_ref(signal), program, places).context("--progress")?;
        let counter = found.counters.into_iter().next().context(
            "--progress names no counter; name one, as in \
                                                                 --progress counter:NAME",
        )?;
        return Ok(vec![Progress { name: counter.name, reader: counter.reader }]);
    }
    let words = wanted.counters.iter().filter_map(|channel| match &channel.reader {
        Reader::Word(word) => Some(Progress { name: channel.name.clone(), reader: Reader::Word(word.clone()) }),
        _ => None,
    });
    Ok(words.collect())
}

fn notes(wanted: &ChannelList, places: &ChosenLanes, program: &ObservedProgram) -> Vec<Note> {
    let channels = wanted.counters.iter().chain(&wanted.tags);
    let mut notes: Vec<Note> = channels.flat_map(|channel| channel.notes.clone()).map(Note::from).collect();
    if program.cpus().contains(places.observer) {
        notes.push(ObserveNote::TargetOnObserversLane { cpu: places.observer }.into());
    }
    if !is_invariant() {
        notes.push(ObserveNote::ClockUncertain.into());
    }
    notes
}

fn open_log(
    options: &ObserveOptions,
    wanted: &ChannelList,
    clock: &Clock,
    title: &str,
) -> Result<Option<(LogFeed, LogWriter)>> {
    let Some(path) = &options.log else { return Ok(None) };
    let signal = |channel: &Channel| LoggedSignal { name: channel.name.clone(), kind: channel.kind };
    let head = LogHead {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        title: title.to_owned(),
        signals: wanted.counters.iter().chain(&wanted.tags).map(signal).collect(),
        cycles_per_ns: clock.cycles_per_ns,
        zero_cycles: clock.zero_cycles,
        zero_ns: clock.zero_ns,
        only_target: wanted.tracking.is_some(),
        tolerance: options.tolerance,
    };
    log::start(path, &head).map(Some)
}

/// Observer's thread, with its channels to the coordinator.
struct ObserverThread {
    thread: JoinHandle<(Box<Analysis>, ObserverEnd)>,
    controls: Arc<Controls>,
    takeover: BufferReceiver<Analysis>,
    /// Cleared analysis that the observer gets next, in exchange for a filled one.
    spare: Option<Box<Analysis>>,
    lane: u32,
    observed: Option<u32>,
    /// Tracking of the observed lane: it updates the words of memory that the lane's signals are read from. Ends when
    /// it is dropped.
    _tracking: Option<sidelane_channels::lane::LaneTracking>,
}

impl ObserverThread {
    fn start(
        wanted: &mut ChannelList,
        recipe: &Recipe,
        period: Period,
        clock: &Clock,
        places: &ChosenLanes,
        log: Option<LogFeed>,
    ) -> Result<Self> {
        let (handover, takeover) = buffer_channel(1);
        let controls = Arc::new(Controls::default());
        let readers =
            |channels: &mut Vec<Channel>| std::mem::take(channels).into_iter().map(|channel| channel.reader).collect();
        let observer = Observer {
            counters: readers(&mut wanted.counters),
            tags: readers(&mut wanted.tags),
            thread: wanted.tracking.as_ref().map(|tracking| tracking.thread()),
            pace: SampleTimer::new(period, clock, clock.zero_cycles),
            handover,
            log,
            controls: Arc::clone(&controls),
            lane: places.observer,
        };
        let first = Box::new(Analysis::new(recipe.clone()));
        let spare = Some(Box::new(Analysis::new(recipe.clone())));
        let lane = places.observer;
        let (tell, told) = std::sync::mpsc::channel();
        let thread = thread::Builder::new().name("sidelane-observe".into()).spawn(move || {
            let _fixed = SelfPlacedThread::for_this_thread();
            let pinned = pin_this_thread(&[lane]);
            let pinned_well = pinned.is_ok();
            let _ = tell.send(pinned);
            if pinned_well { observer.run(first) } else { (first, ObserverEnd::Asked) }
        })?;
        told.recv()?
            .with_context(|| format!("cannot put the observer on CPU {lane}; check that it is online (`lscpu -e`)"))?;
        let observed = places.observed;
        Ok(Self { thread, controls, takeover, spare, lane, observed, _tracking: wanted.tracking.take() })
    }

    fn apply_order(&self, order: ObserverOrder) {
        match order {
            ObserverOrder::Observe => self.controls.resume(self.thread.thread()),
            ObserverOrder::Pause => self.controls.pause(),
        }
    }

    /// Merges the analyses that the observer has handed over, and requests more.
    fn fetch_analyses(&mut self, whole: &mut Analysis) {
        if let Some(mut part) = self.takeover.take_filled() {
            whole.append(&part);
            part.clear();
            self.spare = Some(part);
        }
        if let Some(spare) = self.spare.take() {
            self.takeover.give_empty(spare);
        }
    }

    fn end(mut self, whole: &mut Analysis) -> ObserverEnd {
        self.controls.end(self.thread.thread());
        let (last, end) = self.thread.join().expect("the observer does not panic");
        if let Some(part) = self.takeover.take_filled() {
            whole.append(&part);
        }
        whole.append(&last);
        end
    }
}

/// State of a running observation.
struct ObservationLoop {
    crew: ObserverThread,
    cost: Option<CostMeter>,
    whole: Analysis,
    live: LiveView,
    clock: Clock,
    names: SignalNames,
}

impl ObservationLoop {
    fn run_until_end(
        &mut self,
        options: &ObserveOptions,
        program: &mut ObservedProgram,
        signals: &PosixSignals,
        began: Instant,
    ) -> Result<ObservationEnd> {
        let mut fetched = Instant::now();
        loop {
            let caught = signals.wait(self.time_until_due()).context("cannot wait for POSIX signals")?;
            if caught.is_some_and(|caught| caught.asks_to_end()) {
                return Ok(ObservationEnd::Interrupted);
            }
            if let Some(lane) = self.crew.observed.filter(|lane| !is_online(*lane)) {
                return Ok(ObservationEnd::LaneGone { lane });
            }
            if self.crew.thread.is_finished() || !program.is_running() {
                return Ok(ObservationEnd::TargetGone);
            }
            if options.length.is_some_and(|length| began.elapsed() >= length) {
                return Ok(ObservationEnd::Whole);
            }
            self.step_cost_meter();
            if fetched.elapsed() >= FETCH_EVERY {
                fetched = Instant::now();
                self.crew.fetch_analyses(&mut self.whole);
                self.names.store_value_names(&self.whole);
                self.live.show(&self.whole, &self.names, &self.clock);
            }
        }
    }

    fn time_until_due(&self) -> Duration {
        let due = self.cost.as_ref().map(|cost| cost.due().saturating_duration_since(Instant::now()));
        due.map_or(LOOK_EVERY, |due| due.min(LOOK_EVERY))
    }

    /// Takes the next step of the cost measurement. A failure ends only this measurement, not the observation.
    fn step_cost_meter(&mut self) {
        let Some(cost) = &mut self.cost else { return };
        if Instant::now() < cost.due() {
            return;
        }
        match cost.finish_window() {
            Ok(order) => self.crew.apply_order(order),
            Err(_) => self.crew.apply_order(ObserverOrder::Observe),
        }
    }

    fn end(mut self, ended: ObservationEnd) -> (Analysis, SignalNames, Option<super::cost::Slowdown>, ObservationEnd) {
        self.live.clear();
        let lane = self.crew.lane;
        let end = self.crew.end(&mut self.whole);
        self.names.store_value_names(&self.whole);
        let ended = match end {
            ObserverEnd::Asked => ended,
            ObserverEnd::LaneGone => ObservationEnd::LaneGone { lane },
            ObserverEnd::Gone { signal, why } => {
                ObservationEnd::ChannelGone { signal: self.names.signal(signal), why: describe_channel_end(&why) }
            }
        };
        let slowdown = self.cost.as_ref().and_then(CostMeter::slowdown);
        (self.whole, self.names, slowdown, ended)
    }
}

/// Returns whether the lane is online. A CPU that cannot go offline has no file `online`.
fn is_online(lane: u32) -> bool {
    let state = std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu{lane}/online"));
    state.is_err() || state.is_ok_and(|state| state.trim() != "0")
}

fn describe_channel_end(end: &ChannelEnd) -> String {
    match end {
        ChannelEnd::Target => "its process has ended".to_owned(),
        ChannelEnd::Error(error) => error.to_string(),
    }
}

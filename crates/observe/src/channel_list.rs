//! Finds the channels of the requested signals.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::analysis::{Operand, Rate, Recipe};
use super::dte::DoubleTimeErrorFilter;
use super::lane_choice::ChosenLanes;
use super::observed_program::ObservedProgram;
use super::sample::{Layout, SIGNALS_MAX};
use crate::note::ObserveNote;
use sidelane_channels::app::EmittedSignals;
use sidelane_channels::lane::{LANE, LaneTracking};
use sidelane_channels::perf::LanePair;
use sidelane_channels::signal::{Kind, Signal, Source};
use sidelane_channels::{Channel, file, hsperf, memory, perf};
use sidelane_host::ports::listeners;
use sidelane_requests::can_track;

/// Time that a program may take from its start until it emits the signal.
const APPEARS_WITHIN: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Channels of an observation, in the order of reading.
pub struct ChannelList {
    /// Counters, read between the two readings of the clock.
    pub counters: Vec<Channel>,
    /// Tags, read after the second reading of the clock.
    pub tags: Vec<Channel>,
    /// Rates, computed from the counters.
    pub rates: Vec<Rate>,
    /// Tracking of the observed lane; `None` if no signal belongs to a lane.
    pub tracking: Option<LaneTracking>,
}

/// Returns whether any of these signals belongs to a lane.
pub fn any_needs_lane(signals: &[Signal]) -> bool {
    signals.iter().any(|signal| matches!(signal.source, Source::Lane | Source::Request | Source::Ipc | Source::Perf(_)))
}

/// Returns whether any of these signals is a counter that is readable on the target's own core only.
pub fn any_needs_same_core(signals: &[Signal]) -> bool {
    signals.iter().any(|signal| matches!(signal.source, Source::Ipc | Source::Perf(_)))
}

/// Returns the signals to observe if the user named none: the lane, requests, and a JVM's counters, as far as the
/// target has them. `program` is a target that runs already. The notes name the signals that are left out.
pub fn default_signals(program: Option<&ObservedProgram>, cpu: Option<u32>) -> Result<(Vec<Signal>, Vec<ObserveNote>)> {
    let left_out = |signal: &'static str, why: String| vec![ObserveNote::UsualLeftOut { signal, why }];
    let Some(program) = program else {
        let why = "these are searched only in programs that run already".to_owned();
        return Ok((vec!["lane".parse()?], left_out("request and jvm", why)));
    };
    let is_on_one_lane = cpu.is_some() || program.cpus().len() == 1;
    let (mut names, notes) = match reason_requests_unobservable(program) {
        _ if !is_on_one_lane => {
            let why = "the target may run on several CPUs; name one with --cpu".to_owned();
            (vec![], left_out("lane and request", why))
        }
        Some(why) => (vec!["lane"], left_out("request", why)),
        None => (vec!["lane", "request"], vec![]),
    };
    names.extend(program.pids().iter().any(|pid| hsperf::Jvm::open(*pid).is_ok()).then_some("jvm"));
    ensure!(
        !names.is_empty(),
        "nothing to observe: the target may run on several CPUs; name one with --cpu, or a signal with --signal \
         (`sidelane list` shows them)"
    );
    Ok((names.into_iter().map(str::parse).collect::<Result<_, _>>()?, notes))
}

/// Returns why requests of a program cannot be observed; `None` if they can.
fn reason_requests_unobservable(program: &ObservedProgram) -> Option<String> {
    match can_track() {
        Err(error) => Some(error.to_string()),
        Ok(()) => listeners(program.pids(), None).is_empty().then(|| "it listens at no TCP port".to_owned()),
    }
}

impl ChannelList {
    /// Finds the channels of `signals`.
    pub fn find(signals: &[Signal], program: &mut ObservedProgram, places: &ChosenLanes) -> Result<Self> {
        let tracking = start_lane_tracking(signals, program, places.observed)?;
        let mut wanted = Self { counters: vec![], tags: vec![], rates: vec![], tracking };
        for signal in signals {
            wanted.add(signal, program, places).with_context(|| format!("signal `{}`", signal.name))?;
        }
        wanted.add_rates();
        wanted.check_signals()?;
        Ok(wanted)
    }

    fn add(&mut self, signal: &Signal, program: &mut ObservedProgram, places: &ChosenLanes) -> Result<()> {
        let vantage = vantage(places);
        let channels = match (&signal.source, &self.tracking) {
            (Source::Lane, Some(tracking)) => vec![tracking.lane_channel()],
            (Source::Request, Some(tracking)) => tracking.request_channels(),
            (Source::App(name), _) => wait_for_emitted_signal(name, program)?,
            (Source::Perf(event), _) => vec![perf::event_channel(event, vantage?)?],
            (Source::Ipc, _) => {
                let (instructions, cycles) = (self.counters.len(), self.counters.len() + 1);
                let [count, per] = [instructions, cycles].map(Operand::Counter);
                self.rates.push(Rate { name: "ipc".to_owned(), count, per });
                perf::instructions_and_cycles(vantage?)?.into()
            }
            (Source::Cpc, _) => {
                self.rates.push(cycles_per_cycle_rate());
                vec![]
            }
            (Source::Jvm(name), _) => hsperf::channels(signal, name.as_deref(), program.pids())?,
            (Source::Memory { pid, place, width }, _) => memory::channels(signal, *pid, place, *width, program.pids())?,
            (Source::File { path, field }, _) => vec![file::channel(signal, path, field.as_deref())?],
            (Source::Lane | Source::Request, None) => bail!(ONE_CPU),
        };
        channels.into_iter().for_each(|channel| self.add_channel(channel, signal.kind));
        Ok(())
    }

    /// Adds a channel. A kind that the user gave takes precedence over the channel's own kind.
    fn add_channel(&mut self, mut channel: Channel, requested_kind: Option<Kind>) {
        channel.kind = match requested_kind {
            Some(Kind::Tag) => Kind::Tag,
            Some(_) => Kind::Counter,
            None => channel.kind,
        };
        if channel.kind == Kind::Tag { &mut self.tags } else { &mut self.counters }.push(channel);
    }

    fn add_rates(&mut self) {
        let rates = rates_of_counters(self.counters.iter().map(|channel| channel.name.as_str()));
        // The rates of the counters come before CPC (cycles per cycle), since the first two rates make the grid.
        self.rates.splice(0..0, rates);
    }

    fn check_signals(&self) -> Result<()> {
        let signals = self.layout().signal_count();
        ensure!(
            signals > 0 || !self.rates.is_empty(),
            "nothing to observe; name a signal with --signal (`sidelane list` shows them)"
        );
        ensure!(signals <= SIGNALS_MAX, "cannot observe {signals} signals at once; name at most {SIGNALS_MAX}");
        let mut names = BTreeSet::new();
        let twice = self.counters.iter().chain(&self.tags).find(|channel| !names.insert(&channel.name));
        ensure!(twice.is_none(), "signal `{}` is named twice; name it once", twice.map_or("", |channel| &channel.name));
        Ok(())
    }

    /// Returns the number of counters and of tags in a sample.
    pub fn layout(&self) -> Layout {
        Layout { counters: self.counters.len(), tags: self.tags.len() }
    }

    /// Returns what to compute from the samples.
    pub fn recipe(&self, tolerance: f64) -> Recipe {
        Recipe {
            layout: self.layout(),
            rates: self.rates.clone(),
            dte: DoubleTimeErrorFilter::new(tolerance),
            only_target: self.tracking.is_some(),
            lane_tag: lane_tag_index(self.tags.iter().map(|tag| tag.name.as_str())),
        }
    }
}

/// Returns a rate per time for each counter.
pub fn rates_of_counters<'a>(counter_names: impl Iterator<Item = &'a str>) -> Vec<Rate> {
    let of = |(number, name): (usize, &str)| Rate {
        name: name.to_owned(),
        count: Operand::Counter(number),
        per: Operand::Cycles,
    };
    counter_names.enumerate().map(of).collect()
}

/// Returns the index of the tag for the running thread, if there is such a tag.
pub fn lane_tag_index<'a>(mut tags: impl Iterator<Item = &'a str>) -> Option<usize> {
    tags.position(|name| name == LANE)
}

/// Error for a signal of one CPU, if no CPU is observed.
const ONE_CPU: &str = "this signal belongs to one CPU, and the target may run on several; name one with --cpu";

fn vantage(places: &ChosenLanes) -> Result<LanePair> {
    let observed = places.observed.context(ONE_CPU)?;
    Ok(LanePair { observed, observer: places.observer, same_core: places.same_core })
}

/// Returns the rate of cycles per cycle, whose correct value is 1. It shows how well the two readings of the clock
/// agree.
fn cycles_per_cycle_rate() -> Rate {
    Rate { name: "cpc".to_owned(), count: Operand::EndCycles, per: Operand::Cycles }
}

fn start_lane_tracking(
    signals: &[Signal],
    program: &ObservedProgram,
    lane: Option<u32>,
) -> Result<Option<LaneTracking>> {
    let requests = signals.iter().any(|signal| signal.source == Source::Request);
    let wanted = requests || signals.iter().any(|signal| signal.source == Source::Lane);
    match lane {
        Some(lane) if wanted => LaneTracking::start(lane, program.name(), program.pids(), requests).map(Some),
        _ => Ok(None),
    }
}

/// Waits until a command that was just started emits the signal, and returns its channels.
fn wait_for_emitted_signal(name: &str, program: &mut ObservedProgram) -> Result<Vec<Channel>> {
    let began = Instant::now();
    loop {
        let emitting: Vec<EmittedSignals> = program.pids().iter().flat_map(|pid| EmittedSignals::find(*pid)).collect();
        let channels: Vec<Channel> = emitting.iter().flat_map(|emitted| emitted.channels(name)).collect();
        if !channels.is_empty() {
            return Ok(channels);
        }
        let waits = program.is_launched() && program.is_running() && began.elapsed() < APPEARS_WITHIN;
        if !waits {
            return Err(not_emitted_error(name, &emitting, program));
        }
        thread::sleep(LOOK_EVERY);
    }
}

fn not_emitted_error(name: &str, emitting: &[EmittedSignals], program: &mut ObservedProgram) -> anyhow::Error {
    if !program.is_running() {
        return anyhow::anyhow!(
            "{} ended before it emitted `{name}`; name a signal that it emits at its start",
            program.name()
        );
    }
    let names: Vec<String> = emitting.iter().flat_map(EmittedSignals::names).map(|emitted| emitted.name).collect();
    if names.is_empty() {
        return anyhow::anyhow!(
            "{} emits no signals; let it set `{name}` with runtime/c/sidelane_signal.h or the Java class \
             dev.sidelane.Signals, or choose another signal (`sidelane list`)",
            program.name()
        );
    }
    anyhow::anyhow!("{} emits no signal `{name}`; choose one of {}", program.name(), names.join(", "))
}

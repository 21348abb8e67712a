//! Diagnosis of slow requests from their timelines: their causes, ranked.
//!
//! Memory is bounded. All requests are counted by class of latency (a quarter of an octave), and summaries of a sample
//! of each class are stored. So the limit for slow requests can be decided at the end. Slow requests are rare, so
//! nearly all of their summaries are stored.

mod digest;
mod exemplars;
mod normal;
mod text;
mod waits;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use sidelane_policy::histogram::{bucket, first_value_of_bucket};

use crate::advice::advice;
use crate::cause::Cause;
use crate::diagnosis::{Bar, CauseTime, Diagnosis, Finding, TracerCost, UndetectableCause};
use crate::record::{Kind, Kinds};
use crate::timeline::Timeline;

use digest::{Clue, Digest, times_of};
use exemplars::Exemplars;
use normal::{NO_TIMES, NormalStatistics, NormalTimes, Times, cause_index, histogram, main_cause_of_excess};
pub use text::{NameSource, Names, format_time};

/// Binary logarithm of the number of latency classes in an octave (a factor of two).
const CLASS_BITS: u32 = 2;
/// The most request summaries that are kept for each class of latency.
const DIGESTS: usize = 128;
/// Number of example requests for each finding.
const EXAMPLES: usize = 3;
/// The most sentences of a finding's evidence about threads and objects.
const SENTENCES: usize = 3;

/// Definition of a slow request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Objective {
    /// Requests above this latency are slow, in nanoseconds.
    Latency(u64),
    /// Requests above this percentile of latency are slow, as a share: 0.99, for example.
    Percentile(f64),
}

/// Settings for the diagnosis of slow requests.
#[derive(Debug, Clone, Copy)]
pub struct DiagnoserSettings {
    /// Definition of a slow request.
    pub objective: Objective,
    /// Kinds of records that the kernel makes.
    pub kinds: Kinds,
    /// Number of the slowest requests whose timelines are kept.
    pub slowest: usize,
}

impl Default for DiagnoserSettings {
    fn default() -> DiagnoserSettings {
        DiagnoserSettings { objective: Objective::Percentile(0.99), kinds: Kinds::all(), slowest: 50 }
    }
}

/// Requests of about the same latency.
#[derive(Debug)]
struct Class {
    requests: u64,
    times: Times,
    digests: Vec<Digest>,
}

impl Default for Class {
    fn default() -> Class {
        Class { requests: 0, times: NO_TIMES, digests: Vec::new() }
    }
}

impl Class {
    /// Returns the number of requests that each kept summary of this class stands for.
    fn weight(&self) -> f64 {
        self.requests as f64 / self.digests.len() as f64
    }
}

/// A diagnoser that finds the causes of slow requests from their timelines.
#[derive(Debug)]
pub struct Diagnoser {
    settings: DiagnoserSettings,
    latencies: Histogram<u64>,
    normals: NormalStatistics,
    normal_latencies: Histogram<u64>,
    classes: BTreeMap<usize, Class>,
    exemplars: Exemplars,
    incomplete: u64,
    slow: u64,
    /// Cost of the tracer to all requests. `made_slow` and `tail_ns`, which need slow requests, are not set.
    tracer: TracerCost,
    random: fastrand::Rng,
}

impl Diagnoser {
    /// Creates a diagnoser that has no timelines yet.
    pub fn new(settings: DiagnoserSettings) -> Diagnoser {
        Diagnoser {
            settings,
            latencies: histogram(),
            normals: NormalStatistics::default(),
            normal_latencies: histogram(),
            classes: BTreeMap::new(),
            exemplars: Exemplars::new(settings.slowest),
            incomplete: 0,
            slow: 0,
            tracer: TracerCost::default(),
            random: fastrand::Rng::with_seed(0),
        }
    }

    /// Adds the timeline of a request to the statistics.
    pub fn add(&mut self, timeline: &Timeline) {
        if timeline.incomplete.is_some() {
            self.incomplete += 1;
            return;
        }
        let (latency_ns, times) = (timeline.latency_ns(), times_of(timeline));
        self.latencies += latency_ns;
        let tracer_ns = times[cause_index(Cause::Tracer)];
        self.tracer.delayed += u64::from(tracer_ns > 0);
        self.tracer.longest_ns = self.tracer.longest_ns.max(tracer_ns);
        // Only a latency objective tells slow requests apart here. With a percentile, nearly all requests are normal,
        // and the few slow ones hardly change the medians.
        if matches!(self.settings.objective, Objective::Latency(slo_ns) if latency_ns > slo_ns) {
            self.slow += 1;
        } else {
            self.normals.add(&times);
            self.normal_latencies += latency_ns;
        }
        self.exemplars.add_candidate(timeline, &times);
        self.add_sample(timeline, times);
    }

    fn add_sample(&mut self, timeline: &Timeline, times: Times) {
        let class = self.classes.entry(bucket(timeline.latency_ns(), CLASS_BITS)).or_default();
        class.requests += 1;
        class.times.iter_mut().zip(times).for_each(|(sum, time_ns)| *sum = sum.saturating_add(time_ns));
        if class.digests.len() < DIGESTS {
            class.digests.push(Digest::new(timeline, times));
            return;
        }
        // Each request of the class is kept with the same probability (reservoir sampling).
        let place = self.random.u64(..class.requests) as usize;
        if place < DIGESTS {
            class.digests[place] = Digest::new(timeline, times);
        }
    }

    /// Returns the latency above which a request is slow, in nanoseconds. If the objective is a percentile, it is that
    /// percentile of the requests so far.
    pub fn slo_ns(&self) -> u64 {
        match self.settings.objective {
            Objective::Latency(slo_ns) => slo_ns,
            Objective::Percentile(share) => self.latencies.value_at_quantile(share),
        }
    }

    /// Returns the cause that explains most of a request's time above the normal. `None` if the request is not slow, if
    /// its timeline is incomplete, or if no cause explains most of that time.
    pub fn main_cause(&self, timeline: &Timeline) -> Option<Cause> {
        main_cause(&self.normals.medians(), self.slo_ns(), timeline)
    }

    /// Returns the kept timelines of the slowest requests, the slowest first.
    pub fn slowest(&self) -> impl Iterator<Item = &Timeline> {
        self.exemplars.slowest()
    }

    /// Returns the timeline of a request, if it is one of the slowest or an example.
    pub fn timeline(&self, request: u64) -> Option<&Timeline> {
        self.exemplars.find(request)
    }

    /// Returns the latency distribution of all requests, each bar with its time by cause.
    pub fn latency_bars(&self) -> Vec<Bar> {
        let bar = |(index, class): (&usize, &Class)| Bar {
            from_ns: first_value_of_bucket(*index, CLASS_BITS),
            to_ns: first_value_of_bucket(*index + 1, CLASS_BITS),
            requests: class.requests,
            time: (Cause::ALL.into_iter().zip(class.times).filter(|(_, ns)| *ns > 0))
                .map(|(cause, ns)| CauseTime { cause, ns })
                .collect(),
        };
        self.classes.iter().map(bar).collect()
    }

    /// Returns the approximate memory of the diagnoser, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let digests: usize = self.classes.values().map(|class| class.digests.capacity()).sum();
        self.exemplars.memory_bytes() + digests * (size_of::<Digest>() + 5 * size_of::<Clue>()) + (2 << 20)
    }

    /// Returns the causes of slow requests, ranked. `names` knows the names of threads and processes.
    pub fn diagnose(&self, names: Names) -> Diagnosis {
        let tail = TailStatistics::new(self);
        let is_exact = matches!(self.settings.objective, Objective::Latency(_));
        let mut findings: Vec<Finding> = tail.findings(self, names).collect();
        findings.sort_by_key(|finding| (Reverse(finding.tail_ns), finding.cause));
        Diagnosis {
            requests: self.latencies.len(),
            slow: if is_exact { self.slow } else { tail.slow.round() as u64 },
            mixed: tail.mixed.round() as u64,
            incomplete: self.incomplete,
            normal_ns: self.normal_latencies.value_at_quantile(0.5),
            tail_ns: tail.sum_ns().round() as u64,
            tracer: TracerCost {
                made_slow: tail.tracer_made_slow.round() as u64,
                tail_ns: tail.tracer_ns.round() as u64,
                ..self.tracer
            },
            slo_ns: self.slo_ns(),
            findings,
            cannot_tell: undetectable_causes(self.settings.kinds),
        }
    }
}

fn main_cause(normal: &NormalTimes, slo_ns: u64, timeline: &Timeline) -> Option<Cause> {
    if timeline.incomplete.is_some() || timeline.latency_ns() <= slo_ns {
        return None;
    }
    let times = times_of(timeline);
    let is_slow_without_tracer = timeline.latency_ns() - times[cause_index(Cause::Tracer)] > slo_ns;
    is_slow_without_tracer.then(|| main_cause_of_excess(&excess_without_tracer(normal, &times))).flatten()
}

/// Returns the service's own time above the normal: waits for the tracer do not count.
fn excess_without_tracer(normal: &NormalTimes, times: &Times) -> Times {
    let mut above = normal.excess(times);
    above[cause_index(Cause::Tracer)] = 0;
    above
}

/// Returns the advice for a cause, with the next command to type if there is one.
fn advice_text(cause: Cause, detail: u64, clue: Option<&Clue>, names: Names) -> String {
    let usual = advice(cause, detail);
    clue.and_then(|clue| waits::advice_for_service(clue, names)).unwrap_or_else(|| usual.to_owned())
}

/// Returns the causes that cannot be found if only `kinds` are recorded, and the reasons.
fn undetectable_causes(kinds: Kinds) -> Vec<UndetectableCause> {
    let missing = |cause: Cause| {
        if cause.required_kinds().contains(&Kind::Woken) && !kinds.has(Kind::Woken) {
            let why = "it is not known here whether a thread or an interrupt wakes another thread".to_owned();
            return Some(UndetectableCause { cause, why });
        }
        let why = match cause {
            Cause::Sibling => "it observes no lanes of batch",
            _ => "this kernel does not report it",
        };
        (!cause.is_detectable(kinds)).then(|| UndetectableCause { cause, why: why.to_owned() })
    };
    // A service without a runtime has no pauses; a runtime whose pauses cannot be observed has a note.
    let has_pauses = |cause: &Cause| !matches!(cause, Cause::Collection | Cause::Safepoint);
    Cause::ALL.into_iter().filter(has_pauses).filter_map(missing).collect()
}

/// Time of the slow requests above the normal, by cause.
struct TailStatistics<'a> {
    normal: NormalTimes,
    slo_ns: u64,
    slow: f64,
    mixed: f64,
    /// Number of requests that would not have been slow without the tracer; `tracer_ns` is the time that all slow
    /// requests waited for the tracer.
    tracer_made_slow: f64,
    tracer_ns: f64,
    by_cause: Vec<CauseShare<'a>>,
}

/// Part of the slow requests' time that one cause explains.
#[derive(Default)]
struct CauseShare<'a> {
    tail_ns: f64,
    /// Number of requests for which this cause explains most of the time above the normal.
    claimed: f64,
    /// Kept requests for which this cause is claimed, each with the time of the cause above the normal.
    examples: Vec<(u64, &'a Digest)>,
    /// Number of slow requests in which this cause has any time above the normal.
    requests: f64,
    clues: Vec<(Clue, f64)>,
}

impl<'a> TailStatistics<'a> {
    fn new(diagnoser: &'a Diagnoser) -> TailStatistics<'a> {
        let mut tail = TailStatistics {
            normal: diagnoser.normals.medians(),
            slo_ns: diagnoser.slo_ns(),
            slow: 0.0,
            mixed: 0.0,
            tracer_made_slow: 0.0,
            tracer_ns: 0.0,
            by_cause: Cause::ALL.iter().map(|_| CauseShare::default()).collect(),
        };
        for class in diagnoser.classes.values() {
            class.digests.iter().for_each(|digest| tail.add(digest, class.weight()));
        }
        tail
    }

    fn add(&mut self, digest: &'a Digest, weight: f64) {
        if digest.latency_ns <= self.slo_ns {
            return;
        }
        self.slow += weight;
        let tracer_ns = digest.times[cause_index(Cause::Tracer)];
        self.tracer_ns += tracer_ns as f64 * weight;
        if digest.latency_ns - tracer_ns <= self.slo_ns {
            self.tracer_made_slow += weight;
            return;
        }
        let above = excess_without_tracer(&self.normal, &digest.times);
        match main_cause_of_excess(&above) {
            Some(cause) => {
                let share = &mut self.by_cause[cause_index(cause)];
                share.claimed += weight;
                share.examples.push((above[cause_index(cause)], digest));
            }
            None => self.mixed += weight,
        }
        for (share, above_ns) in self.by_cause.iter_mut().zip(above).filter(|(_, above_ns)| *above_ns > 0) {
            share.tail_ns += above_ns as f64 * weight;
            share.requests += weight;
        }
        for clue in digest.clues.iter().filter(|clue| above[cause_index(clue.cause)] > 0) {
            self.by_cause[cause_index(clue.cause)].add_clue(clue, weight);
        }
    }

    fn sum_ns(&self) -> f64 {
        self.by_cause.iter().map(|share| share.tail_ns).sum()
    }

    fn findings(&self, diagnoser: &Diagnoser, names: Names) -> impl Iterator<Item = Finding> {
        let sum_ns = self.sum_ns();
        let shares = Cause::ALL.into_iter().zip(&self.by_cause).filter(|(_, share)| share.tail_ns >= 1.0);
        shares.map(move |(cause, share)| {
            let detail = share.first_clue().map_or(0, |clue| clue.detail);
            Finding {
                cause,
                requests: share.claimed.round() as u64,
                tail_ns: share.tail_ns.round() as u64,
                share_percent: share.tail_ns / sum_ns * 100.0,
                examples: self.examples(cause, share, diagnoser),
                evidence: share.evidence(self.slow, names),
                advice: advice_text(cause, detail, share.first_clue(), names),
            }
        })
    }

    /// Returns requests for which the cause is claimed: first those whose timelines are kept, then those with the
    /// clearest evidence.
    fn examples(&self, cause: Cause, share: &CauseShare, diagnoser: &Diagnoser) -> Vec<u64> {
        let is_clear = |timeline: &&&Timeline| main_cause(&self.normal, self.slo_ns, timeline) == Some(cause);
        let kept = diagnoser.exemplars.examples_of_cause(cause);
        let mut examples: Vec<u64> = kept.iter().filter(is_clear).map(|timeline| timeline.request).collect();
        let mut others: Vec<&(u64, &Digest)> = share.examples.iter().collect();
        others.sort_by_key(|(above_ns, digest)| (Reverse(*above_ns), digest.request));
        for (_, digest) in others {
            if !examples.contains(&digest.request) {
                examples.push(digest.request);
            }
        }
        examples.truncate(EXAMPLES);
        examples
    }
}

impl CauseShare<'_> {
    fn add_clue(&mut self, clue: &Clue, weight: f64) {
        match self.clues.iter_mut().find(|(other, _)| other.is_same_except_times(clue)) {
            Some((known, sum_ns)) => {
                known.merge(clue, 0);
                *sum_ns += clue.sum_ns as f64 * weight;
            }
            None => self.clues.push((*clue, clue.sum_ns as f64 * weight)),
        }
    }

    fn sorted_clues(&self) -> Vec<&(Clue, f64)> {
        let mut clues: Vec<&(Clue, f64)> = self.clues.iter().collect();
        clues.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.detail.cmp(&other.0.detail)));
        clues
    }

    fn first_clue(&self) -> Option<&Clue> {
        self.sorted_clues().first().map(|(clue, _)| clue)
    }

    fn evidence(&self, slow_requests: f64, names: Names) -> Vec<String> {
        let mean_ns = (self.tail_ns / self.requests).round() as u64;
        let first = format!(
            "in {:.0} of {slow_requests:.0} slow requests, on average {} above normal",
            self.requests,
            format_time(mean_ns)
        );
        let clues = self.sorted_clues().into_iter().take(SENTENCES).map(|(clue, sum_ns)| {
            let times = format!(
                "{} in all, at most {} at once",
                format_time(sum_ns.round() as u64),
                format_time(clue.longest_ns)
            );
            format!("{}: {times}", text::describe_clue(clue, names))
        });
        std::iter::once(first).chain(clues).collect()
    }
}

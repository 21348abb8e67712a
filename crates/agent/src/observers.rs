//! Observation of what could be lent, while the agent lends nothing: the idle time of each service's lanes by day, and
//! recordings for `sidelane estimate`.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use sidelane_diagnostics::machine;
use sidelane_host::topology::{Lanes, PairKind};
use sidelane_policy::Nanos;
use sidelane_requests::{Request, RequestSource};
use sidelane_tracker::accounting::Accounting;
use sidelane_tracker::ledger::TurnKind;

use crate::config::{Config, Kind};
use crate::discover::ServiceId;
use crate::modules::{Recordings, target_of};
use crate::status::{ObservedDay, ObservedStatus};
use crate::tracked::AgentService;
use sidelane_estimate::observe::{SECOND_NS, SecondRecorder};
use sidelane_sim::recording::Head;

/// Length of a recording, and time from the begin of one to the begin of the next.
const RECORDING_NS: Nanos = 60 * SECOND_NS;
const RECORDING_EVERY_NS: Nanos = 10 * RECORDING_NS;
/// Number of days whose sums are kept.
const DAYS: usize = 7;
const DAY_S: u64 = 86_400;

/// Observers of all services, while the agent lends nothing.
pub struct Observers {
    /// Recordings of all services.
    pub recordings: Recordings,
    of_services: BTreeMap<ServiceId, Observer>,
}

/// Observer of one service.
struct Observer {
    name: String,
    lanes: Lanes,
    /// Accounting up to which idle time is counted.
    counted: Accounting,
    days: Days,
    recorder: Option<SecondRecorder>,
    /// Begin of the present recording, or of the next one.
    begin_ns: Nanos,
    /// Number of lost requests at the begin of the present second.
    lost: u64,
}

impl Observers {
    /// Makes observers without a service; `None` unless the file asks for them. A dry run records nothing.
    pub fn new(config: &Config, may_record: bool) -> Result<Option<Self>> {
        let Kind::Observe(rule) = &config.policy.kind else { return Ok(None) };
        if !may_record {
            return Ok(None);
        }
        Ok(Some(Self { recordings: Recordings::start(rule.clone())?, of_services: BTreeMap::new() }))
    }

    /// Adds a request of a service to its recording, if one is being made.
    pub fn record_request(&mut self, service: ServiceId, request: &Request) {
        let recorder = self.of_services.get_mut(&service).and_then(|observer| observer.recorder.as_mut());
        recorder.into_iter().for_each(|recorder| recorder.add(request));
    }

    /// Observes services until `now`.
    pub fn advance<'a>(&mut self, services: impl Iterator<Item = &'a AgentService>, config: &Config, now: &Accounting) {
        let mut before = std::mem::take(&mut self.of_services);
        for served in services {
            let lanes = served.tracked.tracking.lanes();
            let observer = before.remove(&served.found.id).filter(|observer| observer.lanes == *lanes);
            let mut observer = observer.unwrap_or_else(|| {
                self.recordings.complete(&served.found.name);
                Observer::new(served.found.name.clone(), lanes.clone(), now.clone())
            });
            observer.count_idle_time(now);
            observer.record(served, config, now, &self.recordings);
            self.of_services.insert(served.found.id, observer);
        }
        before.values().for_each(|gone| self.recordings.complete(&gone.name));
    }

    /// Returns what could be lent beside a service; `None` if it has no lanes.
    pub fn status(&self, served: &AgentService) -> Option<ObservedStatus> {
        let observer = self.of_services.get(&served.found.id).filter(|observer| !observer.lanes.batch.is_empty())?;
        let recordings = self.recordings.of_service(&served.found.name);
        Some(ObservedStatus {
            lanes: observer.lanes.batch_cpus().to_string(),
            days: observer.days.list.clone(),
            recordings_count: recordings.as_ref().map_or(0, |(count, _)| *count),
            recordings: recordings.map(|(_, folder)| folder.display().to_string()),
        })
    }
}

impl Observer {
    fn new(name: String, lanes: Lanes, now: Accounting) -> Self {
        let begin_ns = now.at_ns;
        Self { name, lanes, counted: now, days: Days::default(), recorder: None, begin_ns, lost: 0 }
    }

    /// Counts the time of the batch lanes, and the part of it that batch could have had.
    fn count_idle_time(&mut self, now: &Accounting) {
        if now.at_ns.saturating_sub(self.counted.at_ns) < SECOND_NS {
            return;
        }
        let used = now.since(&self.counted);
        self.counted = now.clone();
        let times = self.lanes.batch.iter().map(|lane| used.lane(lane.cpu).ledger);
        let (mut observed_ns, mut lendable_ns) = (0, 0);
        for times in times {
            observed_ns += used.at_ns;
            lendable_ns += times.idle_ns(TurnKind::Empty) + times.idle_ns(TurnKind::Batch);
        }
        self.days.add(unix_time_s(), observed_ns, lendable_ns);
    }

    /// Continues the recording of the service, or begins one that is due.
    fn record(&mut self, served: &AgentService, config: &Config, now: &Accounting, recordings: &Recordings) {
        let lost = served.figures.lost;
        let Some(recorder) = &mut self.recorder else {
            let head = (now.at_ns >= self.begin_ns).then(|| head_of(served, config)).flatten();
            if head.is_some_and(|head| recordings.begin(&self.name, head)) {
                (self.begin_ns, self.lost) = (now.at_ns, lost);
                self.recorder = Some(SecondRecorder::new(&self.lanes, now.clone()));
            }
            return;
        };
        if now.at_ns - recorder.second_began_ns() < SECOND_NS {
            return;
        }
        let is_written = recordings.add(&self.name, recorder.end_second(now.clone(), lost - self.lost));
        self.lost = lost;
        if !is_written || now.at_ns - self.begin_ns >= RECORDING_NS {
            recordings.complete(&self.name);
            (self.recorder, self.begin_ns) = (None, self.begin_ns + RECORDING_EVERY_NS);
        }
    }
}

/// Sums by day (UTC), the oldest first.
#[derive(Clone, Debug, Default)]
struct Days {
    list: Vec<ObservedDay>,
}

impl Days {
    fn add(&mut self, unix_s: u64, observed_ns: Nanos, lendable_ns: Nanos) {
        let begin_unix_s = unix_s - unix_s % DAY_S;
        // A clock that was set back adds to the last day.
        if self.list.last().is_none_or(|last| last.begin_unix_s < begin_unix_s) {
            self.list.push(ObservedDay { begin_unix_s, ..ObservedDay::default() });
            let surplus = self.list.len().saturating_sub(DAYS);
            self.list.drain(..surplus);
        }
        if let Some(day) = self.list.last_mut() {
            day.observed_s += observed_ns as f64 / 1e9;
            day.lendable_s += lendable_ns as f64 / 1e9;
        }
    }
}

fn unix_time_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Returns the description of a recording of this service; `None` if there is nothing to record.
fn head_of(served: &AgentService, config: &Config) -> Option<Head> {
    let tracked = &served.tracked;
    let source = tracked.requests.source.as_ref().map(RequestSource::kind)?;
    let lanes = tracked.tracking.lanes();
    let (request_lanes, batch_lanes): (Vec<u32>, Vec<u32>) =
        (lanes.request_lanes.iter().collect(), lanes.batch_cpus().iter().collect());
    if batch_lanes.is_empty() {
        return None;
    }
    let pairs = lanes.batch.iter().flat_map(|lane| lane.request_lanes.iter().map(|request| (request, lane.cpu)));
    let pairs: Vec<String> = pairs.map(|(request, batch)| format!("{request}:{batch}")).collect();
    let is_declared = !config.policy.siblings.is_empty();
    Some(Head {
        service: target_of(&served.found, config)
            .map_or_else(|| served.found.name.clone(), |target| target.to_string()),
        request_lanes,
        batch_lanes,
        declared: is_declared.then(|| pairs.join(",")),
        source: source.to_string(),
        machine: machine::describe(if is_declared { PairKind::Declared } else { PairKind::Smt }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_summed_by_day_for_a_week() {
        let mut days = Days::default();
        for day in 0..10 {
            days.add(day * DAY_S + 5, 2_000_000_000, 1_500_000_000);
            days.add(day * DAY_S + DAY_S - 1, 2_000_000_000, 0);
        }
        days.add(3, 1_000_000_000, 0);
        let sums: Vec<(u64, f64, f64)> =
            days.list.iter().map(|day| (day.begin_unix_s / DAY_S, day.observed_s, day.lendable_s)).collect();
        assert_eq!(sums.len(), DAYS);
        assert_eq!((sums[0], sums[6]), ((3, 4.0, 1.5), (9, 5.0, 1.5)));
    }
}

//! What each policy would give and cost, by simulation beside the recorded work.

use sidelane_policy::borrow::{BorrowConfig, Objective, PolicyKind};
use sidelane_sim::Figures;
use sidelane_sim::arrivals::Arrivals;
use sidelane_sim::demand::Demand;
use sidelane_sim::gate::Gate;
use sidelane_sim::model::{
    BatchMode, Budget, Job, LANES_MAX, Lending, Machine, Model, Queue, RunEnd, Service, Setting as SimSetting,
};
use sidelane_sim::parallel;
use sidelane_sim::recording::Recording;
use sidelane_sim::smt::Interference;
use sidelane_sim::sweep::run_machine;
use sidelane_sim::tasks::Tasks;
use sidelane_sim::time::S;

/// Queue limit of the simulated service, which is never reached: the recorded service refused nothing.
const QUEUE_MAX: usize = 10_000_000;
pub(crate) const DAY_S: f64 = 86_400.0;

/// A way of sharing the lanes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Setting {
    /// The service without batch.
    Alone,
    /// Batch on its lanes without Sidelane, in SCHED_IDLE.
    Unmanaged,
    /// Batch under a policy. A policy that runs batch beside requests has the objective for it.
    Lent(PolicyKind),
}

/// What a setting would give and cost.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The way of sharing the lanes.
    pub setting: Setting,
    /// How many times as long service and batch take beside each other.
    pub slowdown: f64,
    /// Figures of the simulation.
    pub figures: Figures,
    /// CPU time that batch would get in a day, in seconds.
    pub batch_per_day_s: f64,
}

/// Smallest and largest slowdown of service and batch beside each other, as 1.2 for 20 %.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlowdownRange {
    /// Smallest slowdown, at least 1.
    pub low: f64,
    /// Largest slowdown.
    pub high: f64,
}

impl SlowdownRange {
    /// What lanes of one core do to each other, where nothing else is known: papers and machines have from 1.2 to 1.8.
    pub const OF_SIBLINGS: Self = Self { low: 1.2, high: 1.8 };

    /// Parses one number, or two with `-` between them.
    ///
    /// # Errors
    /// An error says what is wrong, with an example.
    pub fn parse(text: &str) -> Result<Self, String> {
        const EXAMPLE: &str = "write a factor or two, as in 1.3 or 1.2-1.8";
        let number = |text: &str| {
            let number = text.parse::<f64>().map_err(|_| format!("'{text}' is no number; {EXAMPLE}"))?;
            let is_valid = (1.0..=10.0).contains(&number);
            is_valid.then_some(number).ok_or_else(|| format!("{text} is not from 1 to 10; {EXAMPLE}"))
        };
        let (low, high) = text.split_once('-').unwrap_or((text, text));
        let range = Self { low: number(low)?, high: number(high)? };
        if range.low > range.high { Err(format!("{low} is more than {high}; {EXAMPLE}")) } else { Ok(range) }
    }
}

impl Outcome {
    /// Returns the CPU time of batch as a share of time; above 1 with several lanes.
    pub fn batch_share(&self) -> f64 {
        self.batch_per_day_s / DAY_S
    }
}

/// Outcomes of a setting with the smallest and the largest slowdown.
#[derive(Clone, Debug)]
pub struct Estimated {
    /// Outcome with the smallest slowdown.
    pub low: Outcome,
    /// Outcome with the largest slowdown.
    pub high: Outcome,
}

impl Estimated {
    /// Returns the CPU time that batch would get in a day, in seconds: at least and at most.
    pub(crate) fn batch_ends_s(&self) -> (f64, f64) {
        let (one, other) = (self.low.batch_per_day_s, self.high.batch_per_day_s);
        (one.min(other), one.max(other))
    }
}

/// Settings of an estimate: without batch, under each policy, without Sidelane.
const SETTINGS: [Setting; 5] = [
    Setting::Alone,
    Setting::Lent(PolicyKind::BorrowIdle),
    Setting::Lent(PolicyKind::DynamicRefresh),
    Setting::Lent(PolicyKind::Deadline),
    Setting::Unmanaged,
];

/// Simulates all settings with both ends of the range, on all CPUs of this process.
pub fn estimate(recording: &Recording, tasks: &Tasks, objective: Objective, range: SlowdownRange) -> Vec<Estimated> {
    let outcomes = parallel::map(2 * SETTINGS.len(), parallel::threads(), |index| {
        let slowdown = if index % 2 == 0 { range.low } else { range.high };
        simulate(recording, tasks, SETTINGS[index / 2], objective, slowdown)
    });
    outcomes.chunks(2).map(|pair| Estimated { low: pair[0].clone(), high: pair[1].clone() }).collect()
}

/// Simulates a setting beside the work of a recording.
pub fn simulate(
    recording: &Recording,
    tasks: &Tasks,
    setting: Setting,
    objective: Objective,
    slowdown: f64,
) -> Outcome {
    let model = model(recording, tasks, setting, objective, slowdown);
    let figures = run_machine(&model);
    // A core's batch lanes are simulated as equal; the recording may have fewer lanes than that.
    let per_core = (model.machine.lanes_per_core - 1) as f64;
    let lanes = recording.head.batch_lanes.len() as f64;
    // Without Sidelane, batch also runs while a woken thread of the service waits.
    let unneeded_share = if setting == Setting::Unmanaged { 1.0 } else { recording.unneeded_share() };
    let open_share = unneeded_share * (1.0 - recording.others_share());
    let batch_per_day_s = figures.batch_utilisation / per_core * lanes * DAY_S * open_share;
    Outcome { setting, slowdown, figures, batch_per_day_s }
}

fn model(recording: &Recording, tasks: &Tasks, setting: Setting, objective: Objective, slowdown: f64) -> Model {
    let (request_lanes, batch_lanes) = (recording.head.request_lanes.len(), recording.head.batch_lanes.len());
    let mut smt = Interference::new(&["service".to_owned(), "batch".to_owned()]);
    let (service, batch) = (smt.class("service").expect("named above"), smt.class("batch").expect("named above"));
    smt.set_slowdown(service, batch, slowdown);
    smt.set_slowdown(batch, service, slowdown);
    let beside = match setting {
        Setting::Alone => BatchMode::Nothing,
        Setting::Unmanaged => BatchMode::Unmanaged,
        Setting::Lent(policy) => {
            let budget = if policy.needs_requests() { Budget::Slo } else { Budget::None };
            BatchMode::Lent(Lending::with_policy(policy, BorrowConfig::with_min_idle(None), budget))
        }
    };
    Model {
        machine: Machine {
            cores_per_package: request_lanes,
            lanes_per_core: (1 + batch_lanes.div_ceil(request_lanes)).min(LANES_MAX),
            counters: recording.head.machine.pmu,
            ..Machine::one_core()
        },
        service: Service {
            name: recording.head.service.clone(),
            class: service,
            workers: request_lanes,
            queue: Queue::PerWorker,
            queue_limit: QUEUE_MAX,
            arrivals: Arrivals::Recording(tasks.list.clone()),
            demand: Demand::Constant(1.0),
        },
        batch: vec![Job::endless("batch", batch)],
        smt,
        setting: SimSetting { name: String::new(), beside, gate: Gate::holder() },
        objective: Some(objective),
        faults: Vec::new(),
        warm_up_ns: 0,
        until: RunEnd::Time(recording.length_ns().max(S / 1_000)),
        seed: 1,
        node: 0,
    }
}

#[cfg(test)]
mod tests {
    use sidelane_diagnostics::machine;
    use sidelane_host::topology::PairKind;
    use sidelane_sim::recording::{Head, LaneSecond, RecordedRequest, Second};

    use super::*;

    /// Returns a recording of ten seconds: 1,000 requests a second on the first lane, each served for 200 µs of the
    /// 300 µs that its turn takes, and 100 µs away; and 100 turns a second without requests.
    fn recording() -> Recording {
        let at = |number: u64| number * 10_000 + number * 7_919 % 5_000;
        let mut requests: Vec<RecordedRequest> = (0..10_000)
            .map(|number| RecordedRequest { arrived: at(number), queueing: 1_000, server: 3_000, lane: 0 })
            .collect();
        requests.sort_by_key(|request| request.arrived);
        let lanes = vec![LaneSecond { busy: 1_000 * 4_000 + 100 * 1_000, turns: 1_100 }, LaneSecond::default()];
        // The two lanes are without the service for 79.5 % of the time.
        let second =
            Second { length: 10_000_000, lanes, beside_idle: 7_950_000, empty: 7_950_000, ..Second::default() };
        let head = Head {
            service: "port:1".to_owned(),
            request_lanes: vec![0, 2],
            batch_lanes: vec![1],
            declared: None,
            source: "seen at its sockets".to_owned(),
            machine: machine::describe(PairKind::Declared),
        };
        Recording { head, seconds: vec![second; 10], requests, is_cut: false }
    }

    #[test]
    fn replay_alone_has_the_recorded_latencies() {
        let recording = recording();
        let tasks = Tasks::new(&recording);
        let objective = Objective { percentile: 99.0, limit_ns: 1 };
        let Outcome { figures, .. } = simulate(&recording, &tasks, Setting::Alone, objective, 1.5);
        let recorded = |percentile: f64| tasks.latencies.value_at_percentile(percentile) as f64;
        for (percentile, ns) in [(50.0, figures.p50_ns), (99.0, figures.p99_ns)] {
            let ratio = ns as f64 / recorded(percentile);
            assert!((0.97..1.1).contains(&ratio), "p{percentile}: {ns} {}", recorded(percentile));
        }
        assert!((figures.lc_utilisation - 0.205).abs() < 0.01, "{}", figures.lc_utilisation);
    }

    #[test]
    fn batch_has_no_time_of_waits_and_of_others() {
        let mut recording = recording();
        let tasks = Tasks::new(&recording);
        let objective = Objective { percentile: 99.0, limit_ns: 1 };
        let mut shares_with = |beside_idle, empty| {
            recording.seconds.iter_mut().for_each(|second| (second.beside_idle, second.empty) = (beside_idle, empty));
            [Setting::Lent(PolicyKind::BorrowIdle), Setting::Unmanaged]
                .map(|setting| simulate(&recording, &tasks, setting, objective, 1.0).batch_share())
        };
        let [whole, unmanaged] = shares_with(7_950_000, 7_950_000);
        assert!((0.7..0.8).contains(&whole), "{whole}");
        let [open, unmanaged_open] = shares_with(7_950_000 / 5 * 4, 7_950_000 / 5 * 2);
        let ratio = open / whole;
        assert!((ratio - 0.4).abs() < 1e-9, "a fifth is waits, and others have half of the rest: {ratio}");
        let ratio = unmanaged_open / unmanaged;
        assert!((ratio - 0.5).abs() < 1e-9, "others have half, and waits are its own: {ratio}");
    }

    #[test]
    fn slowdown_range_is_read_or_refused() {
        assert_eq!(SlowdownRange::parse("1.3"), Ok(SlowdownRange { low: 1.3, high: 1.3 }));
        assert_eq!(SlowdownRange::parse("1.2-1.8"), Ok(SlowdownRange::OF_SIBLINGS));
        for (text, wanted) in [("fast", "no number"), ("0.5", "not from 1 to 10"), ("1.8-1.2", "more than 1.2")] {
            let error = SlowdownRange::parse(text).unwrap_err();
            assert!(error.contains(wanted) && error.ends_with("1.2-1.8"), "{error}");
        }
    }
}

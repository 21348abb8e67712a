//! The plan of the guard bench: the compared ways of sharing the machine, and the number and length of the runs, so
//! that the bench ends in time.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::ValueEnum;

use super::agent::{InterferenceSource, NotificationMode};
use crate::experiment::containers::{ContainerSchedule, Work};
use crate::experiment::sibling::SlowdownMechanism;
use crate::experiment::store::{Mix, Store};
use crate::note::LabNote;
use crate::programs::LabBinary;
use sidelane_diagnostics::note::Note;
use sidelane_stats::rounds::{Limit, RoundOptions};

/// Number of consecutive runs of one variant, which share one start of the agent.
pub(super) const RUNS_A_BLOCK: u64 = 3;
/// Fewest blocks of runs: they hold six runs of each variant, the fewest that give a confidence interval.
const BLOCKS_MIN: u64 = 2;
/// Request rate of each service for mixes of short requests, per second. Two services at this rate keep their lane half
/// busy, so that batch on the sibling lane makes requests queue. At lower rates a request mostly waits for the wakeup
/// of an idle CPU, and batch changes little. The promise on the agent's cost is for about 5 000 requests per second.
const RATE_PER_S: f64 = 8_000.0;
/// Limits on the rounds in which interference begins repeatedly and reactions are measured.
const ONSETS: Limit = Limit { first: 2, rounds: 8, time: Duration::from_secs(240) };
const ONSETS_QUICK: Limit = Limit { first: 1, rounds: 1, time: Duration::from_secs(10) };
/// Load of the request lane for the mix with scans, which take far longer than other requests.
const SCAN_LOAD: f64 = 0.25;

/// Options of `sidelane-lab bench guard`.
#[derive(Clone, Debug, Default)]
pub struct GuardOptions {
    /// Limit of rounds, and whether to measure fewer stores and mixes.
    pub round_options: RoundOptions,
    /// Lane pair from `--lanes`; by default SMT siblings if there are any, else CPUs 0 and 1.
    pub lanes: Option<String>,
    /// Emulation of the sibling from `--sibling`, if given.
    pub sibling: Option<SlowdownMechanism>,
    /// Ways of sharing; all by default. The stores alone are always among them.
    pub variants: Option<Vec<GuardVariant>>,
    /// Stores to measure; all by default.
    pub stores: Option<Vec<Store>>,
    /// Mixes by YCSB's names; all by default.
    pub mixes: Option<Vec<String>>,
    /// Source from `--interference`. The default is the page faults of an emulated sibling if the agent can count them,
    /// else the request times.
    pub source: Option<InterferenceSource>,
}

/// Policy that decides where batch may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GuardVariant {
    /// There is no batch.
    Alone,
    /// Batch runs without a policy.
    Unmanaged,
    /// The agent decides, with the policy PerfIso.
    #[value(name = "perfiso")]
    PerfIso,
    /// The agent decides, with the policy Holmes.
    Holmes,
    /// The agent decides, with the policy Holmes and a gate that keeps batch off its lanes while requests run.
    #[value(name = "holmes-gate")]
    HolmesGate,
}

impl GuardVariant {
    /// All variants, in the order of the tables.
    pub(super) const ALL: [Self; 5] = [Self::Alone, Self::Unmanaged, Self::PerfIso, Self::Holmes, Self::HolmesGate];

    /// Returns the name of the variant in results.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Unmanaged => "unmanaged",
            Self::PerfIso => "perfiso",
            Self::Holmes => "holmes",
            Self::HolmesGate => "holmes_gate",
        }
    }

    /// Returns the name of the variant for people.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Unmanaged => "batch unmanaged",
            Self::PerfIso => "PerfIso",
            Self::Holmes => "Holmes",
            Self::HolmesGate => "Holmes + lane gate",
        }
    }

    pub(super) fn has_batch(self) -> bool {
        self != Self::Alone
    }

    pub(super) fn has_agent(self) -> bool {
        matches!(self, Self::PerfIso | Self::Holmes | Self::HolmesGate)
    }
}

/// Plan of the whole guard bench.
pub(super) struct Plan {
    pub(super) round_options: RoundOptions,
    pub(super) groups: Vec<Group>,
    pub(super) variants: Vec<GuardVariant>,
    /// Limit on the number of blocks of runs.
    pub(super) limit: Limit,
    pub(super) run: Duration,
    pub(super) warm_up: Duration,
    /// Time of load for a fresh agent before its first measured run.
    pub(super) learning: Duration,
    /// Time for which an idle agent is watched.
    pub(super) idle: Duration,
    /// Limit on the rounds that measure how fast batch leaves after interference begins.
    pub(super) onset_limit: Limit,
    pub(super) onsets: usize,
    pub(super) notification: &'static [NotificationMode],
    /// Factor by which the burst lengths in Holmes' paper and its calm time (S, before batch comes back) are
    /// multiplied.
    pub(super) scale: f64,
    pub(super) stays: Vec<ContainerSchedule>,
    pub(super) notes: BTreeSet<Note>,
}

/// Stores that get requests at the same time.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Group {
    pub(super) stores: Vec<Store>,
    pub(super) mix: Mix,
}

impl Group {
    fn new(stores: &[Store], mix: &'static str) -> Self {
        Self { stores: stores.to_vec(), mix: Mix { name: mix, records: 20_000 } }
    }

    /// Returns the name of the group for people, shown while it is measured.
    pub(super) fn name(&self) -> String {
        let names: Vec<&str> = self.stores.iter().map(|store| store.name()).collect();
        format!("{}, mix {}", names.join(" and "), self.mix.name)
    }

    /// Returns the request rate of a store whose requests take this time on average.
    pub(super) fn rate_per_s(&self, mean_service_us: f64) -> f64 {
        if self.mix.name == "e" { SCAN_LOAD * 1e6 / mean_service_us } else { RATE_PER_S }
    }
}

impl Plan {
    pub(super) fn from_options(options: &GuardOptions, lab: &LabBinary) -> Result<Self> {
        let (ms, s, quick) = (Duration::from_millis, Duration::from_secs, options.round_options.quick);
        let mut notes = BTreeSet::new();
        let mut groups = groups(options);
        ensure!(!groups.is_empty(), "memcached has no scans: mix e needs another store");
        groups.retain(|group| can_start_stores(group, lab, &mut notes));
        let is_wanted = |variant: &GuardVariant| {
            *variant == GuardVariant::Alone || options.variants.as_ref().is_none_or(|wanted| wanted.contains(variant))
        };
        let limit = match quick {
            true => Limit { first: BLOCKS_MIN, rounds: BLOCKS_MIN, time: s(60) },
            false => Limit { first: BLOCKS_MIN, rounds: 8 * BLOCKS_MIN, time: s(240) },
        };
        let (run, warm_up, learning) = if quick { (ms(500), ms(100), ms(300)) } else { (s(3), ms(400), s(4)) };
        Ok(Self {
            round_options: options.round_options,
            groups,
            variants: GuardVariant::ALL.into_iter().filter(is_wanted).collect(),
            limit: options.round_options.limit(limit, limit),
            run,
            warm_up,
            learning,
            idle: if quick { ms(1_500) } else { s(10) },
            onset_limit: options.round_options.limit(ONSETS_QUICK, ONSETS),
            onsets: if quick { 100 } else { 500 },
            notification: if quick { &NotificationMode::ALL[..1] } else { &NotificationMode::ALL },
            scale: if quick { 0.005 } else { 0.02 },
            stays: container_schedules(quick, &mut notes),
            notes,
        })
    }
}

/// Returns the chosen groups; without a choice all, or with `--quick` the first.
fn groups(options: &GuardOptions) -> Vec<Group> {
    let mut groups = all_groups();
    match (&options.stores, &options.mixes) {
        (None, None) => groups.truncate(if options.round_options.quick { 1 } else { groups.len() }),
        (stores, mixes) => {
            groups.retain(|group| mixes.as_ref().is_none_or(|mixes| mixes.iter().any(|mix| mix == group.mix.name)));
            let is_wanted = |store: &Store| stores.as_ref().is_none_or(|stores| stores.contains(store));
            groups.iter_mut().for_each(|group| group.stores.retain(is_wanted));
            groups.retain(|group| !group.stores.is_empty());
        }
    }
    groups
}

fn all_groups() -> Vec<Group> {
    let both = [Store::Redis, Store::Memcached];
    let mut groups = vec![Group::new(&both, "a"), Group::new(&both, "b"), Group::new(&both[..1], "e")];
    for store in [Store::RocksDb, Store::WiredTiger] {
        groups.extend(["a", "b", "e"].map(|mix| Group::new(&[store], mix)));
    }
    groups
}

/// Returns whether all stores of the group can be started; adds a note if one is missing.
fn can_start_stores(group: &Group, lab: &LabBinary, notes: &mut BTreeSet<Note>) -> bool {
    let missing = group.stores.iter().find_map(|store| Some((store, store.ensure_installed(lab).err()?)));
    let note = missing.map(|(store, why)| LabNote::StoreMissing { store: store.name(), why: format!("{why:#}") });
    let there = note.is_none();
    notes.extend(note.map(Note::from));
    there
}

/// Returns the schedule of the containers: one stays for the whole run, the others start and stop during it.
fn container_schedules(quick: bool, notes: &mut BTreeSet<Note>) -> Vec<ContainerSchedule> {
    let stay = |name, work, from, to| ContainerSchedule { name, work, from, to };
    let mut stays = vec![
        stay("always", Work::Kernel("matrix"), 0.0, 2.0),
        stay("compile", Work::Compile, 0.2, 0.6),
        stay("compress", Work::Compress, 0.5, 0.9),
    ];
    if !quick {
        stays.push(stay("spark", Work::Spark, 0.0, 2.0));
    }
    let mut is_possible = |stay: &ContainerSchedule| {
        let note = stay.work.missing_program().map(|why| LabNote::WorkMissing { work: stay.work.name(), why });
        let possible = note.is_none();
        notes.extend(note.map(Note::from));
        possible
    };
    stays.retain(|stay| is_possible(stay));
    stays
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_bench_has_every_compatible_store_and_mix() {
        let groups = all_groups();
        let has = |store, mix| groups.iter().any(|group| group.stores.contains(&store) && group.mix.name == mix);
        for store in [Store::Redis, Store::RocksDb, Store::WiredTiger] {
            assert!(["a", "b", "e"].into_iter().all(|mix| has(store, mix)), "{store:?}");
        }
        assert!(has(Store::Memcached, "a") && has(Store::Memcached, "b") && !has(Store::Memcached, "e"));
        assert_eq!(groups[0].name(), "redis and memcached, mix a");
    }

    #[test]
    fn only_chosen_stores_and_mixes_run() {
        let names = |quick, stores: &[Store], mixes: &[&str]| {
            let options = GuardOptions {
                round_options: RoundOptions { quick, rounds: None },
                stores: (!stores.is_empty()).then(|| stores.to_vec()),
                mixes: (!mixes.is_empty()).then(|| mixes.iter().map(ToString::to_string).collect()),
                ..GuardOptions::default()
            };
            groups(&options).iter().map(Group::name).collect::<Vec<_>>()
        };
        assert_eq!(names(false, &[], &[]).len(), all_groups().len());
        assert_eq!(names(true, &[], &[]), ["redis and memcached, mix a"]);
        assert_eq!(names(false, &[], &["b"]), ["redis and memcached, mix b", "rocksdb, mix b", "wiredtiger, mix b"]);
        assert_eq!(names(true, &[Store::Memcached], &[]), ["memcached, mix a", "memcached, mix b"]);
        assert_eq!(names(true, &[Store::RocksDb, Store::Memcached], &["e"]), ["rocksdb, mix e"]);
        assert!(names(false, &[Store::Memcached], &["e"]).is_empty());
    }

    #[test]
    fn scans_run_at_a_load_and_other_mixes_at_a_fixed_rate() {
        assert_eq!(Group::new(&[Store::Redis], "a").rate_per_s(100.0), RATE_PER_S);
        assert_eq!(Group::new(&[Store::Redis], "e").rate_per_s(100.0), 2_500.0);
    }
}

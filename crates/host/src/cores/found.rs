//! From what the kernel tells to big and little cores.

use super::told::{CpuSpeeds, Measure, Speeds};
use super::{AllEqual, Cores, Source, step};
use crate::cpulist::CpuSet;

/// The big CPUs, the little ones, and how that is known.
type Parts = (CpuSet, CpuSet, Source);

/// Looks at one place: the parts, or what there is instead.
type SpeedSource = fn(&CpuSpeeds) -> Result<Parts, String>;

/// The places in their order. Capacities are what the scheduler itself goes by. Lists tell kinds of cores apart, but not
/// their speeds. Clocks leave out how much a core does in a cycle. Rankings are comparisons, made for other purposes.
const PLACES: [SpeedSource; 4] = [
    |told| by_numbers(told, Measure::Capacity, &told.capacities),
    by_lists,
    |told| by_numbers(told, Measure::Clock, &told.clocks_khz),
    |told| by_numbers(told, Measure::Ranking, &told.rankings),
];

/// Asks one place after the other.
pub fn found(told: &CpuSpeeds) -> Result<Cores, AllEqual> {
    let mut looked_at = Vec::new();
    for place in PLACES {
        match place(told) {
            Ok((big, little, source)) => {
                let little_speed_milli = little_speed_milli(told, &big, &little);
                return Ok(Cores { big, little, little_speed_milli, source });
            }
            Err(what) => looked_at.push(what),
        }
    }
    Err(AllEqual { looked_at: looked_at.join("; ") })
}

/// A CPU without a number could be of either kind, so the CPUs are then not divided.
fn by_numbers(told: &CpuSpeeds, measure: Measure, speeds: &Speeds) -> Result<Parts, String> {
    let known: CpuSet = speeds.keys().copied().collect();
    let missing = told.online.difference(&known);
    let (Some(low), Some(high)) = (speeds.values().min().copied(), speeds.values().max().copied()) else {
        return Err(format!("no {measure}"));
    };
    if !missing.is_empty() {
        return Err(format!("no {measure} of CPUs {missing}"));
    }
    match step::parted(speeds) {
        Some((big, little)) => Ok((big, little, Source::Measured { measure, low, high })),
        None if low == high => Err(format!("{measure} {low} everywhere")),
        None => Err(format!("{measure} {low} to {high} in small steps")),
    }
}

fn by_lists(told: &CpuSpeeds) -> Result<Parts, String> {
    let (big, little) = &told.listed;
    match (big.is_empty(), little.is_empty()) {
        (false, false) => Ok((big.clone(), little.clone(), Source::Lists)),
        (false, true) => Err("PMU cpu_core without cpu_atom".to_owned()),
        (true, false) => Err("PMU cpu_atom without cpu_core".to_owned()),
        (true, true) => Err("no PMUs cpu_core and cpu_atom".to_owned()),
    }
}

/// By capacities, else by clocks, whichever says that little CPUs are slower.
fn little_speed_milli(told: &CpuSpeeds, big: &CpuSet, little: &CpuSet) -> Option<u32> {
    let shares = [&told.capacities, &told.clocks_khz].map(|speeds| share_milli(speeds, little, big));
    shares.into_iter().flatten().find(|milli| *milli < 1000)
}

/// The mean speed of some CPUs in thousandths of that of others; `None` if the speed of any is unknown.
fn share_milli(speeds: &Speeds, some: &CpuSet, others: &CpuSet) -> Option<u32> {
    let sum = |cpus: &CpuSet| cpus.iter().map(|cpu| speeds.get(&cpu).copied().map(u64::from)).sum::<Option<u64>>();
    let share = sum(some)? * others.len() as u64 * 1000 / (sum(others)? * some.len() as u64);
    u32::try_from(share).ok()
}

//! Division into big and little cores, from the speeds that the kernel reports.

use super::speeds::{CpuSpeeds, Measure, Speeds};
use super::{AllEqual, Cores, Source, step};
use crate::cpulist::CpuSet;

/// Big CPUs, little CPUs, and the source of this division.
type Parts = (CpuSet, CpuSet, Source);

/// Function that reads one source: it returns the division, or a text about what the source contains instead.
type SpeedSource = fn(&CpuSpeeds) -> Result<Parts, String>;

/// Sources of the division, in order of preference. The scheduler itself uses capacities. Lists of CPUs by PMU
/// distinguish kinds of cores, but not their speeds. Clock rates ignore how much work a core does in a cycle. Firmware
/// rankings are made for other purposes and only order the CPUs.
const PLACES: [SpeedSource; 4] = [
    |told| divide_by_speeds(told, Measure::Capacity, &told.capacities),
    divide_by_pmu_lists,
    |told| divide_by_speeds(told, Measure::Clock, &told.clocks_khz),
    |told| divide_by_speeds(told, Measure::Ranking, &told.rankings),
];

/// Tries one source after the other, and returns the first division into big and little cores.
pub fn find_cores(cpu_speeds: &CpuSpeeds) -> Result<Cores, AllEqual> {
    let mut looked_at = Vec::new();
    for place in PLACES {
        match place(cpu_speeds) {
            Ok((big, little, source)) => {
                let little_speed_milli = little_speed_milli(cpu_speeds, &big, &little);
                return Ok(Cores { big, little, little_speed_milli, source });
            }
            Err(what) => looked_at.push(what),
        }
    }
    Err(AllEqual { looked_at: looked_at.join("; ") })
}

/// Divides CPUs into big and little ones by one number for each CPU, such as its highest frequency. A CPU without a
/// number could be of either kind, so there is then no division.
fn divide_by_speeds(cpu_speeds: &CpuSpeeds, measure: Measure, speeds: &Speeds) -> Result<Parts, String> {
    let known: CpuSet = speeds.keys().copied().collect();
    let missing = cpu_speeds.online.difference(&known);
    let (Some(low), Some(high)) = (speeds.values().min().copied(), speeds.values().max().copied()) else {
        return Err(format!("no {measure}"));
    };
    if !missing.is_empty() {
        return Err(format!("no {measure} of CPUs {missing}"));
    }
    match step::split_at_widest_step(speeds) {
        Some((big, little)) => Ok((big, little, Source::Measured { measure, low, high })),
        None if low == high => Err(format!("{measure} {low} everywhere")),
        None => Err(format!("{measure} {low} to {high} in small steps")),
    }
}

fn divide_by_pmu_lists(cpu_speeds: &CpuSpeeds) -> Result<Parts, String> {
    let (big, little) = &cpu_speeds.listed;
    match (big.is_empty(), little.is_empty()) {
        (false, false) => Ok((big.clone(), little.clone(), Source::Lists)),
        (false, true) => Err("PMU cpu_core without cpu_atom".to_owned()),
        (true, false) => Err("PMU cpu_atom without cpu_core".to_owned()),
        (true, true) => Err("no PMUs cpu_core and cpu_atom".to_owned()),
    }
}

/// Returns the speed of little CPUs in thousandths of the speed of big CPUs: by capacities, else by clocks. `None`
/// unless the result is below 1000.
fn little_speed_milli(cpu_speeds: &CpuSpeeds, big: &CpuSet, little: &CpuSet) -> Option<u32> {
    let shares =
        [&cpu_speeds.capacities, &cpu_speeds.clocks_khz].map(|speeds| relative_speed_milli(speeds, little, big));
    shares.into_iter().flatten().find(|milli| *milli < 1000)
}

/// Returns the mean speed of `compared_cpus` in thousandths of the mean speed of `reference_cpus`; `None` if the speed
/// of any of these CPUs is unknown.
fn relative_speed_milli(speeds: &Speeds, compared_cpus: &CpuSet, reference_cpus: &CpuSet) -> Option<u32> {
    let sum = |cpus: &CpuSet| cpus.iter().map(|cpu| speeds.get(&cpu).copied().map(u64::from)).sum::<Option<u64>>();
    let share =
        sum(compared_cpus)? * reference_cpus.len() as u64 * 1000 / (sum(reference_cpus)? * compared_cpus.len() as u64);
    u32::try_from(share).ok()
}

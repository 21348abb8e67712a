//! The coordinator's choice of lanes (SHIM thesis, section 3.3).
//!
//! The observer takes a lane to itself. For signals in memory a lane of another core is best: on
//! the same core the observer would take execution resources from the target all the time, on
//! another core it only moves the cache lines that it reads (Figure 3.7). A processor's counters
//! can be read only on their own core, so for those the observer takes the target's sibling lane.

use thiserror::Error;

use sidelane_host::cpulist::CpuSet;
use sidelane_host::topology::Topology;

/// Requirements for the choice of lanes.
#[derive(Clone, Debug, Default)]
pub struct LaneRequirements {
    /// Observed lane that the user names with `--cpu`.
    pub observed: Option<u32>,
    /// Observer's lane that the user names with `--observer-cpu`.
    pub observer: Option<u32>,
    /// Whether a signal belongs to a lane, not to a program.
    pub needs_lane: bool,
    /// Whether a signal is a counter of the processor, which is readable only on the target's core.
    pub same_core: bool,
}

/// Lanes that were chosen for observer and target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChosenLanes {
    /// Observed lane; `None` if no signal belongs to a lane and none was named.
    pub observed: Option<u32>,
    /// Lane of the observer.
    pub observer: u32,
    /// Whether the observed lane and the observer's lane share a core.
    pub same_core: bool,
}

/// Reason why no lanes can be chosen.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum LaneChoiceError {
    /// Target that may run on several lanes, while a signal belongs to one lane.
    #[error(
        "cannot choose the observed CPU: the target may run on CPUs {0}, and a signal belongs to one of them; pin the \
         target to one CPU (taskset -a -cp CPU PID), and name this CPU with --cpu"
    )]
    WhichLane(CpuSet),
    /// Process that may use one lane only.
    #[error(
        "cannot choose a CPU for the observer: sidelane may use CPUs {0} only, and the observer needs a CPU other than \
         the target's; allow sidelane a second CPU (taskset, cpuset)"
    )]
    NoLane(CpuSet),
    /// Lane that cannot be used.
    #[error("cannot use CPU {cpu} ({option}): this process may use CPUs {allowed} only; name one of these")]
    NotAllowed {
        /// CPU of the lane.
        cpu: u32,
        /// Option by which the user named the lane.
        option: &'static str,
        /// Lanes that this process may use.
        allowed: CpuSet,
    },
    /// Observer and target on the same lane.
    #[error(
        "cannot observe CPU {0} from itself: observer and target would never run at the same time; choose another \
             --observer-cpu"
    )]
    SameLane(u32),
}

/// Chooses the lanes. `allowed` are the lanes that this process may use; `target` are those that a running target may
/// use.
pub fn choose_lanes(
    lane_requirements: &LaneRequirements,
    topology: &Topology,
    allowed: &CpuSet,
    target: Option<&CpuSet>,
) -> Result<ChosenLanes, LaneChoiceError> {
    let check = |cpu: Option<u32>, option| match cpu {
        Some(cpu) if !allowed.contains(cpu) => {
            Err(LaneChoiceError::NotAllowed { cpu, option, allowed: allowed.clone() })
        }
        _ => Ok(()),
    };
    check(lane_requirements.observer, "--observer-cpu")?;
    check(lane_requirements.observed, "--cpu")?;
    let observed = choose_observed_lane(lane_requirements, allowed, target)?;
    if observed.is_some() && observed == lane_requirements.observer {
        return Err(LaneChoiceError::SameLane(observed.unwrap_or_default()));
    }
    let observer = match lane_requirements.observer {
        Some(cpu) => cpu,
        None => choose_observer_lane(lane_requirements, topology, allowed, observed, target)
            .ok_or(LaneChoiceError::NoLane(allowed.clone()))?,
    };
    let same_core = observed.is_some_and(|observed| siblings(topology, observed).contains(observer));
    Ok(ChosenLanes { observed, observer, same_core })
}

/// Returns the observed lane. A command that this process starts can run on any lane; a running target must be confined
/// to one lane already.
fn choose_observed_lane(
    lane_requirements: &LaneRequirements,
    allowed: &CpuSet,
    target: Option<&CpuSet>,
) -> Result<Option<u32>, LaneChoiceError> {
    match (lane_requirements.observed, target) {
        (Some(cpu), _) => Ok(Some(cpu)),
        (None, Some(cpus)) if cpus.len() == 1 => Ok(cpus.first()),
        (None, Some(cpus)) if lane_requirements.needs_lane => Err(LaneChoiceError::WhichLane(cpus.clone())),
        (None, Some(_)) => Ok(None),
        (None, None) => Ok(allowed.iter().find(|cpu| Some(*cpu) != lane_requirements.observer)),
    }
}

/// Returns the observer's lane: outside the target's lanes if possible, then on the core that suits the signals.
fn choose_observer_lane(
    lane_requirements: &LaneRequirements,
    topology: &Topology,
    allowed: &CpuSet,
    observed: Option<u32>,
    target: Option<&CpuSet>,
) -> Option<u32> {
    let of_core = observed.map(|observed| siblings(topology, observed)).unwrap_or_default();
    let rank = |cpu: &u32| {
        let in_the_way = target.is_some_and(|cpus| cpus.contains(*cpu));
        (in_the_way, of_core.contains(*cpu) != lane_requirements.same_core, std::cmp::Reverse(*cpu))
    };
    allowed.iter().filter(|cpu| Some(*cpu) != observed).min_by_key(rank)
}

/// Returns all lanes of the core of `cpu`.
fn siblings(topology: &Topology, cpu: u32) -> CpuSet {
    topology.cpu(cpu).map(|cpu| cpu.siblings.clone()).unwrap_or_default()
}

#[cfg(test)]
mod tests;

//! The schedule by which containers come and go. It is data, so that every setting of a round gets the same containers.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;

use super::{Containers, Work, WorkFiles};

/// Presence of one container during a run.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerSchedule {
    /// Name of the container's cgroup.
    pub name: &'static str,
    /// Work that the container repeats.
    pub work: Work,
    /// Time at which the container starts, as a fraction of the run's length.
    pub from: f64,
    /// Time at which the container stops, as a fraction of the run's length; above 1, it stays until the run ends.
    pub to: f64,
}

/// Containers of one run, started and stopped by schedule.
pub struct Churn<'a> {
    stays: &'a [ContainerSchedule],
    length: Duration,
    containers: Containers,
    work_files: &'a WorkFiles,
    /// Units of work done by containers that have already stopped, by the name of the work.
    done: BTreeMap<&'static str, u64>,
}

impl<'a> Churn<'a> {
    /// Starts the containers that are present from the beginning of the run.
    pub fn start(
        schedules: &'a [ContainerSchedule],
        length: Duration,
        containers: Containers,
        work_files: &'a WorkFiles,
    ) -> Result<Self> {
        let mut churn = Self { stays: schedules, length, containers, work_files, done: BTreeMap::new() };
        churn.apply_schedule(Duration::ZERO, Duration::ZERO)?;
        Ok(churn)
    }

    /// Returns the running containers of this run, with their cgroups.
    pub fn containers(&self) -> &Containers {
        &self.containers
    }

    /// Starts and stops the containers whose time lies between `previous`, the `now` of the previous call, and `now`.
    pub fn apply_schedule(&mut self, previous: Duration, now: Duration) -> Result<()> {
        for (stay, comes) in due_changes(self.stays, self.length, previous, now) {
            if comes {
                self.containers.start(stay.name, &stay.work, self.work_files)?;
            } else {
                let done = self.containers.stop(stay.name)?;
                *self.done.entry(stay.work.name()).or_default() += done;
            }
        }
        Ok(())
    }

    /// Returns the work done so far, in units, by the name of the work.
    pub fn work_done(&self) -> BTreeMap<&'static str, u64> {
        let mut done = self.done.clone();
        for (name, units) in self.containers.work_done() {
            let work = self.stays.iter().find(|stay| stay.name == name).map(|stay| stay.work.name());
            work.into_iter().for_each(|work| *done.entry(work).or_default() += units);
        }
        done
    }

    /// Stops all containers and removes their groups.
    pub fn finish(self) -> Result<()> {
        self.containers.finish()
    }
}

/// Returns the containers that start (`true`) or stop (`false`) between `before` and `now`, ordered by time.
fn due_changes(
    schedules: &[ContainerSchedule],
    length: Duration,
    before: Duration,
    now: Duration,
) -> Vec<(&ContainerSchedule, bool)> {
    let is_due = |at: f64| {
        let at = length.mul_f64(at);
        (at > before || (at.is_zero() && before.is_zero() && now.is_zero())) && at <= now
    };
    let events = schedules.iter().flat_map(|stay| [(stay, stay.from, true), (stay, stay.to, false)]);
    // Drops events after the planned end of the run, so that a container which stays to the end also stays in a run
    // that takes longer.
    let mut events: Vec<_> = events.filter(|(_, at, _)| *at <= 1.0).filter(|(_, at, _)| is_due(*at)).collect();
    events.sort_by(|one, other| one.1.total_cmp(&other.1));
    events.into_iter().map(|(stay, _, comes)| (stay, comes)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAYS: [ContainerSchedule; 2] = [
        ContainerSchedule { name: "always", work: Work::Kernel("matrix"), from: 0.0, to: 2.0 },
        ContainerSchedule { name: "visitor", work: Work::Compile, from: 0.25, to: 0.75 },
    ];

    #[test]
    fn each_container_starts_and_stops_exactly_once() {
        let s = Duration::from_secs_f64;
        for step_ms in [7, 100, 1_900, 5_000] {
            let mut seen = due_changes(&STAYS, s(4.0), Duration::ZERO, Duration::ZERO);
            let mut before = Duration::ZERO;
            while before < s(12.0) {
                let now = before + Duration::from_millis(step_ms);
                seen.extend(due_changes(&STAYS, s(4.0), before, now));
                before = now;
            }
            let seen: Vec<_> = seen.into_iter().map(|(stay, comes)| (stay.name, comes)).collect();
            assert_eq!(seen, [("always", true), ("visitor", true), ("visitor", false)], "{step_ms} ms");
        }
    }
}

//! When which container is there: data, so that every setting of a round gets the same.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;

use super::{Containers, Work, WorkFiles};

/// A container, and when it is there.
#[derive(Clone, Debug, PartialEq)]
pub struct Stay {
    /// Its name.
    pub name: &'static str,
    /// Its work.
    pub work: Work,
    /// When it comes, as a share of the run.
    pub from: f64,
    /// When it goes, as a share of the run; above 1, at its end.
    pub to: f64,
}

/// Containers that come and go in one run.
pub struct Churn<'a> {
    stays: &'a [Stay],
    length: Duration,
    containers: Containers,
    workshop: &'a WorkFiles,
    /// Work done by containers that are gone.
    done: BTreeMap<&'static str, u64>,
}

impl<'a> Churn<'a> {
    /// Those that are there from the beginning come.
    pub fn start(stays: &'a [Stay], length: Duration, containers: Containers, workshop: &'a WorkFiles) -> Result<Self> {
        let mut churn = Self { stays, length, containers, workshop, done: BTreeMap::new() };
        churn.tick(Duration::ZERO, Duration::ZERO)?;
        Ok(churn)
    }

    /// The groups.
    pub fn containers(&self) -> &Containers {
        &self.containers
    }

    /// Those come and go whose time has come between `before`, which was told last time, and `now`.
    pub fn tick(&mut self, before: Duration, now: Duration) -> Result<()> {
        for (stay, comes) in due(self.stays, self.length, before, now) {
            if comes {
                self.containers.start(stay.name, &stay.work, self.workshop)?;
            } else {
                let done = self.containers.stop(stay.name)?;
                *self.done.entry(stay.work.name()).or_default() += done;
            }
        }
        Ok(())
    }

    /// The work done so far, by kind.
    pub fn work_done(&self) -> BTreeMap<&'static str, u64> {
        let mut done = self.done.clone();
        for (name, units) in self.containers.work_done() {
            let work = self.stays.iter().find(|stay| stay.name == name).map(|stay| stay.work.name());
            work.into_iter().for_each(|work| *done.entry(work).or_default() += units);
        }
        done
    }

    /// All go, and the groups with them.
    pub fn finish(self) -> Result<()> {
        self.containers.finish()
    }
}

/// Returns the containers that come or go in that time, in order.
fn due(stays: &[Stay], length: Duration, before: Duration, now: Duration) -> Vec<(&Stay, bool)> {
    let is_due = |at: f64| {
        let at = length.mul_f64(at);
        (at > before || (at.is_zero() && before.is_zero() && now.is_zero())) && at <= now
    };
    let events = stays.iter().flat_map(|stay| [(stay, stay.from, true), (stay, stay.to, false)]);
    // A run may take longer than planned: a container that stays is there in the next run.
    let mut events: Vec<_> = events.filter(|(_, at, _)| *at <= 1.0).filter(|(_, at, _)| is_due(*at)).collect();
    events.sort_by(|one, other| one.1.total_cmp(&other.1));
    events.into_iter().map(|(stay, _, comes)| (stay, comes)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAYS: [Stay; 2] = [
        Stay { name: "always", work: Work::Kernel("matrix"), from: 0.0, to: 2.0 },
        Stay { name: "visitor", work: Work::Compile, from: 0.25, to: 0.75 },
    ];

    #[test]
    fn each_stay_starts_and_ends_once_at_any_clock_step() {
        let s = Duration::from_secs_f64;
        for step_ms in [7, 100, 1_900, 5_000] {
            let mut seen = due(&STAYS, s(4.0), Duration::ZERO, Duration::ZERO);
            let mut before = Duration::ZERO;
            while before < s(12.0) {
                let now = before + Duration::from_millis(step_ms);
                seen.extend(due(&STAYS, s(4.0), before, now));
                before = now;
            }
            let seen: Vec<_> = seen.into_iter().map(|(stay, comes)| (stay.name, comes)).collect();
            assert_eq!(seen, [("always", true), ("visitor", true), ("visitor", false)], "{step_ms} ms");
        }
    }
}

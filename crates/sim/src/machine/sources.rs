//! Sources of events, each with a slot.

use crate::time::{NEVER, Nanos};

/// Source of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// End of the request on this CPU, or of a container's turn there.
    Cpu(usize),
    /// Check of this CPU's counters by the kernel.
    Tick(usize),
    /// Next check by the keeper of this CPU, or the end of its wakeup.
    Keeper(usize),
    /// Return of this CPU to containers, after its keeper has left.
    Gate(usize),
    /// End of the container in this slot, which has done its work.
    Container(usize),
    /// Arrival of a client's request at this service.
    Arrival(usize),
    /// Start of a container of this kind.
    ContainerStart(usize),
    /// Next observation of the controller, or end of an action that it carries out.
    Control,
    /// Next call of Hurry-up, for new events or at the time that it asked for.
    Mapper,
    /// Start of the counted time.
    WarmUp,
    /// End of the run.
    End,
}

/// Number of sources of each kind.
#[derive(Clone, Copy, Debug)]
pub struct Sources {
    pub cpus: usize,
    pub places: usize,
    pub services: usize,
    pub kinds: usize,
}

impl Sources {
    /// Returns the number of all slots.
    pub fn slot_count(self) -> usize {
        self.slot(Source::End) + 1
    }

    /// Returns the slot of a source.
    #[inline]
    pub fn slot(self, source: Source) -> usize {
        let arrivals = 4 * self.cpus + self.places;
        let once = arrivals + self.services + self.kinds;
        match source {
            Source::Cpu(cpu) => cpu,
            Source::Keeper(cpu) => self.cpus + cpu,
            Source::Gate(cpu) => 2 * self.cpus + cpu,
            Source::Tick(cpu) => 3 * self.cpus + cpu,
            Source::Container(place) => 4 * self.cpus + place,
            Source::Arrival(service) => arrivals + service,
            Source::ContainerStart(kind) => arrivals + self.services + kind,
            Source::Control => once,
            Source::Mapper => once + 1,
            Source::WarmUp => once + 2,
            Source::End => once + 3,
        }
    }

    /// Returns the source of a slot.
    #[inline]
    pub fn source_of(self, slot: usize) -> Source {
        let sizes = [self.cpus, self.cpus, self.cpus, self.cpus, self.places, self.services, self.kinds];
        let (mut index, mut part) = (slot, 0);
        while part < sizes.len() && index >= sizes[part] {
            index -= sizes[part];
            part += 1;
        }
        match (part, index) {
            (0, cpu) => Source::Cpu(cpu),
            (1, cpu) => Source::Keeper(cpu),
            (2, cpu) => Source::Gate(cpu),
            (3, cpu) => Source::Tick(cpu),
            (4, place) => Source::Container(place),
            (5, service) => Source::Arrival(service),
            (6, kind) => Source::ContainerStart(kind),
            (_, 0) => Source::Control,
            (_, 1) => Source::Mapper,
            (_, 2) => Source::WarmUp,
            _ => Source::End,
        }
    }
}

/// Returns the time of an event, or `NEVER` for an event that does not come.
pub fn time_or_never(time: Option<Nanos>) -> Nanos {
    time.unwrap_or(NEVER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_source_has_a_slot_of_its_own() {
        let sources = Sources { cpus: 4, places: 3, services: 2, kinds: 1 };
        assert_eq!(sources.slot_count(), 26);
        let found = (0..26).map(|slot| sources.slot(sources.source_of(slot)));
        assert!(found.eq(0..26));
        assert_eq!(sources.source_of(19), Source::Arrival(0));
    }
}

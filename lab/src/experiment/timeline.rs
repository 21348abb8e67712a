//! Timeline of the threads on the lane pair in one short part of a run.

use std::thread;
use std::time::Duration;

use anyhow::Result;
use sidelane_formats::LaneClass;

use super::changes::{Change, ClassChangeRecorder};
use sidelane_host::clock::now_ns;
use sidelane_lanes::session::Session;
use sidelane_report::{Class, LaneTrack, Role, Span, Timeline};

/// Start time of a lane class in nanoseconds, and the class.
type ClassStart = (u64, Class);

/// Records the session's first batch lane and its request lanes for exactly `length`, so that timelines of all settings
/// have equal length.
pub(super) fn record(session: &Session, setting: &str, length: Duration) -> Result<Timeline> {
    let memory = session.memory();
    let batch = &session.lanes().batch[0];
    let lanes = batch.request_lanes.iter().map(|cpu| (cpu, Role::Request)).chain([(batch.cpu, Role::Batch)]);
    let recorded = ClassChangeRecorder::start(session.tracker())?;
    let found: Vec<(u32, Role, Class)> = lanes
        .map(|(cpu, role)| {
            (cpu, role, memory.word(cpu).class().map_or(Class::Other, |class| chart_class(class as u32)))
        })
        .collect();
    let began_ns = now_ns();
    thread::sleep(length);
    let seen: Vec<Change> = recorded.read_changes().collect();
    // Drops changes after `length`, since the sleep takes longer than requested.
    let within = began_ns..began_ns + length.as_nanos() as u64;
    let ended_ns = within.end;
    let track = |(cpu, role, first)| {
        let of_cpu = seen.iter().filter(|change| change.cpu == cpu && within.contains(&change.at_ns));
        let mut changes: Vec<ClassStart> = vec![(began_ns, first)];
        changes.extend(of_cpu.map(|change| (change.at_ns, chart_class(change.class))));
        LaneTrack { cpu, role, spans: spans(&changes, began_ns, ended_ns) }
    };
    Ok(Timeline { setting: setting.to_owned(), lanes: found.into_iter().map(track).collect() })
}

fn chart_class(class: u32) -> Class {
    match LaneClass::try_from(class) {
        Ok(LaneClass::Idle) => Class::Idle,
        Ok(LaneClass::Lc) => Class::Lc,
        Ok(LaneClass::Batch) => Class::Batch,
        Ok(LaneClass::Other) => Class::Other,
        Err(_) if class == Change::HOLDER => Class::Holder,
        Err(_) => Class::Other,
    }
}

/// Returns spans without gaps from class changes in order of time; neighbouring spans of one class are joined.
fn spans(changes: &[ClassStart], began_ns: u64, ended_ns: u64) -> Vec<Span> {
    let mut joined: Vec<ClassStart> = Vec::new();
    for change in changes {
        if joined.last().is_none_or(|last| last.1 != change.1) {
            joined.push(*change);
        }
    }
    let ends = joined.iter().skip(1).map(|change| change.0).chain([ended_ns]);
    let both = joined.iter().zip(ends);
    both.map(|((from, class), to)| Span::from_ns(from - began_ns, to.max(*from) - began_ns, *class)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_become_spans_without_gaps() {
        let changes = [(100, Class::Batch), (150, Class::Holder), (160, Class::Holder), (180, Class::Batch)];
        let spans = spans(&changes, 100, 200);
        let seen: Vec<(f64, f64, Class)> = spans.iter().map(|span| (span.from_us, span.to_us, span.class)).collect();
        assert_eq!(seen, [(0.0, 0.05, Class::Batch), (0.05, 0.08, Class::Holder), (0.08, 0.1, Class::Batch)]);
    }
}

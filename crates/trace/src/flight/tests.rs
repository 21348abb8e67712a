//! Tests of the flight recorder, with the records of an invented trace.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use sidelane_timeline::record::Kind;

use super::super::log::LogReader;
use super::super::sample;
use super::*;

const DEADLINE: Duration = Duration::from_secs(30);

fn options(dir: &Path) -> FlightOptions {
    FlightOptions {
        service: "port:8080".to_owned(),
        target: Target::Port(8080),
        threshold: SlowThreshold::Limit(Duration::from_millis(2)),
        light: false,
        dir: dir.to_owned(),
        keep: KEEP,
        recordings: RECORDINGS,
        otlp: None,
    }
}

fn event_collector() -> (EventSink, Arc<Mutex<Vec<Event>>>) {
    let events = Arc::new(Mutex::new(Vec::new()));
    let into = Arc::clone(&events);
    (Arc::new(move |event| into.lock().unwrap().push(event)), events)
}

/// Returns the records up to the end of the first request that took longer than the objective.
fn records_until_slow_request() -> Vec<Record> {
    let excerpt =
        sample::build_sample().excerpts.into_iter().find(|excerpt| excerpt.timeline.latency_ns() > 2_000_000).unwrap();
    let ended_ns = excerpt.timeline.ended_ns;
    sample::records().into_iter().filter(|record| record.at_ns <= ended_ns).collect()
}

fn open_written_log(events: &[Event]) -> Option<LogReader<std::io::BufReader<std::fs::File>>> {
    let log = events.iter().find_map(|event| if let Event::Written { log, .. } = event { Some(log) } else { None })?;
    LogReader::open(log).ok()
}

#[test]
fn violation_at_the_end_of_the_trace_is_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let (options, (tell, events)) = (options(dir.path()), event_collector());
    let mut flight = Flight::new(&options, sample::kinds(), tell);
    let mut records = records_until_slow_request();
    let end_ns = records.last().unwrap().at_ns;
    flight.process_records(&mut records, end_ns, &Default::default).unwrap();
    assert!(events.lock().unwrap().is_empty());
    flight.end(&Default::default).unwrap();
    let events = events.lock().unwrap();
    assert!(!events.contains(&Event::EndedWithoutRecording) && open_written_log(&events).is_some(), "{events:?}");
}

#[test]
fn service_that_stops_answering_breaks_its_objective() {
    let dir = tempfile::tempdir().unwrap();
    let (options, (tell, events)) = (options(dir.path()), event_collector());
    let mut flight = Flight::new(&options, sample::kinds(), tell);
    let is_answer = |record: &Record| matches!(record.kind, Kind::Sent | Kind::RequestFinished);
    let all = sample::records();
    let answer_ns = all.iter().find(|record| is_answer(record)).unwrap().at_ns;
    let mut records: Vec<Record> = all.into_iter().take_while(|record| record.at_ns < answer_ns).collect();
    flight.process_records(&mut records, answer_ns, &Default::default).unwrap();
    flight.process_records(&mut records, answer_ns + 1_000_000_000, &Default::default).unwrap();
    flight.end(&Default::default).unwrap();
    let events = events.lock().unwrap();
    assert!(events[0].to_string().contains("has no response yet"), "{events:?}");
    let diagnosed = events.iter().find(|event| matches!(event, Event::Diagnosed(_))).unwrap();
    assert!(diagnosed.to_string().contains("1 request had no response at the end"), "{diagnosed}");
}

#[test]
fn recording_counts_the_records_dropped_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let options = FlightOptions { keep: Duration::from_secs(1), ..options(dir.path()) };
    let (tell, events) = event_collector();
    let mut flight = Flight::new(&options, sample::kinds(), tell);
    let mut records = records_until_slow_request();
    // Three seconds before the first record, there is one more record of each lane.
    let begin_ns = records[0].at_ns - 3_000_000_000;
    let before = [0, 1].map(|cpu| Record { cpu, seq: 41, ..sample::record(begin_ns, Kind::IdleLeft) });
    records.iter_mut().for_each(|record| record.seq += 41);
    records.splice(0..0, before);
    flight.process_records(&mut records, begin_ns, &Default::default).unwrap();
    flight.end(&Default::default).unwrap();
    let events = events.lock().unwrap();
    let log = open_written_log(&events).unwrap();
    assert_eq!(log.head().written, [41, 41]);
    let diagnosed = events.iter().find(|event| matches!(event, Event::Diagnosed(_))).unwrap();
    assert!(diagnosed.to_string().starts_with("1 of "), "the request is told: {diagnosed}");
}

#[test]
fn records_of_a_violation_are_written_before_they_drop() {
    let dir = tempfile::tempdir().unwrap();
    let (options, (tell, events)) = (options(dir.path()), event_collector());
    let mut flight = Flight::new(&options, sample::kinds(), tell);
    let before = records_until_slow_request();
    let last_ns = before.last().unwrap().at_ns;
    flight.process_records(&mut before.clone(), last_ns, &Default::default).unwrap();
    // These records complete the due request soon. They would push that request's records out of memory before the
    // recording is due.
    let mut written = [0, 1].map(|cpu| before.iter().filter(|record| record.cpu == cpu).count() as u32);
    let flood = (0..RECORDS_A_SECOND * 11).map(|number| {
        let (at_ns, cpu) = (last_ns + 300_000_000 + number * 1_000, (number % 2) as u32);
        written[cpu as usize] += 1;
        Record { cpu, seq: written[cpu as usize], ..sample::record(at_ns, Kind::IdleLeft) }
    });
    flight.process_records(&mut flood.collect(), last_ns, &Default::default).unwrap();
    flight.end(&Default::default).unwrap();
    let events = events.lock().unwrap();
    let mut log = open_written_log(&events).unwrap();
    let mut times_ns = Vec::new();
    log.read_all(|record| times_ns.push(record.at_ns));
    assert!(times_ns[0] < last_ns, "the request is in the recording");
}

/// Simulates a full disk that has room again at the next violation.
#[test]
fn a_recording_that_cannot_be_written_does_not_end_the_recorder() {
    let dir = tempfile::tempdir().unwrap();
    let later = dir.path().join("later");
    let (options, (tell, events)) = (options(&later), event_collector());
    let mut flight = Flight::new(&options, sample::kinds(), tell);
    let mut records = records_until_slow_request();
    let (mut now_ns, began) = (records.last().unwrap().at_ns, Instant::now());
    let is_told =
        || matches!(events.lock().unwrap().last(), Some(Event::WriteFailed(why)) if why.contains("No such file"));
    while !is_told() {
        assert!(began.elapsed() < DEADLINE, "it was not told");
        flight.process_records(&mut records, now_ns, &Default::default).unwrap();
        now_ns += AFTER_NS;
    }
    std::fs::create_dir(&later).unwrap();
    flight.due =
        Some(PendingRecording { at_ns: now_ns, from_ns: now_ns, broken: ObjectiveViolation::Request(2_000_001) });
    flight.end(&Default::default).unwrap();
    let events = events.lock().unwrap();
    assert!(open_written_log(&events).is_some() && !events.contains(&Event::EndedWithoutRecording), "{events:?}");
}

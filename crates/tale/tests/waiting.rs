//! Requests that have no response yet, and those whose response does not end.

mod common;

use common::*;
use sidelane_tale::builder::{Builder, Settings};
use sidelane_tale::record::Record;

/// When the requests arrived that wait when these records have been read.
fn waiting(records: Vec<Record>) -> Vec<u64> {
    let mut builder = Builder::new(Settings::default());
    records.into_iter().for_each(|record| builder.push(record, &mut |_| ()));
    builder.finish(&mut |_| ());
    builder.waiting().collect()
}

#[test]
fn a_request_without_a_response_waits_since_it_arrived() {
    let mut trace = request_is_taken_up();
    assert_eq!(waiting(trace.numbered()), [at(100)]);
    answered(&mut trace, 500, 1);
    assert_eq!(waiting(trace.numbered()), []);
}

#[test]
fn a_request_whose_response_may_be_lost_is_not_said_to_wait() {
    let mut trace = request_is_taken_up();
    answered(&mut trace, 500, 1).sleeps(510, 1).comes(9_000, 1);
    let mut records = trace.numbered();
    records.retain(|record| record.at_ns != at(500));
    assert_eq!(waiting(records), []);
}

#[test]
fn a_response_that_goes_on_for_long_is_a_stream() {
    let mut trace = request_is_taken_up();
    answered(&mut trace, 500, 1);
    let streamed = |trace: &Trace| {
        let mut builder = Builder::new(Settings::default());
        trace.numbered().into_iter().for_each(|record| builder.push(record, &mut |_| ()));
        builder.finish(&mut |_| ());
        builder.counts().streamed
    };
    assert_eq!(streamed(&trace), 0);
    trace.sent(101_000, 1, 7, 30, 1).finished(101_000, 1, 7, 1, 120);
    assert_eq!(streamed(&trace), 1);
}

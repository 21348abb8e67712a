//! A trace for Perfetto: numbers and activities over time, and arrows between activities, for ui.perfetto.dev and for
//! trace queries.
//!
//! All times are of `CLOCK_MONOTONIC`. By default readers take times for those of the boot time clock, and cannot
//! convert between the two clocks. So each packet names its clock, and the first packet says that the whole trace uses
//! it.

mod messages;

use std::path::Path;

use prost::Message;
use prost::encoding::{WireType, encode_key};

use crate::perfetto::messages::{
    Clock, ClockSnapshot, CounterDescriptor, Data, EventType, TracePacket, TrackDescriptor, TrackEvent,
};
use crate::whole_file::{WriteError, write_atomically};

/// Number of the clock `BuiltinClock::MONOTONIC`.
const CLOCK_MONOTONIC: u32 = 3;
/// Number of the field `packet` in the message `Trace`.
const PACKET: u32 = 1;
/// Number of the only writer; any number except 0.
const SEQUENCE: u32 = 1;
/// Flag `SequenceFlags::SEQ_INCREMENTAL_STATE_CLEARED`, which the first packet of a writer needs.
const STATE_CLEARED: u32 = 1;
/// Number of the first track: "sidelane" as a number, so that this trace can be merged with those of other programs.
const FIRST_TRACK: u64 = u64::from_be_bytes(*b"sidelane");

/// A trace under construction. It is stored as the bytes of its file, which take much less memory than messages.
pub struct TraceBuilder {
    bytes: Vec<u8>,
    root: Track,
    tracks: u64,
}

/// Number of a track in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Track(u64);

impl TraceBuilder {
    /// Creates an empty trace that begins at `start_ns`; its tracks are below `title`.
    pub fn new(title: &str, start_ns: u64) -> Self {
        let mut trace = Self { bytes: Vec::new(), root: Track(FIRST_TRACK), tracks: 1 };
        let clocks = vec![Clock { clock_id: Some(CLOCK_MONOTONIC), timestamp: Some(start_ns) }];
        let snapshot = ClockSnapshot { clocks, primary_trace_clock: Some(CLOCK_MONOTONIC as i32) };
        let first = packet(Some(start_ns), Data::ClockSnapshot(snapshot));
        trace.push(&TracePacket { sequence_flags: Some(STATE_CLEARED), ..first });
        trace.describe(trace.root, None, title, None);
        trace
    }

    /// Adds a track of numbers.
    pub fn add_counter(&mut self, name: &str) -> Track {
        self.add_track(self.root, name, Some(CounterDescriptor {}))
    }

    /// Adds a track of activities, one after the other.
    pub fn add_slice_track(&mut self, name: &str) -> Track {
        self.add_track(self.root, name, None)
    }

    /// Adds a track of activities below another track.
    pub fn add_slice_track_below(&mut self, parent: Track, name: &str) -> Track {
        self.add_track(parent, name, None)
    }

    fn add_track(&mut self, parent: Track, name: &str, counter: Option<CounterDescriptor>) -> Track {
        let track = Track(FIRST_TRACK + self.tracks);
        self.tracks += 1;
        self.describe(track, Some(parent), name, counter);
        track
    }

    fn describe(&mut self, track: Track, parent: Option<Track>, name: &str, counter: Option<CounterDescriptor>) {
        let described = TrackDescriptor {
            uuid: Some(track.0),
            name: Some(name.to_owned()),
            parent_uuid: parent.map(|parent| parent.0),
            counter,
        };
        self.push(&packet(None, Data::TrackDescriptor(described)));
    }

    /// Sets the value of `track` from `at_ns` on.
    pub fn set_value(&mut self, track: Track, at_ns: u64, value: f64) {
        let event = event(track, EventType::Counter);
        self.push_event(at_ns, TrackEvent { double_counter_value: Some(value), ..event });
    }

    /// Adds an activity `name` to `track`, from `from_ns` to `to_ns`.
    pub fn add_slice(&mut self, track: Track, times_ns: (u64, u64), name: &str) {
        self.add_slice_with_arrows(track, times_ns, name, &[]);
    }

    /// Adds an activity `name` to `track`, with the arrows that go through it. Events that have an arrow's number are
    /// joined in the order of their times.
    pub fn add_slice_with_arrows(&mut self, track: Track, (from_ns, to_ns): (u64, u64), name: &str, arrows: &[u64]) {
        let begin = TrackEvent { flow_ids: arrows.to_vec(), ..named_event(track, EventType::SliceBegin, name) };
        self.push_event(from_ns, begin);
        self.push_event(to_ns, event(track, EventType::SliceEnd));
    }

    /// Adds a moment `name` to `track`, with the arrows that go through it.
    pub fn add_instant(&mut self, track: Track, at_ns: u64, name: &str, arrows: &[u64]) {
        self.push_event(
            at_ns,
            TrackEvent { flow_ids: arrows.to_vec(), ..named_event(track, EventType::Instant, name) },
        );
    }

    fn push_event(&mut self, at_ns: u64, event: TrackEvent) {
        self.push(&packet(Some(at_ns), Data::TrackEvent(event)));
    }

    fn push(&mut self, packet: &TracePacket) {
        encode_key(PACKET, WireType::LengthDelimited, &mut self.bytes);
        packet.encode_length_delimited(&mut self.bytes).expect("a vector grows");
    }

    /// Writes the trace to `path`, completely or not at all.
    pub fn write(&self, path: &Path) -> Result<(), WriteError> {
        write_atomically(path, &self.bytes)
    }
}

fn named_event(track: Track, kind: EventType, name: &str) -> TrackEvent {
    TrackEvent { name: Some(name.to_owned()), ..event(track, kind) }
}

fn event(track: Track, kind: EventType) -> TrackEvent {
    TrackEvent { r#type: Some(kind as i32), track_uuid: Some(track.0), ..TrackEvent::default() }
}

fn packet(timestamp: Option<u64>, data: Data) -> TracePacket {
    TracePacket {
        timestamp,
        timestamp_clock_id: timestamp.map(|_| CLOCK_MONOTONIC),
        trusted_packet_sequence_id: Some(SEQUENCE),
        sequence_flags: None,
        data: Some(data),
    }
}

/// Parser of traces, for tests.
pub mod read {
    use std::collections::BTreeMap;

    use super::*;

    /// Events of each track by its name: the time, and the value or the name that begins; `None` at an end.
    pub type TrackContents = BTreeMap<String, Vec<(u64, Option<TrackValue>)>>;

    /// Value or name of an event.
    #[derive(Clone, Debug, PartialEq)]
    pub enum TrackValue {
        Number(f64),
        Began(String),
    }

    pub(super) fn packets(trace: &TraceBuilder) -> Vec<TracePacket> {
        messages::Trace::decode(&trace.bytes[..]).unwrap().packet
    }

    /// Returns the arrows: the number of each, and the names of its events in the order of time.
    pub fn arrows(trace: &TraceBuilder) -> BTreeMap<u64, Vec<(u64, String)>> {
        let mut arrows = BTreeMap::<u64, Vec<(u64, String)>>::new();
        for packet in packets(trace) {
            let Some(Data::TrackEvent(event)) = packet.data else { continue };
            for arrow in event.flow_ids {
                let moment = (packet.timestamp.unwrap(), event.name.clone().unwrap_or_default());
                arrows.entry(arrow).or_default().push(moment);
            }
        }
        arrows.values_mut().for_each(|moments| moments.sort());
        arrows
    }

    pub fn tracks(trace: &TraceBuilder) -> TrackContents {
        let (mut names, mut read) = (BTreeMap::new(), TrackContents::new());
        for packet in packets(trace) {
            match packet.data.unwrap() {
                Data::TrackDescriptor(track) => {
                    read.entry(track.name.clone().unwrap()).or_default();
                    names.insert(track.uuid.unwrap(), track.name.unwrap());
                }
                Data::TrackEvent(event) => {
                    let number = event.double_counter_value.map(TrackValue::Number);
                    let happened = number.or_else(|| event.name.clone().map(TrackValue::Began));
                    assert_eq!(packet.timestamp_clock_id, Some(CLOCK_MONOTONIC));
                    let name = &names[&event.track_uuid.unwrap()];
                    read.get_mut(name).unwrap().push((packet.timestamp.unwrap(), happened));
                }
                Data::ClockSnapshot(_) => (),
            }
        }
        read
    }
}

#[cfg(test)]
mod tests {
    use super::read::TrackValue;
    use super::*;

    fn sample() -> TraceBuilder {
        let mut trace = TraceBuilder::new("a target", 1_000);
        let (rate, phase) = (trace.add_counter("rate"), trace.add_slice_track("phase"));
        trace.set_value(rate, 1_500, 2.5);
        trace.add_slice(phase, (1_200, 1_900), "read");
        trace
    }

    #[test]
    fn written_trace_is_read_back() {
        let read = read::tracks(&sample());
        assert_eq!(read.keys().collect::<Vec<_>>(), ["a target", "phase", "rate"]);
        assert_eq!(read["rate"], [(1_500, Some(TrackValue::Number(2.5)))]);
        assert_eq!(read["phase"], [(1_200, Some(TrackValue::Began("read".into()))), (1_900, None)]);
    }

    #[test]
    fn first_packet_names_the_clock_of_the_trace() {
        let packets = read::packets(&sample());
        assert_eq!(packets[0].sequence_flags, Some(STATE_CLEARED));
        let Some(Data::ClockSnapshot(snapshot)) = &packets[0].data else { panic!("{:?}", packets[0]) };
        assert_eq!(snapshot.primary_trace_clock, Some(CLOCK_MONOTONIC as i32));
        assert_eq!(snapshot.clocks[0], Clock { clock_id: Some(CLOCK_MONOTONIC), timestamp: Some(1_000) });
        assert!(packets.iter().all(|packet| packet.trusted_packet_sequence_id == Some(SEQUENCE)));
    }

    #[test]
    fn tracks_are_below_the_title_and_have_their_kind() {
        let tracks: Vec<TrackDescriptor> = read::packets(&sample())
            .into_iter()
            .filter_map(|packet| match packet.data {
                Some(Data::TrackDescriptor(track)) => Some(track),
                _ => None,
            })
            .collect();
        let parents: Vec<_> = tracks.iter().map(|track| track.parent_uuid).collect();
        assert_eq!(parents, [None, tracks[0].uuid, tracks[0].uuid]);
        assert_eq!(tracks.iter().map(|track| track.counter.is_some()).collect::<Vec<_>>(), [false, true, false]);
    }

    #[test]
    fn arrows_join_instants_and_slices_of_child_tracks() {
        let mut trace = TraceBuilder::new("a target", 1_000);
        let lanes = trace.add_slice_track("lanes");
        let (one, other) = (trace.add_slice_track_below(lanes, "lane 0"), trace.add_slice_track_below(lanes, "lane 1"));
        trace.add_slice_with_arrows(other, (1_300, 1_400), "works", &[7]);
        trace.add_instant(one, 1_200, "wakes", &[7]);
        assert_eq!(read::arrows(&trace)[&7], [(1_200, "wakes".to_owned()), (1_300, "works".to_owned())]);
        assert_eq!(read::tracks(&trace)["lane 0"], [(1_200, Some(TrackValue::Began("wakes".into())))]);
    }

    /// Compares the exact bytes, since Perfetto identifies a field by its number.
    #[test]
    fn bytes_match_the_wire_format_of_perfetto() {
        let mut trace = TraceBuilder { bytes: Vec::new(), root: Track(1), tracks: 1 };
        trace.push_event(5, named_event(Track(2), EventType::SliceBegin, "a"));
        let event = [0x48, 1, 0x58, 2, 0xba, 1, 1, b'a'];
        let head = [0x40, 5, 0xd0, 3, 3, 0x50, 1, 0x5a, event.len() as u8];
        let whole = [&[0x0a, (head.len() + event.len()) as u8][..], &head, &event].concat();
        let (mut sorted, mut expected) = (trace.bytes.clone(), whole.clone());
        assert_eq!(trace.bytes.len(), whole.len());
        // Fields may be in any order.
        sorted.sort_unstable();
        expected.sort_unstable();
        assert_eq!(sorted, expected);
    }
}

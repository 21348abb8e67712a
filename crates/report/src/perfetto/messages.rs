//! The few messages of Perfetto's trace format that are written here.
//!
//! Names and numbers are those of its public definitions (`protos/perfetto/trace`); whoever reads a
//! trace skips fields it does not know, and fields that are not written have their defaults.

use prost::{Message, Oneof};

/// `trace.proto`: a trace is packets in any order. They are written one by one, and read together.
#[cfg(any(test, feature = "read"))]
#[derive(Clone, PartialEq, Message)]
pub struct Trace {
    /// Its packets.
    #[prost(message, repeated, tag = "1")]
    pub packet: Vec<TracePacket>,
}

/// `trace_packet.proto`
#[derive(Clone, PartialEq, Message)]
pub struct TracePacket {
    /// In nanoseconds.
    #[prost(uint64, optional, tag = "8")]
    pub timestamp: Option<u64>,
    /// Of which clock: the boot time's where nothing is said.
    #[prost(uint32, optional, tag = "58")]
    pub timestamp_clock_id: Option<u32>,
    /// Who wrote it: events of nobody are dropped.
    #[prost(uint32, optional, tag = "10")]
    pub trusted_packet_sequence_id: Option<u32>,
    /// Whether this writer's state starts over.
    #[prost(uint32, optional, tag = "13")]
    pub sequence_flags: Option<u32>,
    /// What it holds.
    #[prost(oneof = "Data", tags = "6, 11, 60")]
    pub data: Option<Data>,
}

/// What a packet holds.
#[derive(Clone, PartialEq, Oneof)]
pub enum Data {
    /// Which clocks there are.
    #[prost(message, tag = "6")]
    ClockSnapshot(ClockSnapshot),
    /// Something happened.
    #[prost(message, tag = "11")]
    TrackEvent(TrackEvent),
    /// Where things happen.
    #[prost(message, tag = "60")]
    TrackDescriptor(TrackDescriptor),
}

/// `clock_snapshot.proto`
#[derive(Clone, PartialEq, Message)]
pub struct ClockSnapshot {
    /// The clocks at one moment.
    #[prost(message, repeated, tag = "1")]
    pub clocks: Vec<Clock>,
    /// The one that the whole trace goes by.
    #[prost(int32, optional, tag = "2")]
    pub primary_trace_clock: Option<i32>,
}

/// A clock at one moment.
#[derive(Clone, PartialEq, Message)]
pub struct Clock {
    /// Which.
    #[prost(uint32, optional, tag = "1")]
    pub clock_id: Option<u32>,
    /// What it showed, in nanoseconds.
    #[prost(uint64, optional, tag = "2")]
    pub timestamp: Option<u64>,
}

/// `track_event/track_descriptor.proto`
#[derive(Clone, PartialEq, Message)]
pub struct TrackDescriptor {
    /// What events call it.
    #[prost(uint64, optional, tag = "1")]
    pub uuid: Option<u64>,
    /// Its name for people.
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
    /// The track below whose name it stands.
    #[prost(uint64, optional, tag = "5")]
    pub parent_uuid: Option<u64>,
    /// It holds numbers.
    #[prost(message, optional, tag = "8")]
    pub counter: Option<CounterDescriptor>,
}

/// `track_event/counter_descriptor.proto`
#[derive(Clone, PartialEq, Message)]
pub struct CounterDescriptor {}

/// `track_event/track_event.proto`
#[derive(Clone, PartialEq, Message)]
pub struct TrackEvent {
    /// What happened.
    #[prost(enumeration = "EventType", optional, tag = "9")]
    pub r#type: Option<i32>,
    /// Where.
    #[prost(uint64, optional, tag = "11")]
    pub track_uuid: Option<u64>,
    /// The name of what begins.
    #[prost(string, optional, tag = "23")]
    pub name: Option<String>,
    /// The number from now on.
    #[prost(double, optional, tag = "44")]
    pub double_counter_value: Option<f64>,
}

/// What happens on a track.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum EventType {
    /// Nothing that is known.
    Unspecified = 0,
    /// Something begins.
    SliceBegin = 1,
    /// The last thing that began ends.
    SliceEnd = 2,
    /// A number changes.
    Counter = 4,
}

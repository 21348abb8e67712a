//! The messages of Perfetto's trace format that are written here.
//!
//! Names and numbers are those of the public definitions (`protos/perfetto/trace`). Readers of a
//! trace skip fields that they do not know; fields that are not written have their defaults.

use prost::{Message, Oneof};

/// `trace.proto`: a trace is packets in any order. They are written one by one, and parsed
/// together.
#[derive(Clone, PartialEq, Message)]
pub struct Trace {
    /// The packets.
    #[prost(message, repeated, tag = "1")]
    pub packet: Vec<TracePacket>,
}

/// `trace_packet.proto`
#[derive(Clone, PartialEq, Message)]
pub struct TracePacket {
    /// Time in nanoseconds.
    #[prost(uint64, optional, tag = "8")]
    pub timestamp: Option<u64>,
    /// The clock of the time; without this field, the boot time clock.
    #[prost(uint32, optional, tag = "58")]
    pub timestamp_clock_id: Option<u32>,
    /// The writer of the packet. Readers drop events without one.
    #[prost(uint32, optional, tag = "10")]
    pub trusted_packet_sequence_id: Option<u32>,
    /// Whether this writer's incremental state starts again.
    #[prost(uint32, optional, tag = "13")]
    pub sequence_flags: Option<u32>,
    /// The contents.
    #[prost(oneof = "Data", tags = "6, 11, 60")]
    pub data: Option<Data>,
}

/// The contents of a packet.
#[derive(Clone, PartialEq, Oneof)]
pub enum Data {
    /// The clocks.
    #[prost(message, tag = "6")]
    ClockSnapshot(ClockSnapshot),
    /// An event.
    #[prost(message, tag = "11")]
    TrackEvent(TrackEvent),
    /// A track.
    #[prost(message, tag = "60")]
    TrackDescriptor(TrackDescriptor),
}

/// `clock_snapshot.proto`
#[derive(Clone, PartialEq, Message)]
pub struct ClockSnapshot {
    /// The clocks' readings at one moment.
    #[prost(message, repeated, tag = "1")]
    pub clocks: Vec<Clock>,
    /// The clock of the whole trace.
    #[prost(int32, optional, tag = "2")]
    pub primary_trace_clock: Option<i32>,
}

/// A clock's reading.
#[derive(Clone, PartialEq, Message)]
pub struct Clock {
    /// The clock's number.
    #[prost(uint32, optional, tag = "1")]
    pub clock_id: Option<u32>,
    /// Its reading in nanoseconds.
    #[prost(uint64, optional, tag = "2")]
    pub timestamp: Option<u64>,
}

/// `track_event/track_descriptor.proto`
#[derive(Clone, PartialEq, Message)]
pub struct TrackDescriptor {
    /// The track's number in events.
    #[prost(uint64, optional, tag = "1")]
    pub uuid: Option<u64>,
    /// The track's name for users.
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
    /// The parent track.
    #[prost(uint64, optional, tag = "5")]
    pub parent_uuid: Option<u64>,
    /// Present if the track has numbers.
    #[prost(message, optional, tag = "8")]
    pub counter: Option<CounterDescriptor>,
}

/// `track_event/counter_descriptor.proto`
#[derive(Clone, PartialEq, Message)]
pub struct CounterDescriptor {}

/// `track_event/track_event.proto`
#[derive(Clone, PartialEq, Message)]
pub struct TrackEvent {
    /// The kind of the event.
    #[prost(enumeration = "EventType", optional, tag = "9")]
    pub r#type: Option<i32>,
    /// The track.
    #[prost(uint64, optional, tag = "11")]
    pub track_uuid: Option<u64>,
    /// The name of the slice that begins.
    #[prost(string, optional, tag = "23")]
    pub name: Option<String>,
    /// Arrows: those events that have a number in common are joined, in the order of time.
    #[prost(fixed64, repeated, packed = "false", tag = "47")]
    pub flow_ids: Vec<u64>,
    /// The value from this time on.
    #[prost(double, optional, tag = "44")]
    pub double_counter_value: Option<f64>,
}

/// The kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum EventType {
    /// Unknown.
    Unspecified = 0,
    /// A slice begins.
    SliceBegin = 1,
    /// The slice that began last ends.
    SliceEnd = 2,
    /// Something that takes no time.
    Instant = 3,
    /// A counter changes.
    Counter = 4,
}

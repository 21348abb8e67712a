//! Messages of Perfetto's trace format that are written here.
//!
//! Names and numbers are those of the public definitions (`protos/perfetto/trace`). Readers of a trace skip fields
//! that they do not know; fields that are not written have their defaults.

use prost::{Message, Oneof};

/// Message of `trace.proto`: a trace is packets in any order. They are written one by one, and parsed together.
#[derive(Clone, PartialEq, Message)]
pub struct Trace {
    /// Packets of the trace, in any order.
    #[prost(message, repeated, tag = "1")]
    pub packet: Vec<TracePacket>,
}

/// Message of `trace_packet.proto`: one packet of a trace.
#[derive(Clone, PartialEq, Message)]
pub struct TracePacket {
    /// Time of the packet, in nanoseconds.
    #[prost(uint64, optional, tag = "8")]
    pub timestamp: Option<u64>,
    /// Clock of the packet's time; without this field, the boot time clock.
    #[prost(uint32, optional, tag = "58")]
    pub timestamp_clock_id: Option<u32>,
    /// Writer of the packet. Readers drop events without a writer.
    #[prost(uint32, optional, tag = "10")]
    pub trusted_packet_sequence_id: Option<u32>,
    /// Flags, which say whether this writer's incremental state starts again.
    #[prost(uint32, optional, tag = "13")]
    pub sequence_flags: Option<u32>,
    /// Contents of the packet.
    #[prost(oneof = "Data", tags = "6, 11, 60")]
    pub data: Option<Data>,
}

/// Contents of a packet.
#[derive(Clone, PartialEq, Oneof)]
pub enum Data {
    /// Readings of the clocks.
    #[prost(message, tag = "6")]
    ClockSnapshot(ClockSnapshot),
    /// An event on a track.
    #[prost(message, tag = "11")]
    TrackEvent(TrackEvent),
    /// Description of a track.
    #[prost(message, tag = "60")]
    TrackDescriptor(TrackDescriptor),
}

/// Message of `clock_snapshot.proto`: readings of clocks.
#[derive(Clone, PartialEq, Message)]
pub struct ClockSnapshot {
    /// Readings of the clocks at one moment.
    #[prost(message, repeated, tag = "1")]
    pub clocks: Vec<Clock>,
    /// Clock of the whole trace.
    #[prost(int32, optional, tag = "2")]
    pub primary_trace_clock: Option<i32>,
}

/// A clock, with its reading.
#[derive(Clone, PartialEq, Message)]
pub struct Clock {
    /// Number of the clock.
    #[prost(uint32, optional, tag = "1")]
    pub clock_id: Option<u32>,
    /// Reading of the clock, in nanoseconds.
    #[prost(uint64, optional, tag = "2")]
    pub timestamp: Option<u64>,
}

/// Message of `track_event/track_descriptor.proto`: the description of a track.
#[derive(Clone, PartialEq, Message)]
pub struct TrackDescriptor {
    /// Number of the track in events.
    #[prost(uint64, optional, tag = "1")]
    pub uuid: Option<u64>,
    /// Name of the track for users.
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
    /// Number of the parent track.
    #[prost(uint64, optional, tag = "5")]
    pub parent_uuid: Option<u64>,
    /// Present if the values of the track are numbers; absent if the track has activities.
    #[prost(message, optional, tag = "8")]
    pub counter: Option<CounterDescriptor>,
}

/// Message of `track_event/counter_descriptor.proto`, which marks a track of numbers.
#[derive(Clone, PartialEq, Message)]
pub struct CounterDescriptor {}

/// Message of `track_event/track_event.proto`: an event on a track.
#[derive(Clone, PartialEq, Message)]
pub struct TrackEvent {
    /// Kind of the event.
    #[prost(enumeration = "EventType", optional, tag = "9")]
    pub r#type: Option<i32>,
    /// Number of the track.
    #[prost(uint64, optional, tag = "11")]
    pub track_uuid: Option<u64>,
    /// Name of the slice that begins.
    #[prost(string, optional, tag = "23")]
    pub name: Option<String>,
    /// Numbers of the arrows through the event: events with a common number are joined, in the order of time.
    #[prost(fixed64, repeated, packed = "false", tag = "47")]
    pub flow_ids: Vec<u64>,
    /// Value of a counter from this time on.
    #[prost(double, optional, tag = "44")]
    pub double_counter_value: Option<f64>,
}

/// Kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum EventType {
    /// The kind is unknown.
    Unspecified = 0,
    /// A slice of the track begins.
    SliceBegin = 1,
    /// The slice that began last ends.
    SliceEnd = 2,
    /// The event takes no time.
    Instant = 3,
    /// The value of a counter changes.
    Counter = 4,
}

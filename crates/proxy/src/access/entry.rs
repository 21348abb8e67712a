//! Entry of the access log for one request, and its encoding in memory as 64-bit words.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use sidelane_policy::Nanos;
use sidelane_policy::hedge::{Hazard, Server};

use super::text::Text;
use crate::http::RequestNumber;
use crate::request_table::{Record, RequestEnd, SendReason};

/// Outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RequestOutcome {
    /// The client got a server's answer.
    Answered,
    /// The client closed the connection before it got an answer.
    Abandoned,
    /// The answer was interrupted, or the proxy ended before the answer was complete.
    Cut,
    /// The request did not arrive in time, or no server answered in time.
    TimedOut,
    /// No server could be reached, or the connection to the server was lost.
    Failed,
    /// The proxy refused the request, and sent it to no server.
    Refused,
    /// The proxy answered the request itself.
    Own,
    /// The command ties the connection to one server for all later commands.
    Tied,
}

impl RequestOutcome {
    const ALL: [Self; 8] = [
        Self::Answered,
        Self::Abandoned,
        Self::Cut,
        Self::TimedOut,
        Self::Failed,
        Self::Refused,
        Self::Own,
        Self::Tied,
    ];

    /// Returns the name of the outcome in the log.
    pub fn name(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Abandoned => "abandoned",
            Self::Cut => "cut",
            Self::TimedOut => "timed_out",
            Self::Failed => "failed",
            Self::Refused => "refused",
            Self::Own => "own",
            Self::Tied => "tied",
        }
    }
}

impl From<RequestEnd> for RequestOutcome {
    fn from(end: RequestEnd) -> Self {
        match end {
            RequestEnd::Answered => Self::Answered,
            RequestEnd::ClientLeft => Self::Abandoned,
            RequestEnd::Cut => Self::Cut,
            RequestEnd::Failed(408 | 504) => Self::TimedOut,
            RequestEnd::Failed(400..=499 | 501) => Self::Refused,
            RequestEnd::Failed(_) => Self::Failed,
        }
    }
}

/// Servers to which a request was sent, with the reason for a second copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dispatch {
    /// The request was sent to no server.
    Never,
    /// The request was sent to one server.
    Once,
    /// The request was sent to a second server, because of a hazard.
    Hazard(Hazard),
    /// The request was sent to a second server, because no answer came in time.
    Timer,
    /// The request was sent again after a copy was lost.
    Again,
}

/// Copy of a request that gave the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Winner {
    /// No copy gave an answer.
    None,
    /// The first copy gave the answer.
    First,
    /// The hedge gave the answer.
    Hedge,
    /// The answer came from a copy that was sent because another copy was lost.
    Again,
}

impl Dispatch {
    /// Determines the servers to which the recorded request was sent.
    pub fn from_record(record: &Record) -> Self {
        match record.hedge_reason() {
            Some(SendReason::Hazard(hazard)) => Self::Hazard(hazard),
            Some(SendReason::Timer) => Self::Timer,
            _ if record.copies.iter().any(|copy| copy.why == Some(SendReason::Lost)) => Self::Again,
            _ => Self::Once,
        }
    }

    fn to_code(self) -> u8 {
        match self {
            Self::Never => 0,
            Self::Once => 1,
            Self::Timer => 2,
            Self::Again => 3,
            Self::Hazard(hazard) => 4 + hazard as u8,
        }
    }

    fn from_code(code: u8) -> Self {
        let hazard = || Hazard::ALL.into_iter().find(|hazard| code == 4 + *hazard as u8);
        match code {
            1 => Self::Once,
            2 => Self::Timer,
            3 => Self::Again,
            _ => hazard().map_or(Self::Never, Self::Hazard),
        }
    }
}

impl Winner {
    const ALL: [Self; 4] = [Self::None, Self::First, Self::Hedge, Self::Again];

    /// Determines which copy of the recorded request gave the answer.
    pub fn from_record(record: &Record) -> Self {
        match record.answered {
            None => Self::None,
            Some((by, _)) if record.is_hedge(by) => Self::Hedge,
            Some((by, _)) if record.copies[by.index()].why == Some(SendReason::Lost) => Self::Again,
            Some(_) => Self::First,
        }
    }

    /// Returns the name of the copy in the log; `None` if no copy gave the answer.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::First => Some("first"),
            Self::Hedge => Some("hedge"),
            Self::Again => Some("again"),
        }
    }
}

/// Description of the request, by protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientRequest<'a> {
    /// HTTP request.
    Http {
        /// Request line of the HTTP request.
        line: Text<'a>,
        /// Value of the Referer field.
        referer: Text<'a>,
        /// Value of the User-Agent field.
        agent: Text<'a>,
    },
    /// Redis command.
    Redis {
        /// Name of the command, without arguments.
        name: &'a [u8],
        /// Number of keys in the command; `None` if unknown.
        keys: Option<u32>,
    },
}

/// Log entry of a finished request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Arrival time of the request, by the monotonic clock.
    pub arrived_ns: Nanos,
    /// Time from the arrival to the end of the request.
    pub duration_ns: Nanos,
    /// Time from the arrival to the begin of the answer; `None` without an answer.
    pub first_byte_ns: Option<Nanos>,
    /// Address of the client.
    pub client: SocketAddr,
    /// Server that answered; `None` if no server answered.
    pub server: Option<Server>,
    /// Outcome of the request.
    pub outcome: RequestOutcome,
    /// Servers to which the request was sent.
    pub sent: Dispatch,
    /// Copy that gave the answer.
    pub winner: Winner,
    /// HTTP status of the answer.
    pub status: Option<u16>,
    /// Size of the request in bytes.
    pub received_bytes: u64,
    /// Number of bytes that were written to the client.
    pub sent_bytes: u64,
    /// Size of the answer's body in bytes, as written to the client.
    pub body_bytes: u64,
    /// Number with which the client can later request details of this request.
    pub number: Option<RequestNumber>,
    /// Description of the request, by protocol.
    pub asked: ClientRequest<'a>,
}

/// Number of 64-bit words in an encoded entry before its texts.
pub(super) const HEAD: usize = 15;
/// Encoding of a missing number.
const NONE: u64 = u64::MAX;
const IS_REDIS: u64 = 1;
const IS_V4: u64 = 2;
const HAS_NUMBER: u64 = 4;

impl<'a> Entry<'a> {
    /// Returns the texts of the entry in the order of their encoding.
    pub(super) fn texts(&self) -> [Text<'a>; 3] {
        match self.asked {
            ClientRequest::Http { line, referer, agent } => [line, referer, agent],
            ClientRequest::Redis { name, .. } => [Text { bytes: name, omitted: 0 }, Text::default(), Text::default()],
        }
    }

    /// Encodes all fields except the texts.
    pub(super) fn encode_head(&self) -> [u64; HEAD] {
        let (is_v4, address) = match self.client.ip() {
            IpAddr::V4(address) => (true, u128::from(u32::from(address))),
            IpAddr::V6(address) => (false, address.to_bits()),
        };
        let (is_redis, keys) = match self.asked {
            ClientRequest::Http { .. } => (false, NONE),
            ClientRequest::Redis { keys, .. } => (true, keys.map_or(NONE, u64::from)),
        };
        let [line, referer, agent] = self.texts();
        let flags = [(is_redis, IS_REDIS), (is_v4, IS_V4), (self.number.is_some(), HAS_NUMBER)];
        let flags = flags.into_iter().filter(|(holds, _)| *holds).fold(0, |all, (_, flag)| all | flag);
        let server = self.server.map_or(0xff, |server| server.index() as u8);
        let small = [flags as u8, server, self.outcome as u8, self.sent.to_code(), self.winner as u8, 0, 0, 0];
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let lengths = [line, referer, agent].map(|text| text.bytes.len() as u64);
        let number = self.number.unwrap_or_default();
        [
            u64::from_le_bytes(small),
            lengths[0] | lengths[1] << 16 | lengths[2] << 32 | u64::from(self.status.unwrap_or(0)) << 48,
            self.arrived_ns,
            self.duration_ns,
            self.first_byte_ns.unwrap_or(NONE),
            address as u64,
            (address >> 64) as u64,
            self.received_bytes,
            self.sent_bytes,
            self.body_bytes,
            number.id,
            number.mark,
            keys,
            pair(line.omitted, referer.omitted),
            pair(agent.omitted, self.client.port().into()),
        ]
    }

    /// Decodes an entry from its head and `texts`, which may have padding at the end.
    pub(super) fn decode(head: &[u64; HEAD], texts: &'a [u8]) -> Self {
        let [
            small,
            lengths,
            arrived_ns,
            duration_ns,
            first_byte,
            low,
            high,
            received,
            sent,
            body,
            id,
            mark,
            keys,
            cut,
            rest,
        ] = *head;
        let [flags, server, outcome, copies, winner, ..] = small.to_le_bytes();
        let has = |flag: u64| u64::from(flags) & flag != 0;
        let address = u128::from(low) | u128::from(high) << 64;
        let ip: IpAddr = match has(IS_V4) {
            true => std::net::Ipv4Addr::from_bits(low as u32).into(),
            false => Ipv6Addr::from_bits(address).into(),
        };
        let length = |at: u32| usize::from((lengths >> (16 * at)) as u16);
        let (line, others) = texts.split_at(length(0).min(texts.len()));
        let (referer, others) = others.split_at(length(1).min(others.len()));
        let text = |bytes, omitted: u64| Text { bytes, omitted: omitted as u32 };
        let asked = match has(IS_REDIS) {
            true => ClientRequest::Redis { name: line, keys: u32::try_from(keys).ok() },
            false => ClientRequest::Http {
                line: text(line, cut),
                referer: text(referer, cut >> 32),
                agent: text(&others[..length(2).min(others.len())], rest),
            },
        };
        let status = (lengths >> 48) as u16;
        Self {
            arrived_ns,
            duration_ns,
            first_byte_ns: (first_byte != NONE).then_some(first_byte),
            client: SocketAddr::new(ip, (rest >> 32) as u16),
            server: Server::ALL.get(usize::from(server)).copied(),
            outcome: RequestOutcome::ALL.get(usize::from(outcome)).copied().unwrap_or(RequestOutcome::Cut),
            sent: Dispatch::from_code(copies),
            winner: Winner::ALL.get(usize::from(winner)).copied().unwrap_or(Winner::None),
            status: (status > 0).then_some(status),
            received_bytes: received,
            sent_bytes: sent,
            body_bytes: body,
            number: has(HAS_NUMBER).then_some(RequestNumber { id, mark }),
            asked,
        }
    }

    /// Returns the number of bytes of the texts of an entry with this head.
    pub(super) fn text_bytes(head: &[u64; HEAD]) -> usize {
        (0..3).map(|at| usize::from((head[1] >> (16 * at)) as u16)).sum()
    }
}

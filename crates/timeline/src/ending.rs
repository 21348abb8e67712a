//! Ways in which a request ends without a response.

/// The side that ended a connection first. The numbers are those of `enum sidelane_trace_end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Side {
    /// The client: its FIN or RST came.
    Client = 1,
    /// The service: it closed the socket, or the socket's sending side.
    Service = 2,
    /// Neither side: a timeout, for example.
    Other = 3,
}

impl Side {
    /// Returns the side with this number; `None` if the connection has not ended.
    pub fn from_number(number: u32) -> Option<Side> {
        [Side::Client, Side::Service, Side::Other].into_iter().find(|side| *side as u32 == number)
    }
}

/// Way in which a request ended without a response, or with a response for which its client did not wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ending {
    /// The client closed the connection while the request waited.
    Abandoned,
    /// The service closed the connection.
    ClosedByService,
    /// The message asked for no response: the client closed right after it, or sent more on a connection that never had
    /// a response.
    NoAnswerWanted,
    /// The reason is unknown.
    Unknown,
}

/// Longest time from a client's last data to its close if that data was a farewell message. After a longer time, the
/// client gave up waiting for a response.
const LEAVES_WITHIN_NS: u64 = 1_000_000;

impl Ending {
    /// Returns the ending of a request. Its last data came at `data_ns`, and `side` ended its connection at `ended_ns`.
    pub fn from_connection_end(side: Side, data_ns: u64, ended_ns: u64) -> Ending {
        match side {
            Side::Client if ended_ns.saturating_sub(data_ns) < LEAVES_WITHIN_NS => Ending::NoAnswerWanted,
            Side::Client => Ending::Abandoned,
            Side::Service => Ending::ClosedByService,
            Side::Other => Ending::Unknown,
        }
    }
}

/// A request that ended without a response for which its client waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnansweredRequest {
    /// Number of the request; 0 if no thread received it.
    pub request: u64,
    /// Arrival time of the request's data, in CLOCK_MONOTONIC nanoseconds.
    pub arrived_ns: u64,
    /// Time at which one side ended the connection, in CLOCK_MONOTONIC nanoseconds.
    pub ended_ns: u64,
    /// Way in which the request ended.
    pub ending: Ending,
}

impl UnansweredRequest {
    /// Returns the time for which the client waited, in nanoseconds.
    pub fn waited_ns(&self) -> u64 {
        self.ended_ns.saturating_sub(self.arrived_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_that_closes_at_once_wants_no_response() {
        let ending = |side, ended_ns| Ending::from_connection_end(side, 1_000, ended_ns);
        assert_eq!(ending(Side::Client, 900_000), Ending::NoAnswerWanted);
        assert_eq!(ending(Side::Client, 500), Ending::NoAnswerWanted, "its end was seen before its data");
        assert_eq!(ending(Side::Client, 50_000_000), Ending::Abandoned);
        assert_eq!(ending(Side::Service, 900_000), Ending::ClosedByService);
        assert_eq!(ending(Side::Other, 900_000), Ending::Unknown);
    }

    #[test]
    fn client_waited_until_the_connection_ended() {
        let ending = Ending::Abandoned;
        let waited_ns = |ended_ns| UnansweredRequest { request: 1, arrived_ns: 100, ended_ns, ending }.waited_ns();
        assert_eq!((waited_ns(350), waited_ns(50)), (250, 0));
    }

    #[test]
    fn each_side_has_its_number() {
        assert!(
            [Side::Client, Side::Service, Side::Other]
                .into_iter()
                .all(|side| Side::from_number(side as u32) == Some(side))
        );
        assert_eq!((Side::from_number(0), Side::from_number(4)), (None, None));
    }
}

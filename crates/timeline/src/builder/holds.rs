//! Causes of a response that leaves slowly: what held its data back in the socket, and for how long.

use crate::cause::Cause;

/// Returns whether TCP holds data back to send it at a set rate (pacing).
pub fn is_paced(hold_bits: u32) -> bool {
    cause_of_hold_bits(hold_bits) == Cause::Pacing
}

/// Reasons why data waits in a socket, as bits of `enum sidelane_trace_hold`.
mod hold {
    pub const WINDOW: u32 = 1;
    pub const CONGESTION: u32 = 2;
    pub const SMALL: u32 = 4;
    pub const NODELAY: u32 = 8;
    pub const CORK: u32 = 16;
    pub const IN_FLIGHT: u32 = 32;
    pub const PACED: u32 = 64;
    pub const LOSS: u32 = 128;
    pub const ROOM: u32 = 256;
}

/// Flag: the socket's state was read. Only then does an unsent count of 0 mean that TCP has sent all data.
pub const KNOWN: u32 = 512;
/// Flag: the peer received retransmitted data twice.
pub const TWICE: u32 = 1_024;

/// Returns the cause that holds data back, from the bits of a socket's state; [`Cause::SendBuffer`] if no bit gives a
/// cause.
///
/// Several limits may be reached at once. A loss comes first, since it explains a full congestion window. Pacing comes
/// after the two windows: they open only with a segment from the peer, and pacing does not wait for one.
pub fn cause_of_hold_bits(hold_bits: u32) -> Cause {
    let has = |bits: u32| hold_bits & bits == bits;
    if has(hold::LOSS) {
        Cause::Retransmission
    } else if has(hold::ROOM) {
        Cause::SendSpace
    } else if has(hold::CONGESTION) {
        Cause::CongestionWindow
    } else if has(hold::WINDOW) {
        Cause::SlowReader
    } else if has(hold::PACED) {
        Cause::Pacing
    } else if has(hold::SMALL | hold::IN_FLIGHT) && hold_bits & (hold::NODELAY | hold::CORK) == 0 {
        Cause::Nagle
    } else {
        Cause::SendBuffer
    }
}

const CAUSES: [Cause; 7] = [
    Cause::SlowReader,
    Cause::CongestionWindow,
    Cause::Nagle,
    Cause::Pacing,
    Cause::SendSpace,
    Cause::Retransmission,
    Cause::SendBuffer,
];

/// Times for which each cause held a response back in the socket.
#[derive(Debug, Clone, Copy, Default)]
pub struct Holds {
    times_us: [u32; CAUSES.len()],
    /// The most bytes of the response that waited at once.
    pub bytes: u32,
    /// Whether TCP sent the response at a set rate (pacing).
    pub is_paced: bool,
}

impl Holds {
    /// Adds `time_ns`, for which `cause` held `bytes` of the response back.
    pub fn add(&mut self, cause: Cause, time_ns: u64, bytes: u32) {
        if let Some(place) = CAUSES.iter().position(|known| *known == cause) {
            let time_us = u32::try_from(time_ns / 1_000).unwrap_or(u32::MAX);
            self.times_us[place] = self.times_us[place].saturating_add(time_us);
            self.bytes = self.bytes.max(bytes);
        }
    }

    /// Returns the total time for which any cause held the response back.
    pub fn sum_ns(&self) -> u64 {
        self.times_us.iter().map(|time_us| u64::from(*time_us) * 1_000).sum()
    }

    /// Returns the cause of more than half of the time for which the response was held back; [`Cause::SendBuffer`] if
    /// there is none.
    pub fn main_cause(&self) -> Cause {
        let half_us = self.sum_ns() / 2_000;
        let most = CAUSES.iter().zip(self.times_us).find(|(_, time_us)| u64::from(*time_us) > half_us);
        most.map_or(Cause::SendBuffer, |(cause, _)| *cause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_of_a_socket_has_its_cause() {
        let small = hold::SMALL | hold::IN_FLIGHT;
        for (holds, cause) in [
            (0, Cause::SendBuffer),
            (hold::WINDOW | hold::IN_FLIGHT, Cause::SlowReader),
            (hold::WINDOW | small, Cause::SlowReader),
            (hold::CONGESTION | hold::IN_FLIGHT | hold::NODELAY, Cause::CongestionWindow),
            (hold::CONGESTION | hold::LOSS, Cause::Retransmission),
            (small, Cause::Nagle),
            (small | hold::NODELAY, Cause::SendBuffer),
            (small | hold::CORK, Cause::SendBuffer),
            (hold::SMALL, Cause::SendBuffer),
            (hold::PACED | hold::IN_FLIGHT, Cause::Pacing),
            (hold::PACED | hold::WINDOW | hold::IN_FLIGHT, Cause::SlowReader),
            (hold::ROOM | hold::IN_FLIGHT, Cause::SendSpace),
        ] {
            assert_eq!(cause_of_hold_bits(holds), cause, "{holds:#x}");
        }
    }

    #[test]
    fn response_is_paced_if_nothing_else_holds_it() {
        let paced = [hold::PACED, hold::PACED | hold::IN_FLIGHT, hold::PACED | hold::WINDOW, hold::WINDOW, 0];
        assert_eq!(paced.map(is_paced), [true, true, false, false, false]);
    }

    #[test]
    fn longest_hold_of_the_response_is_the_cause() {
        let mut holds = Holds::default();
        assert_eq!(holds.main_cause(), Cause::SendBuffer);
        holds.add(Cause::SlowReader, 40_000, 7);
        holds.add(Cause::Nagle, 40_000, 3);
        assert_eq!(holds.main_cause(), Cause::SendBuffer, "neither");
        holds.add(Cause::SlowReader, 10_000, 1);
        assert_eq!((holds.main_cause(), holds.bytes, holds.sum_ns()), (Cause::SlowReader, 7, 90_000));
    }
}

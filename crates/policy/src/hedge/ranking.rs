//! Ranks of a proxy's servers, by which a request is sent to the best of those that it may go to.

use super::condition::Rank;
use super::server::{SERVERS_MAX, Server};

/// Bits of one rank in [`Ranking::to_bits`].
const RANK_BITS: usize = 3;

/// Ranks of all servers. A server that is not configured ranks as one that is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranking([Rank; SERVERS_MAX]);

impl Ranking {
    /// Number of bits of [`Ranking::to_bits`].
    pub const BITS: usize = RANK_BITS * SERVERS_MAX;

    /// Creates the ranking of this number of servers.
    pub(super) fn new(servers: usize, rank: impl Fn(Server) -> Rank) -> Self {
        let mut ranks = [Rank::Away; SERVERS_MAX];
        Server::first(servers).for_each(|server| ranks[server.index()] = rank(server));
        Self(ranks)
    }

    pub(super) fn rank(self, server: Server) -> Rank {
        self.0[server.index()]
    }

    /// Returns whether the server is configured, and not known to be unreachable.
    pub fn can_send_to(self, server: Server) -> bool {
        self.rank(server) != Rank::Away
    }

    /// Returns whether the server may answer a request that another server has, too.
    pub fn can_hedge_to(self, server: Server) -> bool {
        self.rank(server) < Rank::Failing
    }

    /// Returns whether a request is better off at `server` than at `other`.
    pub fn is_better(self, server: Server, other: Server) -> bool {
        self.rank(server).is_better_than(self.rank(other))
    }

    /// Returns the best of the allowed servers; of equals, the first one. `None` if no server is allowed.
    pub fn best(self, is_allowed: impl Fn(Server) -> bool) -> Option<Server> {
        Server::ALL.into_iter().filter(|server| is_allowed(*server)).min_by_key(|server| self.rank(*server))
    }

    /// Returns the best server at which a request is better off than at `server`; `None` if there is none.
    pub(super) fn better_than(self, server: Server) -> Option<Server> {
        self.best(|other| self.is_better(other, server))
    }

    /// Returns the ranking as the lowest bits of a number.
    pub fn to_bits(self) -> u32 {
        Server::ALL.into_iter().fold(0, |bits, server| bits | (self.rank(server) as u32) << shift_of(server))
    }

    /// Returns the ranking of [`Ranking::to_bits`]. Other bits are ignored.
    pub fn from_bits(bits: u32) -> Self {
        let number = |server| (bits >> shift_of(server)) as usize % (1 << RANK_BITS);
        Self(Server::ALL.map(|server| Rank::ALL.get(number(server)).copied().unwrap_or(Rank::Away)))
    }
}

fn shift_of(server: Server) -> usize {
    RANK_BITS * server.index()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranking_is_read_from_its_bits() {
        for ranks in [[0, 1, 2, 3], [4, 5, 0, 5], [5; 4]] {
            let ranking = Ranking(ranks.map(|number| Rank::ALL[number]));
            assert_eq!(Ranking::from_bits(ranking.to_bits() | 1 << Ranking::BITS), ranking);
        }
    }

    #[test]
    fn best_server_is_the_first_of_the_best_rank() {
        let ranks = [Rank::Slow, Rank::Well, Rank::Well, Rank::Cold];
        let ranking = Ranking::new(4, |server| ranks[server.index()]);
        let [first, second, third, fourth] = Server::ALL;
        assert_eq!(ranking.best(|_| true), Some(second));
        assert_eq!(ranking.best(|server| server != second), Some(third));
        assert_eq!(ranking.best(|_| false), None);
        assert_eq!(ranking.better_than(first), Some(second));
        assert_eq!((ranking.better_than(second), ranking.is_better(fourth, first)), (None, true));
        let fewer = Ranking::new(1, |server| ranks[server.index()]);
        assert_eq!(Server::ALL.map(|server| fewer.can_send_to(server)), [true, false, false, false]);
    }
}

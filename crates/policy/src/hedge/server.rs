//! Servers of a proxy, by number.

/// Largest number of servers of one proxy: the active one and its backups.
pub const SERVERS_MAX: usize = 4;

/// One of a proxy's servers: the one that is active at first, or a backup, in the order of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Server(Number);

/// Number of a server. It is no integer, so that an index needs no check of its bound, and an `Option` no more memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
enum Number {
    Zero,
    One,
    Two,
    Three,
}

impl Server {
    /// Server that is active at first.
    pub const FIRST: Self = Self(Number::Zero);
    /// All servers that a proxy can have.
    pub const ALL: [Self; SERVERS_MAX] = [Self::FIRST, Self(Number::One), Self(Number::Two), Self(Number::Three)];

    /// Returns the servers of a proxy that has this number of them.
    pub fn first(count: usize) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().take(count)
    }

    /// Returns the index of the server in an array of all.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

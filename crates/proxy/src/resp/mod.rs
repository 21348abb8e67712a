//! RESP, as Redis speaks it: where commands and replies end, and whose reply is whose. Pure.

mod command;
mod frame;
mod lineup;

pub use command::{Kind, Repeatable, asks_of_writes, kind_of, name_of};
pub use frame::{BadFrame, Scanner};
pub use lineup::{Lineup, Reply};

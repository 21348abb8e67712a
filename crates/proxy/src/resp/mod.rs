//! RESP, the protocol of Redis: commands, ends of replies, and the assignment of replies to commands. No I/O.

mod command;
mod frame;
mod keys;
mod reader;
mod reply_queue;

pub use command::{
    Kind, Repeatable, asks_for_resp2, asks_for_resp3, asks_of_writes, blocks, kind_of, loads_script, marks_connection,
    may_write, name_of,
};
pub use frame::{BadFrame, Scanner};
pub use keys::count_keys;
pub use reader::{Command, CommandReader};
pub use reply_queue::{ClientReply, ReplyQueue};

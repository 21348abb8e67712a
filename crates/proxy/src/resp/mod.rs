//! RESP, the protocol of Redis: commands, ends of replies, and the assignment of replies to commands. No I/O.

mod command;
mod frame;
mod keys;
mod reader;
mod reply_queue;

pub use command::{
    Repeatable, SendMode, asks_for_resp2, asks_for_resp3, depends_on_writes, display_name, leaves_connection_state,
    loads_script, may_block, may_write, send_mode,
};
pub use frame::{BadFrame, ReplyScanner};
pub use keys::count_keys;
pub use reader::{Command, CommandReader};
pub use reply_queue::{ClientReply, ReplyQueue};

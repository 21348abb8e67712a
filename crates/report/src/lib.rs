//! The report room: what a run measured, as one JSON object, a terminal table, a page and a trace.
//!
//! Every verb fills the same [`ResultFile`]; what is shown is derived from that object
//! alone, so a page can be made again later from the stored JSON and says the same.
//!
//! This room must not know how anything was measured: no clocks, no lanes being driven, no
//! kernel. It is handed numbers whose keys end in their unit and it never invents one: a
//! number that is missing is shown as missing, and a check on it does not hold.

pub mod chart;
pub mod check;
mod drawing;
pub mod finding;
pub mod grid;
pub mod html;
pub mod interval;
mod markup;
pub mod perfetto;
pub mod picture;
pub mod result;
pub mod row;
pub mod table;
pub mod terminal;
pub mod unit;
mod whole_file;

#[cfg(test)]
pub(crate) mod sample;

pub use check::{Check, Verdict};
pub use interval::{Interval, Method};
pub use picture::{Class, Curve, LaneTrack, Percentile, Role, Span, Timeline};
pub use result::{Machine, Pair, ResultFile};
pub use row::Row;
pub use table::Column;
pub use unit::Unit;
pub use whole_file::{WriteError, write_whole};

//! Borrowing: when batch may use a lane that it must give back (Elfen §3.4).

mod idle;

pub use idle::{BorrowIdle, BorrowIdleConfig};

//! Events that tell how much a thread is disturbed by its SMT sibling, by processor.
//!
//! - `formula`: a ratio of any events, such as stalls over loads and stores (Holmes, HPDC'22, Equation 1)
//! - `processor`: vendor, family and model
//! - `table`: the events of each processor, with their sources

mod formula;
mod processor;
mod table;

pub use formula::{EVENTS_MAX, Formula, FormulaError};
pub use processor::{Processor, Vendor};
pub use table::{Candidate, ProcessorEvents, events_of_processor};

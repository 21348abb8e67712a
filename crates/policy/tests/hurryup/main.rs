//! Hurry-up: vectors worked by hand from the paper, and properties over random histories.

mod ahead;
mod paper;
mod properties;
mod vectors;

//! Tests of the Hurry-up policy: hand-computed cases from the paper, and properties over random histories.

mod ahead;
mod paper;
mod properties;
mod vectors;

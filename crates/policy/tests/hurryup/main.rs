//! Tests of the Hurry-up policy: hand-computed cases from the paper, and properties over random histories.

mod paper;
mod preplace;
mod properties;
mod vectors;

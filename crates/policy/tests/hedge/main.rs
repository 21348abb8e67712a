//! Tests of the hedging policy: hand-computed cases from the thesis, and properties over random histories.

mod outliers;
mod properties;
mod roles;

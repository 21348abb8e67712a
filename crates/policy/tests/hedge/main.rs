//! Tests of the hedging policy and of drains: hand-computed cases from the thesis, and properties over random histories.

mod drains;
mod outliers;
mod properties;
mod roles;

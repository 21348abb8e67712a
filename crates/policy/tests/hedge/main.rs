//! Hedging: vectors worked by hand from the thesis, and properties over random histories.

mod outliers;
mod properties;
mod roles;

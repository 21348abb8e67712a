//! Tests of the policies for CPUs: hand-computed cases from the papers, and properties over random histories.

mod histories;
mod holmes;
mod perfiso;
mod properties;
mod scene;
mod unmanaged;

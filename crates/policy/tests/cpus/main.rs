//! Policies of CPUs: vectors worked by hand from the papers, and properties over random histories.

mod histories;
mod holmes;
mod perfiso;
mod properties;
mod scene;
mod unmanaged;

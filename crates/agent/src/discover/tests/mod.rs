//! Discovery on machines that are made of files, and on this one.

mod kubernetes;
mod machine;
mod real;
mod trees;

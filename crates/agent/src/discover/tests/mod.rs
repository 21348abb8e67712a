//! Tests of discovery on machines that are made of files, and on this machine.

mod kubernetes;
mod machine;
mod real;
mod trees;

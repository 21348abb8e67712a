//! Checks of the source tree: which part may use which, no large cycles of files, short functions,
//! and documents that are right about files.

mod documents;
mod functions;
mod graph;
mod modules;
mod rooms;

//! The house guards itself: which room may use which, no knots of files, short functions, and documents that
//! are true about where things are.

mod documents;
mod functions;
mod graph;
mod modules;
mod rooms;

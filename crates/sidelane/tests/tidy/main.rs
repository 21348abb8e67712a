//! Checks of the source tree: no large cycles of files, short functions, documents that are right about files, text
//! that can be read once, a page of results that equals its command's output, and a product without the laboratory.

mod documents;
mod files;
mod functions;
mod graph;
mod language;
mod modules;
mod product;
mod results;

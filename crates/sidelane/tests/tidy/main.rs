//! Checks of the source tree: no large cycles of files, short functions, documents that are right about files, and a product
//! without the laboratory.

mod documents;
mod functions;
mod graph;
mod modules;
mod product;

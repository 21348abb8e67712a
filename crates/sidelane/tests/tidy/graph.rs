//! Test of dependencies between files: no cycle of more than three.

use std::hash::RandomState;

use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;

use crate::modules::{modules, modules_used_by, parse, root};

/// Largest number of files in a cycle of dependencies: enough for a module and its parts.
const KNOT_MAX: usize = 3;

#[test]
fn no_more_than_three_files_use_each_other() {
    let modules = modules();
    let names: Vec<&Vec<String>> = modules.keys().collect();
    let number = |path: &Vec<String>| names.binary_search(&path).expect("a known module");
    let mut graph = DiGraphMap::<usize, (), RandomState>::default();
    for (path, file) in &modules {
        for used in modules_used_by(path, &parse(file), &modules) {
            graph.add_edge(number(path), number(&used), ());
        }
    }
    let knots = tarjan_scc(&graph).into_iter().filter(|knot| knot.len() > KNOT_MAX);
    let files = |knot: Vec<usize>| {
        let mut files: Vec<String> = knot
            .into_iter()
            .map(|module| modules[names[module]].strip_prefix(root()).expect("it lies there").display().to_string())
            .collect();
        files.sort();
        files.join("\n    ")
    };
    let knots: Vec<String> = knots.map(files).collect();
    assert!(knots.is_empty(), "these files use each other:\n    {}", knots.join("\n\n    "));
}

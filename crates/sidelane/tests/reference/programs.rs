//! `docs/explanation/tracking-cost.md` has each program of lanes and requests, with the tracepoint that runs it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::files::{files, root};
use crate::pages::read_page;

const PAGE: &str = "explanation/tracking-cost.md";

/// Folders of programs that only a trace or batch's scheduler loads.
const LEFT_OUT: [&str; 2] = ["bpf/trace", "bpf/scx"];

/// Returns the kernel programs by name, with their tracepoints: `SEC("tp_btf/X")` is followed by `BPF_PROG(name`.
fn programs() -> BTreeMap<String, String> {
    let is_meant = |path: &PathBuf| !LEFT_OUT.iter().any(|folder| path.starts_with(root().join(folder)));
    let sources = files(&root().join("bpf"), &["c", "h"]).into_iter().filter(is_meant);
    let found = sources.flat_map(|path| {
        let text = std::fs::read_to_string(path).unwrap();
        let parts: Vec<String> = text.split("SEC(\"tp_btf/").skip(1).map(str::to_owned).collect();
        parts.into_iter().map(|part| {
            let (tracepoint, rest) = part.split_once('"').unwrap();
            let (_, name) = rest.split_once("BPF_PROG(").unwrap();
            (name[..name.find(',').unwrap()].to_owned(), tracepoint.to_owned())
        })
    });
    found.collect()
}

#[test]
fn each_program_of_lanes_and_requests_has_its_row() {
    let cell = |cell: &str| Some(cell.trim().strip_prefix('`')?.strip_suffix('`')?.to_owned());
    let row = |line: &str| {
        let mut cells = line.strip_prefix("| ")?.split(" | ");
        Some((cell(cells.next()?)?, cell(cells.next()?)?))
    };
    let rows: BTreeMap<String, String> = read_page(PAGE).lines().filter_map(row).collect();
    assert_eq!(rows, programs(), "{PAGE}");
}

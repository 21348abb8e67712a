//! Tests that statements in documents about files are true.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use crate::modules::{crate_folders, files, root};

/// Largest size of ARCHITECTURE.md in bytes, so that it is read to its end.
const MAP_BYTES: usize = 12 << 10;
/// Text of an invariant that no test guards.
const OPEN: &str = "*not guarded*";

/// Returns the documents of the root, of the laboratory, and of all folders under `docs`.
pub fn documents() -> Vec<PathBuf> {
    let flat = [root(), root().join("lab")].into_iter().flat_map(|folder| fs::read_dir(folder).expect("a folder"));
    let flat = flat.flatten().map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|it| it == "md"));
    flat.chain(files(&root().join("docs"), &["md"])).collect()
}

/// Returns the targets of links `[text](here)`, without the part after `#`.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let parts = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    parts.map(|(link, _)| link.split('#').next().unwrap_or("")).filter(|link| !link.is_empty())
}

#[test]
fn every_link_leads_somewhere() {
    let mut broken = Vec::new();
    for document in documents() {
        let text = fs::read_to_string(&document).expect("a readable document");
        let folder = document.parent().expect("it lies in a folder");
        let own = links(&text).filter(|link| !link.contains("://") && !folder.join(link).exists());
        broken.extend(own.map(|link| format!("{}: {link}", document.display())));
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn every_crate_is_on_the_map() {
    let map = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the map");
    let other = ["abi/", "bpf/", "kmod/", "runtime/c", "runtime/java", "lab/scenarios"].map(String::from);
    let missing: Vec<String> =
        crate_folders().into_iter().chain(other).filter(|folder| !map.contains(folder.as_str())).collect();
    assert!(missing.is_empty(), "ARCHITECTURE.md does not name {}", missing.join(", "));
    assert!(map.len() <= MAP_BYTES, "ARCHITECTURE.md has {} bytes; {MAP_BYTES} are allowed", map.len());
}

/// Layers in ARCHITECTURE.md, the lowest first. Crates in no layer's table are beside them, and may use all.
const LAYERS: [&str; 3] = ["base", "system", "feature"];

/// Returns the number of each crate's layer, by its folder.
fn layer_by_folder(architecture_map: &str) -> BTreeMap<&str, usize> {
    let mut layers = BTreeMap::new();
    let mut layer = None;
    for line in architecture_map.lines() {
        let first_cell = line.strip_prefix("| ").and_then(|row| row.split(" |").next());
        match first_cell {
            Some(cell) if cell.starts_with('`') => {
                layers.extend(cell.split('`').skip(1).step_by(2).filter_map(|folder| Some((folder, layer?))));
            }
            Some(cell) => layer = LAYERS.iter().position(|name| *name == cell),
            None => {}
        }
    }
    layers
}

/// Returns the workspace's crates that a crate's manifest names as dependencies outside tests.
fn dependencies(manifest: &str) -> Vec<String> {
    let mut is_outside_tests = false;
    let mut found = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            is_outside_tests = line.ends_with("dependencies]") && !line.contains("dev-");
        } else if let Some(rest) = line.strip_prefix("sidelane-").filter(|_| is_outside_tests) {
            found.extend(rest.split(['.', ' ', '=']).next().map(|name| format!("crates/{name}")));
        }
    }
    found
}

#[test]
fn a_crate_uses_its_own_layer_and_those_below() {
    let map = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the map");
    let layers = layer_by_folder(&map);
    let layer = |folder: &str| layers.get(folder).copied().unwrap_or(LAYERS.len());
    let mut seen = 0;
    let mut upward = Vec::new();
    for folder in crate_folders() {
        let manifest = fs::read_to_string(root().join(&folder).join("Cargo.toml")).expect("a manifest");
        for used in dependencies(&manifest) {
            seen += 1;
            if layer(&used) > layer(&folder) {
                upward.push(format!("{folder} -> {used}"));
            }
        }
    }
    assert!(seen > 50 && layers.len() > 20, "{seen} dependencies of {} crates were read", layers.len());
    assert!(upward.is_empty(), "these crates use a layer above their own:\n{}", upward.join("\n"));
}

/// Returns the bullets under `# Invariants` in a crate's documentation.
fn invariants(source: &str) -> Vec<String> {
    let lines = source.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim);
    let section = lines.skip_while(|line| *line != "# Invariants").skip(1).take_while(|line| !line.starts_with("# "));
    let text = format!(" {}", section.collect::<Vec<_>>().join(" "));
    text.split(" - ").skip(1).map(str::to_owned).collect()
}

/// Returns the guards that an invariant names, as in (`file`: `test`, `test`; `file`: `test`): each file with its
/// tests.
fn named_guards(invariant: &str) -> impl Iterator<Item = (&str, Vec<&str>)> {
    let groups = invariant.split("(`").skip(1).filter_map(|rest| rest.split_once(')'));
    let parts = groups.flat_map(|(group, _)| group.split(';')).map(|part| part.trim().trim_start_matches('`'));
    parts
        .filter_map(|part| part.split_once('`'))
        .map(|(file, tests)| (file, tests.split('`').skip(1).step_by(2).collect()))
}

/// Returns the problems of an invariant of the crate in `folder`: its guards must be files of the crate or of the
/// workspace.
fn problems(folder: &str, invariant: &str) -> Vec<String> {
    let is_open = [OPEN, "guarded by the compiler"].iter().any(|words| invariant.contains(words));
    let mut problems = Vec::new();
    if named_guards(invariant).next().is_none() && !is_open {
        problems.push(format!("name a guard, or write {OPEN}: {invariant}"));
    }
    for (file, tests) in named_guards(invariant) {
        let places = [root().join(folder).join(file), root().join(file)];
        let Some(text) = places.iter().find_map(|place| fs::read_to_string(place).ok()) else {
            problems.push(format!("there is no file {file}"));
            continue;
        };
        let starts = |test: &str| [format!("fn {test}("), format!("void {test}("), format!("{test}() {{")];
        let is_missing = |test: &&str| !starts(test).iter().any(|start| text.contains(start.as_str()));
        problems.extend(tests.into_iter().filter(is_missing).map(|test| format!("{file} has no test {test}")));
    }
    problems
}

#[test]
fn every_named_guard_exists() {
    let mut all = Vec::new();
    for folder in crate_folders() {
        let file = format!("{folder}/src/lib.rs");
        let invariants = invariants(&fs::read_to_string(root().join(&file)).expect("a crate has a lib.rs"));
        if invariants.is_empty() {
            all.push(format!("{file}: say what must stay true, under \"# Invariants\""));
        }
        let problems = invariants.iter().flat_map(|invariant| problems(&folder, invariant));
        all.extend(problems.map(|problem| format!("{file}: {problem}")));
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

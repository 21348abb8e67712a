//! Statements in the documents about files are true.

use std::fs;
use std::path::{Path, PathBuf};

use crate::modules::{crate_folders, root};

fn documents() -> Vec<PathBuf> {
    let markdown = |folder: &Path| {
        let files = fs::read_dir(folder).expect("a folder").flatten().map(|entry| entry.path());
        files.filter(|file| file.extension().is_some_and(|ending| ending == "md")).collect::<Vec<_>>()
    };
    [markdown(&root()), markdown(&root().join("docs"))].concat()
}

/// The targets of links `[text](here)`, without the part after `#`.
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
}

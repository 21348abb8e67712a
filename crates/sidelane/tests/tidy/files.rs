//! Files of the workspace, and parsed sources.

use std::fs;
use std::path::{Path, PathBuf};

use syn::{Attribute, File, Item};

/// Returns the workspace's folder.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the crate lies in crates/sidelane").to_owned()
}

/// Returns the folders of the workspace's crates, from its root.
pub fn crate_folders() -> Vec<String> {
    let entries = fs::read_dir(root().join("crates")).expect("the workspace has crates").flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let own = names.map(|name| format!("crates/{name}"));
    own.chain(["lab", "lab/programs", "packaging"].map(str::to_owned)).collect()
}

/// Returns the files below a folder with one of these endings, without build results.
pub fn files(folder: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder of the repository").flatten().map(|entry| entry.path());
    let (folders, mut found): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    found.retain(|path| path.extension().is_some_and(|ending| endings.iter().any(|one| ending == *one)));
    let is_source = |path: &&PathBuf| !path.ends_with("target") && !path.ends_with("node_modules");
    found.extend(folders.iter().filter(is_source).flat_map(|folder| files(folder, endings)));
    found
}

/// Parses a source file.
pub fn parse(file: &Path) -> File {
    let text = fs::read_to_string(file).expect("a readable source");
    syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// Returns whether an item exists in tests alone.
pub fn is_for_tests(item: &Item) -> bool {
    attributes(item).iter().any(is_test)
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Mod(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn is_test(attribute: &Attribute) -> bool {
    attribute.path().is_ident("test")
        || (attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Ident>().is_ok_and(|condition| condition == "test"))
}

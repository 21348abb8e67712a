//! Modules of the workspace: every source file and the modules that it uses, read from the sources.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use syn::visit::Visit;
use syn::{File, Item, ItemMod, UseTree};

use crate::files::is_for_tests;
pub use crate::files::{crate_folders, files, parse, root};

/// Returns the crates of the workspace, by the names under which they are used, with their source folders.
fn crates() -> BTreeMap<String, PathBuf> {
    let named = |folder: String| {
        let short = folder.rsplit('/').next().expect("a folder has a name").to_owned();
        let name = if short == "sidelane" { short } else { format!("sidelane_{short}") };
        (name, root().join(folder).join("src"))
    };
    crate_folders().into_iter().map(named).collect()
}

/// Modules with files of their own: module path and file.
pub type Modules = BTreeMap<Vec<String>, PathBuf>;

/// Returns all modules with files of their own.
pub fn modules() -> Modules {
    let mut found = Modules::new();
    for (name, folder) in crates() {
        for file in files(&folder, &["rs"]) {
            let mut path = vec![name.clone()];
            let relative = file.strip_prefix(&folder).expect("it lies there").with_extension("");
            path.extend(relative.iter().map(|part| part.to_str().expect("plain names").to_owned()));
            if matches!(path.last().map(String::as_str), Some("mod" | "lib")) {
                path.pop();
            }
            found.insert(path, file);
        }
    }
    found
}

/// Returns the modules that the source of the module `path` uses, without its tests.
pub fn modules_used_by(path: &[String], source: &File, modules: &Modules) -> BTreeSet<Vec<String>> {
    let mut collector = Collector { at: path.to_vec(), modules, found: BTreeSet::new() };
    collector.visit_file(source);
    collector.found.remove(path);
    collector.found
}

struct Collector<'a> {
    /// Path of the module that is being read, which may be inside the file.
    at: Vec<String>,
    modules: &'a Modules,
    found: BTreeSet<Vec<String>>,
}

impl Collector<'_> {
    fn add_use(&mut self, segments: &[String]) {
        let Some(mut path) = self.absolute_module_path(segments) else { return };
        while !path.is_empty() && !self.modules.contains_key(&path) {
            path.pop();
        }
        if !path.is_empty() {
            self.found.insert(path);
        }
    }

    fn absolute_module_path(&self, segments: &[String]) -> Option<Vec<String>> {
        let (mut base, mut rest) = match segments.first()?.as_str() {
            "crate" => (self.at[..1].to_vec(), &segments[1..]),
            "self" | "super" => (self.at.clone(), segments),
            name if name.starts_with("sidelane") => (Vec::new(), segments),
            name => {
                // The name is a module that is declared in this file.
                let child = self.at.iter().cloned().chain([name.to_owned()]).collect::<Vec<_>>();
                return self.modules.contains_key(&child).then(|| [&child[..], &segments[1..]].concat());
            }
        };
        while let Some(first) = rest.first().filter(|first| *first == "self" || *first == "super") {
            if first == "super" {
                base.pop();
            }
            rest = &rest[1..];
        }
        base.extend(rest.iter().cloned());
        Some(base)
    }

    fn add_use_tree(&mut self, prefix: &[String], tree: &UseTree) {
        let with = |name: &syn::Ident| [prefix, &[name.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.add_use_tree(&with(&path.ident), &path.tree),
            UseTree::Name(name) => self.add_use(&with(&name.ident)),
            UseTree::Rename(name) => self.add_use(&with(&name.ident)),
            UseTree::Glob(_) => self.add_use(prefix),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.add_use_tree(prefix, tree)),
        }
    }
}

impl<'ast> Visit<'ast> for Collector<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_for_tests(item) {
            syn::visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, inner: &'ast ItemMod) {
        self.at.push(inner.ident.to_string());
        syn::visit::visit_item_mod(self, inner);
        self.at.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.add_use_tree(&[], &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if segments.len() > 1 {
            self.add_use(&segments);
        }
        syn::visit::visit_path(self, path);
    }
}

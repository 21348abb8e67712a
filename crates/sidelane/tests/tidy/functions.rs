//! Test that functions are short, and take few arguments.

use std::path::{Path, PathBuf};

use syn::spanned::Spanned;
use syn::visit::Visit;
use syn::{ImplItemFn, ItemFn, Signature};

use crate::modules::{modules, parse, root};

const LINES_MAX: usize = 70;
const ARGUMENTS_MAX: usize = 7;
/// Functions that may be longer: one in assembly language, which saves every register, with comments that say which.
const EXCEPTIONS: [(&str, &str); 1] = [("crates/gate/src/save.rs", "slow_path_keeping_registers")];

struct Functions {
    file: PathBuf,
    too_much: Vec<String>,
}

impl Functions {
    fn check_length_and_arguments(&mut self, signature: &Signature, whole_span: proc_macro2::Span) {
        let name = signature.ident.to_string();
        let lines = whole_span.end().line - signature.span().start().line + 1;
        let arguments = signature.inputs.len();
        let is_exception = EXCEPTIONS.iter().any(|(file, function)| self.file == Path::new(file) && name == *function);
        if (lines > LINES_MAX || arguments > ARGUMENTS_MAX) && !is_exception {
            self.too_much.push(format!("{}: {name} has {lines} lines, {arguments} arguments", self.file.display()));
        }
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        self.check_length_and_arguments(&function.sig, function.block.span());
        syn::visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        self.check_length_and_arguments(&function.sig, function.block.span());
        syn::visit::visit_impl_item_fn(self, function);
    }
}

#[test]
fn functions_are_short_and_take_few_arguments() {
    let mut too_much = Vec::new();
    for file in modules().into_values() {
        let short = file.strip_prefix(root()).expect("it lies there").to_owned();
        let mut functions = Functions { file: short, too_much: Vec::new() };
        functions.visit_file(&parse(&file));
        too_much.extend(functions.too_much);
    }
    assert!(too_much.is_empty(), "{}", too_much.join("\n"));
}

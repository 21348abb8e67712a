//! `docs/reference/scenarios.md` names each key that a scenario may have.

use std::collections::BTreeSet;

use syn::visit::Visit;
use syn::{Expr, FnArg, ImplItem, Item, Pat, Type};

use crate::files::{is_for_tests, parse, root};
use crate::pages::{code_spans, read_page};
use crate::sources::{sources, text_of};

const PAGE: &str = "reference/scenarios.md";

/// Returns the names of the functions of `Reader` that take a key.
fn key_reader_functions() -> BTreeSet<String> {
    let file = parse(&root().join("crates/toml/src/reader.rs"));
    let impls = file.items.iter().filter_map(|item| if let Item::Impl(item) = item { Some(item) } else { None });
    let readers =
        impls.filter(|item| matches!(&*item.self_ty, Type::Path(of) if of.path.segments[0].ident == "Reader"));
    let items = readers.flat_map(|item| &item.items);
    let functions = items.filter_map(|item| if let ImplItem::Fn(item) = item { Some(&item.sig) } else { None });
    let is_key =
        |arg: &FnArg| matches!(arg, FnArg::Typed(arg) if matches!(&*arg.pat, Pat::Ident(name) if name.ident == "key"));
    functions.filter(|sig| sig.inputs.iter().any(is_key)).map(|sig| sig.ident.to_string()).collect()
}

/// Visitor of a source that collects the keys which are passed to functions of `Reader`.
struct Keys {
    functions: BTreeSet<String>,
    found: BTreeSet<String>,
}

impl<'ast> Visit<'ast> for Keys {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_for_tests(item) {
            syn::visit::visit_item(self, item);
        }
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        if let (true, Some(Expr::Lit(key))) = (self.functions.contains(&call.method.to_string()), call.args.first()) {
            self.found.extend(text_of(&key.lit));
        }
        syn::visit::visit_expr_method_call(self, call);
    }
}

#[test]
fn each_key_of_a_scenario_is_named() {
    let mut keys = Keys { functions: key_reader_functions(), found: BTreeSet::new() };
    assert!(keys.functions.len() > 20, "{:?}", keys.functions);
    let parsed = sources("crates/sim");
    let scenario = parsed.iter().filter(|(path, _)| path.iter().any(|part| part == "scenario"));
    scenario.for_each(|(_, file)| keys.visit_file(file));
    assert!(keys.found.len() > 80, "{:?}", keys.found);
    let text = read_page(PAGE);
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let named: BTreeSet<&str> = code_spans(&text).flat_map(|span| span.split(move |letter| !is_name(letter))).collect();
    // The code may report a problem of a key by its whole path; the page names the last part.
    let last = |key: &str| key.rsplit('.').next().unwrap_or_default().to_owned();
    let missing: Vec<&String> = keys.found.iter().filter(|key| !named.contains(last(key).as_str())).collect();
    assert!(missing.is_empty(), "docs/{PAGE} does not name {missing:?}");
}

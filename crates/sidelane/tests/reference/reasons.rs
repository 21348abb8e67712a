//! `docs/reference/files.md` has each reason that an audit log can give.

use syn::visit::Visit;
use syn::{ItemImpl, Lit, Type};

use crate::pages::{cell, parts_must_be};
use crate::sources::{sources, text_of};

const PAGE: &str = "reference/files.md";
const PART: &str = "reasons";
/// Folders of policies with reasons, and what each decides about.
const POLICIES: [(&str, &str); 3] = [("borrow", "lanes"), ("cpus", "CPUs"), ("hurryup", "threads")];

/// Texts by which `Reason` is shown.
#[derive(Default)]
struct Reasons {
    is_inside: bool,
    texts: Vec<String>,
}

impl<'ast> Visit<'ast> for Reasons {
    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        let is_reason = matches!(&*item.self_ty, Type::Path(of) if of.path.is_ident("Reason"));
        let shown = item.trait_.as_ref().and_then(|(_, path, _)| path.segments.last());
        self.is_inside = is_reason && shown.is_some_and(|name| name.ident == "Display");
        syn::visit::visit_item_impl(self, item);
        self.is_inside = false;
    }

    fn visit_lit(&mut self, lit: &'ast Lit) {
        self.texts.extend(text_of(lit).filter(|_| self.is_inside));
    }
}

#[test]
fn each_reason_of_an_action_has_its_row() {
    let mut table = "| `why` | of |\n|---|---|\n".to_owned();
    let parsed = sources("crates/policy");
    for (folder, of) in POLICIES {
        let mut reasons = Reasons::default();
        let own = parsed.iter().filter(|(path, _)| path.iter().any(|part| part == folder));
        own.for_each(|(_, file)| reasons.visit_file(file));
        assert!(reasons.texts.len() > 3, "{folder}: {:?}", reasons.texts);
        reasons.texts.iter().for_each(|text| table.push_str(&format!("| `{}` | {of} |\n", cell(text))));
    }
    parts_must_be(PAGE, &[(PART.to_owned(), table)]);
}

//! `docs/reference/files.md` has each reason that an audit log can give.

use syn::visit::Visit;
use syn::{Attribute, ItemImpl, Lit, Type};

use crate::pages::{check_generated_parts, escape_for_cell};
use crate::sources::{sources, text_of};

const PAGE: &str = "reference/files.md";
const PART: &str = "reasons";
/// Folders of policies with reasons, and what each decides about.
const POLICIES: [(&str, &str); 3] = [("borrow", "lanes"), ("cpus", "CPUs"), ("hurryup", "threads")];

/// Texts by which the reasons of a policy are shown, and their names in labels of metrics, if they have such names.
#[derive(Default)]
struct Reasons {
    place: Place,
    texts: Vec<String>,
    names: Vec<String>,
}

/// Part of a source that is being visited.
#[derive(Clone, Copy, Default, PartialEq)]
enum Place {
    #[default]
    Elsewhere,
    Display,
    Names,
}

impl<'ast> Visit<'ast> for Reasons {
    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        let own = if let Type::Path(of) = &*item.self_ty { of.path.segments.last() } else { None };
        let shown = item.trait_.as_ref().and_then(|(path, _)| path.segments.last());
        self.place = match (own.is_some_and(|own| own.ident.to_string().ends_with("Reason")), shown) {
            (true, Some(shown)) if shown.ident == "Display" => Place::Display,
            (true, None) => Place::Names,
            _ => Place::Elsewhere,
        };
        syn::visit::visit_item_impl(self, item);
        self.place = Place::Elsewhere;
    }

    /// Skips attributes: a doc comment is an attribute whose literal is no text of a reason.
    fn visit_attribute(&mut self, _: &'ast Attribute) {}

    fn visit_lit(&mut self, lit: &'ast Lit) {
        match self.place {
            Place::Display => self.texts.extend(text_of(lit)),
            Place::Names => self.names.extend(text_of(lit)),
            Place::Elsewhere => {}
        }
    }
}

#[test]
fn each_reason_of_an_action_has_its_row() {
    let mut table = "| `why` | of | label `reason` |\n|---|---|---|\n".to_owned();
    let parsed = sources("crates/policy");
    for (folder, of) in POLICIES {
        let mut reasons = Reasons::default();
        let own = parsed.iter().filter(|(path, _)| path.iter().any(|part| part == folder));
        own.for_each(|(_, file)| reasons.visit_file(file));
        assert!(reasons.texts.len() > 3, "{folder}: {:?}", reasons.texts);
        assert!(
            reasons.names.is_empty() || reasons.names.len() == reasons.texts.len(),
            "{folder}: {:?}",
            reasons.names
        );
        for (index, text) in reasons.texts.iter().enumerate() {
            let label = reasons.names.get(index).map(|name| format!("`{name}` ")).unwrap_or_default();
            table.push_str(&format!("| `{}` | {of} | {label}|\n", escape_for_cell(text)));
        }
    }
    check_generated_parts(PAGE, &[(PART.to_owned(), table)]);
}

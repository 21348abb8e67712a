//! Facts of the sources, without their tests: texts, keys of JSON, exit codes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use proc_macro2::{TokenStream, TokenTree};
use syn::punctuated::Punctuated;
use syn::visit::Visit;
use syn::{Attribute, Expr, Field, Fields, Item, Lit, Meta, Token, Type};

use crate::files::{crate_folders, files, is_for_tests, parse, root};

/// Texts, keys, exit codes and variables in the sources of one crate.
#[derive(Debug, Default)]
pub struct Crate {
    /// String literals, except names of threads.
    pub texts: BTreeSet<String>,
    /// Keys that are put into JSON by name.
    pub keys: BTreeSet<String>,
    /// Keys of types that serde writes.
    pub fields: BTreeSet<String>,
    /// Exit codes, by the names of their constants.
    pub exit_codes: BTreeMap<String, i64>,
    /// Environment variables that are read.
    pub variables: BTreeSet<String>,
}

/// Returns the facts of each crate's sources, by the crate's folder, such as `crates/lanes`.
pub fn facts_by_crate_folder() -> &'static BTreeMap<String, Crate> {
    static CRATES: OnceLock<BTreeMap<String, Crate>> = OnceLock::new();
    CRATES.get_or_init(|| {
        let read = |folder: String| {
            let mut all = Crate::default();
            for (_, file) in sources(&folder) {
                Reader { all: &mut all }.visit_file(&file);
            }
            (folder, all)
        };
        crate_folders().into_iter().map(read).collect()
    })
}

/// Returns the crates of the product, without the laboratory and crates that only tests use.
pub fn product() -> impl Iterator<Item = (&'static str, &'static Crate)> {
    let is_product = |folder: &&String| folder.starts_with("crates/") && *folder != "crates/testing";
    let names = |folder: &'static String| folder.strip_prefix("crates/").unwrap_or(folder);
    facts_by_crate_folder()
        .keys()
        .filter(is_product)
        .map(move |folder| (names(folder), &facts_by_crate_folder()[folder]))
}

/// Returns the sources of a crate that are no tests.
pub fn sources(folder: &str) -> Vec<(PathBuf, syn::File)> {
    let parsed: Vec<_> =
        files(&root().join(folder).join("src"), &["rs"]).into_iter().map(|path| (parse(&path), path)).collect();
    let of_tests: Vec<PathBuf> = parsed.iter().flat_map(|(file, path)| modules_of_tests(path, file)).collect();
    let is_test = |path: &Path| of_tests.iter().any(|module| path.with_extension("").starts_with(module));
    parsed.into_iter().filter(|(_, path)| !is_test(path)).map(|(file, path)| (path, file)).collect()
}

/// Returns the paths, without an ending, of modules with own files that a source has for tests alone.
fn modules_of_tests(path: &Path, file: &syn::File) -> Vec<PathBuf> {
    let stem = path.file_stem().and_then(|stem| stem.to_str());
    let folder =
        if matches!(stem, Some("lib" | "mod" | "main")) { path.with_file_name("") } else { path.with_extension("") };
    let modules = file.items.iter().filter_map(|item| if let Item::Mod(module) = item { Some(module) } else { None });
    let of_tests = modules.filter(|module| module.content.is_none() && module.attrs.iter().any(is_test_condition));
    of_tests.map(|module| folder.join(module.ident.to_string())).collect()
}

/// Returns whether this is `cfg` with `test` among its conditions.
fn is_test_condition(attribute: &Attribute) -> bool {
    let condition = attribute.meta.require_list().map(|list| list.tokens.to_string());
    let mut names = condition.iter().flat_map(|condition| condition.split(|it: char| !it.is_alphanumeric()));
    attribute.path().is_ident("cfg") && names.any(|name| name == "test")
}

/// Returns the value of a string literal; `None` for any other literal.
pub fn text_of(lit: &Lit) -> Option<String> {
    match lit {
        Lit::Str(text) => Some(text.value()),
        Lit::CStr(text) => text.value().into_string().ok(),
        _ => None,
    }
}

/// Returns the value of a token that is a string literal; `None` for any other token.
pub fn text_of_token(token: &TokenTree) -> Option<String> {
    if let TokenTree::Literal(literal) = token { text_of(&Lit::new(literal.clone())) } else { None }
}

/// Returns the value of a string literal, on which methods such as `.into()` may be called; `None` for any other
/// expression.
fn text_of_expr(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Lit(lit) => text_of(&lit.lit),
        Expr::MethodCall(call) => text_of_expr(&call.receiver),
        _ => None,
    }
}

struct Reader<'a> {
    all: &'a mut Crate,
}

impl Reader<'_> {
    /// Adds the texts of a macro, and the keys among them if it is `json!`.
    fn read_tokens(&mut self, tokens: TokenStream, is_json: bool) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        for (at, token) in tokens.iter().enumerate() {
            if let TokenTree::Group(group) = token {
                self.read_tokens(group.stream(), is_json);
            }
            let Some(text) = text_of_token(token) else { continue };
            let is_key = matches!(tokens.get(at + 1), Some(TokenTree::Punct(mark)) if mark.as_char() == ':');
            if is_json && is_key {
                self.all.keys.insert(text.clone());
            }
            self.all.texts.insert(text);
        }
    }

    /// Adds the keys of a type, if serde writes it.
    fn read_fields<'f>(&mut self, attributes: &[Attribute], fields: impl Iterator<Item = &'f Fields>) {
        let derives = attributes.iter().filter(|attribute| attribute.path().is_ident("derive"));
        let mut lists = derives.filter_map(|attribute| Some(attribute.meta.require_list().ok()?.tokens.to_string()));
        if lists.any(|list| list.split(|it: char| !it.is_alphanumeric()).any(|name| name == "Serialize")) {
            self.all.fields.extend(fields.flatten().filter_map(key_of));
        }
    }
}

/// Returns the key of a field in JSON, if it has one.
fn key_of(field: &Field) -> Option<String> {
    let own = field.ident.as_ref()?.to_string();
    let of_serde = field.attrs.iter().filter(|attribute| attribute.path().is_ident("serde"));
    let parse = |attribute: &Attribute| attribute.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated);
    let said: Vec<Meta> = of_serde.filter_map(|attribute| parse(attribute).ok()).flatten().collect();
    let is = |names: [&str; 3]| said.iter().any(|meta| names.iter().any(|name| meta.path().is_ident(name)));
    if is(["flatten", "skip", "skip_serializing"]) {
        return None;
    }
    let renamed = said.iter().find_map(|meta| match meta {
        Meta::NameValue(pair) if pair.path.is_ident("rename") => text_of_expr(&pair.value),
        _ => None,
    });
    Some(renamed.unwrap_or_else(|| own.trim_start_matches("r#").to_owned()))
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_attribute(&mut self, _: &'ast Attribute) {}

    fn visit_item(&mut self, item: &'ast Item) {
        if !is_for_tests(item) {
            syn::visit::visit_item(self, item);
        }
    }

    fn visit_macro(&mut self, mac: &'ast syn::Macro) {
        let is_json = mac.path.segments.last().is_some_and(|name| name.ident == "json");
        self.read_tokens(mac.tokens.clone(), is_json);
    }

    fn visit_lit(&mut self, lit: &'ast Lit) {
        self.all.texts.extend(text_of(lit));
    }

    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        let name = item.ident.to_string();
        // Exit codes are bytes, but constants of some exit codes are an `i32`.
        let has_type = matches!(&*item.ty, Type::Path(of) if of.path.is_ident("u8") || of.path.is_ident("i32"));
        if let (true, Expr::Lit(lit)) = (has_type && name.starts_with("EXIT_"), &*item.expr)
            && let Lit::Int(number) = &lit.lit
        {
            self.all.exit_codes.insert(name, number.base10_parse().expect("an exit code is a number"));
        }
        syn::visit::visit_item_const(self, item);
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.read_fields(&item.attrs, std::iter::once(&item.fields));
        syn::visit::visit_item_struct(self, item);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.read_fields(&item.attrs, item.variants.iter().map(|variant| &variant.fields));
        syn::visit::visit_item_enum(self, item);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let first = call.args.first().and_then(text_of_expr);
        match call.method.to_string().as_str() {
            "put" | "insert" => self.all.keys.extend(first),
            // The argument is the name of a thread, which is no text for users.
            "name" if first.is_some() => return self.visit_expr(&call.receiver),
            _ => {}
        }
        syn::visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        let path = if let Expr::Path(path) = &*call.func { path.path.segments.last() } else { None };
        let name = path.map(|name| name.ident.to_string()).unwrap_or_default();
        let first = call.args.first().and_then(text_of_expr);
        match name.as_str() {
            "put" => self.all.keys.extend(first),
            "var" | "var_os" => self.all.variables.extend(first),
            // The argument is the name of a thread, which is no text for users.
            "start" if first.is_some() => return call.args.iter().skip(1).for_each(|arg| self.visit_expr(arg)),
            _ => {}
        }
        syn::visit::visit_expr_call(self, call);
    }
}

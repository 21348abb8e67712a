//! `docs/reference/metrics.md` has a row for each metric, with its type and unit.

use std::collections::{BTreeMap, BTreeSet};

use syn::punctuated::Punctuated;
use syn::visit::Visit;
use syn::{Expr, Lit, Pat, Token};

use crate::files::{files, is_for_tests, parse, root};
use crate::pages::{code_spans, read_page, tables};

const PAGE: &str = "reference/metrics.md";

/// Type and unit of a metric, such as `counter` and `seconds`. The unit is empty if the metric has none.
type About = (String, String);

/// Returns the name under which Prometheus reads a metric.
fn full_name(name: &str, (kind, unit): &About) -> String {
    let unit = if unit.is_empty() { String::new() } else { format!("_{unit}") };
    let total = if kind == "counter" { "_total" } else { "" };
    format!("sidelane_{name}{unit}{total}")
}

/// Metrics that a source file declares. The test reads the source, because the agent's metrics can be requested only
/// from a running agent.
#[derive(Default)]
struct Families {
    /// Constants and variables that say what a metric is, with their expressions.
    named: BTreeMap<String, Expr>,
    found: Vec<(String, About)>,
    /// Number of metrics whose name, unit or kind this test cannot read from the source.
    unreadable: usize,
}

impl Families {
    /// Returns the expression that a name stands for.
    fn resolve(&self, expr: &Expr) -> Option<Expr> {
        match expr {
            Expr::Path(path) => self.named.get(&path.path.get_ident()?.to_string()).cloned(),
            other => Some(other.clone()),
        }
    }

    fn text(&self, expr: &Expr) -> Option<String> {
        match self.resolve(expr)? {
            Expr::Lit(lit) => {
                if let Lit::Str(text) = lit.lit {
                    Some(text.value())
                } else {
                    None
                }
            }
            _ => None,
        }
    }

    /// Returns the last name of a path: `Seconds` of `Some(Unit::Seconds)`, nothing of `None`.
    fn last_path_segment(&self, expr: &Expr) -> Option<String> {
        match expr {
            Expr::Call(call) => match (call.args.first(), &*call.func) {
                (Some(argument), _) => self.last_path_segment(argument),
                (None, Expr::Path(function)) => Some(function.path.segments.last()?.ident.to_string()),
                (None, _) => None,
            },
            Expr::Path(path) if path.path.segments.len() == 1 && !path.path.is_ident("None") => {
                self.last_path_segment(&self.named.get(&path.path.get_ident()?.to_string())?.clone())
            }
            Expr::Path(path) => {
                let name = path.path.segments.last()?.ident.to_string().to_lowercase();
                Some(if name == "none" { String::new() } else { name })
            }
            _ => None,
        }
    }

    fn add_family(&mut self, name: Option<&Expr>, unit: Option<&Expr>, kind: Option<&Expr>) {
        let about = || Some((self.text(name?)?, (self.last_path_segment(kind?)?, self.last_path_segment(unit?)?)));
        match about() {
            Some(about) => self.found.push(about),
            None => self.unreadable += 1,
        }
    }
}

impl<'ast> Visit<'ast> for Families {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !is_for_tests(item) {
            syn::visit::visit_item(self, item);
        }
    }

    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        self.named.insert(item.ident.to_string(), (*item.expr).clone());
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        if let (Pat::Ident(name), Some(init)) = (&local.pat, &local.init) {
            self.named.insert(name.ident.to_string(), (*init.expr).clone());
        }
        syn::visit::visit_local(self, local);
    }

    fn visit_macro(&mut self, list: &'ast syn::Macro) {
        // The elements of a `vec!`; other macros have no such list.
        let elements = list.parse_body_with(Punctuated::<Expr, Token![,]>::parse_terminated);
        elements.iter().flatten().for_each(|element| Visit::visit_expr(self, element));
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        let path = if let Expr::Path(path) = &*call.func { Some(&path.path.segments) } else { None };
        let is_of = path.is_some_and(|path| path.iter().map(|it| it.ident.to_string()).eq(["Family", "from_numbers"]));
        if is_of {
            match call.args.first().and_then(|about| self.resolve(about)) {
                Some(Expr::Tuple(about)) => {
                    self.add_family(about.elems.first(), about.elems.get(1), about.elems.get(2));
                }
                _ => self.unreadable += 1,
            }
        }
        syn::visit::visit_expr_call(self, call);
    }

    fn visit_expr_struct(&mut self, made: &'ast syn::ExprStruct) {
        if made.path.is_ident("Family") {
            let field = |wanted: &str| {
                let is_wanted = |member: &syn::Member| matches!(member, syn::Member::Named(name) if name == wanted);
                made.fields.iter().find(|field| is_wanted(&field.member)).map(|field| &field.expr)
            };
            self.add_family(field("name"), field("unit"), field("kind"));
        }
        syn::visit::visit_expr_struct(self, made);
    }
}

/// Returns the metrics of the agent, without those of its proxies.
fn agent_metrics() -> Vec<(String, About)> {
    let mut found = Vec::new();
    for path in files(&root().join("crates/agent/src"), &["rs"]) {
        let mut families = Families::default();
        families.visit_file(&parse(&path));
        assert_eq!(families.unreadable, 0, "{}: write what a metric is as a tuple", path.display());
        found.extend(families.found);
    }
    found
}

/// Returns the metrics of proxies, and of servers whose hazards are told.
fn proxy_metrics() -> Vec<(String, About)> {
    let told = sidelane_hazards::run::metric_families([]);
    let families = sidelane_proxy::run::metric_families(&[]).into_iter().chain(told);
    let unit = |unit: Option<String>| unit.unwrap_or_default();
    let about = families.map(|family| {
        let kind = format!("{:?}", family.kind).to_lowercase();
        (family.name.to_owned(), (kind, unit(family.unit.map(|unit| unit.as_str().to_owned()))))
    });
    about.collect()
}

#[test]
fn each_metric_has_its_row() {
    let (agent, proxy) = (agent_metrics(), proxy_metrics());
    assert!(agent.len() > 25 && proxy.len() > 15, "{} of the agent and {} of a proxy", agent.len(), proxy.len());
    let metrics: BTreeMap<String, About> =
        agent.into_iter().chain(proxy).map(|(name, about)| (full_name(&name, &about), about)).collect();
    let text = read_page(PAGE);
    let all = tables(&text);
    let rows = all.iter().filter(|table| table.header[..3] == ["name", "type", "unit"]).flat_map(|table| &table.rows);
    let rows: BTreeMap<&str, &Vec<String>> = rows.filter_map(|row| Some((code_spans(&row[0]).next()?, row))).collect();
    let mut wrong = Vec::new();
    for (name, (kind, unit)) in &metrics {
        match rows.get(name.as_str()) {
            None => wrong.push(format!("no row of {name}, a {kind}")),
            Some(row) if !row[1].starts_with(kind.as_str()) => wrong.push(format!("{name} is a {kind}")),
            // For a ratio the cell contains the range of values, such as `0 to 1`, or `ratio`.
            Some(row) if !unit.is_empty() && unit != "ratio" && row[2] != *unit => {
                wrong.push(format!("{name} is in {unit}"));
            }
            Some(_) => {}
        }
    }
    let known: BTreeSet<&str> = metrics.keys().map(String::as_str).collect();
    wrong.extend(rows.keys().filter(|name| !known.contains(*name)).map(|name| format!("a row of no metric: {name}")));
    assert!(wrong.is_empty(), "docs/{PAGE}:\n{}", wrong.join("\n"));
}

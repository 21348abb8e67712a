//! Swept keys of a scenario, its cases, and the changes of a short run.

use sidelane_toml::{Document, Value, value_as_text};

use super::inputs::Result;

/// Most points of a sweep.
const POINTS_MAX: usize = 100_000;

/// A swept key, with its values.
pub(super) struct Axis<'t> {
    pub(super) path: String,
    values: Vec<&'t Value<'t>>,
}

/// A case: values that change together, under one name.
pub(super) struct Case<'t> {
    pub(super) name: &'t str,
    pub(super) values: Vec<(String, &'t Value<'t>)>,
}

/// Reads the tables `[[case]]`, in order; their names must differ.
pub(super) fn read_cases<'t>(document: &Document<'t>) -> Result<Vec<Case<'t>>> {
    let mut cases: Vec<Case> = Vec::new();
    for reader in document.top().numbered_tables("case") {
        let name = reader.required_text("name", "write a name")?;
        if cases.iter().any(|other| other.name == name) {
            return Err(reader.record_problem(
                "name",
                format!("is \"{name}\", which is used already"),
                "write another name",
            ));
        }
        let values = reader.table("set").entries().into_iter().map(|(path, _, value)| (path.to_owned(), value));
        cases.push(Case { name, values: values.collect() });
        reader.record_unknown_keys();
    }
    Ok(cases)
}

/// Returns paths and values of the table `[quick]`, except those of `[quick.sweep]`.
pub(super) fn quick_overrides<'t>(document: &Document<'t>) -> Vec<(String, &'t Value<'t>)> {
    let entries = document.top().table("quick").entries();
    let single = entries.into_iter().filter(|(path, ..)| *path != "sweep");
    single.map(|(path, _, value)| (path.to_owned(), value)).collect()
}

/// Reads `[sweep]`; in a quick run `[quick.sweep]` may have shorter lists.
pub(super) fn read_axes<'t>(document: &Document<'t>, quick: bool) -> Result<Vec<Axis<'t>>> {
    let top = document.top();
    let shorter = if quick { top.table("quick").table("sweep").entries() } else { Vec::new() };
    let sweep = top.table("sweep");
    let swept: Vec<&str> = sweep.entries().into_iter().map(|(path, ..)| path).collect();
    if let Some((path, at, _)) = shorter.iter().find(|(path, ..)| !swept.contains(path)) {
        let key = format!("quick.sweep.{path}");
        return Err(document.record_problem_at(
            at,
            &key,
            "is not in [sweep]",
            format!("the sweep has {}", swept.join(", ")),
        ));
    }
    let mut axes = Vec::new();
    for (path, _, value) in sweep.entries() {
        let value = shorter.iter().find(|(short, ..)| *short == path).map_or(value, |(.., value)| *value);
        let list = value.get_ref().as_array().filter(|list| !list.is_empty()).ok_or_else(|| {
            let problem = format!("is {}", value_as_text(value.get_ref()));
            document.record_problem_at(&value.span(), &sweep.path(path), problem, "write a list of at least one value")
        })?;
        axes.push(Axis { path: path.to_owned(), values: list.iter().collect() });
    }
    let points = axes.iter().map(|axis| axis.values.len()).try_fold(1_usize, usize::checked_mul);
    match points.filter(|points| *points <= POINTS_MAX) {
        Some(_) => Ok(axes),
        None => Err(top.record_problem(
            "sweep",
            "has too many combinations of values",
            format!("write lists of at most {POINTS_MAX} together"),
        )),
    }
}

/// Returns all combinations of swept values; the first axis changes slowest.
pub(super) fn combinations<'t>(axes: &[Axis<'t>]) -> Vec<Vec<(String, &'t Value<'t>)>> {
    axes.iter().fold(vec![Vec::new()], |before, axis| {
        let with = |start: &Vec<(String, &'t Value<'t>)>| {
            let start = start.clone();
            let next = move |value: &&'t Value<'t>| {
                let mut combination = start.clone();
                combination.push((axis.path.clone(), *value));
                combination
            };
            axis.values.iter().map(next).collect::<Vec<_>>()
        };
        before.iter().flat_map(with).collect()
    })
}

//! Tables about some of the services: their key `services`.

use super::overlap::Lines;
use super::policy::quoted;
use super::problem::Problem;
use super::reader::Reader;
use super::{Config, ServiceRule};

pub(super) const SERVICES: &str = "write names of [[service]], as in [\"redis\"]";

/// The names, or `None`: each service with an objective.
pub(super) fn services(reader: &Reader) -> Option<Vec<String>> {
    let names = reader.list("services", SERVICES).map(Some);
    reader.setting("services", names, None, |names| match names {
        Some(names) => format!("[{}]", names.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", ")),
        None => "each service with an slo".to_owned(),
    })
}

/// Whether the service of this rule is one of them.
pub(super) fn are_named(services: Option<&[String]>, rule: &ServiceRule) -> bool {
    match services {
        Some(names) => names.contains(&rule.name),
        None => rule.terms.slo.is_some(),
    }
}

/// A table of this kind.
pub(super) struct Table<'a> {
    /// Its key `services`, with its path.
    pub(super) key: &'static str,
    pub(super) services: Option<&'a [String]>,
    /// The line of that key, or of the table.
    pub(super) line: Option<usize>,
    /// What is wrong if it names nobody and no service has an objective, and what to do.
    pub(super) nobody: (&'static str, &'static str),
}

impl Table<'_> {
    /// Names that no service has, or the lack of any service.
    pub(super) fn problems(&self, config: &Config) -> Vec<Problem> {
        let problem = |problem: String, advice: &str| Problem {
            line: self.line,
            key: self.key.to_owned(),
            problem,
            advice: advice.to_owned(),
        };
        let Some(names) = self.services else {
            let is_any = config.services.iter().any(|rule| are_named(None, rule));
            let (why, advice) = self.nobody;
            return if is_any { Vec::new() } else { vec![problem(why.to_owned(), advice)] };
        };
        let unknown = names.iter().filter(|name| !config.services.iter().any(|rule| rule.name == **name));
        unknown.map(|name| problem(format!("has \"{name}\", and no [[service]] is named so"), SERVICES)).collect()
    }
}

/// The services that a table is about, each with its line.
pub(super) fn lined<'a>(
    services: Option<&'a [String]>,
    config: &'a Config,
    lines: &'a Lines,
) -> impl Iterator<Item = (&'a ServiceRule, Option<usize>)> {
    let all = config.services.iter().zip(&lines.services).map(|(rule, line)| (rule, *line));
    all.filter(move |(rule, _)| are_named(services, rule))
}

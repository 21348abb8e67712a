//! Names of variables in C++, Rust and Go, and suggestions for misspelt names.

use std::borrow::Cow;
use std::fmt;

use cpp_demangle::{DemangleOptions, Symbol};

/// Number of names that are suggested for an unknown name.
const OFFERS: usize = 3;

/// Limit of the length of a demangled name. A short linker name can stand for a very long source name, because each of
/// its parts may occur twice in the next part.
const NAME_MAX: usize = 1 << 16;

/// Returns a linker's name as it is written in the source.
pub(super) fn demangle(name: &str) -> Cow<'_, str> {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return format!("{rust:#}").into();
    }
    let demangled = name.starts_with("_Z").then(|| demangle_cpp(name)).flatten();
    demangled.map_or(name.into(), Cow::from)
}

fn demangle_cpp(name: &str) -> Option<String> {
    let mut written = Bounded(String::new());
    Symbol::new(name).ok()?.structured_demangle(&mut written, &DemangleOptions::new()).ok()?;
    Some(written.0)
}

/// Text of at most [`NAME_MAX`] bytes.
struct Bounded(String);

impl fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > NAME_MAX {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

/// Returns whether `full_name` is `wanted`, or `wanted` in some namespace, package or crate.
pub(super) fn is_qualified_match(full_name: &str, wanted: &str) -> bool {
    let Some(before) = full_name.strip_suffix(wanted) else { return false };
    before.is_empty() || ["::", ".", "/"].iter().any(|separator| before.ends_with(separator))
}

/// Returns the names for which `wanted` may be a misspelling, the likeliest first.
pub fn closest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let limit = (wanted.len() / 3).max(2);
    let near = |name: &'a str| {
        let part = wanted.len() >= 4 && name.contains(wanted);
        let steps = if part { limit.min(name.len() - wanted.len()) } else { edit_distance(wanted, name, limit)? };
        Some((steps, name))
    };
    let mut found: Vec<(usize, &str)> = names.filter_map(near).collect();
    found.sort_unstable();
    found.dedup();
    found.into_iter().take(OFFERS).map(|(_, name)| name.to_owned()).collect()
}

/// Returns the end of an error about an unknown name, with suggestions.
pub fn did_you_mean(names: &[String]) -> String {
    if names.is_empty() { String::new() } else { format!("; did you mean {}?", names.join(" or ")) }
}

/// Returns the number of letters to insert, delete or replace (Levenshtein); `None` if the number is more than `limit`.
fn edit_distance(a: &str, b: &str, limit: usize) -> Option<usize> {
    if a.len().abs_diff(b.len()) > limit {
        return None;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, to) in b.bytes().enumerate() {
            let replaced = diagonal + usize::from(from != to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row.last().copied().filter(|steps| *steps <= limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_base_36(number: u32) -> String {
        let digit = |digit| char::from_digit(digit, 36).unwrap().to_ascii_uppercase();
        let high = (number >= 36).then(|| digit(number / 36));
        high.into_iter().chain([digit(number % 36)]).collect()
    }

    #[test]
    fn linker_names_are_demangled() {
        assert_eq!(demangle("counter"), "counter");
        assert_eq!(demangle("_ZL7counter"), "counter");
        assert_eq!(demangle("_ZN2ns7counterE"), "ns::counter");
        assert_eq!(demangle("_ZN4demo7COUNTER17h0123456789abcdefE"), "demo::COUNTER");
        assert_eq!(demangle("_Znonsense"), "_Znonsense");
        // The demangled name is P<int, int>, then 60 times P with two arguments of the previous type: 2^60 characters.
        let numbered = ["S0_".to_owned()].into_iter().chain((1..60).map(|number| format!("S{}_", in_base_36(number))));
        let doubling: String = numbered.map(|part| format!("S_I{part}{part}E")).collect();
        let name = format!("_Z1f1PIiiE{doubling}");
        assert_eq!(demangle(&name), name);
    }

    #[test]
    fn name_matches_in_any_namespace_as_a_whole_word() {
        assert!(is_qualified_match("ns::counter", "counter") && is_qualified_match("a::ns::counter", "ns::counter"));
        assert!(
            is_qualified_match("runtime.gcphase", "gcphase") && is_qualified_match("example.com/app.hits", "app.hits")
        );
        assert!(!is_qualified_match("my_counter", "counter") && !is_qualified_match("counter", "ns::counter"));
    }

    #[test]
    fn misspelt_name_is_corrected() {
        let names = ["stat_numcommands", "server", "unrelated", "serve"];
        let close = |wanted| closest(wanted, names.into_iter());
        assert_eq!(close("servr"), ["serve", "server"]);
        assert_eq!(close("numcommands"), ["stat_numcommands"]);
        assert!(close("something else").is_empty());
        assert_eq!(did_you_mean(&close("servr")), "; did you mean serve or server?");
    }

    #[test]
    fn edit_distance_is_the_levenshtein_distance() {
        assert_eq!(edit_distance("kitten", "sitting", 9), Some(3));
        assert_eq!(edit_distance("", "abc", 9), Some(3));
        assert_eq!(edit_distance("kitten", "sitting", 2), None);
    }

    #[test]
    fn fuzzed_linker_names_are_demangled_without_a_panic() {
        sidelane_testing::fuzz("linker-names", |bytes| {
            let name = String::from_utf8_lossy(bytes);
            let shown = demangle(&name);
            assert!(is_qualified_match(&shown, &shown));
            closest("ns::counter", [&*shown, &*name].into_iter());
        });
    }
}

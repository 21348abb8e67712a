//! Patterns of paths, by which a rule names cgroups or pods.
//!
//! `*` and `?` stand for characters within one part of a path, `**` for any number of parts. The rule applies to each
//! match with everything below it. So no other match is looked for below a match.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// Part of a pattern that stands for any number of parts of a path.
const ANY_PARTS: &str = "**";

/// Pattern of paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob {
    text: String,
    parts: Vec<String>,
}

/// Reason why a text is not a pattern.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum GlobError {
    /// A pattern that does not begin at the root.
    #[error("does not begin with /")]
    Relative,
    /// A pattern that matches the root, and so everything.
    #[error("is the root, with every process of the machine")]
    Root,
    /// A part that no path can have, such as `..`.
    #[error("has the part `{0}`, which a path of a cgroup cannot have")]
    Part(String),
}

/// Relation of a path to a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathMatch {
    /// Path that does not match; no path below it matches either.
    No,
    /// Path that does not match, but a path below it may match.
    Leads,
    /// Path that matches.
    Matches,
}

impl Glob {
    /// Parses a pattern of paths that need not begin with a slash, such as NAMESPACE/POD.
    pub fn parse_relative(text: &str) -> Result<Self, GlobError> {
        let parts: Vec<String> = text.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect();
        if let Some(part) = parts.iter().find(|part| is_invalid_part(part)) {
            return Err(GlobError::Part(part.clone()));
        }
        match parts.iter().all(|part| part == ANY_PARTS) {
            true => Err(GlobError::Root),
            false => Ok(Self { text: text.to_owned(), parts }),
        }
    }

    /// Returns the pattern with the parts of `suffix` appended.
    pub fn join(&self, suffix: &str) -> Self {
        let parts = self.parts.iter().cloned().chain(suffix.split('/').map(str::to_owned)).collect();
        Self { text: format!("{}/{suffix}", self.text.trim_end_matches('/')), parts }
    }

    /// Returns the last part of the pattern.
    pub fn last_part(&self) -> &str {
        self.parts.last().map_or("", String::as_str)
    }

    /// Returns whether the pattern is a plain path, without `*` and `?`.
    pub fn is_plain_path(&self) -> bool {
        !self.text.contains(['*', '?'])
    }

    /// Returns the relation of `path` to the pattern.
    pub fn match_path(&self, path: &str) -> PathMatch {
        let path: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        match_parts(&self.parts, &path)
    }

    /// Returns whether both patterns may apply to one path. A pattern applies to its matches, and to all paths below a
    /// match.
    pub fn overlaps(&self, other: &Self) -> bool {
        parts_overlap(&self.parts, &other.parts)
    }
}

/// Returns whether this part cannot occur in a path of the kernel.
fn is_invalid_part(part: &str) -> bool {
    part == "." || part == ".." || (part.contains(ANY_PARTS) && part != ANY_PARTS)
}

fn match_parts(parts: &[String], path: &[&str]) -> PathMatch {
    match (parts.split_first(), path.split_first()) {
        (None, None) => PathMatch::Matches,
        (None, Some(_)) => PathMatch::No,
        (Some((part, rest)), None) => match part == ANY_PARTS && match_parts(rest, path) == PathMatch::Matches {
            true => PathMatch::Matches,
            false => PathMatch::Leads,
        },
        (Some((part, rest)), Some((_, below))) if part == ANY_PARTS => {
            match_parts(rest, path).max(match_parts(parts, below))
        }
        (Some((part, rest)), Some((name, below))) => match matches_name(part.as_bytes(), name.as_bytes()) {
            true => match_parts(rest, below),
            false => PathMatch::No,
        },
    }
}

/// Returns whether a pattern's part matches the part `name` of a path.
fn matches_name(part: &[u8], name: &[u8]) -> bool {
    match (part.split_first(), name.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) if matches_name(rest, name) => true,
        (Some((b'*', _)), Some((_, name))) => matches_name(part, name),
        (Some((wanted, rest)), Some((found, name))) => (*wanted == b'?' || wanted == found) && matches_name(rest, name),
        _ => false,
    }
}

fn parts_overlap(left: &[String], right: &[String]) -> bool {
    match (left.split_first(), right.split_first()) {
        // If one pattern ends here, the rest of the other pattern lies below its match, so one path fits both.
        (None, _) | (_, None) => true,
        (Some((part, rest)), Some((_, below))) if part == ANY_PARTS => {
            parts_overlap(rest, right) || parts_overlap(left, below)
        }
        (_, Some((part, _))) if part == ANY_PARTS => parts_overlap(right, left),
        (Some((part, rest)), Some((second, below))) => {
            part_patterns_overlap(part.as_bytes(), second.as_bytes()) && parts_overlap(rest, below)
        }
    }
}

/// Returns whether some name matches both parts of patterns.
fn part_patterns_overlap(left: &[u8], right: &[u8]) -> bool {
    match (left.split_first(), right.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) if part_patterns_overlap(rest, right) => true,
        (Some((b'*', _)), Some((_, other))) => part_patterns_overlap(left, other),
        (_, Some((b'*', _))) => part_patterns_overlap(right, left),
        (Some((a, one)), Some((b, other))) => (a == b || *a == b'?' || *b == b'?') && part_patterns_overlap(one, other),
        _ => false,
    }
}

impl FromStr for Glob {
    type Err = GlobError;

    fn from_str(text: &str) -> Result<Self, GlobError> {
        if text.starts_with('/') { Self::parse_relative(text) } else { Err(GlobError::Relative) }
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn glob(text: &str) -> Glob {
        text.parse().expect(text)
    }

    #[test]
    fn path_matches_or_leads_to_a_match_or_neither() {
        for (pattern, path, fits) in [
            ("/batch", "/batch", PathMatch::Matches),
            ("/batch", "/", PathMatch::Leads),
            ("/batch", "/batch/job", PathMatch::No),
            ("/batch", "/batches", PathMatch::No),
            ("/system.slice/redis@*.service", "/system.slice/redis@6379.service", PathMatch::Matches),
            ("/system.slice/redis@*.service", "/system.slice", PathMatch::Leads),
            ("/a/?/c*", "/a/b/c", PathMatch::Matches),
            ("/a/?/c*", "/a/bb", PathMatch::No),
            ("/**/redis", "/redis", PathMatch::Matches),
            ("/**/redis", "/a/b/redis", PathMatch::Matches),
            ("/**/redis", "/a/b", PathMatch::Leads),
            ("/a/**", "/a", PathMatch::Matches),
        ] {
            assert_eq!(glob(pattern).match_path(path), fits, "{pattern} {path}");
        }
    }

    #[test]
    fn patterns_overlap_if_one_may_match_below_the_other() {
        for (one, other, meets) in [
            ("/batch", "/batch", true),
            ("/batch", "/batch/job", true),
            ("/batch/*", "/batch/job/deep", true),
            ("/batch", "/batches", false),
            ("/a*/x", "/*b/x/y", true),
            ("/a*/x", "/b*/x", false),
            ("/**/redis", "/batch", true),
            ("/a/b", "/a/c", false),
            ("/a/?", "/a/bb", false),
        ] {
            assert_eq!(
                [glob(one).overlaps(&glob(other)), glob(other).overlaps(&glob(one))],
                [meets; 2],
                "{one} {other}"
            );
        }
    }

    #[test]
    fn invalid_patterns_are_refused() {
        let wrong = |text: &str| text.parse::<Glob>().unwrap_err();
        assert_eq!(wrong("batch"), GlobError::Relative);
        assert_eq!(["/", "/**", "//"].map(wrong), [GlobError::Root, GlobError::Root, GlobError::Root]);
        assert_eq!(wrong("/a/../b"), GlobError::Part("..".into()));
        assert_eq!(wrong("/a**/b"), GlobError::Part("a**".into()));
    }

    fn patterns() -> impl Strategy<Value = Glob> {
        let part = prop_oneof![3 => "[ab*?]{1,3}".prop_filter("one part", |part| !part.contains("**")), 1 => Just("**".to_owned())];
        let parts = prop::collection::vec(part, 1..4);
        parts.prop_filter_map("the root", |parts| format!("/{}", parts.join("/")).parse().ok())
    }

    fn paths() -> impl Strategy<Value = Vec<String>> {
        prop::collection::vec("[ab]{1,3}", 0..5)
    }

    proptest! {
        /// Two patterns overlap if a path matches the first pattern, and also matches the second pattern or lies below
        /// a match of it.
        #[test]
        fn patterns_with_a_common_path_overlap(
            one in patterns(), other in patterns(), path in paths(), cut in 0_usize..5,
        ) {
            let whole = format!("/{}", path.join("/"));
            let above = format!("/{}", path[..cut.min(path.len())].join("/"));
            if one.match_path(&whole) == PathMatch::Matches && other.match_path(&above) == PathMatch::Matches {
                prop_assert!(one.overlaps(&other) && other.overlaps(&one), "{one} {other} {whole} {above}");
            }
        }

        /// Every path above a match of a pattern has the result `Leads` or `Matches`, never `No`.
        #[test]
        fn parents_of_a_match_lead_to_it(one in patterns(), path in paths()) {
            if one.match_path(&format!("/{}", path.join("/"))) == PathMatch::Matches {
                for cut in 0..path.len() {
                    let above = format!("/{}", path[..cut].join("/"));
                    prop_assert_ne!(one.match_path(&above), PathMatch::No);
                }
            }
        }
    }

    #[test]
    fn fuzzed_patterns_match_only_overlapping_paths() {
        sidelane_testing::fuzz("pattern", |bytes| {
            let text = String::from_utf8_lossy(bytes);
            let mut lines = text.lines();
            let (Some(pattern), Some(path)) = (lines.next(), lines.next()) else { return };
            let Ok(pattern) = Glob::parse_relative(pattern) else { return };
            let fits = pattern.match_path(path);
            if let Ok(other) = Glob::parse_relative(path).as_ref() {
                assert!(
                    !other.is_plain_path() || fits != PathMatch::Matches || pattern.overlaps(other),
                    "{pattern:?} {path}"
                );
            }
        });
    }
}

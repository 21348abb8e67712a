//! Tracepoints of this kernel.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader};

/// Prefix of the types that stand for tracepoints in the kernel's type information.
const PREFIX: &str = "btf_trace_";

/// Names of the tracepoints that a kernel has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tracepoints(BTreeSet<String>);

impl Tracepoints {
    /// Returns the tracepoints of this kernel; none if it has no type information.
    pub fn of_kernel() -> Self {
        let types = File::open("/sys/kernel/btf/vmlinux").map(BufReader::new);
        types.and_then(Self::from_type_info).unwrap_or_default()
    }

    /// Finds the names of tracepoints in a few MB of type information. Only names are kept, so the type information is
    /// read piece by piece.
    pub(crate) fn from_type_info(mut types: impl BufRead) -> io::Result<Self> {
        let (mut names, mut word) = (BTreeSet::new(), Vec::new());
        while types.read_until(0, &mut word)? > 0 {
            let name = word.strip_suffix(b"\0").unwrap_or(&word).strip_prefix(PREFIX.as_bytes());
            names.extend(name.and_then(|name| std::str::from_utf8(name).ok()).map(str::to_owned));
            word.clear();
        }
        Ok(Self(names))
    }

    /// Returns whether the kernel has the tracepoint `name`.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains(name)
    }

    /// Returns the tracepoints without `name`, to test the behaviour on a kernel that lacks it.
    pub fn without(mut self, name: &str) -> Self {
        self.0.remove(name);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tracepoint_is_found_by_its_whole_name_only() {
        let found = Tracepoints::from_type_info(&b"\0btf_trace_one\0btf_trace_twofold\0three\0"[..]).unwrap();
        assert!(found.has("one") && !found.has("two") && !found.has("three"));
        assert!(!found.without("one").has("one"));
    }
}

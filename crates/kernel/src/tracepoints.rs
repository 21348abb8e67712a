//! Which tracepoints this kernel has.

use std::collections::BTreeSet;
use std::fs;

/// In the kernel's type information each tracepoint has a type of this name.
const PREFIX: &str = "btf_trace_";

/// The tracepoints of a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tracepoints(BTreeSet<String>);

impl Tracepoints {
    /// Of this kernel; none where it has no type information.
    pub fn of_kernel() -> Self {
        Self::in_types(&fs::read("/sys/kernel/btf/vmlinux").unwrap_or_default())
    }

    pub(crate) fn in_types(types: &[u8]) -> Self {
        let words = types.split(|byte| *byte == 0).filter(|word| word.starts_with(PREFIX.as_bytes()));
        let names = words.filter_map(|word| std::str::from_utf8(&word[PREFIX.len()..]).ok());
        Self(names.map(str::to_owned).collect())
    }

    /// Whether it has this one.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains(name)
    }

    /// The same without one: for a look at what is done on a kernel that lacks it.
    pub fn without(mut self, name: &str) -> Self {
        self.0.remove(name);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_whole_only() {
        let found = Tracepoints::in_types(b"\0btf_trace_one\0btf_trace_twofold\0three\0");
        assert!(found.has("one") && !found.has("two") && !found.has("three"));
        assert!(!found.without("one").has("one"));
    }
}

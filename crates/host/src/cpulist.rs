//! Sets of CPUs, in the kernel's text format.
//!
//! sysfs, procfs and cgroupfs all write sets of CPUs as "cpulists": `0-3,8,10-11`. Lane pairing is
//! set algebra over such lists, and its results are written for the kernel and for users in the
//! same format. So one type parses a cpulist, does the algebra, and prints the shortest cpulist for
//! the set. It also parses the kernel's strided ranges (`0-31:2/4` is the first 2 of every 4 CPUs
//! in 0-31), since `isolcpus=` and cpusets may use them.
//!
//! Lists come from users too, so an error quotes the list and the wrong entry.

use std::collections::{BTreeSet, btree_set};
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The highest CPU number a list may name. Kernels are built for 8192 CPUs at most; the bound only
/// keeps a slip such as `0-4000000000` from filling memory.
pub const CPU_ID_MAX: u32 = 65_535;

/// A set of CPU numbers, in ascending order. Its JSON form is a cpulist such as `0-3,8`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct CpuSet(BTreeSet<u32>);

impl CpuSet {
    /// Whether `cpu` is in the set.
    #[must_use]
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.contains(&cpu)
    }

    /// Adds `cpu` to the set; returns false if it was there already.
    pub fn insert(&mut self, cpu: u32) -> bool {
        self.0.insert(cpu)
    }

    /// Returns the number of CPUs in the set.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no CPU is in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the lowest CPU number; `None` if the set is empty.
    #[must_use]
    pub fn first(&self) -> Option<u32> {
        self.0.first().copied()
    }

    /// Iterates over the CPU numbers, ascending.
    pub fn iter(&self) -> Iter<'_> {
        self.0.iter().copied()
    }

    /// Returns the CPUs that are in this set and in `other`.
    #[must_use]
    pub fn intersection(&self, other: &CpuSet) -> CpuSet {
        CpuSet(&self.0 & &other.0)
    }

    /// Returns the CPUs that are in this set or in `other`.
    #[must_use]
    pub fn union(&self, other: &CpuSet) -> CpuSet {
        CpuSet(&self.0 | &other.0)
    }

    /// Returns the CPUs of this set that are also in `bound`; all of `bound` if there are none.
    pub fn intersection_or_bound(&self, bound: &CpuSet) -> CpuSet {
        let both = self.intersection(bound);
        if both.is_empty() { bound.clone() } else { both }
    }

    /// Returns the CPUs that are in this set but not in `other`.
    #[must_use]
    pub fn difference(&self, other: &CpuSet) -> CpuSet {
        CpuSet(&self.0 - &other.0)
    }

    /// Whether every CPU of this set is in `other`.
    #[must_use]
    pub fn is_subset(&self, other: &CpuSet) -> bool {
        self.0.is_subset(&other.0)
    }

    /// Returns the set as runs of consecutive numbers, each `(first, last)`.
    fn ranges(&self) -> Vec<(u32, u32)> {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for cpu in self {
            match runs.last_mut() {
                Some((_, last)) if *last + 1 == cpu => *last = cpu,
                _ => runs.push((cpu, cpu)),
            }
        }
        runs
    }
}

/// Iterator over the CPU numbers of a [`CpuSet`], ascending.
pub type Iter<'a> = std::iter::Copied<btree_set::Iter<'a, u32>>;

impl<'a> IntoIterator for &'a CpuSet {
    type Item = u32;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        CpuSet(cpus.into_iter().collect())
    }
}

impl Extend<u32> for CpuSet {
    fn extend<I: IntoIterator<Item = u32>>(&mut self, cpus: I) {
        self.0.extend(cpus);
    }
}

/// Writes the shortest cpulist for the set. An empty set gives an empty text, as in the kernel.
impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs: Vec<String> = self.ranges().into_iter().map(format_range).collect();
        f.pad(&runs.join(","))
    }
}

fn format_range((first, last): (u32, u32)) -> String {
    if first == last { first.to_string() } else { format!("{first}-{last}") }
}

/// Error of a text that is not a cpulist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot read CPU list `{list}`: `{entry}` {fault}; write CPUs as in 0-3,8")]
pub struct CpuListError {
    /// Whole text that was parsed.
    pub list: String,
    /// Comma-separated part of the list that is wrong.
    pub entry: String,
    /// Fault of the wrong entry.
    pub fault: Fault,
}

/// Fault in one entry of a cpulist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The entry has no characters.
    #[error("is empty")]
    Empty,
    /// The entry has something other than decimal digits where a number belongs.
    #[error("has `{0}` in place of a number")]
    NotANumber(String),
    /// The entry has a CPU number above [`CPU_ID_MAX`].
    #[error("names CPU {0}, and the highest possible is {CPU_ID_MAX}")]
    TooLarge(u64),
    /// The entry is a range whose end is below its start.
    #[error("ends before it starts")]
    Backwards,
    /// The entry has a stride that is not `USED/GROUP` with 0 < USED ≤ GROUP.
    #[error("has a stride that is not USED/GROUP with 0 < USED ≤ GROUP")]
    BadStride,
}

impl From<CpuSet> for String {
    fn from(cpus: CpuSet) -> Self {
        cpus.to_string()
    }
}

impl TryFrom<String> for CpuSet {
    type Error = CpuListError;

    fn try_from(list: String) -> Result<Self, CpuListError> {
        list.parse()
    }
}

impl FromStr for CpuSet {
    type Err = CpuListError;

    fn from_str(text: &str) -> Result<Self, CpuListError> {
        let list = text.trim();
        let mut set = CpuSet::default();
        if list.is_empty() {
            return Ok(set);
        }
        for entry in list.split(',').map(str::trim) {
            set.extend(parse_entry(entry).map_err(|fault| CpuListError {
                list: list.to_owned(),
                entry: entry.to_owned(),
                fault,
            })?);
        }
        Ok(set)
    }
}

/// Parses one entry: `CPU`, `FIRST-LAST` or `FIRST-LAST:USED/GROUP`.
fn parse_entry(entry: &str) -> Result<impl Iterator<Item = u32> + use<>, Fault> {
    if entry.is_empty() {
        return Err(Fault::Empty);
    }
    let (range, stride) = match entry.split_once(':') {
        Some((range, stride)) => (range, parse_stride(stride)?),
        None => (entry, (1, 1)),
    };
    let (first, last) = parse_range(range)?;
    let (used, group) = stride;
    Ok((first..=last).filter(move |cpu| (cpu - first) % group < used))
}

fn parse_range(range: &str) -> Result<(u32, u32), Fault> {
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let (first, last) = (parse_cpu(first)?, parse_cpu(last)?);
    if last < first {
        return Err(Fault::Backwards);
    }
    Ok((first, last))
}

fn parse_stride(stride: &str) -> Result<(u32, u32), Fault> {
    let (used, group) = stride.split_once('/').ok_or(Fault::BadStride)?;
    let (used, group) = (parse_cpu(used)?, parse_cpu(group)?);
    if used == 0 || used > group {
        return Err(Fault::BadStride);
    }
    Ok((used, group))
}

/// Parses a decimal number up to [`CPU_ID_MAX`]. `u32::from_str` would also accept a leading `+`, unlike the kernel.
pub fn parse_cpu(digits: &str) -> Result<u32, Fault> {
    let not_a_number = || Fault::NotANumber(digits.to_owned());
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(not_a_number());
    }
    let number: u64 = digits.parse().map_err(|_| not_a_number())?;
    match u32::try_from(number) {
        Ok(cpu) if cpu <= CPU_ID_MAX => Ok(cpu),
        _ => Err(Fault::TooLarge(number)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cpu_set(list: &str) -> CpuSet {
        list.parse().expect(list)
    }

    fn parse_fault(list: &str) -> Fault {
        list.parse::<CpuSet>().expect_err(list).fault
    }

    #[test]
    fn cpu_lists_of_the_kernel_are_read() {
        assert_eq!(cpu_set("0-3,8,10-11\n"), [0, 1, 2, 3, 8, 10, 11].into_iter().collect());
        assert_eq!(cpu_set("\n"), CpuSet::default());
        assert_eq!(cpu_set("0-7:2/4"), cpu_set("0-1,4-5"));
    }

    #[test]
    fn cpu_list_is_printed_in_its_shortest_form() {
        assert_eq!(cpu_set("3,1,2,2,0,9").to_string(), "0-3,9");
        assert_eq!(cpu_set("").to_string(), "");
    }

    #[test]
    fn cpu_list_error_names_the_wrong_entry() {
        assert_eq!(parse_fault("0,,1"), Fault::Empty);
        assert_eq!(parse_fault("0-x"), Fault::NotANumber("x".into()));
        assert_eq!(parse_fault("+1"), Fault::NotANumber("+1".into()));
        assert_eq!(parse_fault("-1"), Fault::NotANumber(String::new()));
        assert_eq!(parse_fault("0-4000000000"), Fault::TooLarge(4_000_000_000));
        assert_eq!(parse_fault("5-2"), Fault::Backwards);
        assert_eq!(parse_fault("0-7:3"), Fault::BadStride);
        assert_eq!(parse_fault("0-7:0/4"), Fault::BadStride);
    }

    #[test]
    fn cpu_list_error_names_list_and_entry() {
        let error = "0-3,9-x".parse::<CpuSet>().expect_err("not a list");
        assert_eq!(
            error.to_string(),
            "cannot read CPU list `0-3,9-x`: `9-x` has `x` in place of a number; write CPUs as in 0-3,8"
        );
    }

    fn any_cpu_set() -> impl Strategy<Value = CpuSet> {
        proptest::collection::btree_set(0u32..300, 0..80).prop_map(CpuSet)
    }

    proptest! {
        #[test]
        fn printing_then_parsing_gives_the_set_back(cpus in any_cpu_set()) {
            prop_assert_eq!(cpu_set(&cpus.to_string()), cpus);
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[0-9,:/+ -]{0,12}") {
            if let Ok(cpus) = text.parse::<CpuSet>() {
                prop_assert_eq!(cpu_set(&cpus.to_string()), cpus);
            }
        }

        #[test]
        fn difference_and_intersection_split_a_set(a in any_cpu_set(), b in any_cpu_set()) {
            let (only, both) = (a.difference(&b), a.intersection(&b));
            prop_assert!(only.intersection(&b).is_empty() && both.is_subset(&b));
            prop_assert_eq!(only.union(&both), a);
        }
    }

    #[test]
    fn fuzzed_cpu_lists_are_refused_or_survive_a_round_trip() {
        sidelane_testing::fuzz("cpu-list", |bytes| {
            if let Ok(cpus) = String::from_utf8_lossy(bytes).parse::<CpuSet>() {
                assert_eq!(cpus.to_string().parse::<CpuSet>(), Ok(cpus));
            }
        });
    }
}

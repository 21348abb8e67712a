//! Lists of CPUs in a scenario, in the kernel's form.

use sidelane_policy::cpus::{CpuMask, MAX_CPUS};

use crate::machine::layout::Layout;
use crate::scenario::inputs::Result;
use sidelane_toml::Reader;

/// Returns all CPUs of the machine.
pub(super) fn all_cpus(layout: Layout) -> CpuMask {
    (0..layout.cpus()).collect()
}

/// Checks that the machine has no more CPUs than a policy supports.
pub(super) fn check_cpu_count(top: &Reader, layout: Layout) -> Result<()> {
    match layout.cpus() {
        cpus if cpus <= MAX_CPUS => Ok(()),
        cpus => Err(top.record_problem("machine", format!("has {cpus} CPUs"), format!("write {MAX_CPUS} at most"))),
    }
}

/// Reads the list of CPUs under `key`, if there is one.
pub(super) fn read_cpu_list(reader: &Reader, key: &str, layout: Layout) -> Result<Option<CpuMask>> {
    let allowed = format!("write a list such as \"0-3,8\", of CPUs 0 to {}", layout.cpus() - 1);
    let Some(text) = reader.text(key, &allowed) else { return Ok(None) };
    let cpus = parsed(text).filter(|cpus| !cpus.is_empty() && cpus.is_subset(&all_cpus(layout)));
    cpus.map(Some).ok_or_else(|| reader.record_problem(key, format!("is \"{text}\""), allowed))
}

fn parsed(text: &str) -> Option<CpuMask> {
    let mut mask = CpuMask::EMPTY;
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last || last >= MAX_CPUS {
            return None;
        }
        (first..=last).for_each(|cpu| mask.insert(cpu));
    }
    Some(mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_have_the_kernels_format() {
        let shown = |text: &str| parsed(text).map(|mask| mask.to_string());
        assert_eq!(shown("0-3,8").as_deref(), Some("0-3,8"));
        assert_eq!(shown("5").as_deref(), Some("5"));
        for wrong in ["", "3-1", "a", "1,", "0-512", "-1"] {
            assert_eq!(shown(wrong), None, "{wrong}");
        }
    }
}

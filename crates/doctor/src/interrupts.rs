//! Interrupts of devices on the batch lane.
//!
//! An interrupt leaves some work for later (ksoftirqd). While a lane is held, that work waits for the holder, and so do
//! the service's packets. Each interrupt also lengthens the holder's reaction a little.

use std::fs;
use std::path::Path;

use super::finding::Finding;
use crate::reaction::pair::TestPair;
use sidelane_host::cpulist::CpuSet;

const NAME: &str = "interrupts";
/// Largest number of devices that the finding names; it counts all of them.
const NAMED: usize = 3;

/// Interrupt of a device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Interrupt {
    number: u32,
    device: String,
}

/// Returns a finding about the interrupts on the batch lane of `pair`.
pub fn check_interrupts(pair: &TestPair) -> Finding {
    let irqs = Path::new("/proc/irq");
    match irqs.is_dir() {
        true => interrupt_finding(pair, &interrupts_of_cpu(irqs, pair.batch)),
        false => Finding::optional(NAME, "cannot read which CPU serves which interrupt (/proc/irq)"),
    }
}

/// Returns the interrupts of devices that this CPU serves. If the kernel does not report which CPU serves an interrupt,
/// all CPUs that may serve it count.
fn interrupts_of_cpu(irqs: &Path, cpu: u32) -> Vec<Interrupt> {
    let folders = fs::read_dir(irqs).into_iter().flatten().flatten();
    let mut found: Vec<Interrupt> = folders.filter_map(|folder| read_interrupt(&folder.path(), cpu)).collect();
    found.sort_unstable();
    found
}

fn read_interrupt(irq_dir: &Path, cpu: u32) -> Option<Interrupt> {
    let number = irq_dir.file_name()?.to_str()?.parse().ok()?;
    let cpus =
        ["effective_affinity_list", "smp_affinity_list"].iter().find_map(|file| read_cpu_list(&irq_dir.join(file)))?;
    // Each device that uses the interrupt has a folder in the folder of the interrupt.
    let mut handlers = fs::read_dir(irq_dir).ok()?.flatten().filter(|entry| entry.path().is_dir());
    let device = handlers.next()?.file_name().to_string_lossy().into_owned();
    cpus.contains(cpu).then_some(Interrupt { number, device })
}

/// Returns the CPUs in a file; `None` if it names none.
fn read_cpu_list(file: &Path) -> Option<CpuSet> {
    let cpus: CpuSet = fs::read_to_string(file).ok()?.trim().parse().ok()?;
    (!cpus.is_empty()).then_some(cpus)
}

fn interrupt_finding(pair: &TestPair, interrupts: &[Interrupt]) -> Finding {
    let batch = pair.batch;
    if interrupts.is_empty() {
        return Finding::works(NAME, format!("no device interrupts CPU {batch}"));
    }
    let devices: Vec<&str> = interrupts.iter().take(NAMED).map(|irq| irq.device.as_str()).collect();
    let more = if interrupts.len() > NAMED { ", …" } else { "" };
    let numbers: Vec<String> = interrupts.iter().map(|irq| irq.number.to_string()).collect();
    let what = format!(
        "CPU {batch} serves {} device interrupt(s) ({}{more}): their work in ksoftirqd waits while the lane is held",
        interrupts.len(),
        devices.join(", ")
    );
    let (numbers, to) = (numbers.join(" "), pair.request);
    Finding::optional(NAME, what).with_fix(format!(
        "move them to a CPU that is no lane: `for i in {numbers}; do echo {to} >/proc/irq/$i/smp_affinity_list; done`; \
         keep irqbalance off (IRQBALANCE_BANNED_CPULIST={batch}); queues of NVMe and some NICs cannot be moved"
    ))
}

#[cfg(test)]
mod tests {
    use super::super::finding::State;
    use super::*;
    use sidelane_host::topology::PairKind;

    fn create_irq_dir(root: &Path, number: &str, files: &[(&str, &str)], device: Option<&str>) {
        let folder = root.join(number);
        fs::create_dir_all(&folder).unwrap();
        files.iter().for_each(|(name, cpus)| fs::write(folder.join(name), cpus).unwrap());
        device.iter().for_each(|device| fs::create_dir(folder.join(device)).unwrap());
    }

    #[test]
    fn interrupts_of_a_cpu_are_those_with_its_affinity() {
        let root = tempfile::tempdir().unwrap();
        let own = [("effective_affinity_list", "1\n"), ("smp_affinity_list", "0-3\n")];
        create_irq_dir(root.path(), "24", &own, Some("eth0-rx-0"));
        create_irq_dir(
            root.path(),
            "25",
            &[("effective_affinity_list", "0\n"), ("smp_affinity_list", "0-3\n")],
            Some("eth0-rx-1"),
        );
        create_irq_dir(
            root.path(),
            "26",
            &[("effective_affinity_list", "\n"), ("smp_affinity_list", "0-3\n")],
            Some("nvme0q1"),
        );
        create_irq_dir(root.path(), "27", &own, None);
        fs::write(root.path().join("default_smp_affinity"), "f").unwrap();
        let served: Vec<u32> = interrupts_of_cpu(root.path(), 1).into_iter().map(|irq| irq.number).collect();
        assert_eq!(served, [24, 26]);
    }

    #[test]
    fn finding_names_interrupts_and_how_to_move_them() {
        let pair = TestPair { request: 0, batch: 1, kind: PairKind::Declared };
        assert_eq!(interrupt_finding(&pair, &[]).state, State::Works);
        let served = [24, 26].map(|number| Interrupt { number, device: format!("eth{number}") });
        let found = interrupt_finding(&pair, &served);
        assert!(found.detail.contains("CPU 1 serves 2 device interrupt(s) (eth24, eth26)"), "{found:?}");
        assert!(found.fix.unwrap().contains("for i in 24 26; do echo 0 >"));
    }
}

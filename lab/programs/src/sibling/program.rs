//! The kernel program of the emulated sibling: loaded once, attached while the two CPUs are one core.

use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use libbpf_rs::{Link, MapCore, Object, ObjectBuilder};

use super::core::{Core, NO_CPU};
use super::slowdown::{LANES, Slowdown};
use crate::scheduling;

static PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/sibling.bpf.o"));

/// Kernel program that can make two CPUs one core.
pub struct Program {
    object: Object,
    links: Vec<Link>,
    core: Arc<Core>,
    cpus: [u32; LANES],
}

impl Program {
    /// Loads the kernel program. It has no effect before [`Program::begin`]. One of the lanes may be [`NO_CPU`].
    pub fn load(cpus: [u32; LANES]) -> Result<Self> {
        libbpf_rs::set_print(None);
        let open = ObjectBuilder::default().open_memory(PROGRAM).context("cannot read the embedded kernel program")?;
        let object = open.load().context(
            "cannot load the kernel program of the emulated sibling: it takes root (CAP_BPF and CAP_PERFMON) and a \
             kernel with BTF, Linux 5.12 or later",
        )?;
        let core = Arc::new(Core::map(core_map(&object).as_fd())?);
        Ok(Self { object, links: Vec::new(), core, cpus })
    }

    /// Returns the memory shared with the kernel program.
    pub fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Returns the file descriptor by which other processes map the shared memory.
    pub fn memory_fd(&self) -> i32 {
        core_map(&self.object).as_fd().as_raw_fd()
    }

    /// Makes the CPUs one core whose lanes slow each other by `slowdown`.
    pub fn begin(&mut self, slowdown: &Slowdown) -> Result<()> {
        self.end();
        self.core.reset_for_core(self.cpus, slowdown);
        let attached =
            self.object.progs_mut().map(|program| program.attach().context("cannot attach the kernel program"));
        self.links = attached.collect::<Result<_>>()?;
        self.core.set_sharing_core(true);
        // Causes a context switch on each CPU, so that the kernel program learns which thread runs there.
        self.cpus
            .into_iter()
            .filter(|cpu| *cpu != NO_CPU)
            .try_for_each(|cpu| scheduling::force_context_switch_on(cpu as usize))
    }

    /// Makes the CPUs two separate cores again.
    pub fn end(&mut self) {
        self.core.set_sharing_core(false);
        self.links.clear();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.end();
    }
}

fn core_map(object: &Object) -> libbpf_rs::Map<'_> {
    object.maps().find(|map| map.name() == "sibling_cores").expect("the embedded program has this map")
}

/// Fails if the CPUs are real sibling lanes, which slow each other already.
pub fn ensure_not_siblings([request, batch]: [u32; LANES]) -> Result<()> {
    ensure!(request != batch, "a core needs two lanes; both of --lanes are CPU {request}");
    let path = format!("/sys/devices/system/cpu/cpu{request}/topology/thread_siblings_list");
    let siblings = std::fs::read_to_string(Path::new(&path))
        .with_context(|| format!("cannot read {path}: is there a CPU {request}, and is it online? (see `lscpu`)"))?;
    ensure!(
        !cpu_list_contains(&siblings, batch),
        "CPUs {request} and {batch} are real lanes of one core (SMT siblings): what they do to each other is real, \
         and is not emulated; run without the emulated sibling (--sibling none)"
    );
    Ok(())
}

/// Returns whether a CPU list in the kernel's format, such as `0-1,4`, contains `cpu`.
fn cpu_list_contains(list: &str, cpu: u32) -> bool {
    list.trim().split(',').any(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        matches!((first.parse::<u32>(), last.parse::<u32>()), (Ok(first), Ok(last)) if (first..=last).contains(&cpu))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_cpu_lists_are_parsed() {
        assert!(cpu_list_contains("0-1,4\n", 1) && cpu_list_contains("0-1,4\n", 4) && cpu_list_contains("0,8", 8));
        assert!(!cpu_list_contains("0-1,4\n", 2) && !cpu_list_contains("", 0));
    }

    #[test]
    fn core_of_one_cpu_is_refused() {
        assert!(ensure_not_siblings([0, 0]).unwrap_err().to_string().contains("two lanes"));
    }
}

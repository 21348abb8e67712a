//! What can go wrong between this process and the kernel program.

use std::io;

use thiserror::Error;

/// What can go wrong between this process and the kernel program.
#[derive(Debug, Error)]
pub enum TrackerError {
    /// The kernel has no type information, so the program cannot be fitted to it.
    #[error(
        "this kernel exposes no BTF (/sys/kernel/btf/vmlinux is missing): the lane tracker cannot be loaded; \
         boot a kernel built with CONFIG_DEBUG_INFO_BTF=y (stock Debian, Ubuntu, Fedora and RHEL kernels are)"
    )]
    NoBtf,
    /// The kernel refuses BPF to this process.
    #[error(
        "the kernel refuses to load the lane tracker: run as root, or give the process CAP_BPF, \
         CAP_PERFMON and CAP_SYS_NICE; in a container, allow the bpf system call"
    )]
    Refused(#[source] libbpf_rs::Error),
    /// All numbers are used up.
    #[error("lane tracker: there are 63 services or batch jobs already; remove one first")]
    TooMany,
    /// Any other step failed.
    #[error("lane tracker: cannot {step}")]
    Bpf {
        /// What was being done.
        step: &'static str,
        /// What libbpf said.
        source: libbpf_rs::Error,
    },
    /// A shared array could not be mapped.
    #[error("lane tracker: cannot map the array {name}")]
    Map {
        /// The BPF map's name.
        name: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// Names the step that failed.
pub fn bpf(step: &'static str) -> impl Fn(libbpf_rs::Error) -> TrackerError {
    move |source| TrackerError::Bpf { step, source }
}

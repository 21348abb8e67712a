//! Errors between this process and the kernel program.

use std::io;

use thiserror::Error;

/// An error between this process and the kernel program.
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
    /// Processes have other numbers here than in the kernel.
    #[error(
        "lane tracker: this process is in a PID namespace of its own, or its /proc is another one's, so the kernel \
         knows every process by another number than is seen here, and none would be recognised: share the host's \
         (docker or podman run --pid=host, hostPID: true in a pod, with the host's /proc), or run it on the host"
    )]
    OtherPids,
    /// The kernel reports wrong CPUs for threads.
    #[error(
        "lane tracker: this kernel says that the thread on CPU {is} is on CPU {said}, so nobody could be told where \
         the service starts: boot another kernel (those that were tried are in docs/reference/kernels.md)"
    )]
    OtherCpus {
        /// The reported CPU.
        said: u32,
        /// The real CPU.
        is: u32,
    },
    /// A lane has more partners than a role can name.
    #[error(
        "lane tracker: CPU {cpu} would have {partners} partner lanes, and the kernel program is told of {most} at \
         most: name fewer lanes with --lanes"
    )]
    TooManyPartners {
        /// The lane.
        cpu: u32,
        /// Their number.
        partners: usize,
        /// The most that are possible.
        most: usize,
    },
    /// All numbers are used up.
    #[error("lane tracker: there are 63 services or batch jobs already; remove one first")]
    TooMany,
    /// Any other step failed.
    #[error("lane tracker: cannot {step}")]
    Bpf {
        /// The step.
        step: &'static str,
        /// The error of libbpf.
        source: libbpf_rs::Error,
    },
    /// A shared array could not be mapped.
    #[error("lane tracker: cannot map the array {name}")]
    Map {
        /// The BPF map's name.
        name: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

/// Returns a function that names the failed step.
pub fn bpf(step: &'static str) -> impl Fn(libbpf_rs::Error) -> TrackerError {
    move |source| TrackerError::Bpf { step, source }
}

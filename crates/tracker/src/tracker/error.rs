//! Errors between this process and the kernel program.

use std::io;

use thiserror::Error;

/// An error between this process and the kernel program.
#[derive(Debug, Error)]
pub enum TrackerError {
    /// The kernel has no type information, so the program cannot be fitted to it.
    #[error(
        "cannot load the lane tracker: this kernel has no BTF (/sys/kernel/btf/vmlinux is missing); boot a kernel with \
         CONFIG_DEBUG_INFO_BTF=y, as those of Debian, Ubuntu, Fedora and RHEL"
    )]
    NoBtf,
    /// The kernel refuses BPF to this process.
    #[error(
        "cannot load the lane tracker: the kernel refuses it; run as root or with CAP_BPF, CAP_PERFMON and \
         CAP_SYS_NICE, and in a container allow the bpf system call"
    )]
    Refused(#[source] libbpf_rs::Error),
    /// Processes have other numbers here than in the kernel.
    #[error(
        "cannot track processes from this PID namespace: they have other numbers in the kernel; share that of the \
         host, with its /proc (docker or podman run --pid=host, hostPID: true in a pod), or run sidelane on the host"
    )]
    OtherPids,
    /// The kernel reports wrong CPUs for threads.
    #[error(
        "cannot use the lane tracker: this kernel reports the thread on CPU {is} as being on CPU {said}; boot another \
         kernel (docs/reference/kernels.md lists tested ones)"
    )]
    OtherCpus {
        /// The reported CPU.
        said: u32,
        /// The real CPU.
        is: u32,
    },
    /// A lane has more partners than a role can name.
    #[error(
        "cannot use {partners} partner lanes for CPU {cpu}: the kernel program handles {most}; name fewer lanes with \
         --lanes"
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
    #[error("cannot track another service or batch job: 63 are tracked already; remove one")]
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

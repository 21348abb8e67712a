//! Errors between this process and the kernel program.

use std::io;

use thiserror::Error;

#[derive(Debug, Error)]
pub enum TrackerError {
    /// Kernel without type information, so that the program cannot be fitted to it.
    #[error(
        "cannot load the lane tracker: this kernel has no BTF (/sys/kernel/btf/vmlinux is missing); boot a kernel with \
         CONFIG_DEBUG_INFO_BTF=y, as those of Debian, Ubuntu, Fedora and RHEL"
    )]
    NoBtf,
    /// Kernel that refuses BPF to this process.
    #[error(
        "cannot load the lane tracker: the kernel refuses it; run as root or with CAP_BPF, CAP_PERFMON and \
         CAP_SYS_NICE, and in a container allow the bpf system call"
    )]
    Refused(#[source] libbpf_rs::Error),
    /// PID namespace in which processes have other ids than in the kernel.
    #[error(
        "cannot track processes from this PID namespace: their ids differ from the kernel's; share the host's PID \
         namespace and /proc (docker or podman run --pid=host, hostPID: true in a pod), or run sidelane on the host"
    )]
    OtherPids,
    /// Kernel that reports wrong CPUs for threads.
    #[error(
        "cannot use the lane tracker: this kernel reports the thread on CPU {is} as being on CPU {said}; boot another \
         kernel (docs/reference/kernels.md lists tested ones)"
    )]
    OtherCpus {
        /// CPU that the kernel reports.
        said: u32,
        /// CPU on which the thread really is.
        is: u32,
    },
    /// Lane with more partners than a role can name.
    #[error(
        "cannot use {partners} partner lanes for CPU {cpu}: at most {most} are possible; name fewer lanes for this CPU \
         with --lanes"
    )]
    TooManyPartners {
        /// CPU of the lane.
        cpu: u32,
        /// Number of the lane's partners.
        partners: usize,
        /// Largest possible number of partners.
        most: usize,
    },
    /// Too many services or batch jobs: all numbers are used.
    #[error("cannot track another service or batch job: 63 are tracked already; remove one")]
    TooMany,
    /// Step of loading that failed.
    #[error("lane tracker: cannot {step}; see `sidelane doctor` for what this kernel lacks")]
    Bpf {
        /// Name of the failed step.
        step: &'static str,
        /// Error of libbpf.
        source: libbpf_rs::Error,
    },
    /// Shared array that could not be mapped.
    #[error(
        "cannot map the kernel program's array {name} into memory; raise the limits of memory (ulimit -v, ulimit -l)"
    )]
    Map {
        /// Name of the BPF map.
        name: &'static str,
        /// Error of the system.
        source: io::Error,
    },
}

/// Returns a function that turns an error of libbpf into one that names the failed step.
pub fn bpf_error_in_step(step: &'static str) -> impl Fn(libbpf_rs::Error) -> TrackerError {
    move |source| TrackerError::Bpf { step, source }
}

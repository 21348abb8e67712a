//! A check before anything is tracked: the kernel program has to see processes and CPUs under the same numbers as this
//! process. Otherwise it would recognise no process, and every figure would be 0 without an error.

use std::fs;

use libbpf_rs::{Object, ProgramInput};
use sidelane_host::topology::online_cpus;

use super::error::{TrackerError, bpf_error_in_step};

/// Flag `BPF_F_TEST_RUN_ON_CPU` of the kernel's interface.
const ON_CPU: u32 = 1;

/// Returns an error in a PID namespace whose process ids are not the kernel's, and on a kernel that reports wrong CPUs
/// for threads.
pub(super) fn check_pid_and_cpu_numbers(object: &Object) -> Result<(), TrackerError> {
    check_pids(run_self_check(object, "self_pid", None)?, pid_in_proc(), std::process::id())?;
    // A CPU field that the kernel never writes reads as 0, so the check uses another CPU than CPU 0.
    let asked = online_cpus().ok().and_then(|online| online.iter().max()).filter(|cpu| *cpu > 0);
    asked.map_or(Ok(()), |cpu| check_cpu(run_self_check(object, "self_cpu", Some(cpu))?, cpu))
}

/// Returns the id of this process in `/proc`.
fn pid_in_proc() -> Option<u32> {
    fs::read_link("/proc/self").ok()?.to_str()?.parse().ok()
}

fn check_pids(kernel_pid: u32, proc_pid: Option<u32>, own_pid: u32) -> Result<(), TrackerError> {
    if kernel_pid == own_pid && proc_pid == Some(own_pid) { Ok(()) } else { Err(TrackerError::OtherPids) }
}

fn check_cpu(kernel_cpu: u32, actual_cpu: u32) -> Result<(), TrackerError> {
    if kernel_cpu == actual_cpu { Ok(()) } else { Err(TrackerError::OtherCpus { said: kernel_cpu, is: actual_cpu }) }
}

/// Runs a self-check of the kernel program, here or on another CPU, and returns its result.
fn run_self_check(object: &Object, program_name: &str, cpu: Option<u32>) -> Result<u32, TrackerError> {
    let program =
        object.progs_mut().find(|program| program.name() == program_name).expect("the embedded program has it");
    let input = ProgramInput { cpu: cpu.unwrap_or(0), flags: cpu.map_or(0, |_| ON_CPU), ..ProgramInput::default() };
    Ok(program.test_run(input).map_err(bpf_error_in_step("ask the kernel program about this thread"))?.return_value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differing_process_ids_are_refused_with_advice() {
        assert!(check_pids(7, Some(7), 7).is_ok());
        for (kernels, proc_self) in [(8, Some(7)), (7, Some(8)), (7, None)] {
            let said = check_pids(kernels, proc_self, 7).unwrap_err().to_string();
            assert!(said.contains("--pid=host") && said.contains("hostPID"), "{said}");
        }
    }

    #[test]
    fn kernel_that_reports_a_wrong_cpu_is_refused() {
        assert!(check_cpu(3, 3).is_ok());
        let said = check_cpu(0, 3).unwrap_err().to_string();
        assert!(said.contains("CPU 0") && said.contains("CPU 3"), "{said}");
    }
}

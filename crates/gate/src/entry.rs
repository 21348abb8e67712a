//! Functions that compilers call at each function's entry: one load, one compare, one branch.
//!
//! The C library has functions of the same names for its profiler; those of a preloaded or linked library take
//! precedence.

use std::arch::naked_asm;

use crate::page::{OWN, WORD_OFFSET};
use crate::save::slow_path_keeping_registers;
use crate::slow::sidelane_gate_slow_path;

/// Defines a function that checks the word of the check page, which is set while the service is busy. If the word is
/// set, the function jumps to `$slow_path`, which returns to the check's caller.
macro_rules! check {
    ($slow_path:path) => {
        naked_asm!(
            "cmp dword ptr [rip + {page} + {offset}], 0",
            "jne {slow_path}",
            "ret",
            page = sym OWN,
            offset = const WORD_OFFSET,
            slow_path = sym $slow_path,
        )
    };
}

/// Checks the lane after a function's prologue, its arguments still in registers. `gcc -pg` inserts the call.
///
/// # Safety
/// Callable from anywhere; changes no register.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcount() {
    check!(slow_path_keeping_registers)
}

/// Checks the lane like `mcount`; this is its name on other systems and in older compilers.
///
/// # Safety
/// The requirements are those of [`mcount`].
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _mcount() {
    check!(slow_path_keeping_registers)
}

/// Checks the lane before a function's prologue. `gcc -pg -mfentry` inserts the call.
///
/// # Safety
/// The requirements are those of [`mcount`].
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __fentry__() {
    check!(slow_path_keeping_registers)
}

/// Checks the lane at a function's entry. `gcc -finstrument-functions` inserts an ordinary call, so the compiler
/// expects registers to change.
///
/// # Safety
/// Callable from anywhere.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cyg_profile_func_enter() {
    check!(sidelane_gate_slow_path)
}

/// Checks the lane before a function returns. `gcc -finstrument-functions` inserts the call.
///
/// # Safety
/// Callable from anywhere.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cyg_profile_func_exit() {
    check!(sidelane_gate_slow_path)
}

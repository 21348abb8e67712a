//! What compilers call at each function's entry. One load, one compare, one branch.
//!
//! The C library has functions of the same names for its profiler; a preloaded or linked library's
//! come first.

use std::arch::naked_asm;

use crate::page::{OWN, WORD_OFFSET};
use crate::save::slow_path_keeping_registers;
use crate::slow::sidelane_gate_slow_path;

/// The check, and then on to `$slow_path` in place of the caller.
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

/// `gcc -pg` calls this after a function's prologue, its arguments still in registers.
///
/// # Safety
/// Callable from anywhere; changes no register.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mcount() {
    check!(slow_path_keeping_registers)
}

/// Its name on other systems, and in older compilers.
///
/// # Safety
/// As for [`mcount`].
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _mcount() {
    check!(slow_path_keeping_registers)
}

/// `gcc -pg -mfentry` calls this before a function's prologue.
///
/// # Safety
/// As for [`mcount`].
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __fentry__() {
    check!(slow_path_keeping_registers)
}

/// `gcc -finstrument-functions` calls this at a function's entry, as any other function: it expects
/// registers to change.
///
/// # Safety
/// Callable from anywhere.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cyg_profile_func_enter() {
    check!(sidelane_gate_slow_path)
}

/// … and this before it returns.
///
/// # Safety
/// Callable from anywhere.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cyg_profile_func_exit() {
    check!(sidelane_gate_slow_path)
}

//! Remaining functions of the C library's profiler, which `gcc -pg` links.
//!
//! A program linked with `-pg` starts the profiler before `main` and writes `gmon.out` when it exits. The profiler
//! costs a timer signal a hundred times a second. These functions replace its entry points and do nothing.

/// Replaces the start of the profiler, which is called before `main` with the bounds of the program's code.
#[unsafe(no_mangle)]
pub extern "C" fn __monstartup(_low_pc: usize, _high_pc: usize) {}

/// Replaces the start of the profiler under its public name.
#[unsafe(no_mangle)]
pub extern "C" fn monstartup(_low_pc: usize, _high_pc: usize) {}

/// Replaces the end of the profiler, which is called when the program exits.
#[unsafe(no_mangle)]
pub extern "C" fn _mcleanup() {}

/// Replaces the switch of the profiler, which programs call to profile parts of their run.
#[unsafe(no_mangle)]
pub extern "C" fn moncontrol(_mode: i32) {}

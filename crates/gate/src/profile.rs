//! The rest of the C library's profiler, which comes with `gcc -pg`.
//!
//! A program linked with `-pg` starts the profiler before `main` and writes `gmon.out` when it
//! exits. The profiler costs a timer signal a hundred times a second. These functions replace its
//! entry points and do nothing.

/// Called before `main`, with the bounds of the program's code.
#[unsafe(no_mangle)]
pub extern "C" fn __monstartup(_low_pc: usize, _high_pc: usize) {}

/// The public name of the same function.
#[unsafe(no_mangle)]
pub extern "C" fn monstartup(_low_pc: usize, _high_pc: usize) {}

/// Called when the program exits.
#[unsafe(no_mangle)]
pub extern "C" fn _mcleanup() {}

/// Called by programs that profile parts of their run.
#[unsafe(no_mangle)]
pub extern "C" fn moncontrol(_mode: i32) {}

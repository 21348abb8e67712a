//! The rest of the C library's profiler, which comes with `gcc -pg`.
//!
//! A program linked with `-pg` starts the profiler before `main` and writes `gmon.out` at its end: a
//! timer signal a hundred times a second, and a file nobody wants. Its calls end here instead.

/// Called at the start, with the bounds of the program's code.
#[unsafe(no_mangle)]
pub extern "C" fn __monstartup(_low_pc: usize, _high_pc: usize) {}

/// The same under its public name.
#[unsafe(no_mangle)]
pub extern "C" fn monstartup(_low_pc: usize, _high_pc: usize) {}

/// Called at the end.
#[unsafe(no_mangle)]
pub extern "C" fn _mcleanup() {}

/// Called by programs that profile parts of their run.
#[unsafe(no_mangle)]
pub extern "C" fn moncontrol(_mode: i32) {}

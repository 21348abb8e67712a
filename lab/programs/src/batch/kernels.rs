//! The batch kernels. Three of them are from Elfen's section 4, and each loads another part of a core: `loop` the front
//! end, `matrix` the arithmetic units too, `flush` the L1 cache.
//!
//! A unit of work takes a few microseconds. That is long compared with counting the unit, and short enough that the
//! counter shows progress in fine steps.

use std::hint::black_box;

use anyhow::Result;
use clap::ValueEnum;

use super::compress;
use sidelane_host::check::GateCheck;

/// Calls of the empty function in one unit of the kernel `loop`.
const CALLS: usize = 2048;

/// Multiplications of two matrices in one unit of the kernel `matrix`.
const MULTIPLICATIONS: usize = 64;

/// Number of rows and of columns of a matrix.
const ORDER: usize = 5;

/// Size of the flushed buffer, that of a common L1 data cache: writing it evicts all other data.
const FLUSH_BYTES: usize = 32 * 1024;

/// Number of times that one unit of the kernel `flush` writes the buffer.
const FLUSHES: usize = 4;

/// The work of a batch thread.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Kernel {
    /// Call an empty function
    Loop,
    /// Multiply 5×5 matrices
    Matrix,
    /// Zero a 32 KB buffer
    Flush,
    /// Compress text with `zstd -19`, a process a chunk
    Zstd,
}

type Matrix = [[f64; ORDER]; ORDER];

impl Kernel {
    /// Returns whether batch threads do the work themselves, rather than in child processes.
    pub fn is_in_process(self) -> bool {
        !matches!(self, Kernel::Zstd)
    }

    /// Returns a function that does one unit of this kernel's work and then checks whether its lane is held.
    pub fn new_work_unit(self, check: GateCheck) -> Result<Box<dyn FnMut()>> {
        Ok(match self {
            Kernel::Loop => Box::new(loop_unit(check)),
            Kernel::Matrix => Box::new(matrix_unit(doubly_stochastic_matrix(), check)),
            Kernel::Flush => Box::new(flush_unit(vec![1; FLUSH_BYTES], check)),
            Kernel::Zstd => Box::new(compress::chunk_compressor()?),
        })
    }
}

/// Does nothing; the compiler must not inline the call or remove it.
#[inline(never)]
fn empty_function() {
    black_box(());
}

fn loop_unit(check: GateCheck) -> impl FnMut() {
    move || {
        for _ in 0..CALLS {
            check.nap_if_service_needs_core();
            empty_function();
        }
    }
}

fn matrix_unit(factor: Matrix, check: GateCheck) -> impl FnMut() {
    let mut product = factor;
    move || {
        for _ in 0..MULTIPLICATIONS {
            check.nap_if_service_needs_core();
            product = multiply(black_box(&product), black_box(&factor));
        }
        black_box(&product);
    }
}

fn flush_unit(mut buffer: Vec<u8>, check: GateCheck) -> impl FnMut() {
    move || {
        for _ in 0..FLUSHES {
            check.nap_if_service_needs_core();
            // Prevents the compiler from removing a write of zeroes over zeroes.
            black_box(&mut buffer).fill(0);
        }
        black_box(&buffer);
    }
}

#[inline(never)]
fn multiply(left: &Matrix, right: &Matrix) -> Matrix {
    let mut product = [[0.0; ORDER]; ORDER];
    for row in 0..ORDER {
        for column in 0..ORDER {
            product[row][column] = (0..ORDER).map(|k| left[row][k] * right[k][column]).sum();
        }
    }
    product
}

/// Returns a doubly stochastic matrix: its powers neither grow nor shrink. The arithmetic therefore meets no infinities
/// or denormal numbers and keeps its speed.
fn doubly_stochastic_matrix() -> Matrix {
    let mut matrix = [[0.1; ORDER]; ORDER];
    for (row, cells) in matrix.iter_mut().enumerate() {
        cells[row] = 0.6;
    }
    matrix
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_the_matrix_keep_their_row_sums() {
        let mut power = doubly_stochastic_matrix();
        for _ in 0..1000 {
            power = multiply(&power, &doubly_stochastic_matrix());
        }
        for row in power {
            assert!((row.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn every_kernel_finishes_units() {
        for kernel in Kernel::value_variants() {
            match kernel.new_work_unit(GateCheck::without_gate()) {
                Ok(mut unit) => (0..10).for_each(|_| unit()),
                // Skips a kernel whose zstd or dictionary is not installed.
                Err(error) if matches!(kernel, Kernel::Zstd) => sidelane_testing::skip(format!("zstd: {error:#}")),
                Err(error) => panic!("{kernel:?}: {error:#}"),
            }
        }
    }
}

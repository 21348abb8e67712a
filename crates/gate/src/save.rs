//! Saving of registers for callers that do not expect a call.
//!
//! Compilers call `mcount` and `__fentry__` while arguments are still in registers: integers, vectors of any width, the
//! number of vectors in AL, the static chain in R10. The fast path changes only the flags, whose values are not needed
//! there. The slow path saves every register that a C function may change. XSAVE costs some 50 ns, so the thread's pass
//! is checked first.

use std::arch::naked_asm;
use std::arch::x86_64::{__cpuid, __cpuid_count};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::slow::sidelane_gate_slow_path;

/// Vector and mask registers that are saved, as XSAVE components: SSE, AVX, and the three parts of AVX-512. The slow
/// path uses no others.
const COMPONENTS: u64 = 0b1110_0110;
const FIRST_BEYOND_SSE: u32 = 2;
const LAST: u32 = 7;
/// Size of XSAVE's legacy area and header, in bytes.
const XSAVE_LEAST_BYTES: u64 = 512 + 64;
const CPUID_1_ECX_OSXSAVE: u32 = 1 << 27;
const LEAF_XSAVE: u32 = 0xd;

/// Components that XSAVE saves; 0 if this CPU has only FXSAVE.
static MASK: AtomicU64 = AtomicU64::new(0);
/// Size of the save area in bytes.
static BYTES: AtomicU64 = AtomicU64::new(XSAVE_LEAST_BYTES);

/// Finds out which registers this CPU has to save. It must run before the first slow path.
pub(crate) fn detect_saved_registers() {
    if __cpuid(1).ecx & CPUID_1_ECX_OSXSAVE == 0 {
        return;
    }
    let enabled = __cpuid_count(LEAF_XSAVE, 0);
    let mask = (u64::from(enabled.edx) << 32 | u64::from(enabled.eax)) & COMPONENTS;
    let end = |component| {
        let area = __cpuid_count(LEAF_XSAVE, component);
        u64::from(area.eax) + u64::from(area.ebx)
    };
    let ends = (FIRST_BEYOND_SSE..=LAST).filter(|component| mask >> component & 1 == 1).map(end);
    BYTES.store(ends.fold(XSAVE_LEAST_BYTES, u64::max), Ordering::Relaxed);
    MASK.store(mask, Ordering::Relaxed);
}

/// Calls the slow path and keeps every register, at any alignment of the caller's stack.
///
/// # Safety
/// Jumped to from a function's entry: the return address is on top of the stack.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn slow_path_keeping_registers() {
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "push rax",
        "push rcx",
        "push rdx",
        // Assembly of `Thread::has_pass`, which uses only three registers.
        "mov rcx, qword ptr [rip + sidelane_gate_thread@GOTTPOFF]",
        "add rcx, qword ptr fs:[0]",
        "rdtsc",
        "shl rdx, 32",
        "or rax, rdx",
        "cmp rax, qword ptr [rcx]",
        "jae 2f",
        "mov rdx, qword ptr [rcx + 8]",
        "mov rax, qword ptr [rdx]",
        "cmp rax, qword ptr [rcx + 16]",
        "jne 2f",
        "mov rdx, qword ptr [rcx + 24]",
        "mov rax, qword ptr [rdx]",
        "cmp rax, qword ptr [rcx + 32]",
        "jne 2f",
        "pop rdx",
        "pop rcx",
        "pop rax",
        "pop rbp",
        ".cfi_remember_state",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_restore_state",
        "2:",
        "push rsi",
        "push rdi",
        "push r8",
        "push r9",
        "push r10",
        "push r11",
        "sub rsp, qword ptr [rip + {bytes}]",
        "and rsp, -64",
        "mov eax, dword ptr [rip + {mask}]",
        "test eax, eax",
        "jz 4f",
        // XRSTOR requires the rest of the header to be zero, and XSAVE does not write it.
        "xor edx, edx",
        "mov qword ptr [rsp + 512], rdx",
        "mov qword ptr [rsp + 520], rdx",
        "mov qword ptr [rsp + 528], rdx",
        "mov qword ptr [rsp + 536], rdx",
        "mov qword ptr [rsp + 544], rdx",
        "mov qword ptr [rsp + 552], rdx",
        "mov qword ptr [rsp + 560], rdx",
        "mov qword ptr [rsp + 568], rdx",
        "xsave64 [rsp]",
        "call {slow_path}",
        "mov eax, dword ptr [rip + {mask}]",
        "xor edx, edx",
        "xrstor64 [rsp]",
        "3:",
        "lea rsp, [rbp - 72]",
        "pop r11",
        "pop r10",
        "pop r9",
        "pop r8",
        "pop rdi",
        "pop rsi",
        "pop rdx",
        "pop rcx",
        "pop rax",
        "pop rbp",
        ".cfi_remember_state",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_restore_state",
        "4:",
        "fxsave64 [rsp]",
        "call {slow_path}",
        "fxrstor64 [rsp]",
        "jmp 3b",
        ".cfi_endproc",
        bytes = sym BYTES,
        mask = sym MASK,
        slow_path = sym sidelane_gate_slow_path,
    )
}

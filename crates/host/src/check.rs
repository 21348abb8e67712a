//! Checks of the instrumented gate for Sidelane's own programs. Other programs get such checks from `gcc -pg`.
//!
//! `sidelane run --gate instrumented` preloads the gate's library. Without that library, checks read a word that
//! stays 0.

use std::sync::atomic::{AtomicU32, Ordering};

static NOTHING: AtomicU32 = AtomicU32::new(0);

/// Check of the instrumented gate: a word to read, and a function to call if the word is not 0.
#[derive(Clone, Copy)]
pub struct GateCheck {
    word: &'static AtomicU32,
    slow_path: extern "C" fn(),
}

extern "C" fn go_on() {}

impl GateCheck {
    /// Returns a check whose word stays 0, so that it never naps.
    pub fn without_gate() -> Self {
        Self { word: &NOTHING, slow_path: go_on }
    }

    /// Returns the check of the gate's library if the library is loaded, else [`GateCheck::without_gate`]. The calling
    /// thread promises to check often.
    pub fn join_gate() -> Self {
        Self::find_in_gate_library().inspect(|check| (check.slow_path)()).unwrap_or_else(Self::without_gate)
    }

    fn find_in_gate_library() -> Option<Self> {
        let address = find_symbol(c"sidelane_check_address")?;
        let slow_path = find_symbol(c"sidelane_gate_slow_path")?;
        // SAFETY: the library's function has this type, as runtime/c/sidelane_gate.h declares it.
        let address: extern "C" fn() -> *const AtomicU32 = unsafe { std::mem::transmute(address) };
        // SAFETY: the library's function has this type, as runtime/c/sidelane_gate.h declares it.
        let slow_path: extern "C" fn() = unsafe { std::mem::transmute(slow_path) };
        // SAFETY: the address is null, or that of an aligned word that stays mapped until the process ends; this
        // process only reads the word.
        Some(Self { word: unsafe { address().as_ref() }?, slow_path })
    }

    /// Reads the word once, and naps while the service needs this core.
    #[inline]
    pub fn nap_if_service_needs_core(self) {
        if self.word.load(Ordering::Relaxed) != 0 {
            (self.slow_path)();
        }
    }
}

fn find_symbol(name: &std::ffi::CStr) -> Option<*mut libc::c_void> {
    // SAFETY: the call only looks a name up among the loaded libraries.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_never_naps_without_the_gate_library() {
        let check = GateCheck::join_gate();
        assert_eq!(check.word.load(Ordering::Relaxed), 0);
        check.nap_if_service_needs_core();
    }
}

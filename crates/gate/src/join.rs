//! Start of the instrumented gate in a process: from its environment to the mapped arrays.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::arrays::Arrays;
use crate::environment::{GateFds, explain};
use crate::page::{self, CheckPage};
use crate::save;
use crate::slow::{SlowPath, sidelane_gate_slow_path};

/// State in which the environment has not been read.
const UNKNOWN: u32 = 0;
/// State in which the environment names arrays, and nothing is mapped before the first check.
const ARMED: u32 = 1;
/// State in which a thread maps the arrays.
const OPENING: u32 = 2;
/// State in which the arrays are mapped.
const OPEN: u32 = 3;
/// State of a process that does not run under Sidelane, or cannot use the arrays.
const ABSENT: u32 = 4;

static STATE: AtomicU32 = AtomicU32::new(UNKNOWN);
static ARRAYS: OnceLock<Arrays> = OnceLock::new();

/// Reads the environment when the library is loaded, before the program's own code runs.
///
/// It does no more than that. Most programs of a batch command, such as the compilers that `make` starts, never check,
/// and should not pay for the programs that do.
extern "C" fn arm() {
    if STATE.load(Ordering::Relaxed) != UNKNOWN {
        return;
    }
    match GateFds::from_environment() {
        Some(_) => {
            save::detect_saved_registers();
            STATE.store(ARMED, Ordering::Release);
            page::set_slow_path_all();
        }
        None => {
            STATE.store(ABSENT, Ordering::Release);
            explain("SIDELANE_GATE is not set, or not in the format of this version");
        }
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static ARM: extern "C" fn() = arm;

/// Returns the arrays; `None` without Sidelane. The first call maps them.
pub(crate) fn arrays() -> Option<&'static Arrays> {
    match STATE.load(Ordering::Acquire) {
        OPEN => ARRAYS.get(),
        ARMED => map_arrays(),
        _ => None,
    }
}

fn map_arrays() -> Option<&'static Arrays> {
    // Another thread, or a POSIX signal handler in this thread, may call this function at the same time; that call
    // continues without the arrays.
    STATE.compare_exchange(ARMED, OPENING, Ordering::AcqRel, Ordering::Acquire).ok()?;
    let fds = GateFds::from_environment();
    match fds.ok_or("SIDELANE_GATE is no longer set").and_then(|fds| Ok((fds, Arrays::map(&fds)?))) {
        Ok((fds, arrays)) => {
            let arrays = ARRAYS.get_or_init(|| arrays);
            page::map_service_page_over_all(fds.services, fds.number);
            STATE.store(OPEN, Ordering::Release);
            Some(arrays)
        }
        Err(why) => {
            STATE.store(ABSENT, Ordering::Release);
            page::silence_all_checks();
            explain(why);
            None
        }
    }
}

/// Maps the service's word over `page`, the check page of a module that was compiled with `sidelane_gate.h`. Returns
/// the function that the module has to call when the word is set. `page` must live as long as the module's code.
///
/// # Safety
///
/// `page` is a page of the module, and used for nothing else.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sidelane_gate_join(page: *mut u32) -> SlowPath {
    // The loader runs the constructors of a preloaded library first, but those of a linked library may run later.
    arm();
    // SAFETY: the caller's promise; the alignment is checked.
    if let Some(page) = unsafe { page.cast::<CheckPage>().as_ref() }.filter(|page| aligned(page)) {
        adopt_page(page);
    }
    sidelane_gate_slow_path
}

fn aligned(page: &CheckPage) -> bool {
    std::ptr::from_ref(page).is_aligned()
}

fn adopt_page(page: &'static CheckPage) {
    match STATE.load(Ordering::Acquire) {
        ARMED if page::register_page(page) => page.set_slow_path(true),
        OPEN => {
            if let Some(fds) = GateFds::from_environment().filter(|fds| Arrays::is_service_array(fds.services)) {
                page.map_service_page(fds.services, fds.number);
            }
        }
        _ => {}
    }
}

/// Returns the address of the word that checks read, which is not 0 while the service is busy. Null if this process
/// does not run under Sidelane. Runtimes that generate code with checks call it.
#[unsafe(no_mangle)]
pub extern "C" fn sidelane_check_address() -> *const u32 {
    arm();
    match arrays() {
        Some(_) => page::OWN.word().as_ptr(),
        None => std::ptr::null(),
    }
}

//! Check page: the memory that a module's checks read.
//!
//! The page has an address that the linker knows, so that a check needs no pointer. When the gate is open, the
//! service's array is mapped over the page. Before that the page is the module's own memory: zero, or with the *knock*,
//! a value that makes the first check take the slow path.

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use sidelane_formats::ServiceWord;

/// Size of a page on x86-64, in bytes.
pub(crate) const PAGE_BYTES: usize = 4096;
/// Offset of the checked word in its page: `ServiceWord::busy_lanes`.
pub(crate) const WORD_OFFSET: usize = std::mem::offset_of!(ServiceWord, busy_lanes);
const WORDS: usize = PAGE_BYTES / size_of::<u32>();
/// Largest number of modules with pages of their own: programs and libraries that were compiled with the header.
const MODULES_MAX: usize = 64;

/// Check page of a module.
#[repr(C, align(4096))]
pub struct CheckPage([AtomicU32; WORDS]);

/// Check page of this library, for the functions that compilers call.
pub(crate) static OWN: CheckPage = CheckPage([const { AtomicU32::new(0) }; WORDS]);

/// Check pages of other modules; null for a free slot.
static MODULES: [AtomicPtr<CheckPage>; MODULES_MAX] = [const { AtomicPtr::new(std::ptr::null_mut()) }; MODULES_MAX];

impl CheckPage {
    /// Returns the word that checks read; it is not 0 while the service is busy.
    pub(crate) fn word(&self) -> &AtomicU32 {
        &self.0[WORD_OFFSET / size_of::<u32>()]
    }

    fn address(&self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    /// Makes the next check take the slow path (`on`) or the fast path. Allowed only while nothing is mapped over the
    /// page.
    pub(crate) fn set_slow_path(&self, on: bool) {
        self.word().store(u32::from(on), Ordering::Relaxed);
    }

    /// Maps the page of the service `number` over this page. If that fails, checks say "not busy".
    pub(crate) fn map_service_page(&self, services_fd: i32, number: usize) {
        // SAFETY: replaces a whole page that holds only the word, for all threads at once.
        let shown = unsafe {
            let flags = libc::MAP_SHARED | libc::MAP_FIXED;
            let at = (number * PAGE_BYTES) as libc::off_t;
            libc::mmap(self.address(), PAGE_BYTES, libc::PROT_READ, flags, services_fd, at)
        };
        if shown == libc::MAP_FAILED {
            self.set_slow_path(false);
        }
    }
}

/// Adds the page of another module. Returns whether there was room.
pub(crate) fn register_page(page: &'static CheckPage) -> bool {
    let page = std::ptr::from_ref(page).cast_mut();
    MODULES.iter().any(|slot| {
        let taken = slot.compare_exchange(std::ptr::null_mut(), page, Ordering::AcqRel, Ordering::Acquire);
        taken.is_ok() || taken == Err(page)
    })
}

/// Makes the first check of the process take the slow path.
pub(crate) fn set_slow_path_all() {
    registered_pages().for_each(|page| page.set_slow_path(true));
}

/// Makes all later checks say "not busy".
pub(crate) fn silence_all_checks() {
    registered_pages().for_each(|page| page.set_slow_path(false));
}

/// Makes all later checks read the page of the service `number`.
pub(crate) fn map_service_page_over_all(services_fd: i32, number: usize) {
    registered_pages().for_each(|page| page.map_service_page(services_fd, number));
}

fn registered_pages() -> impl Iterator<Item = &'static CheckPage> {
    // SAFETY: a slot is null or points to a page of a module, which lives as long as the module's
    // code.
    let modules = MODULES.iter().filter_map(|slot| unsafe { slot.load(Ordering::Acquire).as_ref() });
    std::iter::once(&OWN).chain(modules)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_of_a_page_and_offset_of_its_word_match_the_header() {
        assert_eq!(size_of::<CheckPage>(), PAGE_BYTES);
        assert_eq!(align_of::<CheckPage>(), PAGE_BYTES);
        assert_eq!(WORD_OFFSET, 4);
    }
}

//! A shared library that is loaded at run time. The lab is built and runs without the library; only a command that uses
//! the library needs it installed.

use std::ffi::{CStr, CString, c_void};
use std::path::Path;

use anyhow::{Context, Result, bail};

/// Loaded shared library. It stays loaded until the process ends, so that functions taken from it stay valid.
#[derive(Debug)]
pub struct Library {
    handle: *mut c_void,
    name: &'static CStr,
}

impl Library {
    /// Loads the first installed library of `names`; Debian's `package` provides one of them.
    pub fn load(names: &[&'static CStr], package: &str) -> Result<Self> {
        // SAFETY: the name is a C string. The initialisers of the libraries that this crate loads need no preparation.
        let open = |name: &CStr| unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        let found =
            names.iter().map(|name| Self { handle: open(name), name }).find(|library| !library.handle.is_null());
        found.with_context(|| format!("cannot load a library: {}; `apt-get install {package}` brings it", last_error()))
    }

    /// Returns the library's function `name`, as a pointer of the type `F`.
    ///
    /// # Safety
    ///
    /// `F` must be the pointer type of the function `name`, as the library's header declares it.
    pub unsafe fn function<F: Copy>(&self, name: &CStr) -> Result<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        // SAFETY: the library stays loaded; the name is a C string.
        let address = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        if address.is_null() {
            let [library, function] = [self.name, name].map(CStr::to_string_lossy);
            bail!("{library} has no function {function}: is it a version that the lab does not know?");
        }
        // SAFETY: the address is not null, and has the size of `F`, whose correctness the caller guarantees.
        Ok(unsafe { std::mem::transmute_copy::<*mut c_void, F>(&address) })
    }
}

/// Returns a path as a C string.
pub fn path_for_c(path: &Path) -> Result<CString> {
    let bytes = path.as_os_str().as_encoded_bytes();
    CString::new(bytes).with_context(|| format!("{} cannot be the name of a file", path.display()))
}

fn last_error() -> String {
    // SAFETY: `dlerror` returns null, or a C string of this thread that is valid until its next call.
    let said = unsafe { libc::dlerror() };
    if said.is_null() {
        return "for no known reason".to_owned();
    }
    // SAFETY: `said` is a valid C string of this thread until the next call of `dlerror`.
    unsafe { CStr::from_ptr(said) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_library_error_names_its_package() {
        let missing = Library::load(&[c"libsidelane-none.so.1"], "libsidelane-none-dev").unwrap_err().to_string();
        assert!(missing.contains("libsidelane-none.so.1") && missing.contains("apt-get install"), "{missing}");
        let libc = Library::load(&[c"libsidelane-none.so.1", c"libc.so.6"], "libc6").unwrap();
        // SAFETY: the pointer is never called, since the library has no function of this name.
        let missing = unsafe { libc.function::<unsafe extern "C" fn()>(c"no_such_function") }.unwrap_err();
        assert!(missing.to_string().contains("no_such_function"), "{missing}");
    }
}

//! RocksDB, through its C interface (`rocksdb/c.h`), with its default options. Writes go to the write-ahead log, which
//! is not synced to disk.

use std::ffi::{CStr, c_char, c_uchar, c_void};
use std::path::Path;
use std::ptr::{null, null_mut};

use anyhow::{Result, bail};

use super::library::{Library, path_for_c};
use super::store::Store;

/// File names of the library, tried in this order: of Debian 13, of Debian 12, and of the development package.
const NAMES: [&CStr; 3] = [c"librocksdb.so.9.10", c"librocksdb.so.7.8", c"librocksdb.so"];
const PACKAGE: &str = "librocksdb-dev";

type Handle = *mut c_void;
type Error = *mut c_char;

/// Declares a struct of the used library functions, with a function that loads them all.
macro_rules! functions {
    ($($field:ident: $name:literal fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        struct Functions { $($field: unsafe extern "C" fn($($argument),*) $(-> $result)?,)* }

        impl Functions {
            fn load(library: &Library) -> Result<Self> {
                // SAFETY: the types are those of rocksdb/c.h, which keeps its functions' types from version to version.
                Ok(unsafe { Self { $($field: library.function($name)?,)* } })
            }
        }
    };
}

functions! {
    options_create: c"rocksdb_options_create" fn() -> Handle;
    options_destroy: c"rocksdb_options_destroy" fn(Handle);
    create_if_missing: c"rocksdb_options_set_create_if_missing" fn(Handle, c_uchar);
    read_options: c"rocksdb_readoptions_create" fn() -> Handle;
    write_options: c"rocksdb_writeoptions_create" fn() -> Handle;
    open: c"rocksdb_open" fn(Handle, *const c_char, *mut Error) -> Handle;
    get: c"rocksdb_get" fn(Handle, Handle, *const u8, usize, *mut usize, *mut Error) -> *mut u8;
    put: c"rocksdb_put" fn(Handle, Handle, *const u8, usize, *const u8, usize, *mut Error);
    free: c"rocksdb_free" fn(*mut c_void);
    create_iterator: c"rocksdb_create_iterator" fn(Handle, Handle) -> Handle;
    seek: c"rocksdb_iter_seek" fn(Handle, *const u8, usize);
    valid: c"rocksdb_iter_valid" fn(Handle) -> c_uchar;
    next: c"rocksdb_iter_next" fn(Handle);
    key: c"rocksdb_iter_key" fn(Handle, *mut usize) -> *const u8;
    value: c"rocksdb_iter_value" fn(Handle, *mut usize) -> *const u8;
    iterator_error: c"rocksdb_iter_get_error" fn(Handle, *mut Error);
    destroy_iterator: c"rocksdb_iter_destroy" fn(Handle);
    compact_range: c"rocksdb_compact_range" fn(Handle, *const u8, usize, *const u8, usize);
}

/// Open RocksDB database. A kill of the process does not close it: the log then holds the writes that are not in the
/// table files yet.
pub struct RocksDb {
    functions: Functions,
    database: Handle,
    read_options: Handle,
    write_options: Handle,
}

impl RocksDb {
    /// Opens the database in `dir`, and creates it if it is missing.
    pub fn open(dir: &Path) -> Result<Self> {
        let functions = Functions::load(&Library::load(&NAMES, PACKAGE)?)?;
        let home = path_for_c(dir)?;
        let mut error = null_mut();
        // SAFETY: the options come from the library itself; the path is a C string that outlives the call.
        let database = unsafe {
            let options = (functions.options_create)();
            (functions.create_if_missing)(options, c_uchar::from(true));
            let database = (functions.open)(options, home.as_ptr(), &mut error);
            (functions.options_destroy)(options);
            database
        };
        functions.check_error(error)?;
        // SAFETY: these functions take no arguments.
        let (read_options, write_options) = unsafe { ((functions.read_options)(), (functions.write_options)()) };
        Ok(Self { functions, database, read_options, write_options })
    }

    /// Returns key and value of the record at the iterator.
    ///
    /// # Safety
    ///
    /// The iterator must be at a record, and the slices must not be used after the iterator has moved.
    unsafe fn current_record(&self, iterator: Handle) -> (&[u8], &[u8]) {
        let (mut key_length, mut value_length) = (0, 0);
        // SAFETY: the caller guarantees that the iterator is at a record.
        unsafe {
            let key = (self.functions.key)(iterator, &mut key_length);
            let value = (self.functions.value)(iterator, &mut value_length);
            (std::slice::from_raw_parts(key, key_length), std::slice::from_raw_parts(value, value_length))
        }
    }
}

impl Store for RocksDb {
    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let (mut length, mut error) = (0, null_mut());
        // SAFETY: the database is open and has its options; key and results outlive the call.
        let value = unsafe {
            (self.functions.get)(self.database, self.read_options, key.as_ptr(), key.len(), &mut length, &mut error)
        };
        self.functions.check_error(error)?;
        if value.is_null() {
            return Ok(None);
        }
        // SAFETY: the library returned `length` bytes that belong to the caller.
        let copy = unsafe { std::slice::from_raw_parts(value, length) }.to_vec();
        // SAFETY: the library allocated the value, and it is not used after this call.
        unsafe { (self.functions.free)(value.cast()) };
        Ok(Some(copy))
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut error = null_mut();
        // SAFETY: the database is open and has its options; key and value outlive the call, which copies them.
        unsafe {
            (self.functions.put)(
                self.database,
                self.write_options,
                key.as_ptr(),
                key.len(),
                value.as_ptr(),
                value.len(),
                &mut error,
            );
        }
        self.functions.check_error(error)
    }

    fn scan(&mut self, start: &[u8], count: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let mut error = null_mut();
        // SAFETY: the database is open; the iterator is used only before it is destroyed, and only while it is valid.
        unsafe {
            let iterator = (self.functions.create_iterator)(self.database, self.read_options);
            (self.functions.seek)(iterator, start.as_ptr(), start.len());
            for _ in 0..count {
                if (self.functions.valid)(iterator) == 0 {
                    break;
                }
                let (key, value) = self.current_record(iterator);
                each(key, value);
                (self.functions.next)(iterator);
            }
            (self.functions.iterator_error)(iterator, &mut error);
            (self.functions.destroy_iterator)(iterator);
        }
        self.functions.check_error(error)
    }

    fn save(&mut self) -> Result<()> {
        // SAFETY: the database is open; null keys mean the range of all keys.
        unsafe { (self.functions.compact_range)(self.database, null(), 0, null(), 0) };
        Ok(())
    }
}

impl Functions {
    /// Returns the message of a failed call as an error, and frees it.
    fn check_error(&self, error: Error) -> Result<()> {
        if error.is_null() {
            return Ok(());
        }
        // SAFETY: the message is a C string that the library allocated for the caller.
        let message = unsafe { CStr::from_ptr(error) }.to_string_lossy().into_owned();
        // SAFETY: the library allocated the message, and it is not used after this call.
        unsafe { (self.free)(error.cast()) };
        bail!("RocksDB says: {message}");
    }
}

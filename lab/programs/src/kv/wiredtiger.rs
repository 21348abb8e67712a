//! WiredTiger, through its C interface (`wiredtiger.h`): a table of raw keys and values, one session and one cursor.
//! Writes go to the log, which is not synced to disk.
//!
//! The objects of WiredTiger are structs of function pointers. The structs in this file end at the last used member,
//! and match version 3.2. Other versions are refused.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;
use std::ptr::{null, null_mut};

use anyhow::{Result, bail, ensure};

use super::library::{Library, path_for_c};
use super::store::Store;

const NAMES: [&CStr; 2] = [c"libwiredtiger.so.0", c"libwiredtiger.so"];
const PACKAGE: &str = "libwiredtiger-dev";
/// Version of WiredTiger whose struct layouts this file declares.
const VERSION: (c_int, c_int) = (3, 2);

/// Configuration of the connection. Each change is written to the log at once but not synced to disk, which is also
/// RocksDB's default.
const CONNECTION: &CStr =
    c"create,cache_size=256MB,log=(enabled=true),transaction_sync=(enabled=true,method=none),statistics=(none)";
const TABLE: &CStr = c"table:records";
const FORMAT: &CStr = c"key_format=u,value_format=u";
/// Return code `WT_NOTFOUND` of WiredTiger: the record does not exist.
const NOT_FOUND: c_int = -31803;

/// Placeholder for a struct member that is not used.
type Unused = *const c_void;

/// Layout of WiredTiger's struct `WT_CONNECTION`, up to the last member that is used here.
#[repr(C)]
struct Connection {
    before: [Unused; 8],
    open_session: unsafe extern "C" fn(*mut Connection, *mut c_void, *const c_char, *mut *mut Session) -> c_int,
}

/// Layout of WiredTiger's struct `WT_SESSION`, up to the last member that is used here.
#[repr(C)]
struct Session {
    before: [Unused; 5],
    open_cursor:
        unsafe extern "C" fn(*mut Session, *const c_char, *mut Cursor, *const c_char, *mut *mut Cursor) -> c_int,
    alter: Unused,
    create: unsafe extern "C" fn(*mut Session, *const c_char, *const c_char) -> c_int,
    between: [Unused; 19],
    checkpoint: unsafe extern "C" fn(*mut Session, *const c_char) -> c_int,
}

/// Layout of WiredTiger's struct `WT_CURSOR`, up to the last member that is used here.
#[repr(C)]
struct Cursor {
    before: [Unused; 4],
    get_key: unsafe extern "C" fn(*mut Cursor, ...) -> c_int,
    get_value: unsafe extern "C" fn(*mut Cursor, ...) -> c_int,
    set_key: unsafe extern "C" fn(*mut Cursor, ...),
    set_value: unsafe extern "C" fn(*mut Cursor, ...),
    compare: [Unused; 2],
    next: unsafe extern "C" fn(*mut Cursor) -> c_int,
    prev: Unused,
    reset: unsafe extern "C" fn(*mut Cursor) -> c_int,
    search: unsafe extern "C" fn(*mut Cursor) -> c_int,
    search_near: unsafe extern "C" fn(*mut Cursor, *mut c_int) -> c_int,
    insert: unsafe extern "C" fn(*mut Cursor) -> c_int,
}

/// WiredTiger's struct `WT_ITEM`: a pointer to bytes, and their number.
#[repr(C)]
struct Item {
    data: *const u8,
    size: usize,
    internal: [usize; 3],
}

impl Item {
    fn from_bytes(bytes: &[u8]) -> Self {
        Self { data: bytes.as_ptr(), size: bytes.len(), internal: [0; 3] }
    }

    fn empty() -> Self {
        Self::from_bytes(&[])
    }

    /// # Safety
    ///
    /// The bytes must be valid for reads as long as the returned slice is used.
    unsafe fn bytes<'a>(&self) -> &'a [u8] {
        if self.size == 0 {
            return &[];
        }
        // SAFETY: the caller guarantees that the bytes are valid.
        unsafe { std::slice::from_raw_parts(self.data, self.size) }
    }
}

type Version = unsafe extern "C" fn(*mut c_int, *mut c_int, *mut c_int) -> *const c_char;
type Open = unsafe extern "C" fn(*const c_char, *mut c_void, *const c_char, *mut *mut Connection) -> c_int;
type StrError = unsafe extern "C" fn(c_int) -> *const c_char;

/// Open WiredTiger database. A kill of the process does not close it: the log then holds the writes that are not in the
/// table files yet.
pub struct WiredTiger {
    session: *mut Session,
    cursor: *mut Cursor,
    strerror: StrError,
}

impl WiredTiger {
    /// Opens the database in `dir`, and creates it if it is missing.
    pub fn open(dir: &Path) -> Result<Self> {
        let library = Library::load(&NAMES, PACKAGE)?;
        // SAFETY: the types are those of wiredtiger.h, the same in all versions.
        let (version, open, strerror) = unsafe {
            let version: Version = library.function(c"wiredtiger_version")?;
            let open: Open = library.function(c"wiredtiger_open")?;
            (version, open, library.function::<StrError>(c"wiredtiger_strerror")?)
        };
        ensure_version(version)?;
        let home = path_for_c(dir)?;
        let mut store = Self { session: null_mut(), cursor: null_mut(), strerror };
        let (mut connection, mut session) = (null_mut(), null_mut());
        // SAFETY: the structs have the layout of the checked version. Each object is used only after the call that made
        // it succeeded, and lives until the process ends.
        unsafe {
            store.check_code(open(home.as_ptr(), null_mut(), CONNECTION.as_ptr(), &mut connection))?;
            store.check_code(((*connection).open_session)(connection, null_mut(), null(), &mut session))?;
            store.check_code(((*session).create)(session, TABLE.as_ptr(), FORMAT.as_ptr()))?;
            let mut cursor = null_mut();
            store.check_code(((*session).open_cursor)(session, TABLE.as_ptr(), null_mut(), null(), &mut cursor))?;
            (store.session, store.cursor) = (session, cursor);
        }
        Ok(store)
    }

    fn check_code(&self, code: c_int) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: the function takes any number; the message stays valid until this thread asks for another one.
        let message = unsafe { CStr::from_ptr((self.strerror)(code)) };
        bail!("WiredTiger says: {}", message.to_string_lossy());
    }

    /// Releases the record to which the cursor points.
    fn reset(&mut self) -> Result<()> {
        // SAFETY: the cursor is open.
        self.check_code(unsafe { ((*self.cursor).reset)(self.cursor) })
    }

    /// Moves the cursor to the first key that is not less than `start`. Returns false if there is no such key.
    fn seek(&mut self, start: &[u8]) -> Result<bool> {
        let (key, mut order) = (Item::from_bytes(start), 0);
        // SAFETY: the cursor is open; the key outlives the search.
        let mut code = unsafe {
            ((*self.cursor).set_key)(self.cursor, &raw const key);
            ((*self.cursor).search_near)(self.cursor, &mut order)
        };
        if code == 0 && order < 0 {
            code = self.advance_cursor();
        }
        self.is_found(code)
    }

    fn advance_cursor(&mut self) -> c_int {
        // SAFETY: the cursor is open.
        unsafe { ((*self.cursor).next)(self.cursor) }
    }

    fn is_found(&self, code: c_int) -> Result<bool> {
        if code == NOT_FOUND { Ok(false) } else { self.check_code(code).map(|()| true) }
    }
}

impl Store for WiredTiger {
    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let (key, mut value) = (Item::from_bytes(key), Item::empty());
        // SAFETY: the cursor is open; the key outlives the search.
        let code = unsafe {
            ((*self.cursor).set_key)(self.cursor, &raw const key);
            ((*self.cursor).search)(self.cursor)
        };
        if !self.is_found(code)? {
            return Ok(None);
        }
        // SAFETY: the cursor is at a record, whose value stays valid until the cursor is reset.
        let copy = unsafe {
            self.check_code(((*self.cursor).get_value)(self.cursor, &raw mut value))?;
            value.bytes().to_vec()
        };
        self.reset()?;
        Ok(Some(copy))
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let (key, value) = (Item::from_bytes(key), Item::from_bytes(value));
        // SAFETY: the cursor is open; key and value outlive the call, which copies them. By default a cursor overwrites
        // an existing record.
        let code = unsafe {
            ((*self.cursor).set_key)(self.cursor, &raw const key);
            ((*self.cursor).set_value)(self.cursor, &raw const value);
            ((*self.cursor).insert)(self.cursor)
        };
        self.check_code(code)
    }

    fn scan(&mut self, start: &[u8], count: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let mut there = self.seek(start)?;
        for left in (0..count).rev() {
            if !there {
                break;
            }
            let (mut key, mut value) = (Item::empty(), Item::empty());
            // SAFETY: the cursor is at a record; key and value stay valid until it moves.
            unsafe {
                self.check_code(((*self.cursor).get_key)(self.cursor, &raw mut key))?;
                self.check_code(((*self.cursor).get_value)(self.cursor, &raw mut value))?;
                each(key.bytes(), value.bytes());
            }
            if left > 0 {
                let code = self.advance_cursor();
                there = self.is_found(code)?;
            }
        }
        self.reset()
    }

    fn save(&mut self) -> Result<()> {
        // SAFETY: the session is open.
        self.check_code(unsafe { ((*self.session).checkpoint)(self.session, null()) })
    }
}

fn ensure_version(version: Version) -> Result<()> {
    let (mut major, mut minor, mut patch) = (0, 0, 0);
    // SAFETY: the function writes three numbers.
    unsafe { version(&mut major, &mut minor, &mut patch) };
    ensure!(
        (major, minor) == VERSION,
        "WiredTiger here is version {major}.{minor}.{patch}; the lab knows the layout of {}.{}, which Debian 12's \
         {PACKAGE} brings",
        VERSION.0,
        VERSION.1
    );
    Ok(())
}

//! The executable and the libraries of a process: their files, their load addresses, and the files
//! with their debug information.

use std::cell::OnceCell;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use object::read::elf::{ElfFile32, ElfFile64};
use object::{Object as _, ObjectSegment as _};

use crate::mapping::Mapping;
use crate::maps::{Region, regions};

/// Directory of distributions' debug information, below the root directory.
const DEBUG_DIR: &str = "usr/lib/debug";

/// ELF file that a process has mapped executable: its executable or a library.
pub(super) struct Object {
    /// Path of the file in the process's view.
    pub(super) path: PathBuf,
    /// Difference between an address in the process and the same address in the file.
    pub(super) bias: u64,
    /// Whether the file is the executable, not a library.
    pub(super) is_executable: bool,
    pid: u32,
    image: Mapping,
    debug: OnceCell<Option<Mapping>>,
}

/// Returns the executable and the libraries of a process, the executable first.
pub(super) fn process_objects(pid: u32) -> io::Result<Vec<Object>> {
    let regions = regions(pid)?;
    let executable = fs::metadata(format!("/proc/{pid}/exe"))?.ino();
    let mut files: Vec<&Region> = Vec::new();
    for region in regions.iter().filter(|region| region.is_executable && region.has_file()) {
        if files.iter().all(|file| file.file != region.file) {
            files.push(region);
        }
    }
    files.sort_by_key(|region| region.file.1 != executable);
    let mut objects = Vec::new();
    for region in files {
        let is_executable = region.file.1 == executable;
        match Object::open(pid, region, &regions, is_executable) {
            Ok(object) => objects.extend(object),
            Err(error) if is_executable => return Err(error),
            // A library that cannot be parsed must not hide the variables of other libraries.
            Err(_) => {}
        }
    }
    Ok(objects)
}

impl Object {
    /// Opens a mapped file; `None` if it is not an ELF file.
    fn open(pid: u32, region: &Region, regions: &[Region], is_executable: bool) -> io::Result<Option<Self>> {
        let image = Mapping::whole_file(&region.open(pid)?)?;
        let own: Vec<&Region> = regions.iter().filter(|other| other.file == region.file).collect();
        let bias = parse(&image).and_then(|elf| load_bias(&elf, &own));
        let path = region.path.clone();
        Ok(bias.map(|bias| Self { path, bias, is_executable, pid, image, debug: OnceCell::new() }))
    }

    /// Returns the parsed file.
    pub(super) fn elf(&self) -> object::File<'_> {
        parse(&self.image).expect("it was parsed when it was opened")
    }

    /// Returns the file with the separate debug information, if it exists.
    pub(super) fn debug_elf(&self) -> Option<object::File<'_>> {
        self.debug.get_or_init(|| self.map_debug_file()).as_ref().and_then(parse)
    }

    /// Returns the file's name without its directory.
    pub(super) fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or(self.path.as_os_str()).to_string_lossy().into_owned();
        name.trim_end_matches(" (deleted)").to_owned()
    }

    fn map_debug_file(&self) -> Option<Mapping> {
        let elf = self.elf();
        let id = elf.build_id().ok()??;
        let root = PathBuf::from(format!("/proc/{}/root", self.pid));
        let candidates =
            [root.as_path(), Path::new("/")].into_iter().flat_map(|root| self.debug_file_paths(&elf, id, root));
        candidates
            .filter_map(|path| Mapping::whole_file(&File::open(path).ok()?).ok())
            .find(|debug| parse(debug).is_some_and(|debug| debug.build_id().is_ok_and(|found| found == Some(id))))
    }

    /// Returns possible paths of the debug information: by build id, and by the name in the file (GDB manual, 18.3).
    fn debug_file_paths(&self, elf: &object::File<'_>, id: &[u8], root: &Path) -> Vec<PathBuf> {
        let debug = root.join(DEBUG_DIR);
        let mut paths = Vec::new();
        if let Some((first, rest)) = id.split_first() {
            let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
            paths.push(debug.join(format!(".build-id/{first:02x}/{rest}.debug")));
        }
        let link = elf.gnu_debuglink().ok().flatten().and_then(|(name, _)| std::str::from_utf8(name).ok());
        if let (Some(name), Some(dir)) = (link, self.path.parent()) {
            let dir = dir.strip_prefix("/").unwrap_or(dir);
            paths.extend([root.join(dir).join(name), root.join(dir).join(".debug").join(name)]);
            paths.push(debug.join(dir).join(name));
        }
        paths
    }
}

/// Parses an ELF file; `None` for any other file.
fn parse(mapping: &Mapping) -> Option<object::File<'_>> {
    const CLASS: usize = 4;
    const CLASS_32: u8 = 1;
    let bytes = mapping.as_bytes();
    match bytes.get(CLASS) {
        Some(&CLASS_32) => ElfFile32::parse(bytes).ok().map(object::File::Elf32),
        _ => ElfFile64::parse(bytes).ok().map(object::File::Elf64),
    }
}

/// Returns the address in the process that corresponds to address 0 of the file. The loader keeps the distances between
/// segments.
fn load_bias(elf: &object::File<'_>, regions: &[&Region]) -> Option<u64> {
    let page_start = |address: u64| address & !(rustix::param::page_size() as u64 - 1);
    let first = elf.segments().min_by_key(|segment| segment.address())?;
    let (offset, address) = (page_start(first.file_range().0), page_start(first.address()));
    let starts = regions.iter().filter(|region| region.offset == offset);
    let mut candidates = starts.map(|region| region.start.wrapping_sub(address));
    let fits = |bias: &u64| {
        let mut loaded = elf.segments().filter(|segment| segment.file_range().1 > 0);
        loaded.all(|segment| {
            let start = segment.address().wrapping_add(*bias);
            regions.iter().any(|region| (region.start..region.end).contains(&start))
        })
    };
    // Prefer a load address at which all segments are mapped, because the same file may also be mapped as data.
    candidates.clone().find(fits).or_else(|| candidates.next())
}

//! Variables and their fields in debug information (DWARF).

use std::borrow::Cow;
use std::rc::Rc;

use gimli::{
    DebuggingInformationEntry, DwarfSections, EndianSlice, Operation, RunTimeEndian, SectionId, constants as dw,
};
use object::{Object as _, ObjectSection as _};
use thiserror::Error;

use crate::symbols::names::{demangle, did_you_mean, is_qualified_match};
use crate::symbols::types::{Step, Type, resolve_reference, split_path};

pub(super) type Reader<'a> = EndianSlice<'a, RunTimeEndian>;
pub(super) type Dwarf<'a> = gimli::Dwarf<Reader<'a>>;
pub(super) type Unit<'a> = gimli::Unit<Reader<'a>>;
pub(super) type Entry<'a> = DebuggingInformationEntry<Reader<'a>>;

/// Place of a variable or field in an ELF file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct VariableLocation {
    /// Address in the file.
    pub(super) address: u64,
    /// Length in bytes, if known.
    pub(super) bytes: Option<u64>,
}

/// Reason why a field of a variable is not found.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum FieldError {
    /// Debug information that is damaged, or in a newer format.
    #[error("cannot read its debug information: {0}")]
    Format(String),
    /// Type without a field of that name.
    #[error("{of} has no field {field}{}", did_you_mean(.close))]
    NoField { of: String, field: String, close: Vec<String> },
    /// Path that leads through a number or a pointer.
    #[error(
        "cannot find {field}: {of} is {is}, so {field} has no fixed address; observe an address, as in \
         mem:PID:0x7f00/u64 (`gdb -p PID -batch -ex 'print &NAME'` prints it)"
    )]
    NoParts { of: String, is: &'static str, field: String },
    /// Index outside the array.
    #[error("{of} has {length} elements; the first is [0]")]
    Index { of: String, length: u64 },
    /// Array of several dimensions.
    #[error("{of} has several dimensions; name a place in bytes, as in {of}+16/u64")]
    Dimensions { of: String },
    /// Bit field, which has no address.
    #[error("{field} is a bit field; observe the word around it, by offset and width")]
    BitField { field: String },
    /// Type that another file describes.
    #[error("the description of {of} is in another file, which is not read; name a place in bytes, as in {of}+16/u64")]
    Elsewhere { of: String },
}

impl From<gimli::Error> for FieldError {
    fn from(error: gimli::Error) -> Self {
        FieldError::Format(error.to_string())
    }
}

/// Returns the places that `name` may mean: a variable, or fields of variables. Returns an empty list if no variable
/// matches.
pub(super) fn find_variables(elf: &object::File<'_>, name: &str) -> Result<Vec<VariableLocation>, FieldError> {
    let sections = load_needed_sections(elf)?;
    let endian = if elf.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
    let dwarf = sections.borrow(|section| EndianSlice::new(section, endian));
    let mut best = Best { variables: vec![], rest_len: usize::MAX };
    let heads = variable_prefixes(name);
    let mut units = dwarf.units();
    while let Some(header) = units.next()? {
        search_unit(&dwarf, Rc::new(dwarf.unit(header)?), &heads, &mut best)?;
    }
    let rest = &name[name.len() - best.rest_len.min(name.len())..];
    best.variables.into_iter().map(|variable| variable.locate_field(&dwarf, rest)).collect()
}

/// Loads the sections of debug information that are needed. Others, such as locations, calls and macros, are large and
/// often compressed.
fn load_needed_sections<'a>(elf: &object::File<'a>) -> Result<DwarfSections<Cow<'a, [u8]>>, FieldError> {
    const NEEDED: [SectionId; 8] = [
        SectionId::DebugAbbrev,
        SectionId::DebugAddr,
        SectionId::DebugInfo,
        // gimli needs this section because each unit names its source files in it.
        SectionId::DebugLine,
        SectionId::DebugLineStr,
        SectionId::DebugStr,
        SectionId::DebugStrOffsets,
        SectionId::DebugTypes,
    ];
    DwarfSections::load(|id| {
        let section = NEEDED.contains(&id).then(|| elf.section_by_name(id.name())).flatten();
        section.map_or(Ok(Cow::default()), |section| decompress_section(&section))
    })
}

/// Returns the bytes of a section, decompressed. The length that the section claims is allocated at once, so an
/// impossible claim is refused.
fn decompress_section<'a>(section: &object::Section<'a, '_>) -> Result<Cow<'a, [u8]>, FieldError> {
    /// Highest compression ratio that zlib reaches.
    const RATIO_MAX: u64 = 1032;
    let failed = |error: object::Error| FieldError::Format(error.to_string());
    let compressed = section.compressed_data().map_err(failed)?;
    if compressed.uncompressed_size > (compressed.data.len() as u64).saturating_mul(RATIO_MAX) {
        return Err(FieldError::Format(format!(
            "a section has an impossible length of {} bytes",
            compressed.uncompressed_size
        )));
    }
    compressed.decompress().map_err(failed)
}

/// Returns the prefixes of `name` that may be the variable's name, before a path of fields. Names in Go and names of
/// compiler-made copies contain dots themselves.
fn variable_prefixes(name: &str) -> Vec<&str> {
    let splits = name.char_indices().filter(|(_, letter)| matches!(letter, '.' | '[')).map(|(at, _)| at);
    let heads = splits.chain([name.len()]).map(|at| &name[..at]);
    heads.filter(|head| !head.is_empty()).collect()
}

/// Variables with the longest matching name so far.
struct Best<'a> {
    variables: Vec<Variable<'a>>,
    rest_len: usize,
}

struct Variable<'a> {
    name: String,
    address: u64,
    of: Option<Type<'a>>,
}

fn search_unit<'a>(
    dwarf: &Dwarf<'a>,
    unit: Rc<Unit<'a>>,
    prefixes: &[&str],
    best: &mut Best<'a>,
) -> Result<(), FieldError> {
    let whole = prefixes.last().map_or(0, |head| head.len());
    let mut entries = unit.entries();
    while let Some(entry) = entries.next_dfs()? {
        if entry.tag() != dw::DW_TAG_variable {
            continue;
        }
        let Some(address) = static_variable_address(dwarf, &unit, entry)? else { continue };
        let described = find_declaration(dwarf, &unit, entry)?;
        let Some(head) = matching_prefix(dwarf, &unit, entry, described.as_ref(), prefixes) else { continue };
        let rest_len = whole - head.len();
        if rest_len < best.rest_len {
            *best = Best { variables: vec![], rest_len };
        }
        if rest_len == best.rest_len {
            let of = match (Type::from_entry(dwarf, &unit, entry)?, described) {
                (None, Some((unit, entry))) => Type::from_entry(dwarf, &unit, &entry)?,
                (found, _) => found,
            };
            best.variables.push(Variable { name: head.to_owned(), address, of });
        }
    }
    Ok(())
}

type Declaration<'a> = (Rc<Unit<'a>>, Entry<'a>);

/// Returns the entry that declares the variable of `entry`, if the declaration is a separate entry. A static class
/// member is declared in the class and defined elsewhere. After link-time optimisation, `entry` itself has only the
/// address.
fn find_declaration<'a>(
    dwarf: &Dwarf<'a>,
    unit: &Rc<Unit<'a>>,
    entry: &Entry<'a>,
) -> Result<Option<Declaration<'a>>, FieldError> {
    let [declared, origin] = [dw::DW_AT_specification, dw::DW_AT_abstract_origin].map(|other| entry.attr_value(other));
    let Some(value) = declared.or(origin) else { return Ok(None) };
    let Some((unit, at)) = resolve_reference(dwarf, unit, &value)? else { return Ok(None) };
    let entry = unit.entry(at)?;
    Ok(Some((unit, entry)))
}

/// Returns the longest of `prefixes` that is a name of the entry.
fn matching_prefix<'h>(
    dwarf: &Dwarf<'_>,
    unit: &Unit<'_>,
    entry: &Entry<'_>,
    declaration: Option<&Declaration<'_>>,
    prefixes: &[&'h str],
) -> Option<&'h str> {
    let mut names = entry_names(dwarf, unit, entry);
    if let Some((unit, entry)) = declaration {
        names.extend(entry_names(dwarf, unit, entry));
    }
    prefixes.iter().rev().find(|head| names.iter().any(|name| is_qualified_match(name, head))).copied()
}

/// Returns the entry's name in the source, and its name with namespaces.
fn entry_names(dwarf: &Dwarf<'_>, unit: &Unit<'_>, entry: &Entry<'_>) -> Vec<String> {
    let attributes = [dw::DW_AT_name, dw::DW_AT_linkage_name].into_iter();
    let values = attributes.filter_map(|attribute| entry.attr_value(attribute));
    let texts = values.filter_map(|value| Some(dwarf.attr_string(unit, value).ok()?.to_string_lossy()));
    texts.map(|text| demangle(&text).into_owned()).collect()
}

/// Returns the address of a variable that is always in the same place; `None` for others.
fn static_variable_address(dwarf: &Dwarf<'_>, unit: &Unit<'_>, entry: &Entry<'_>) -> Result<Option<u64>, FieldError> {
    let location = entry.attr_value(dw::DW_AT_location).and_then(|value| value.exprloc_value());
    let Some(location) = location else { return Ok(None) };
    let mut operations = location.operations(unit.encoding());
    let address = match operations.next()? {
        Some(Operation::Address { address }) => address,
        Some(Operation::AddressIndex { index }) => dwarf.address(unit, index)?,
        _ => return Ok(None),
    };
    // Further operations would make the address thread-local or computed.
    Ok(operations.next()?.is_none().then_some(address))
}

impl<'a> Variable<'a> {
    /// Returns the place of the field to which `path` leads, such as `.queues[2].length`.
    fn locate_field(self, dwarf: &Dwarf<'a>, path: &str) -> Result<VariableLocation, FieldError> {
        let (mut name, mut address, mut of) = (self.name, self.address, self.of);
        for step in split_path(path) {
            let known = of.ok_or_else(|| FieldError::Elsewhere { of: name.clone() })?.resolved(dwarf, &name)?;
            let (offset, part) = known.follow_step(dwarf, &name, step)?;
            address = address.wrapping_add(offset);
            name = match step {
                Step::Field(field) => format!("{name}.{field}"),
                Step::Index(index) => format!("{name}[{index}]"),
            };
            of = part;
        }
        let bytes = of.and_then(|of| of.resolved(dwarf, &name).ok()?.byte_length(dwarf));
        Ok(VariableLocation { address, bytes })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use object::read::elf::ElfFile64;
    use proptest::prelude::*;
    use proptest::test_runner::TestRunner;

    use super::*;

    /// Compiles a program with debug information. Without a compiler, prints a message and returns `None`.
    fn compile_fixture_program() -> Option<Vec<u8>> {
        let dir = tempfile::tempdir().unwrap();
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/channels");
        let mut compiler = Command::new("cc");
        compiler.arg("-g").arg("-o").arg(dir.path().join("program"));
        let Ok(status) = compiler.args(["variables.c", "twin.c"].map(|name| fixtures.join(name))).status() else {
            sidelane_testing::skip("there is no compiler cc here");
            return None;
        };
        assert!(status.success(), "cc: {status}");
        Some(std::fs::read(dir.path().join("program")).unwrap())
    }

    fn variable_lengths(program: &[u8], name: &str) -> Result<Vec<Option<u64>>, FieldError> {
        let elf = ElfFile64::parse(program).map_err(|error| FieldError::Format(error.to_string()))?;
        Ok(find_variables(&object::File::Elf64(elf), name)?.into_iter().map(|found| found.bytes).collect())
    }

    #[test]
    fn lengths_of_variables_and_fields_are_found() {
        let Some(program) = compile_fixture_program() else { return };
        let bytes = |name| variable_lengths(&program, name).unwrap();
        assert_eq!(bytes("server.queues[1].total"), [Some(8)]);
        assert_eq!(bytes("server.queues"), [Some(48)]);
        assert_eq!(bytes("server.first"), [Some(8)]);
        assert_eq!([bytes("twin").len(), bytes("no_such").len()], [2, 0]);
    }

    #[test]
    fn damaged_debug_information_is_read_without_a_panic() {
        let Some(program) = compile_fixture_program() else { return };
        let elf = ElfFile64::<object::Endianness>::parse(&*program).unwrap();
        let range = |name| elf.section_by_name(name).unwrap().file_range().unwrap();
        let parts = [".debug_info", ".debug_abbrev"].map(range);
        let damage = proptest::collection::vec((0..parts.len(), any::<u64>(), any::<u8>()), 1..20);
        let run = TestRunner::new(ProptestConfig::with_cases(400)).run(&damage, |damage| {
            let mut program = program.clone();
            for (part, at, byte) in damage {
                let (start, length) = parts[part];
                program[(start + at % length) as usize] = byte;
            }
            let _ = variable_lengths(&program, "server.queues[2].total");
            Ok(())
        });
        run.unwrap();
    }

    #[test]
    fn fuzzed_debug_information_is_read_or_refused() {
        sidelane_testing::fuzz("elf", |bytes| {
            for name in ["server.queues[2].total", "server", "twin", "app::hits", "hits.x"] {
                let _ = variable_lengths(bytes, name);
            }
        });
    }
}

//! Types in debug information: offset and length of a field or an element in a variable.

use std::rc::Rc;

use gimli::{AttributeValue, DebugInfoOffset, DebugTypeSignature, Operation, UnitOffset, UnitType, constants as dw};

use crate::symbols::dwarf::{Dwarf, Entry, FieldError, Reader, Unit};
use crate::symbols::names::closest;

/// Limit of a chain of type aliases; a longer chain is a loop.
const ALIASES_MAX: usize = 64;
/// Limit of nested arrays; a deeper nesting is a loop.
const DEPTH_MAX: usize = 32;
/// Limit of a type's unnamed parts. A type with more is a loop, or malicious: nested parts can double at each level.
const UNNAMED_MAX: usize = 256;

/// One step of a path into a variable.
#[derive(Clone, Copy)]
pub(super) enum Step<'a> {
    Field(&'a str),
    Index(u64),
}

/// Returns the steps of a path such as `.queues[2].length`. Text in brackets that is not a number counts as the name of
/// a field, which does not exist.
pub(super) fn split_path(path: &str) -> Vec<Step<'_>> {
    let (mut steps, mut rest) = (Vec::new(), path);
    while !rest.is_empty() {
        let bracket = rest.strip_prefix('[').and_then(|rest| rest.split_once(']'));
        if let Some((Ok(index), after)) = bracket.map(|(index, after)| (index.parse(), after)) {
            steps.push(Step::Index(index));
            rest = after;
        } else {
            let name = rest.strip_prefix('.').unwrap_or(rest);
            let end = name.find(['.', '[']).filter(|end| *end > 0).unwrap_or(name.len());
            steps.push(Step::Field(&name[..end]));
            rest = &name[end..];
        }
    }
    steps
}

/// Type in debug information, by its entry.
#[derive(Clone)]
pub(super) struct Type<'a> {
    unit: Rc<Unit<'a>>,
    at: UnitOffset,
}

/// Offset of a field or element in bytes, with its type if the debug information describes it.
type Part<'a> = (u64, Option<Type<'a>>);

impl<'a> Type<'a> {
    /// Returns the type of the object that `entry` describes.
    pub(super) fn from_entry(
        dwarf: &Dwarf<'a>,
        unit: &Rc<Unit<'a>>,
        entry: &Entry<'a>,
    ) -> Result<Option<Self>, FieldError> {
        let Some(value) = entry.attr_value(dw::DW_AT_type) else { return Ok(None) };
        Ok(resolve_reference(dwarf, unit, &value)?.map(|(unit, at)| Self { unit, at }))
    }

    /// Returns the type without aliases, `const` and similar qualifiers. `name` is the variable's name, for errors.
    pub(super) fn resolved(mut self, dwarf: &Dwarf<'a>, name: &str) -> Result<Self, FieldError> {
        let elsewhere = || FieldError::Elsewhere { of: name.to_owned() };
        for _ in 0..ALIASES_MAX {
            let entry = self.entry()?;
            match entry.tag() {
                dw::DW_TAG_typedef
                | dw::DW_TAG_const_type
                | dw::DW_TAG_volatile_type
                | dw::DW_TAG_restrict_type
                | dw::DW_TAG_atomic_type => {
                    self = Type::from_entry(dwarf, &self.unit, &entry)?.ok_or_else(elsewhere)?
                }
                _ => match entry.attr_value(dw::DW_AT_signature) {
                    Some(signature) => {
                        let (unit, at) = resolve_reference(dwarf, &self.unit, &signature)?.ok_or_else(elsewhere)?;
                        self = Self { unit, at };
                    }
                    None if entry.has_attr(dw::DW_AT_declaration) => return Err(elsewhere()),
                    None => return Ok(self),
                },
            }
        }
        Err(elsewhere())
    }

    /// Returns the part to which one step of a path leads; `name` is the path so far.
    pub(super) fn follow_step(&self, dwarf: &Dwarf<'a>, name: &str, step: Step<'_>) -> Result<Part<'a>, FieldError> {
        let of = name.to_owned();
        let tag = self.entry()?.tag();
        match (step, tag) {
            (Step::Field(field), dw::DW_TAG_structure_type | dw::DW_TAG_class_type | dw::DW_TAG_union_type) => {
                let mut names = Vec::new();
                let found = self.field(dwarf, field, &mut names, &mut UNNAMED_MAX.clone())?;
                let close = || match closest(field, names.iter().map(String::as_str)) {
                    close if close.is_empty() => names.iter().take(8).cloned().collect(),
                    close => close,
                };
                found.ok_or_else(|| FieldError::NoField { of, field: field.to_owned(), close: close() })
            }
            (Step::Index(index), dw::DW_TAG_array_type) => self.array_element(dwarf, of, index),
            (Step::Field(field), _) => Err(FieldError::NoParts { of, is: describe_tag(tag), field: field.to_owned() }),
            (Step::Index(index), _) => {
                Err(FieldError::NoParts { of, is: describe_tag(tag), field: format!("[{index}]") })
            }
        }
    }

    /// Returns a field of the type, also of its base classes and its unnamed members. Searches at most `searches_left`
    /// of these parts. Adds the names of the other fields to `names`.
    fn field(
        &self,
        dwarf: &Dwarf<'a>,
        field: &str,
        names: &mut Vec<String>,
        searches_left: &mut usize,
    ) -> Result<Option<Part<'a>>, FieldError> {
        *searches_left = searches_left.checked_sub(1).ok_or_else(|| FieldError::Elsewhere { of: field.to_owned() })?;
        let mut tree = self.unit.entries_tree(Some(self.at))?;
        let mut children = tree.root()?.children();
        while let Some(child) = children.next()? {
            let entry = child.entry();
            let is_part = matches!(entry.tag(), dw::DW_TAG_member | dw::DW_TAG_inheritance);
            if !is_part || entry.has_attr(dw::DW_AT_external) {
                continue;
            }
            let name = entry.attr_value(dw::DW_AT_name).map(|name| dwarf.attr_string(&self.unit, name)).transpose()?;
            match name.map(|name| name.to_string_lossy().into_owned()) {
                Some(name) if entry.tag() == dw::DW_TAG_member => {
                    if name == field {
                        return Ok(Some((
                            self.member_offset(entry, field)?,
                            Type::from_entry(dwarf, &self.unit, entry)?,
                        )));
                    }
                    names.push(name);
                }
                _ => {
                    let Some(part) = Type::from_entry(dwarf, &self.unit, entry)? else { continue };
                    if let Some((offset, of)) =
                        part.resolved(dwarf, field)?.field(dwarf, field, names, searches_left)?
                    {
                        return Ok(Some((self.member_offset(entry, field)?.wrapping_add(offset), of)));
                    }
                }
            }
        }
        Ok(None)
    }

    fn member_offset(&self, member: &Entry<'a>, field: &str) -> Result<u64, FieldError> {
        if member.has_attr(dw::DW_AT_bit_size) || member.has_attr(dw::DW_AT_data_bit_offset) {
            return Err(FieldError::BitField { field: field.to_owned() });
        }
        // A field without a location is at the start, as in a union.
        let Some(value) = member.attr_value(dw::DW_AT_data_member_location) else { return Ok(0) };
        let computed = || {
            let expression = value.exprloc_value()?;
            match expression.operations(self.unit.encoding()).next().ok()?? {
                Operation::PlusConstant { value } => Some(value),
                _ => None,
            }
        };
        let offset = value.udata_value().or_else(computed);
        offset.ok_or_else(|| FieldError::Elsewhere { of: field.to_owned() })
    }

    fn array_element(&self, dwarf: &Dwarf<'a>, path: String, index: u64) -> Result<Part<'a>, FieldError> {
        let lengths = self.array_lengths()?;
        match lengths[..] {
            [Some(length)] if index >= length => return Err(FieldError::Index { of: path, length }),
            [_] => {}
            _ => return Err(FieldError::Dimensions { of: path }),
        }
        let element = Type::from_entry(dwarf, &self.unit, &self.entry()?)?;
        let bytes = element.clone().and_then(|element| element.resolved(dwarf, &path).ok()?.byte_length(dwarf));
        let bytes = bytes.ok_or(FieldError::Elsewhere { of: path })?;
        Ok((index.saturating_mul(bytes), element))
    }

    /// Returns the lengths of an array's dimensions, if they are fixed.
    fn array_lengths(&self) -> Result<Vec<Option<u64>>, FieldError> {
        let mut tree = self.unit.entries_tree(Some(self.at))?;
        let mut children = tree.root()?.children();
        let mut lengths = Vec::new();
        while let Some(child) = children.next()? {
            let entry = child.entry();
            if entry.tag() == dw::DW_TAG_subrange_type {
                let count = entry.attr_value(dw::DW_AT_count).and_then(|value| value.udata_value());
                let last = entry.attr_value(dw::DW_AT_upper_bound).and_then(|value| value.udata_value());
                lengths.push(count.or_else(|| last?.checked_add(1)));
            }
        }
        Ok(lengths)
    }

    /// Returns the length of the type in bytes, if it is fixed.
    pub(super) fn byte_length(&self, dwarf: &Dwarf<'a>) -> Option<u64> {
        self.byte_length_to_depth(dwarf, DEPTH_MAX)
    }

    fn byte_length_to_depth(&self, dwarf: &Dwarf<'a>, depth: usize) -> Option<u64> {
        let depth = depth.checked_sub(1)?;
        let entry = self.entry().ok()?;
        let said = entry.attr_value(dw::DW_AT_byte_size).and_then(|value| value.udata_value());
        match entry.tag() {
            _ if said.is_some() => said,
            dw::DW_TAG_pointer_type | dw::DW_TAG_reference_type => Some(self.unit.encoding().address_size.into()),
            dw::DW_TAG_array_type => {
                let element = Type::from_entry(dwarf, &self.unit, &entry).ok()??.resolved(dwarf, "").ok()?;
                let element = element.byte_length_to_depth(dwarf, depth)?;
                self.array_lengths().ok()?.into_iter().try_fold(element, |bytes, length| bytes.checked_mul(length?))
            }
            _ => None,
        }
    }

    fn entry(&self) -> Result<Entry<'a>, FieldError> {
        Ok(self.unit.entry(self.at)?)
    }
}

fn describe_tag(tag: gimli::DwTag) -> &'static str {
    match tag {
        dw::DW_TAG_pointer_type | dw::DW_TAG_reference_type => "a pointer",
        dw::DW_TAG_array_type => "an array",
        dw::DW_TAG_structure_type | dw::DW_TAG_class_type => "a structure",
        dw::DW_TAG_union_type => "a union",
        _ => "a number",
    }
}

/// Returns the entry that an attribute refers to, in its unit or in another unit of the file.
pub(super) fn resolve_reference<'a>(
    dwarf: &Dwarf<'a>,
    unit: &Rc<Unit<'a>>,
    value: &AttributeValue<Reader<'a>>,
) -> Result<Option<(Rc<Unit<'a>>, UnitOffset)>, FieldError> {
    match value {
        AttributeValue::UnitRef(at) => Ok(Some((unit.clone(), *at))),
        AttributeValue::DebugInfoRef(at) => find_unit_entry(dwarf, *at),
        AttributeValue::DebugTypesRef(signature) => find_type_unit_entry(dwarf, *signature),
        _ => Ok(None),
    }
}

fn find_unit_entry<'a>(
    dwarf: &Dwarf<'a>,
    offset: DebugInfoOffset,
) -> Result<Option<(Rc<Unit<'a>>, UnitOffset)>, FieldError> {
    let mut units = dwarf.units();
    while let Some(header) = units.next()? {
        if let Some(at) = offset.to_unit_offset(&header) {
            return Ok(Some((Rc::new(dwarf.unit(header)?), at)));
        }
    }
    Ok(None)
}

/// Returns a type in a type unit, to which compilers move types that several units share.
fn find_type_unit_entry<'a>(
    dwarf: &Dwarf<'a>,
    signature: DebugTypeSignature,
) -> Result<Option<(Rc<Unit<'a>>, UnitOffset)>, FieldError> {
    // DWARF version 5 moved type units to the section of the other units.
    for header in dwarf.units().chain(dwarf.type_units()) {
        let header = header?;
        match header.type_() {
            UnitType::Type { type_signature, type_offset } if type_signature == signature => {
                return Ok(Some((Rc::new(dwarf.unit(header)?), type_offset)));
            }
            _ => {}
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use gimli::{RunTimeEndian, SectionId};

    use super::*;

    fn format_steps(path: &str) -> Vec<String> {
        let show = |step: &Step| match step {
            Step::Field(field) => format!(".{field}"),
            Step::Index(index) => format!("[{index}]"),
        };
        split_path(path).iter().map(show).collect()
    }

    #[test]
    fn path_is_split_into_steps() {
        assert_eq!(format_steps(".queues[2].length"), [".queues", "[2]", ".length"]);
        assert_eq!(format_steps("[1][2]"), ["[1]", "[2]"]);
        assert!(format_steps("").is_empty());
    }

    #[test]
    fn malformed_path_becomes_an_unknown_field() {
        assert_eq!(format_steps("[x].a"), [".[x].a"]);
        assert_eq!(format_steps(".a..b["), [".a", "..b["]);
    }

    /// Each of 40 types has two unnamed members of the next type, so the first type has 2^40 parts.
    #[test]
    fn search_in_an_exponential_type_is_given_up() {
        const TYPES: u32 = 40;
        /// Length of a unit's head and its own entry, in bytes.
        const FIRST: u32 = 12;
        /// Length of a type with two members, in bytes.
        const BYTES: u32 = 12;
        let mut info = vec![0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 8, 1];
        for number in 0..TYPES {
            let next = (FIRST + (number + 1) * BYTES).to_le_bytes();
            info.push(2);
            (0..2).for_each(|_| info.extend([&[3][..], &next].concat()));
            info.push(0);
        }
        info.extend([4, 0]);
        let length = (info.len() - 4) as u32;
        info[..4].copy_from_slice(&length.to_le_bytes());
        // Abbreviations of a unit, a type with members, a member with a type, and a type without members.
        let abbreviations: &[u8] =
            &[1, 0x11, 1, 0, 0, 2, 0x13, 1, 0, 0, 3, 0x0d, 0, 0x49, 0x13, 0, 0, 4, 0x13, 0, 0, 0, 0];
        let section = |id| match id {
            SectionId::DebugInfo => &info[..],
            SectionId::DebugAbbrev => abbreviations,
            _ => &[],
        };
        let dwarf = Dwarf::load(|id| Ok::<_, gimli::Error>(Reader::new(section(id), RunTimeEndian::Little))).unwrap();
        let unit = Rc::new(dwarf.unit(dwarf.units().next().unwrap().unwrap()).unwrap());
        let found = Type { unit, at: UnitOffset(FIRST as usize) }.follow_step(&dwarf, "deep", Step::Field("x"));
        assert!(matches!(found, Err(FieldError::Elsewhere { .. })), "{:?}", found.err());
    }
}

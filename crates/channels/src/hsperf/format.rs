//! The file in which HotSpot keeps its counters (`PerfDataPrologue` and `PerfDataEntry` of
//! perfMemory.hpp, version 2), parsed from untrusted bytes.

use thiserror::Error;

const MAGIC: [u8; 4] = [0xca, 0xfe, 0xc0, 0xc0];
const VERSION: u8 = 2;
const NATIVE_ORDER: u8 = cfg!(target_endian = "little") as u8;

/// Offset in bytes of the field `byte_order` in the prologue of the counter file. The next constants are the offsets of
/// other fields.
const BYTE_ORDER: usize = 4;
const MAJOR_VERSION: usize = 5;
const ACCESSIBLE: usize = 7;
const USED: usize = 8;
const ENTRY_OFFSET: usize = 24;
const NUM_ENTRIES: usize = 28;

/// Offset in bytes of the field `entry_length` in an entry of the counter file. The next constants are the offsets of
/// other fields.
const ENTRY_LENGTH: usize = 0;
const NAME_OFFSET: usize = 4;
const VECTOR_LENGTH: usize = 8;
const DATA_TYPE: usize = 12;
const UNITS: usize = 14;
const VARIABILITY: usize = 15;
const DATA_OFFSET: usize = 16;
const ENTRY_HEAD_BYTES: usize = 20;
const LONG_BYTES: usize = 8;

/// Counter of HotSpot, as an entry of its file describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name of the counter, such as `sun.rt.safepoints`.
    pub name: String,
    /// Offset of the counter's value in the file, in bytes.
    pub offset: usize,
    /// Type of the counter's value.
    pub data: Data,
    /// Unit of the counter's value.
    pub units: Units,
    /// Way in which the counter's value changes.
    pub variability: Variability,
}

/// Type of a counter's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// Integer of 64 bits, aligned.
    Long,
    /// Text that ends with a zero byte, in a field of this number of bytes.
    Text(usize),
    /// Type that HotSpot does not use today.
    Other,
}

/// Unit of a counter's value, as HotSpot names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Units {
    None,
    Bytes,
    /// Ticks of HotSpot's clock, `sun.os.hrt.frequency` per second.
    Ticks,
    Events,
    Text,
    Hertz,
}

/// Way in which a counter's value changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variability {
    /// Constant value.
    Constant,
    /// Value that only rises.
    Monotonic,
    /// Value that rises and falls.
    Variable,
}

/// Reason why bytes are not HotSpot's counters.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum FormatError {
    /// File that is too short, or of another format.
    #[error("it does not begin like a file of HotSpot's counters")]
    Magic,
    /// File from a machine with another byte order.
    #[error("its byte order is not this machine's")]
    ByteOrder,
    /// File of a format version that no JVM since Java 5 writes.
    #[error("it is of version {0}, not {VERSION}")]
    Version(u8),
    /// File of a JVM that is still starting.
    #[error("the JVM has not filled it in yet; try again in a moment")]
    NotReady,
    /// Invalid entry of the file.
    #[error("entry {number}, at byte {offset}, is invalid: {what}")]
    Entry {
        /// Index of the entry, from 0 on.
        number: usize,
        /// Offset of the entry in the file, in bytes.
        offset: usize,
        /// Description of what is wrong.
        what: &'static str,
    },
}

/// Returns all counters in `bytes`. A JVM adds counters while it runs; a counter that is just being added is left out.
pub fn parse(bytes: &[u8]) -> Result<Vec<Entry>, FormatError> {
    check_header(bytes)?;
    let (first, count) = (read_number(bytes, ENTRY_OFFSET), read_number(bytes, NUM_ENTRIES));
    let (Some(mut offset), Some(count)) = (first, count) else { return Err(FormatError::Magic) };
    // Parse only the bytes that the JVM has allocated. Their number `used` is not trusted: it may exceed the file.
    let used = read_number(bytes, USED).map_or(bytes.len(), |used| used.min(bytes.len()));
    let bytes = &bytes[..used];
    let mut entries = Vec::new();
    for number in 0..count {
        let rest = bytes.get(offset..).unwrap_or_default();
        let Some(length) = self::read_number(rest, ENTRY_LENGTH).filter(|length| *length > 0) else { break };
        let wrong = |what| FormatError::Entry { number, offset, what };
        let entry = rest.get(..length).ok_or(wrong("it extends past the end of the file"))?;
        entries.push(parse_entry(entry, offset).map_err(wrong)?);
        offset += length;
    }
    Ok(entries)
}

fn check_header(bytes: &[u8]) -> Result<(), FormatError> {
    match bytes.get(..NUM_ENTRIES + 4) {
        Some(head) if head[..4] != MAGIC => Err(FormatError::Magic),
        None => Err(FormatError::Magic),
        Some(head) if head[BYTE_ORDER] != NATIVE_ORDER => Err(FormatError::ByteOrder),
        Some(head) if head[MAJOR_VERSION] != VERSION => Err(FormatError::Version(head[MAJOR_VERSION])),
        Some(head) if head[ACCESSIBLE] == 0 => Err(FormatError::NotReady),
        Some(_) => Ok(()),
    }
}

/// Parses an entry that begins at byte `start` of the file.
fn parse_entry(entry: &[u8], start: usize) -> Result<Entry, &'static str> {
    let head = entry.get(..ENTRY_HEAD_BYTES).ok_or("it is shorter than its own head")?;
    let name = read_number(head, NAME_OFFSET)
        .and_then(|at| entry.get(at..))
        .and_then(zero_terminated_text)
        .ok_or("its name")?;
    let data_offset = read_number(head, DATA_OFFSET).filter(|at| *at < entry.len()).ok_or("its value")?;
    let vector_length = read_number(head, VECTOR_LENGTH).ok_or("its length")?;
    let room = entry.len() - data_offset;
    let data = match (head[DATA_TYPE], vector_length) {
        (b'J', 0) if room < LONG_BYTES => return Err("its value"),
        // An unaligned value could be read in the middle of a store, so it is refused.
        (b'J', 0) if !(start + data_offset).is_multiple_of(LONG_BYTES) => return Err("its value is not aligned"),
        (b'J', 0) => Data::Long,
        (b'B', length) if length > room => return Err("its text"),
        (b'B', length) if length > 0 => Data::Text(length),
        _ => Data::Other,
    };
    let (units, variability) = (units_from_code(head[UNITS]), variability_from_code(head[VARIABILITY]));
    Ok(Entry { name, offset: start + data_offset, data, units, variability })
}

/// Returns the text at the start of `bytes` up to its zero byte; `None` without a zero byte.
pub(super) fn zero_terminated_text(bytes: &[u8]) -> Option<String> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
}

fn read_number(bytes: &[u8], offset: usize) -> Option<usize> {
    let bytes = bytes.get(offset..offset + 4)?.try_into().expect("four bytes");
    usize::try_from(i32::from_ne_bytes(bytes)).ok()
}

fn units_from_code(code: u8) -> Units {
    match code {
        2 => Units::Bytes,
        3 => Units::Ticks,
        4 => Units::Events,
        5 => Units::Text,
        6 => Units::Hertz,
        _ => Units::None,
    }
}

fn variability_from_code(code: u8) -> Variability {
    match code {
        1 => Variability::Constant,
        2 => Variability::Monotonic,
        _ => Variability::Variable,
    }
}

/// Counter files for tests.
#[cfg(any(test, feature = "test-file"))]
pub mod test_file {
    use super::*;

    /// Returns the bytes of a file as HotSpot writes it: each value follows its name, with the least padding.
    pub(super) fn counter_file(entries: &[(&str, u8, &[u8], u8)]) -> Vec<u8> {
        let mut bytes = vec![0xca, 0xfe, 0xc0, 0xc0, NATIVE_ORDER, VERSION, 0, 1];
        bytes.extend([0; 16]);
        bytes.extend(32_i32.to_ne_bytes());
        bytes.extend((entries.len() as i32).to_ne_bytes());
        for (name, data_type, value, variability) in entries {
            let named = ENTRY_HEAD_BYTES + name.len() + 1;
            let data = if *data_type == b'J' { named.next_multiple_of(8) } else { named };
            let length = (data + value.len()).next_multiple_of(8);
            let vector_length = if *data_type == b'J' { 0 } else { value.len() };
            for word in [length, ENTRY_HEAD_BYTES, vector_length] {
                bytes.extend((word as i32).to_ne_bytes());
            }
            bytes.extend([*data_type, 1, 4, *variability]);
            bytes.extend((data as i32).to_ne_bytes());
            bytes.extend(name.as_bytes());
            bytes.resize(bytes.len() + data - named + 1, 0);
            bytes.extend(*value);
            bytes.resize(bytes.len().next_multiple_of(8), 0);
        }
        let used = bytes.len() as i32;
        bytes[USED..USED + 4].copy_from_slice(&used.to_ne_bytes());
        bytes
    }

    /// Returns the bytes of a counter file with these counters.
    pub fn counter_file_of_numbers(numbers: &[(String, u64)]) -> Vec<u8> {
        let values: Vec<[u8; 8]> = numbers.iter().map(|(_, number)| number.to_ne_bytes()).collect();
        let mut entries = Vec::new();
        for ((name, _), value) in numbers.iter().zip(&values) {
            entries.push((name.as_str(), b'J', &value[..], 2));
        }
        counter_file(&entries)
    }

    /// Returns the offset of a counter's value in the bytes of a counter file.
    pub fn counter_value_offset(bytes: &[u8], name: &str) -> usize {
        let entries = parse(bytes).expect("a file of counters");
        entries.iter().find(|entry| entry.name == name).expect("such a counter").offset
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::test_file::counter_file;
    use super::*;

    fn sample_counter_file() -> Vec<u8> {
        counter_file(&[
            ("sun.rt.safepoints", b'J', &7_u64.to_ne_bytes(), 2),
            ("sun.gc.cause", b'B', b"No GC\0\0\0\0\0\0", 3),
        ])
    }

    #[test]
    fn counters_are_parsed_with_name_type_and_offset() {
        let bytes = sample_counter_file();
        let entries = parse(&bytes).unwrap();
        let [safepoints, cause] = &entries[..] else { panic!("{entries:?}") };
        assert_eq!((safepoints.name.as_str(), safepoints.data), ("sun.rt.safepoints", Data::Long));
        assert_eq!((safepoints.units, safepoints.variability), (Units::Events, Variability::Monotonic));
        assert_eq!(bytes[safepoints.offset..][..8], 7_u64.to_ne_bytes());
        assert_eq!((cause.name.as_str(), cause.data), ("sun.gc.cause", Data::Text(11)));
        assert_eq!(zero_terminated_text(&bytes[cause.offset..]).unwrap(), "No GC");
    }

    #[test]
    fn malformed_hsperf_file_is_refused_with_the_reason() {
        let with = |at: usize, byte: u8| {
            let mut bytes = sample_counter_file();
            bytes[at] = byte;
            parse(&bytes).unwrap_err()
        };
        assert_eq!(parse(b""), Err(FormatError::Magic));
        assert_eq!(with(0, 0), FormatError::Magic);
        assert_eq!(with(BYTE_ORDER, 1 - NATIVE_ORDER), FormatError::ByteOrder);
        assert_eq!(with(MAJOR_VERSION, 1), FormatError::Version(1));
        assert_eq!(with(ACCESSIBLE, 0), FormatError::NotReady);
        assert_eq!(with(32 + DATA_OFFSET, 41).to_string(), "entry 0, at byte 32, is invalid: its value");
    }

    #[test]
    fn incomplete_last_entry_is_left_out() {
        let mut bytes = sample_counter_file();
        bytes.resize(bytes.len() + 64, 0);
        let used = bytes.len() as i32;
        bytes[USED..USED + 4].copy_from_slice(&used.to_ne_bytes());
        bytes[NUM_ENTRIES] += 1;
        assert_eq!(parse(&bytes).unwrap().len(), 2);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn damaged_file_gives_no_counter_beyond_its_end(
            damage in proptest::collection::vec((0_usize..400, any::<u8>()), 1..8), cut in 0_usize..400
        ) {
            let mut bytes = sample_counter_file();
            for (at, byte) in damage {
                let at = at % bytes.len();
                bytes[at] = byte;
            }
            bytes.truncate(bytes.len() - cut.min(bytes.len()) / 4);
            for entry in parse(&bytes).unwrap_or_default() {
                let length = match entry.data {
                    Data::Long => LONG_BYTES,
                    Data::Text(length) => length,
                    Data::Other => 0,
                };
                prop_assert!(entry.offset + length <= bytes.len());
                prop_assert!(entry.data != Data::Long || entry.offset % LONG_BYTES == 0);
            }
        }
    }

    #[test]
    fn fuzzed_counter_files_give_no_counter_beyond_their_end() {
        sidelane_testing::fuzz("hsperf", |bytes| {
            for entry in parse(bytes).unwrap_or_default() {
                let length = match entry.data {
                    Data::Long => LONG_BYTES,
                    Data::Text(length) => length,
                    Data::Other => 0,
                };
                assert!(entry.offset + length <= bytes.len(), "{entry:?}");
                assert!(entry.data != Data::Long || entry.offset % LONG_BYTES == 0, "{entry:?}");
                let _ = zero_terminated_text(&bytes[entry.offset..]);
            }
        });
    }
}

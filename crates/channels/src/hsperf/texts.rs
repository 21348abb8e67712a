//! HotSpot's texts as tags: `sun.gc.cause` names the collector's current activity.
//!
//! HotSpot puts a text right after its name, so the text is not aligned. One atomic load reaches only the aligned bytes
//! in it: for `sun.gc.cause`, eight bytes from the eighth letter on. Those bytes distinguish nearly all causes
//! (`G1 Evac[uation P]ause`); otherwise the meaning lists all causes with these bytes.

use crate::Width;

/// Causes of a collection in HotSpot 8 to 25 (gcCause.cpp).
const CAUSES: [&str; 28] = [
    "No GC",
    "System.gc()",
    "Allocation Failure",
    "G1 Evacuation Pause",
    "G1 Preventive Collection",
    "G1 Compaction Pause",
    "G1 Humongous Allocation",
    "G1 Periodic Collection",
    "Metadata GC Threshold",
    "Metadata GC Clear Soft References",
    "CodeCache GC Threshold",
    "CodeCache GC Aggressive",
    "GCLocker Initiated GC",
    "Heap Inspection Initiated GC",
    "Heap Dump Initiated GC",
    "JvmtiEnv ForceGarbageCollection",
    "Diagnostic Command",
    "Ergonomics",
    "Last ditch collection",
    "Tenured Generation Full",
    "Concurrent GC",
    "Upgrade To Full GC",
    "Update Allocation Context Stats",
    "WhiteBox Initiated Young GC",
    "WhiteBox Initiated Concurrent Mark",
    "WhiteBox Initiated Full GC",
    "Full GCAlot",
    "ILLEGAL VALUE - last gc cause - ILLEGAL VALUE",
];

/// Causes of a collection that only ZGC has. From the eighth letter on, each of them is equal to another cause, so one
/// load cannot distinguish the two.
const CAUSES_OF_ZGC: [&str; 6] = ["Timer", "Warmup", "Allocation Rate", "Allocation Stall", "Proactive", "High Usage"];

/// Returns the causes of a collection that a JVM may name.
pub(super) fn gc_causes(has_zgc: bool) -> impl Iterator<Item = &'static str> {
    CAUSES.into_iter().chain(CAUSES_OF_ZGC.into_iter().filter(move |_| has_zgc))
}

/// Part of a text that one load reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TextPart {
    /// Number of letters of the text before this part.
    pub(super) skip: usize,
    /// Number of letters in this part.
    pub(super) width: Width,
}

impl TextPart {
    /// Returns the first among the widest readable parts of a text of `length` bytes at `offset`; `None` for an empty
    /// text.
    pub(super) fn widest_readable(offset: usize, length: usize) -> Option<Self> {
        let part = |width: Width| {
            let skip = offset.next_multiple_of(width.bytes()) - offset;
            (skip + width.bytes() <= length).then_some(Self { skip, width })
        };
        [Width::U64, Width::U32, Width::U16, Width::U8].into_iter().find_map(part)
    }

    /// Returns the value that a load reads if the text is `text`, filled with zeros as HotSpot does.
    pub(super) fn load_value(self, text: &str) -> u64 {
        let mut letters = [0; 8];
        let part = text.as_bytes().iter().skip(self.skip).take(self.width.bytes());
        letters.iter_mut().zip(part).for_each(|(letter, byte)| *letter = *byte);
        u64::from_ne_bytes(letters)
    }

    /// Returns the known texts that have `value` in this part, as one text.
    pub(super) fn matching_texts(self, value: u64, known: &[String]) -> String {
        let fits: Vec<&str> = known.iter().filter(|text| self.load_value(text) == value).map(String::as_str).collect();
        if fits.is_empty() { self.escaped_letters(value) } else { fits.join(" or ") }
    }

    /// Returns the letters read from an unknown text.
    fn escaped_letters(self, value: u64) -> String {
        let bytes = value.to_ne_bytes();
        let bytes = &bytes[..self.width.bytes()];
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        let before = if self.skip > 0 { "…" } else { "" };
        let after = if end == bytes.len() { "…" } else { "" };
        format!("{before}{}{after}", bytes[..end].escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Part of `sun.gc.cause` that one load reads in a file of HotSpot.
    const CAUSE: TextPart = TextPart { skip: 7, width: Width::U64 };

    fn known_causes(has_zgc: bool) -> Vec<String> {
        gc_causes(has_zgc).map(str::to_owned).collect()
    }

    #[test]
    fn widest_readable_part_is_aligned_and_within_the_text() {
        assert_eq!(TextPart::widest_readable(33, 81), Some(CAUSE));
        assert_eq!(TextPart::widest_readable(40, 8), Some(TextPart { skip: 0, width: Width::U64 }));
        assert_eq!(TextPart::widest_readable(33, 8), Some(TextPart { skip: 3, width: Width::U32 }));
        assert_eq!(TextPart::widest_readable(33, 1), Some(TextPart { skip: 0, width: Width::U8 }));
        assert_eq!(TextPart::widest_readable(33, 0), None);
    }

    #[test]
    fn one_load_distinguishes_g1_causes_and_no_collection() {
        let meaning = |text| CAUSE.matching_texts(CAUSE.load_value(text), &known_causes(false));
        for cause in ["No GC", "System.gc()", "G1 Evacuation Pause", "G1 Humongous Allocation", "Allocation Failure"] {
            assert_eq!(meaning(cause), cause);
        }
    }

    #[test]
    fn ambiguous_value_names_all_its_meanings() {
        assert_eq!(CAUSE.matching_texts(0, &known_causes(true)), "No GC or Timer or Warmup");
    }

    #[test]
    fn letters_read_of_an_unknown_text_are_shown() {
        assert_eq!(CAUSE.matching_texts(CAUSE.load_value("Ancient Reasons"), &known_causes(false)), "… Reasons…");
        assert_eq!(CAUSE.matching_texts(CAUSE.load_value("Ancient\tX"), &known_causes(false)), "…\\tX");
    }
}

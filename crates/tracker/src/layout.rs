//! Layout check of the structs that the kernel program and this process share. The compiler's own record of the kernel
//! program (BTF) is compared with each Rust struct, member by member.

use libbpf_rs::btf::types::{MemberAttr, Struct};
use libbpf_rs::btf::{Btf, HasSize};

/// Compares a Rust struct with the C struct of this name. A C name that Rust cannot have ends with `_`.
macro_rules! assert_layout {
    ($rust:ty, $c:literal, $($field:ident),+ $(,)?) => {
        $crate::layout::compare($c, size_of::<$rust>(), &[$((stringify!($field), std::mem::offset_of!($rust, $field))),+])
    };
}
pub(crate) use assert_layout;

/// The objects that together have all structs.
const OBJECTS: [&str; 2] =
    [concat!(env!("OUT_DIR"), "/lanes_scx.bpf.o"), concat!(env!("OUT_DIR"), "/lanes_trace.bpf.o")];

/// Compares a struct. `fields` are all of them, with their offsets in bytes.
pub(crate) fn compare(name: &str, bytes: usize, fields: &[(&str, usize)]) {
    let types = OBJECTS.map(|object| Btf::from_path(object).expect("the object that was built has type information"));
    let shared: Struct<'_> = types
        .iter()
        .find_map(|types| types.type_by_name(name))
        .unwrap_or_else(|| panic!("the kernel program has no struct {name}"));
    let c: Vec<(String, usize)> =
        shared.iter().map(|member| (member_name(&member.name), offset(&member.attr))).collect();
    let rust: Vec<(String, usize)> = fields.iter().map(|(name, at)| ((*name).to_owned(), *at)).collect();
    assert_eq!(rust, c, "members of {name}");
    assert_eq!(bytes, shared.size(), "size of {name}");
}

fn member_name(name: &Option<&std::ffi::OsStr>) -> String {
    let name = name.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    name.trim_end_matches('_').to_owned()
}

fn offset(attr: &MemberAttr) -> usize {
    match attr {
        MemberAttr::Normal { offset } | MemberAttr::BitField { offset, .. } => *offset as usize / 8,
    }
}

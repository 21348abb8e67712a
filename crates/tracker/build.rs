//! Compiles the kernel programs, and makes Rust types of the structs that they share with this crate. The programs are
//! embedded in the binary, so users need no clang.

use std::path::{Path, PathBuf};
use std::{env, fs};

use flate2::{Compress, Compression, FlushCompress};
use libbpf_cargo::SkeletonBuilder;
use libbpf_rs::HasSize;
use libbpf_rs::btf::types::{Array, Int, IntEncoding, Struct};
use libbpf_rs::btf::{Btf, BtfType};

/// Objects made of `bpf/lanes.bpf.c`, with their definitions.
const OBJECTS: [(&str, &[&str]); 3] =
    [("lanes", &[]), ("lanes_scx", &["-DSIDELANE_SCX"]), ("lanes_trace", &["-DSIDELANE_TRACE"])];
const SOURCE: &str = "../../bpf/lanes.bpf.c";

/// Structs in memory that the kernel program and this crate use at the same time, with their names in Rust. Their
/// members are atomic.
const SHARED: [(&str, &str); 14] = [
    ("sidelane_cpu_shares", "CpuShares"),
    ("sidelane_ext_word", "ExtWord"),
    ("sidelane_guard_word", "GuardWord"),
    ("sidelane_lane_ledger", "LaneLedger"),
    ("sidelane_lane_program", "LaneProgram"),
    ("sidelane_lane_programs", "LanePrograms"),
    ("sidelane_lane_stats", "LaneStats"),
    ("sidelane_lane_turns", "LaneTurns"),
    ("sidelane_request_wakeup", "RequestWakeup"),
    ("sidelane_request_account", "RequestAccount"),
    ("sidelane_thread_word", "ThreadWord"),
    ("sidelane_trace_cpu", "TraceCpu"),
    ("sidelane_trace_thread", "TraceThread"),
    ("sidelane_turn", "TurnSlot"),
];

/// Structs that are copied to or from the kernel program: keys, settings, records.
const COPIED: [(&str, &str); 6] = [
    ("sidelane_group", "GroupKey"),
    ("sidelane_hold_order", "HoldOrder"),
    ("sidelane_lane_role", "LaneRole"),
    ("sidelane_listener", "ListenerKey"),
    ("sidelane_request_record", "RequestRecord"),
    ("sidelane_settings", "Settings"),
];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for (object, definitions) in OBJECTS {
        compile_object(object, definitions, &out);
    }
    let types = OBJECTS.map(|(object, _)| {
        Btf::from_path(object_path(object, &out)).expect("clang writes type information (BTF) into the object")
    });
    let shared = SHARED.map(|names| rust_definition(&types, names, true));
    let copied = COPIED.map(|names| rust_definition(&types, names, false));
    std::fs::write(out.join("kernel_types.rs"), shared.concat() + &copied.concat()).expect("OUT_DIR is writable");
    println!("cargo:rerun-if-changed=../../bpf");
    println!("cargo:rerun-if-changed=../../abi");
}

fn object_path(object: &str, out: &Path) -> PathBuf {
    out.join(format!("{object}.bpf.o"))
}

/// Compiles one object file, and compresses it to a quarter: uncompressed, the object files were a twelfth of the
/// binary.
fn compile_object(object: &str, definitions: &[&str], out: &Path) {
    let path = object_path(object, out);
    let built = SkeletonBuilder::new()
        .source(SOURCE)
        .obj(&path)
        .clang_args(
            ["-I../../bpf", "-I../..", "-mcpu=v3", "-Wall", "-Wextra", "-Wno-unused-parameter"]
                .iter()
                .chain(definitions),
        )
        .build();
    if let Err(error) = built {
        panic!("cannot compile {SOURCE}: {error:#}\nit needs clang: `apt-get install clang`, or `make deps`");
    }
    let program = fs::read(&path).expect("the object was just written");
    let mut compressed = Vec::with_capacity(program.len());
    Compress::new(Compression::best(), true)
        .compress_vec(&program, &mut compressed, FlushCompress::Finish)
        .expect("memory can be compressed");
    fs::write(path.with_extension("o.z"), compressed).expect("cargo's folder can be written");
}

/// Returns the definition in Rust of the C struct `c`, from the type information of one of the objects.
fn rust_definition(objects: &[Btf<'_>], (c, rust): (&str, &str), shared: bool) -> String {
    let found = objects.iter().find_map(|types| Some((types, types.type_by_name::<Struct<'_>>(c)?)));
    let (types, found) = found.unwrap_or_else(|| panic!("the kernel programs have no struct {c}"));
    let (derives, marker, visibility) = match shared {
        true => ("Debug", "Shared", "pub(crate)"),
        false => ("Clone, Copy, Debug, Default, PartialEq, Eq", "Plain", "pub"),
    };
    let (mut members, mut sizes) = (String::new(), Vec::new());
    for member in found.iter() {
        let name = member.name.expect("members have names").to_string_lossy();
        let member = rust_type(types.type_by_id(member.ty).expect("a member has a type"), shared);
        // A name that is reserved in C++ ends with `_`.
        members += &format!("    {visibility} {}: {member},\n", name.trim_end_matches('_'));
        sizes.push(format!("size_of::<{member}>()"));
    }
    let (bytes, sizes) = (found.size(), sizes.join(" + "));
    format!(
        "/// `struct {c}`.\n#[derive({derives})]\n#[repr(C)]\npub struct {rust} {{\n{members}}}\n\
         const _: () = assert!(size_of::<{rust}>() == {bytes} && {bytes} == {sizes}, \"padding in {c}\");\n\
         // SAFETY: integers that fill the struct, as asserted above; any bytes are valid integers.\n\
         unsafe impl {marker} for {rust} {{}}\n\n"
    )
}

/// Returns the Rust type of a member.
fn rust_type(btf_type: BtfType<'_>, shared: bool) -> String {
    let of = btf_type.skip_mods_and_typedefs();
    if let Ok(array) = Array::try_from(of) {
        return format!("[{}; {}]", rust_type(array.contained_type(), shared), array.capacity());
    }
    if let Ok(int) = Int::try_from(of) {
        // A `char` is signed on some machines; here it is a byte of text.
        let signed = int.bits > 8 && matches!(int.encoding, IntEncoding::Signed);
        let kind = match (shared, signed) {
            (true, true) => "AtomicI",
            (true, false) => "AtomicU",
            (false, true) => "i",
            (false, false) => "u",
        };
        return format!("{kind}{}", int.bits);
    }
    let name = of.name().unwrap_or_default().to_string_lossy();
    let known = SHARED.iter().find(|(c, _)| shared && *c == name);
    known.unwrap_or_else(|| panic!("a member has a type without a name in Rust: {of:?}")).1.to_owned()
}

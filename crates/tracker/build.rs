//! Compiles the kernel programs. The results are embedded in the binary, so users need no clang.

use std::path::{Path, PathBuf};
use std::{env, fs};

use flate2::{Compress, Compression, FlushCompress};
use libbpf_cargo::SkeletonBuilder;

/// What is made of `bpf/lanes.bpf.c`, with which definitions.
const OBJECTS: [(&str, &[&str]); 3] =
    [("lanes", &[]), ("lanes_scx", &["-DSIDELANE_SCX"]), ("lanes_trace", &["-DSIDELANE_TRACE"])];
const SOURCE: &str = "../../bpf/lanes.bpf.c";

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for (object, definitions) in OBJECTS {
        compile(object, definitions, &out);
    }
    println!("cargo:rerun-if-changed=../../bpf");
    println!("cargo:rerun-if-changed=../../abi");
}

/// Compiles one object, and compresses it to a quarter: the objects were a twelfth of the binary.
fn compile(object: &str, definitions: &[&str], out: &Path) {
    let path = out.join(format!("{object}.bpf.o"));
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

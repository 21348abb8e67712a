//! Compiles the kernel programs. The results are embedded in the binary, so users need no clang.

use std::env;
use std::path::{Path, PathBuf};

use libbpf_cargo::SkeletonBuilder;

/// What is made of which source, with which definitions.
const OBJECTS: [(&str, &str, &[&str]); 5] = [
    ("lanes", "lanes", &[]),
    ("lanes_scx", "lanes", &["-DSIDELANE_SCX"]),
    ("lanes_tale", "lanes", &["-DSIDELANE_TALE"]),
    ("floor", "floor", &[]),
    ("tale_floor", "tale/floor", &[]),
];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for (object, source, definitions) in OBJECTS {
        compile(object, source, definitions, &out);
    }
    println!("cargo:rerun-if-changed=../../bpf");
    println!("cargo:rerun-if-changed=../../abi");
}

fn compile(object: &str, source: &str, definitions: &[&str], out: &Path) {
    let source = format!("../../bpf/{source}.bpf.c");
    let built = SkeletonBuilder::new()
        .source(&source)
        .obj(out.join(format!("{object}.bpf.o")))
        .clang_args(
            ["-I../../bpf", "-I../..", "-mcpu=v3", "-Wall", "-Wextra", "-Wno-unused-parameter"]
                .iter()
                .chain(definitions),
        )
        .build();
    if let Err(error) = built {
        panic!("cannot compile {source}: {error:#}\nit needs clang: `apt-get install clang`, or `make deps`");
    }
}

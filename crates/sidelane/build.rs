//! Compiles the kernel program. The result is embedded in the binary, so users need no clang.

use std::env;
use std::path::PathBuf;

use libbpf_cargo::SkeletonBuilder;

const SOURCE: &str = "src/bpf/lanes.bpf.c";

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("lanes.bpf.o");
    let built = SkeletonBuilder::new()
        .source(SOURCE)
        .obj(&out)
        .clang_args(["-mcpu=v3", "-Wall", "-Wextra", "-Wno-unused-parameter"])
        .build();
    if let Err(error) = built {
        panic!("cannot compile {SOURCE}: {error:#}\nit needs clang: `apt-get install clang`, or `make deps`");
    }
    println!("cargo:rerun-if-changed=src/bpf");
    println!("cargo:rerun-if-changed=../../abi");
}

//! Compiles the kernel programs. The results are embedded in the binary, so users need no clang.

use std::env;
use std::path::{Path, PathBuf};

use libbpf_cargo::SkeletonBuilder;

const PROGRAMS: [&str; 2] = ["lanes", "floor"];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for program in PROGRAMS {
        compile(program, &out);
    }
    println!("cargo:rerun-if-changed=src/bpf");
    println!("cargo:rerun-if-changed=../../abi");
}

fn compile(program: &str, out: &Path) {
    let source = format!("src/bpf/{program}.bpf.c");
    let built = SkeletonBuilder::new()
        .source(&source)
        .obj(out.join(format!("{program}.bpf.o")))
        .clang_args(["-mcpu=v3", "-Wall", "-Wextra", "-Wno-unused-parameter"])
        .build();
    if let Err(error) = built {
        panic!("cannot compile {source}: {error:#}\nit needs clang: `apt-get install clang`, or `make deps`");
    }
}

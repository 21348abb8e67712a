//! Compiles the kernel program of the emulated sibling, and the preloaded library that slows other programs. Both are
//! embedded in the binary, so users need no clang.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use libbpf_cargo::SkeletonBuilder;

const PRELOAD: &str = "src/sibling/preload.c";
const SOURCE: &str = "src/sibling/bpf/sibling.bpf.c";
/// Folder with the declarations of kernel types, shared with Sidelane's own kernel programs.
const KERNEL_TYPES: &str = "../../bpf";

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let includes = format!("-I{KERNEL_TYPES}");
    let built = SkeletonBuilder::new()
        .source(SOURCE)
        .obj(out.join("sibling.bpf.o"))
        .clang_args(["-mcpu=v3", "-Wall", "-Wextra", "-Wno-unused-parameter", &includes])
        .build();
    if let Err(error) = built {
        panic!("cannot compile {SOURCE}: {error:#}\nit needs clang: `apt-get install clang`, or `make deps`");
    }
    let mut clang = Command::new("clang");
    clang
        .args(["-O2", "-shared", "-fPIC", "-Wall", "-Wextra", "-o"])
        .arg(out.join("preload.so"))
        .args([PRELOAD, "-ldl"]);
    let built = clang.status();
    assert!(built.is_ok_and(|status| status.success()), "cannot compile {PRELOAD}: it needs clang and libc6-dev");
    println!("cargo:rerun-if-changed={PRELOAD}");
    println!("cargo:rerun-if-changed=src/sibling/bpf");
    println!("cargo:rerun-if-changed={KERNEL_TYPES}/kernel/types.h");
    println!("cargo:rerun-if-changed={KERNEL_TYPES}/kernel/preempted.h");
}

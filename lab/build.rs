//! Compiles the lab's own kernel programs: the recorder of class changes on lanes, and programs that do nothing. The
//! cost of Sidelane's programs is compared with those. All are embedded in the binary.

use std::env;
use std::path::PathBuf;

use libbpf_cargo::SkeletonBuilder;

/// Folder with the declarations of kernel types, shared with Sidelane's own kernel programs.
const KERNEL_TYPES: &str = "../bpf";

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for name in ["floor", "trace_floor", "changes"] {
        let source = format!("bpf/{name}.bpf.c");
        let built = SkeletonBuilder::new()
            .source(&source)
            .obj(out.join(format!("{name}.bpf.o")))
            .clang_args(["-I..", &format!("-I{KERNEL_TYPES}"), "-mcpu=v3", "-Wall", "-Wextra", "-Wno-unused-parameter"])
            .build();
        if let Err(error) = built {
            panic!("cannot compile {source}: {error:#}\nit needs clang: `apt-get install clang`, or `make deps`");
        }
    }
    println!("cargo:rerun-if-changed=bpf");
    println!("cargo:rerun-if-changed={KERNEL_TYPES}/kernel/types.h");
    println!("cargo:rerun-if-changed=../abi/lane.h");
}

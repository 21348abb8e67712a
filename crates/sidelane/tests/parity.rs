//! Test that compares the simulator with this machine. The result depends on timing, so it is run by hand on a quiet
//! machine, as root: `cargo test -p sidelane --test parity -- --ignored`, after `cargo build --workspace`.

use std::path::Path;
use std::process::Command;

#[test]
#[ignore = "takes seven minutes of a quiet machine"]
fn simulated_scenario_matches_the_real_machine() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut bench = Command::new(Path::new(env!("CARGO_BIN_EXE_sidelane")).with_file_name("sidelane-lab"));
    let status = bench.args(["bench", "parity", "lab/scenarios/parity.toml"]).current_dir(root).status().unwrap();
    assert!(status.success(), "{status}");
}

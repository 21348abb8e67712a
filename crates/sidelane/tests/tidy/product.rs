//! Test that the product's binary contains nothing of the laboratory.

use std::fs;

#[test]
fn the_binary_has_no_symbol_of_the_laboratory() {
    let binary = fs::read(env!("CARGO_BIN_EXE_sidelane")).expect("the binary was built");
    let text = String::from_utf8_lossy(&binary);
    let has = |symbol: &str| text.contains(symbol);
    assert!(has("sidelane_lanes"), "this binary has no symbols at all, so nothing is shown");
    let own = ["sidelane_lab", "sidelane_programs"];
    let found: Vec<&str> = own.into_iter().filter(|symbol| has(symbol)).collect();
    assert!(found.is_empty(), "{found:?}");
}

//! Test that the page of stored results is the output of its command for the stored files.

use std::fs;

use crate::modules::root;

#[test]
fn the_page_of_results_is_what_its_command_makes() {
    let folder = root().join("results");
    let made = sidelane_lab::bench::results::page(&folder).unwrap_or_else(|error| panic!("{error:#}"));
    let stored = fs::read_to_string(folder.join("README.md")).expect("the page");
    assert!(
        made == stored,
        "results/README.md is not what `sidelane-lab results` makes of the files beside it: run it"
    );
}

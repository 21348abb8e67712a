//! Tests of signals of real programs, read while the programs run: variables, HotSpot's counters, files of /proc.

#[path = "../common/mod.rs"]
mod common;
mod jvm;
mod program;
mod variables;

use program::read;
use sidelane_observe::list;
use variables::{POSITION_INDEPENDENT, start_variables_program};

#[test]
fn every_listed_signal_can_be_read() {
    let Some(program) = start_variables_program(POSITION_INDEPENDENT) else { return };
    let listing = list::list_process_signals(program.pid(), None);
    let all: Vec<&list::ListedSignal> = listing.groups.iter().flat_map(|group| &group.signals).collect();
    let value = |signal: &str| {
        let listed = all.iter().find(|listed| listed.signal == signal).unwrap_or_else(|| panic!("{signal}: {all:#?}"));
        serde_json::to_value(&listed.value).unwrap()
    };
    assert_eq!(value("tag:mem:global_counter"), 40);
    assert!(value(&format!("counter:file:/proc/{}/stat#20", program.pid())) == 1);
    assert!(all.iter().any(|listed| listed.signal == "tag:mem:server.FIELD"));
    // Every listed signal can be observed.
    for listed in all.iter().filter(|listed| listed.value.is_some()) {
        read(&mut program.channel(&listed.signal)).unwrap();
    }
    let text = listing.render(100, false);
    assert!(text.contains("is not a JVM") && text.contains("(program)"), "{text}");
    let filtered = list::list_process_signals(program.pid(), Some("static_c"));
    assert!(filtered.render(100, false).contains("tag:mem:static_counter"));
}

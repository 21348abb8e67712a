//! Interference by counters: the kernel's own events stand in for the processor's, so the whole way from the kernel
//! program to the groups is the real one.

use crate::common::{lanes_to_ourselves, wait_until};
use crate::daemon::{Daemon, File, status};
use crate::groups::{Place, Tree};
use crate::service::Program;

#[test]
fn batch_leaves_a_sibling_where_a_service_is_disturbed_and_comes_back_after_calm() {
    let Some(_turn) = lanes_to_ourselves() else { return };
    let Some(tree) = Tree::make(Place::Lists) else { return };
    let (program, mut service) = Program::faulting_on_command();
    let batch = tree.container("one");
    let file = File::holmes().with_service(&program.rule()).with_batch(tree.path());
    let file = file.replace(
        "[metric]\nsource = \"harm\"",
        "e = 0.5\ns = \"50ms\"\n\n[metric]\nsource = \"counters\"\nformula = \"page-faults / context-switches\"",
    );
    let daemon = Daemon::start(&file, 1, 1);
    wait_until("batch had left the reserved CPU", || batch.cpus() == "1" && !batch.is_frozen());
    assert!(status()["agent"]["metric"].as_str().is_some_and(|words| words.starts_with("counters: ")));
    service.work();
    wait_until("batch that has nowhere to go was paused", || batch.is_frozen());
    service.rest();
    wait_until("batch came back", || !batch.is_frozen());
    let ended = daemon.end();
    let paused = ended.audit().into_iter().find(|line| line["action"] == "pause").expect("a pause was audited");
    assert!(paused["why"].as_str().is_some_and(|why| why.starts_with("interference")), "{paused}");
    assert!(paused["seen"]["interference"].as_f64() >= Some(0.5), "{paused}");
    assert!(!batch.is_frozen() && batch.cpus() == "0-1");
}

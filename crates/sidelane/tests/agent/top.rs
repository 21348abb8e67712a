//! `sidelane top` beside an agent.

use std::process::Command;

use crate::common::agent::SIDELANE;
use crate::common::lock_lanes;
use crate::common::process::{MARK, mark_of_this_test};
use crate::common::screen::Interactive;
use crate::daemon::{Daemon, File};
use crate::scene::Scene;

fn top(columns: u16) -> Interactive {
    Interactive::start(Command::new(SIDELANE).arg("top").env(MARK, mark_of_this_test()), columns)
}

#[test]
fn top_shows_an_agent_as_away_until_it_returns() {
    let Some(_turn) = lock_lanes() else { return };
    let file = File::with_absent_targets();
    let daemon = Daemon::start(&file, 0, 0);
    let mut top = top(100);
    top.wait_to_see("●");
    daemon.end();
    top.wait_to_see("○");
    top.wait_to_see("; trying again");
    let daemon = Daemon::start(&file, 0, 0);
    top.wait_to_see("●");
    top.type_keys(b"q");
    assert_eq!(top.wait_for_end(), Some(0));
    daemon.end();
}

#[test]
fn top_shows_the_lanes_of_an_agent() {
    let Some(scene) = Scene::start() else { return };
    let mut top = top(160);
    for text in ["lanes", "batch", "services", "the service", "last decisions"] {
        top.wait_to_see(text);
    }
    let status = crate::daemon::status();
    let lanes = status["lanes"].as_array().expect("lanes");
    let roles: Vec<_> = lanes.iter().map(|lane| (lane["cpu"].as_u64(), lane["role"].as_str())).collect();
    assert_eq!(roles, [(Some(0), Some("request")), (Some(1), Some("batch"))]);
    assert!(lanes[1]["batch_ns"].as_u64() > Some(0), "{lanes:?}");
    top.type_keys(b"q");
    assert_eq!(top.wait_for_end(), Some(0));
    scene.end_and_check();
}

//! Which part of the tool may use which. Such a part is called a room.

use std::fs;

use crate::modules::{crates, modules, parse, root, uses};

/// A room of the tool, and the rooms that it must not use.
const FORBIDDEN: [(&str, &[&str]); 18] = [
    (
        "note",
        &[
            "agent",
            "bench",
            "channel",
            "demo",
            "doctor",
            "experiment",
            "lane",
            "list",
            "observe",
            "request",
            "sim",
            "undo",
        ],
    ),
    ("audit", &["agent", "bench", "demo", "doctor", "experiment", "lane", "list", "observe", "request", "sim", "undo"]),
    ("undo", &["agent", "bench", "demo", "doctor", "experiment", "lane", "list", "observe", "request", "sim"]),
    (
        "interference",
        &[
            "agent",
            "bench",
            "calibrate",
            "channel",
            "demo",
            "doctor",
            "experiment",
            "lane",
            "list",
            "observe",
            "sim",
            "undo",
        ],
    ),
    ("calibrate", &["agent", "bench", "channel", "demo", "doctor", "lane", "list", "observe", "sim", "undo"]),
    ("channel", &["agent", "bench", "demo", "doctor", "experiment", "lane", "list", "observe", "sim"]),
    (
        "request",
        &["agent", "bench", "channel", "compare", "demo", "doctor", "experiment", "lane", "list", "observe", "sim"],
    ),
    ("lane", &["agent", "bench", "channel", "compare", "demo", "doctor", "experiment", "list", "observe", "sim"]),
    ("agent", &["bench", "channel", "compare", "demo", "experiment", "list", "observe", "sim"]),
    ("list", &["agent", "bench", "demo", "doctor", "experiment", "lane", "observe", "request", "sim"]),
    ("proxy", &["bench", "demo", "doctor", "experiment", "lane", "list", "observe", "request", "sim", "undo"]),
    ("observe", &["agent", "bench", "demo", "doctor", "experiment", "lane", "sim", "tale"]),
    ("experiment", &["agent", "bench", "compare", "demo", "doctor", "observe", "sim"]),
    (
        "hurry",
        &[
            "agent",
            "bench",
            "channel",
            "demo",
            "doctor",
            "experiment",
            "lane",
            "list",
            "observe",
            "proxy",
            "sim",
            "tale",
        ],
    ),
    ("doctor", &["bench", "demo", "observe", "sim"]),
    ("sim", &["agent", "bench", "demo", "doctor", "experiment", "lane", "observe", "request"]),
    (
        "tale",
        &[
            "agent",
            "bench",
            "calibrate",
            "demo",
            "doctor",
            "experiment",
            "interference",
            "list",
            "observe",
            "sim",
            "undo",
        ],
    ),
    ("machine", &["agent", "bench", "demo", "doctor", "experiment", "lane", "observe", "request", "sim"]),
];

/// A crate, and the workspace's crates that it may use.
const ALLOWED: [(&str, &[&str]); 12] = [
    ("sidelane_signal", &[]),
    ("sidelane_policy", &[]),
    ("sidelane_nap", &[]),
    ("sidelane_report", &[]),
    ("sidelane_toml", &[]),
    ("sidelane_tale", &[]),
    ("sidelane_look", &["sidelane_policy", "sidelane_signal"]),
    ("sidelane_gate", &["sidelane_look", "sidelane_nap", "sidelane_policy", "sidelane_signal"]),
    ("sidelane_proxy", &["sidelane_policy", "sidelane_signal"]),
    ("sidelane_sim", &["sidelane_policy", "sidelane_toml"]),
    ("sidelane_host", &["sidelane_nap", "sidelane_signal"]),
    ("sidelane_kernel", &["sidelane_host", "sidelane_policy", "sidelane_signal", "sidelane_tale"]),
];

/// All rooms: crates, the folders of the tool's source, and the files beside them.
pub fn rooms() -> Vec<String> {
    let folder_names = |folder: &str, prefix: &str| {
        let entries = fs::read_dir(root().join(folder)).expect("a folder").flatten();
        let folders = entries.filter(|entry| entry.path().is_dir());
        let names = folders.filter_map(|entry| Some(format!("{prefix}{}", entry.file_name().to_str()?)));
        names.filter(|name| !name.contains("/.")).collect::<Vec<_>>()
    };
    let mut rooms = folder_names("crates", "crates/");
    rooms.extend(folder_names("crates/sidelane/src", "crates/sidelane/src/"));
    rooms.extend(folder_names("runtime", "runtime/"));
    rooms.extend(["abi/", "crates/kernel/bpf", "kmod/", "scenarios/"].map(String::from));
    rooms.push("crates/sidelane/src/machine.rs".to_owned());
    rooms
}

#[test]
fn rooms_use_only_whom_they_may() {
    let modules = modules();
    let mut wrong = Vec::new();
    for (path, file) in &modules {
        let used = uses(path, &parse(file), &modules);
        let forbidden = |used: &&Vec<String>| {
            let same_crate = used[0] == path[0];
            let allowed = ALLOWED.iter().find(|(name, _)| *name == path[0]);
            let crate_is_wrong = allowed.is_some_and(|(_, may)| !same_crate && !may.contains(&used[0].as_str()));
            let room = |path: &[String]| path.get(1).cloned().unwrap_or_default();
            let refused = FORBIDDEN.iter().find(|(name, _)| path[0] == "sidelane" && *name == room(path));
            crate_is_wrong || refused.is_some_and(|(_, not)| same_crate && not.contains(&room(used).as_str()))
        };
        let short = file.strip_prefix(root()).expect("it lies there").display();
        wrong.extend(used.iter().filter(forbidden).map(|used| format!("{short} uses {}", used.join("::"))));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_rules_are_about_rooms_that_exist() {
    let folder = &crates()["sidelane"];
    for room in FORBIDDEN.iter().flat_map(|(room, others)| others.iter().chain([room])) {
        assert!(folder.join(room).is_dir() || folder.join(format!("{room}.rs")).is_file(), "there is no room {room}");
    }
    for name in ALLOWED.iter().flat_map(|(name, others)| others.iter().chain([name])) {
        assert!(crates().contains_key(*name), "there is no crate {name}");
    }
}

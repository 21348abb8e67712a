//! Tests of the example file, and of the reference document.

use super::*;

/// Lines of a complete `[[proxy]]` table.
const PROXY: [&str; 26] = [
    "[[proxy]]",
    "listen = ",
    "active = ",
    "backups = ",
    "protocol = ",
    "hazard = \"all",
    "hedge = ",
    "repeat = ",
    "once_to = ",
    "forwarded = ",
    "budget = \"10%\"",
    "burst = ",
    "warm_up = 200",
    "outlier_detection = ",
    "poll = \"200us\"",
    "threads = ",
    "tls_cert = ",
    "tls_key = ",
    "head_time = ",
    "idle_time = ",
    "answer_time = ",
    "abort_on_close = ",
    "access_log = ",
    "log_format = ",
    "drain = ",
    "clients = ",
];

#[test]
fn example_file_is_valid() {
    let config = parse_valid(EXAMPLE);
    assert_eq!((config.services.len(), config.batch.len()), (1, 1));
}

/// Each line that is a comment in the example is valid in place of the line that it replaces.
#[test]
fn commented_lines_of_the_example_are_valid() {
    const COMM: &str = "comm = ";
    const TRACED: &str = "services = [\"redis\"]              # by name";
    const HURRIED: &str = "services = [\"redis\"]              # whose threads";
    const OBSERVED_DIR: &str = "dir = \"/var/lib";
    const HOLMES: [&str; 3] = ["kind = ", "calm_time = ", "reserved_busy = "];
    let variants: [(&[&str], &[&str]); 19] = [
        (&[COMM], &["cgroup = \"/system.slice/redis@*.service\""]),
        (&[COMM], &["port = 6379"]),
        (&[COMM], &["unit = "]),
        (&[COMM], &["pod = ", "kubernetes = true"]),
        (
            &[],
            &[
                "cpus = \"0-3\"",
                "cpus = 4",
                "interference_threshold = 40",
                "reserved = 4",
                "siblings = [",
                "tick = ",
                "poll = \"50us\"",
                "formula = ",
            ],
        ),
        (&[], &["[kubernetes]", "exclude = ", "slo = \"p99=50ms\"", "may_be_placed = false             # for all"]),
        (&[], &["[kubernetes]", "cgroup = \"/kubepods.slice\""]),
        (&HOLMES, &["kind = \"perfiso\"", "idle = 8"]),
        (&["kind = ", "calm_time = ", "reserved_busy = ", "floor = "], &["kind = \"unmanaged\""]),
        (
            &["kind = ", "calm_time = ", "reserved_busy = ", "floor = "],
            &["kind = \"observe\"", OBSERVED_DIR, "recordings = 144"],
        ),
        (&["source = "], &["source = \"replay\"", "replay = "]),
        (&[], &["[lanes]", "gate = ", "policy = ", "budget = \"5ms\"", "min_idle = "]),
        (&[], &["[lanes]", "gate = ", "min_idle = ", "max_slowdown = "]),
        (&[], &PROXY),
        (
            &[],
            &[
                "[[hazards]]",
                "servers = [\"web",
                "haproxy = ",
                "resend = ",
                "socket = ",
                "hazard = \"jvm",
                "poll = \"100us\"",
            ],
        ),
        (&[], &["[[hazards]]", "servers = [\"web", "agent_check = ", "others = ", "warm_up = \"10s\""]),
        (&[], &["[trace]", TRACED, "dir = \"/var/tmp", "keep = ", "recordings = 100", "light = ", "otlp = "]),
        (&[], &["[hurry]", HURRIED, "big = ", "little = ", "threshold = ", "sampling = ", "log = "]),
        (&[], &["[hurry]", "percentile = ", "siblings = true"]),
    ];
    let begins = |line: &str, beginnings: &[&str]| beginnings.iter().any(|beginning| line.starts_with(beginning));
    for (without, with) in variants {
        let line = |line: &'static str| match line.strip_prefix("# ") {
            Some(comment) if begins(comment, with) => Some(comment),
            _ if begins(line, without) => None,
            _ => Some(line),
        };
        parse_valid(&EXAMPLE.lines().filter_map(line).collect::<Vec<_>>().join("\n"));
    }
    let comments = EXAMPLE.lines().filter_map(|line| line.strip_prefix("# "));
    let is_setting = |line: &&str| line.contains(" = ") || line.starts_with('[');
    let all: Vec<&str> = variants.iter().flat_map(|(_, with)| with.iter().copied()).collect();
    let untried: Vec<&str> = comments.filter(is_setting).filter(|line| !begins(line, &all)).collect();
    assert_eq!(untried, Vec::<&str>::new());
}

#[test]
fn each_key_is_in_the_reference() {
    let reference = include_str!("../../../../../docs/reference/agent-file.md");
    let keys = EXAMPLE.lines().filter_map(|line| line.trim_start_matches("# ").split_once(" = "));
    let is_key = |key: &&str| key.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_');
    let missing: Vec<&str> =
        keys.map(|(key, _)| key).filter(is_key).filter(|key| !reference.contains(&format!("`{key}`"))).collect();
    assert_eq!(missing, Vec::<&str>::new());
}

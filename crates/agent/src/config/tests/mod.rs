//! Tests of valid and invalid files. The texts of problems are exact, because users see them.

mod example;
mod lanes;
mod modules;
mod problems;

use proptest::prelude::*;

use super::*;

const GOOD: &str = r#"kubernetes = true

[[service]]
name = "redis"
unit = "redis-server"
slo = "p99=5ms"

[[service]]
name = "web"
port = 8080

[[batch]]
cgroup = "/batch"

[policy]
kind = "holmes"
calm_time = "1s"
reserved_busy = "80%"
reserved = "0-1"

[lanes]
gate = "holder"
"#;

#[track_caller]
fn assert_edit_is_refused(from: &str, to: &str, problems: &[&str]) {
    assert!(GOOD.contains(from), "{from}");
    assert_refused(&GOOD.replace(from, to), problems);
}

#[track_caller]
fn assert_refused(text: &str, problems: &[&str]) {
    let found = Config::parse("a.toml", text).expect_err("it is refused").to_string();
    assert_eq!(found.lines().collect::<Vec<_>>(), problems);
}

fn parse_valid(text: &str) -> Config {
    Config::parse("a.toml", text).expect("it can be read")
}

#[test]
fn valid_file_is_read() {
    let config = parse_valid(GOOD);
    assert_eq!(config.services[0].matches, Match::Unit("redis-server.service".into()));
    assert_eq!(config.services[0].settings.slo, Some(Objective { percentile: 99.0, limit_ns: 5_000_000 }));
    assert_eq!(config.services[1].matches, Match::Port(8080));
    assert_eq!(config.batch[0].cgroup.to_string(), "/batch");
    assert!(config.kubernetes.is_some());
    let Kind::Holmes(holmes) = &config.policy.kind else { panic!("{:?}", config.policy) };
    assert_eq!(
        (holmes.interference_threshold, holmes.calm_time, holmes.reserved_busy),
        (None, Duration::from_secs(1), 0.8)
    );
    assert_eq!(holmes.reserved, Reserved::Cpus("0-1".parse().unwrap()));
    assert_eq!(config.intervals.look, Duration::from_millis(10));
}

#[test]
fn each_setting_names_its_source() {
    let config = parse_valid(GOOD);
    let setting = |key: &str| {
        let found = config.settings.iter().find(|setting| setting.key == key).expect(key);
        (found.value.as_str(), found.line)
    };
    assert_eq!(setting("policy.kind"), ("\"holmes\"", Some(16)));
    assert_eq!(setting("policy.reserved"), ("\"0-1\"", Some(19)));
    assert_eq!(setting("policy.interference_threshold"), ("the metric's", None));
    assert_eq!(setting("intervals.processes"), ("\"1s\"", None));
    assert_eq!(setting("lanes.min_idle"), ("learned from each service's idle moments", None));
}

proptest! {
    /// A random text is refused with a message, and never causes a panic.
    #[test]
    fn any_text_is_read_or_refused(lines in prop::collection::vec("(\\[|\\[\\[)?(policy|service|batch|calm_time|reserved|cgroup|kubernetes|lanes)(\\]|\\]\\]| = [\"0-9a-z%{\\[,/*]{0,8})?", 0..8)) {
        if let Err(problems) = Config::parse("a.toml", &lines.join("\n")) {
            prop_assert!(!problems.all.is_empty());
        }
    }
}

#[test]
fn fuzzed_files_are_read_or_refused_with_a_reason() {
    sidelane_testing::fuzz("agent-file", |bytes| match Config::parse("a.toml", &String::from_utf8_lossy(bytes)) {
        Ok(config) => drop(config.summary()),
        Err(problems) => assert!(problems.to_string().contains("a.toml"), "{problems}"),
    });
}

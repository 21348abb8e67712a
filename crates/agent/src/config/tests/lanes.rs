//! Tests of the table `[lanes]`.

use super::*;

#[test]
fn lending_policy_follows_the_objective_and_the_file() {
    let lanes = parse_valid(GOOD).lanes.unwrap();
    let slo = Objective { percentile: 99.0, limit_ns: 5_000_000 };
    assert_eq!(lanes.lending(None).unwrap().policy, PolicyKind::BorrowIdle);
    assert_eq!(lanes.lending(Some(slo)).unwrap().policy, PolicyKind::Deadline);
    let idle = LaneGate { policy: Some(PolicyKind::BorrowIdle), ..lanes };
    assert_eq!(idle.lending(Some(slo)).unwrap().policy, PolicyKind::BorrowIdle);
}

#[test]
fn invalid_lanes_are_refused() {
    assert_edit_is_refused(
        "gate = \"holder\"",
        "gate = \"sched-ext\"",
        &["a.toml:22: `lanes.gate` is \"sched-ext\", which works only for commands that Sidelane starts; write \
             holder, freezer or sched-idle"],
    );
    assert_edit_is_refused(
        "gate = \"holder\"",
        "policy = \"fixed-budget\"",
        &[
            "a.toml:1: `kubernetes.slo` is missing, but the policy fixed-budget of [lanes] needs an slo or a budget; \
             write an objective, as in slo = \"p99=5ms\", or a budget in [lanes]",
            "a.toml:8: `service.slo` is missing, but the policy fixed-budget of [lanes] needs an slo or a budget; \
             write an objective, as in slo = \"p99=5ms\", or a budget in [lanes]",
        ],
    );
    assert_edit_is_refused(
        "gate = \"holder\"",
        "policy = \"borrow-idle\"\nbudget = \"1ms\"",
        &["a.toml:23: `lanes.budget` is given, but borrow-idle never runs batch beside a request; leave it out, or \
             choose another policy, such as deadline"],
    );
    for line in ["policy = \"fixed-budget\"\nbudget = \"1ms\"", "gate = \"freezer\"\n"] {
        assert_edit_is_refused(
            "gate = \"holder\"",
            &format!("{line}\nmax_slowdown = \"5%\""),
            &["a.toml:24: `lanes.max_slowdown` is given, but only gate \"holder\" with policy \"borrow-idle\" has \
                 such a bound; leave it out, or write gate = \"holder\" and policy = \"borrow-idle\""],
        );
    }
    for (value, problem) in [("5", "5"), ("\"five\"", "\"five\", which is not a percentage from 0 to 100")] {
        let told = format!(
            "a.toml:22: `lanes.max_slowdown` is {problem}; write a percentage with its sign, as in \"5%\", or \"none\""
        );
        assert_edit_is_refused("gate = \"holder\"", &format!("max_slowdown = {value}"), &[&told]);
    }
}

#[test]
fn max_slowdown_is_5_percent_unless_the_file_sets_it() {
    let lanes = |more: &str| parse_valid(&GOOD.replace("gate = \"holder\"", more)).lanes.unwrap().max_slowdown;
    assert_eq!(lanes("gate = \"holder\""), MaxSlowdown::Bound(0.05));
    assert_eq!(lanes("max_slowdown = \"12.5%\""), MaxSlowdown::Bound(0.125));
    assert_eq!(lanes("max_slowdown = \"none\""), MaxSlowdown::Any);
    let config = parse_valid(GOOD);
    let told = config.settings.iter().find(|setting| setting.key == "lanes.max_slowdown").unwrap();
    assert_eq!(told.value, "\"5%\"");
}

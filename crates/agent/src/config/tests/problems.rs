//! Tests of the problems of a file, and of their messages.

use super::*;

#[test]
fn all_problems_of_a_file_are_reported_at_once() {
    assert_refused(
        "[[service]]\nname = 3\n\n[policy]\nkind = \"holms\"\ncalm_time = 1\nInterference_thresold = 40\n",
        &[
            "a.toml:1: `service.cgroup` is missing; write one of `cgroup`, `unit`, `pod`, `port`, `comm`, by which the \
             service is found",
            "a.toml:2: `service.name` is 3; write a name for it, as in \"redis\"",
            "a.toml:5: `policy.kind` is \"holms\"; did you mean `holmes`? write one of `holmes`, `perfiso`, `unmanaged`, `observe`",
            "a.toml:6: `policy.calm_time` is 1, which has no unit; write a number and its unit, one of ns, us, ms, s, m, h, as in \
             \"8us\" or \"1.5s\"",
            "a.toml:7: `policy.Interference_thresold` is not a key here; did you mean `interference_threshold`? the \
             keys here are `calm_time`, `dir`, `floor`, `idle`, `interference_threshold`, `kind`, `recordings`, `reserved`, \
             `reserved_busy`, `siblings`",
            "a.toml: `batch` is missing; name a tree of cgroups in [[batch]], or write kubernetes = true",
        ],
    );
}

#[test]
fn an_observer_needs_no_batch_and_moves_no_threads() {
    let observes = "[policy]\nkind = \"observe\"\n[lanes]\n[[service]]\nname = \"web\"\nport = 80\nslo = \"p99=5ms\"\n";
    let config = parse_valid(observes);
    let rule = ObserveRule { dir: "/var/lib/sidelane".into(), recordings: 144 };
    assert_eq!(config.policy.kind, Kind::Observe(rule));
    assert!(config.lanes.is_some() && config.lent_lanes().is_none());
    assert_refused(
        &format!("{observes}[hurry]\n"),
        &[
            "a.toml:8: `hurry` moves threads, but policy.kind is \"observe\"; leave the table out, or choose another kind",
        ],
    );
    assert_edit_is_refused(
        "reserved = \"0-1\"",
        "dir = \"/var/tmp\"",
        &["a.toml:19: `policy.dir` is for `observe`, but kind is `holmes`; leave it out"],
    );
}

#[test]
fn unknown_keys_are_refused() {
    assert_edit_is_refused(
        "port = 8080",
        "prot = 8080",
        &[
            "a.toml:8: `service.cgroup` is missing; write one of `cgroup`, `unit`, `pod`, `port`, `comm`, by which the \
             service is found",
            "a.toml:10: `service.prot` is not a key here; did you mean `port`? the keys here are `cgroup`, `comm`, \
             `cpus`, `may_be_placed`, `name`, `pod`, `port`, `slo`, `unit`",
        ],
    );
    assert_edit_is_refused(
        "[lanes]",
        "[lane]",
        &["a.toml:21: `lane` is not a key here; did you mean `lanes`? the keys here are `audit`, `batch`, `hazards`, \
             `hurry`, `intervals`, `kubernetes`, `lanes`, `metric`, `metrics`, `policy`, `proxy`, `service`, `trace`"],
    );
    assert_edit_is_refused(
        "cgroup = \"/batch\"",
        "cgroup = \"/batch\"\nkubernetes = true",
        &["a.toml:14: `batch.kubernetes` is not a key here; write it above the first table of the file, or as \
           [kubernetes]"],
    );
    assert_edit_is_refused(
        "[[batch]]",
        "[batch]",
        &["a.toml:12: `batch` is a table; write [[batch]] with two brackets, once for each"],
    );
}

#[test]
fn wrong_units_are_refused() {
    assert_edit_is_refused(
        "reserved_busy = \"80%\"",
        "reserved_busy = 80",
        &[
            "a.toml:18: `policy.reserved_busy` is 80, which has no unit; write a percentage from 1 to 99 with its sign, as in \"80%\"",
        ],
    );
    assert_edit_is_refused(
        "reserved_busy = \"80%\"",
        "reserved_busy = \"0.8\"",
        &["a.toml:18: `policy.reserved_busy` is \"0.8\"; write a percentage from 1 to 99 with its sign, as in \"80%\""],
    );
    assert_edit_is_refused(
        "calm_time = \"1s\"",
        "calm_time = \"1 min\"",
        &[
            "a.toml:17: `policy.calm_time` is \"1 min\", which is not a time; write a number and its unit, one of ns, us, ms, s, m, h, \
           as in \"8us\" or \"1.5s\"",
        ],
    );
    assert_edit_is_refused(
        "slo = \"p99=5ms\"",
        "slo = \"5ms\"",
        &[
            "a.toml:6: `service.slo` is \"5ms\", which is not an objective; write a percentile and a time with its unit, \
           as in \"p99=5ms\"",
        ],
    );
    assert_edit_is_refused(
        "gate = \"holder\"",
        "gate = \"holder\"\nmin_idle = 8",
        &[
            "a.toml:23: `lanes.min_idle` is 8, which has no unit; write a number and its unit, one of ns, us, ms, s, m, h, as \
           in \"8us\" or \"1.5s\"",
        ],
    );
    let text = format!("{GOOD}\n[intervals]\nlook = \"1us\"\n");
    assert_refused(&text, &["a.toml:25: `intervals.look` is \"1us\"; write 1ms or more"]);
}

#[test]
fn a_cpu_has_one_role() {
    assert_edit_is_refused(
        "reserved = \"0-1\"",
        "reserved = \"0-1,1\"",
        &["a.toml:19: `policy.reserved` is \"0-1,1\", which names CPU 1 twice; write a number of CPUs, as in 4, or \
             which CPUs, as in \"0-3\" or [0, 1]"],
    );
    assert_edit_is_refused(
        "reserved = \"0-1\"",
        "reserved = [0, 1, 0]",
        &["a.toml:19: `policy.reserved` names CPU 0 twice; write a number of CPUs, as in 4, or which CPUs, as in \
           \"0-3\" or [0, 1]"],
    );
    assert_edit_is_refused(
        "reserved = \"0-1\"",
        "siblings = [\"0,1\", \"1,2\"]",
        &["a.toml:19: `policy.siblings` has \"1,2\", which names CPU 1, which another core has already; write a list \
             of cores, each with the numbers of its CPUs, as in [\"0,1\", \"2,3\"]"],
    );
}

#[test]
fn a_group_has_one_role() {
    assert_edit_is_refused(
        "cgroup = \"/batch\"",
        "cgroup = \"/system.slice/redis-server.service\"",
        &["a.toml:12: `batch.cgroup` is \"/system.slice/redis-server.service\", which may match the same groups as \
           `service.unit` of line 3, \"redis-server.service\"; write patterns that cannot match the same group: a \
           group has one role"],
    );
    assert_edit_is_refused(
        "port = 8080",
        "cgroup = \"/batch/web\"",
        &["a.toml:12: `batch.cgroup` is \"/batch\", which may match the same groups as `service.cgroup` of line 8, \
           \"/batch/web\"; write patterns that cannot match the same group: a group has one role"],
    );
    assert_edit_is_refused(
        "cgroup = \"/batch\"",
        "cgroup = \"/kubepods.slice/*\"",
        &["a.toml:12: `batch.cgroup` is \"/kubepods.slice/*\", which may match the same groups as `kubernetes` of \
             line 1, /kubepods.slice; write patterns that cannot match the same group: a group has one role"],
    );
}

#[test]
fn duplicate_names_and_ports_are_refused() {
    assert_edit_is_refused(
        "name = \"web\"\nport = 8080",
        "name = \"redis\"\nunit = \"redis-server.service\"",
        &[
            "a.toml:8: `service.name` is \"redis\", the same as `service.name` of line 3; write each once",
            "a.toml:8: `service.unit` is \"redis-server.service\", which may match the same groups as `service.unit` \
             of line 3, \"redis-server.service\"; write patterns that cannot match the same group: a group has one \
             role",
        ],
    );
    assert_edit_is_refused(
        "port = 8080",
        "port = 8080\ncomm = \"nginx\"",
        &["a.toml:11: `service.comm` is given, but `port` is given, too; write one of `cgroup`, `unit`, `pod`, \
             `port`, `comm`, by which the service is found"],
    );
    assert_edit_is_refused(
        "port = 8080",
        "port = 80800",
        &["a.toml:10: `service.port` is 80800; write a whole number from 1 to 65535"],
    );
}

#[test]
fn invalid_paths_are_refused() {
    const ADVICE: &str =
        "write a group's path from the root of its hierarchy, as in \"/batch\" or \"/system.slice/redis@*.service\"";
    for (path, why) in [
        ("batch", "does not begin with /"),
        ("/", "is the root, with every process of the machine"),
        ("/a/../b", "has the part `..`, which a path of a cgroup cannot have"),
    ] {
        let problem = format!("a.toml:13: `batch.cgroup` is \"{path}\", which {why}; {ADVICE}");
        assert_edit_is_refused("cgroup = \"/batch\"", &format!("cgroup = \"{path}\""), &[&problem]);
    }
}

#[test]
fn keys_of_another_policy_are_refused() {
    assert_edit_is_refused(
        "kind = \"holmes\"",
        "kind = \"perfiso\"",
        &[
            "a.toml:17: `policy.calm_time` is for `holmes`, but kind is `perfiso`; leave it out",
            "a.toml:18: `policy.reserved_busy` is for `holmes`, but kind is `perfiso`; leave it out",
            "a.toml:19: `policy.reserved` is for `holmes`, but kind is `perfiso`; leave it out",
        ],
    );
    let unmanaged = GOOD.replace(
        "kind = \"holmes\"\ncalm_time = \"1s\"\nreserved_busy = \"80%\"\nreserved = \"0-1\"",
        "kind = \"unmanaged\"\nfloor = 1",
    );
    assert_refused(
        &unmanaged,
        &["a.toml:17: `policy.floor` is for `holmes` and `perfiso`, but kind is `unmanaged`; leave it out"],
    );
}

#[test]
fn only_the_replay_source_has_a_file() {
    let text = format!("{GOOD}\n[metric]\nsource = \"replay\"\n");
    assert_refused(&text, &["a.toml:24: `metric.replay` is missing; write the path of the recorded counters"]);
    let text = format!("{GOOD}\n[metric]\nreplay = \"a.jsonl\"\n");
    assert_refused(
        &text,
        &["a.toml:25: `metric.replay` is given, but source is not \"replay\"; write source = \"replay\", or \
                      leave it out"],
    );
}

#[test]
fn formula_syntax_is_checked_for_unknown_events() {
    const ADVICE: &str = "write at most four events, as in \"r140014a3 / (r81d0 + r82d0)\"";
    for (formula, why) in [
        ("stalls", "is not a formula"),
        ("stalls / (loads, stores)", "is not a formula"),
        ("a / (b + c + d + e)", "has more than four events"),
    ] {
        let text = format!("{GOOD}\n[metric]\nformula = \"{formula}\"\n");
        assert_refused(&text, &[&format!("a.toml:25: `metric.formula` is \"{formula}\", which {why}; {ADVICE}")]);
    }
    let text = format!("{GOOD}\n[metric]\nformula = \"STALLS / (LOADS + STORES)\"\n");
    assert_eq!(parse_valid(&text).metric.formula.as_deref(), Some("STALLS / (LOADS + STORES)"));
}

#[test]
fn invalid_toml_and_unreadable_file_are_refused() {
    let error = Config::parse("a.toml", "a = \nb = \n").unwrap_err();
    assert_eq!(error.all.iter().map(|problem| problem.line).collect::<Vec<_>>(), [Some(1), Some(2)]);
    assert!(error.to_string().starts_with("a.toml:1: `file` is not TOML: "), "{error}");
    let gone = Config::load(std::path::Path::new("/nonexistent/a.toml")).unwrap_err().to_string();
    assert_eq!(
        gone,
        "/nonexistent/a.toml: `file` cannot be read: No such file or directory (os error 2); name the agent's file \
         with --config; `sidelane agent example` prints one"
    );
}

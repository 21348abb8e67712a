//! Files that are right and files that are wrong. The texts of problems are exact: they are what users see.

use proptest::prelude::*;
use sidelane_policy::hurryup::{self, Learning, Looks, Threshold};

use super::*;
use crate::proxy::options::parse_address;

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
s = "1s"
t = "80%"
reserved = "0-1"

[lanes]
gate = "holder"
"#;

#[track_caller]
fn wrong(from: &str, to: &str, problems: &[&str]) {
    assert!(GOOD.contains(from), "{from}");
    refused(&GOOD.replace(from, to), problems);
}

#[track_caller]
fn refused(text: &str, problems: &[&str]) {
    let found = Config::parse("a.toml", text).expect_err("it is refused").to_string();
    assert_eq!(found.lines().collect::<Vec<_>>(), problems);
}

fn read(text: &str) -> Config {
    Config::parse("a.toml", text).expect("it can be read")
}

#[test]
fn a_good_one_is_read() {
    let config = read(GOOD);
    assert_eq!(config.services[0].matches, Match::Unit("redis-server.service".into()));
    assert_eq!(config.services[0].terms.slo, Some(Objective { percentile: 99.0, limit_ns: 5_000_000 }));
    assert_eq!(config.services[1].matches, Match::Port(8080));
    assert_eq!(config.batch[0].cgroup.to_string(), "/batch");
    assert!(config.kubernetes.is_some());
    let Kind::Holmes(holmes) = &config.policy.kind else { panic!("{:?}", config.policy) };
    assert_eq!((holmes.e, holmes.s, holmes.t), (None, Duration::from_secs(1), 0.8));
    assert_eq!(holmes.reserved, Reserved::Cpus("0-1".parse().unwrap()));
    assert_eq!(config.intervals.look, Duration::from_millis(10));
}

#[test]
fn each_setting_says_where_it_comes_from() {
    let config = read(GOOD);
    let setting = |key: &str| {
        let found = config.settings.iter().find(|setting| setting.key == key).expect(key);
        (found.value.as_str(), found.line)
    };
    assert_eq!(setting("policy.kind"), ("\"holmes\"", Some(16)));
    assert_eq!(setting("policy.reserved"), ("\"0-1\"", Some(19)));
    assert_eq!(setting("policy.e"), ("the metric's", None));
    assert_eq!(setting("intervals.processes"), ("\"1s\"", None));
    assert_eq!(setting("lanes.min_idle"), ("\"8us\"", None));
}

#[test]
fn the_example_is_right() {
    let config = read(EXAMPLE);
    assert_eq!((config.services.len(), config.batch.len()), (1, 1));
}

/// What is a comment in the example is right, too, in place of what it goes without.
#[test]
fn what_the_example_leaves_out_is_right() {
    const UNIT: &str = "unit = ";
    const TRACED: &str = "services = [\"redis\"]              # by name";
    const HURRIED: &str = "services = [\"redis\"]              # whose";
    const HOLMES: [&str; 3] = ["kind = ", "s = ", "t = "];
    const PROXY: [&str; 17] = [
        "[[proxy]]",
        "listen = ",
        "active = ",
        "backup = ",
        "protocol = ",
        "hazard = ",
        "hedge = ",
        "repeat = ",
        "once_to = ",
        "budget = \"10%\"",
        "burst = ",
        "warm_up = ",
        "poll = \"200us\"",
        "head_time = ",
        "idle_time = ",
        "answer_time = ",
        "clients = ",
    ];
    let variants: [(&[&str], &[&str]); 16] = [
        (&[UNIT], &["cgroup = \"/system.slice/redis@*.service\""]),
        (&[UNIT], &["port = 6379"]),
        (&[UNIT], &["comm = "]),
        (&[UNIT], &["pod = ", "kubernetes = true"]),
        (
            &[],
            &[
                "cpus = \"0-3\"",
                "cpus = 4",
                "e = 40",
                "reserved = 4",
                "siblings = [",
                "tick = ",
                "poll = \"50us\"",
                "formula = ",
            ],
        ),
        (&[], &["[kubernetes]", "exclude = ", "slo = \"p99=50ms\"", "may_be_placed = false             # of all"]),
        (&[], &["[kubernetes]", "cgroup = \"/kubepods.slice\""]),
        (&HOLMES, &["kind = \"perfiso\"", "idle = 8"]),
        (&["kind = ", "s = ", "t = ", "floor = "], &["kind = \"unmanaged\""]),
        (&["source = "], &["source = \"replay\"", "replay = "]),
        (&[], &["[lanes]", "gate = ", "policy = ", "budget = \"5ms\"", "min_idle = "]),
        (&[], &["[lanes]", "gate = ", "min_idle = ", "max_slowdown = "]),
        (&[], &PROXY),
        (&[], &["[trace]", TRACED, "dir = ", "keep = ", "recordings = ", "light = "]),
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
        read(&EXAMPLE.lines().filter_map(line).collect::<Vec<_>>().join("\n"));
    }
    let comments = EXAMPLE.lines().filter_map(|line| line.strip_prefix("# "));
    let is_setting = |line: &&str| line.contains(" = ") || line.starts_with('[');
    let all: Vec<&str> = variants.iter().flat_map(|(_, with)| with.iter().copied()).collect();
    let untried: Vec<&str> = comments.filter(is_setting).filter(|line| !begins(line, &all)).collect();
    assert_eq!(untried, Vec::<&str>::new());
}

#[test]
fn each_key_is_in_the_reference() {
    let reference = include_str!("../../../../../docs/agent.md");
    let keys = EXAMPLE.lines().filter_map(|line| line.trim_start_matches("# ").split_once(" = "));
    let is_key = |key: &&str| key.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_');
    let missing: Vec<&str> =
        keys.map(|(key, _)| key).filter(is_key).filter(|key| !reference.contains(&format!("`{key}`"))).collect();
    assert_eq!(missing, Vec::<&str>::new());
}

#[test]
fn all_problems_are_told_at_once() {
    refused(
        "[[service]]\nname = 3\n\n[policy]\nkind = \"holms\"\ns = 1\nE = 40\n",
        &[
            "a.toml:1: `service.cgroup` is missing; write one of `cgroup`, `unit`, `pod`, `port`, `comm`, which says how \
             it is found",
            "a.toml:2: `service.name` is 3; write a name for it, as in \"redis\"",
            "a.toml:5: `policy.kind` is \"holms\"; did you mean `holmes`? write one of `holmes`, `perfiso`, `unmanaged`",
            "a.toml:6: `policy.s` is 1, which has no unit; write a number and its unit, one of ns, us, ms, s, as in \
             \"8us\" or \"1.5s\"",
            "a.toml:7: `policy.E` is not a key here; did you mean `e`? there are `e`, `floor`, `idle`, `kind`, \
             `reserved`, `s`, `siblings`, `t`",
            "a.toml: `batch` is missing; name a tree of groups in [[batch]], or write kubernetes = true",
        ],
    );
}

#[test]
fn unknown_keys() {
    wrong(
        "port = 8080",
        "prot = 8080",
        &[
            "a.toml:8: `service.cgroup` is missing; write one of `cgroup`, `unit`, `pod`, `port`, `comm`, which says how \
             it is found",
            "a.toml:10: `service.prot` is not a key here; did you mean `port`? there are `cgroup`, `comm`, `cpus`, \
             `may_be_placed`, `name`, `pod`, `port`, `slo`, `unit`",
        ],
    );
    wrong(
        "[lanes]",
        "[lane]",
        &[
            "a.toml:21: `lane` is not a key here; did you mean `lanes`? there are `audit`, `batch`, `hurry`, `intervals`, \
           `kubernetes`, `lanes`, `metric`, `metrics`, `policy`, `proxy`, `service`, `trace`",
        ],
    );
    wrong(
        "cgroup = \"/batch\"",
        "cgroup = \"/batch\"\nkubernetes = true",
        &["a.toml:14: `batch.kubernetes` is not a key here; write it above the first table of the file, or as \
           [kubernetes]"],
    );
    wrong("[[batch]]", "[batch]", &["a.toml:12: `batch` is a table; write [[batch]] with two brackets, once for each"]);
}

#[test]
fn wrong_units() {
    wrong(
        "t = \"80%\"",
        "t = 80",
        &[
            "a.toml:18: `policy.t` is 80, which has no unit; write a percentage from 1 to 99 with its sign, as in \"80%\"",
        ],
    );
    wrong(
        "t = \"80%\"",
        "t = \"0.8\"",
        &["a.toml:18: `policy.t` is \"0.8\"; write a percentage from 1 to 99 with its sign, as in \"80%\""],
    );
    wrong(
        "s = \"1s\"",
        "s = \"1 min\"",
        &[
            "a.toml:17: `policy.s` is \"1 min\", which is not a time; write a number and its unit, one of ns, us, ms, s, \
           as in \"8us\" or \"1.5s\"",
        ],
    );
    wrong(
        "slo = \"p99=5ms\"",
        "slo = \"5ms\"",
        &[
            "a.toml:6: `service.slo` is \"5ms\", which is not an objective; write a percentile and a time with its unit, \
           as in \"p99=5ms\"",
        ],
    );
    wrong(
        "gate = \"holder\"",
        "gate = \"holder\"\nmin_idle = 8",
        &[
            "a.toml:23: `lanes.min_idle` is 8, which has no unit; write a number and its unit, one of ns, us, ms, s, as \
           in \"8us\" or \"1.5s\"",
        ],
    );
    let text = format!("{GOOD}\n[intervals]\nlook = \"1us\"\n");
    refused(&text, &["a.toml:25: `intervals.look` is \"1us\"; it is 1ms at least"]);
}

#[test]
fn a_cpu_has_one_role() {
    wrong(
        "reserved = \"0-1\"",
        "reserved = \"0-1,1\"",
        &[
            "a.toml:19: `policy.reserved` is \"0-1,1\", which names CPU 1 twice; write how many, as in 4, or which, as in \
           \"0-3\" or [0, 1]",
        ],
    );
    wrong(
        "reserved = \"0-1\"",
        "reserved = [0, 1, 0]",
        &["a.toml:19: `policy.reserved` names CPU 0 twice; write how many, as in 4, or which, as in \"0-3\" or [0, 1]"],
    );
    wrong(
        "reserved = \"0-1\"",
        "siblings = [\"0,1\", \"1,2\"]",
        &[
            "a.toml:19: `policy.siblings` has \"1,2\", which names CPU 1, which is of another core already; write a list \
           of cores, each with the numbers of its CPUs, as in [\"0,1\", \"2,3\"]",
        ],
    );
}

#[test]
fn a_group_has_one_role() {
    wrong(
        "cgroup = \"/batch\"",
        "cgroup = \"/system.slice/redis-server.service\"",
        &["a.toml:12: `batch.cgroup` is \"/system.slice/redis-server.service\", which may hold the same groups as \
           `service.unit` of line 3, \"redis-server.service\"; a group has one role: write patterns of which none can \
           lie in the other"],
    );
    wrong(
        "port = 8080",
        "cgroup = \"/batch/web\"",
        &["a.toml:12: `batch.cgroup` is \"/batch\", which may hold the same groups as `service.cgroup` of line 8, \
           \"/batch/web\"; a group has one role: write patterns of which none can lie in the other"],
    );
    wrong(
        "cgroup = \"/batch\"",
        "cgroup = \"/kubepods.slice/*\"",
        &[
            "a.toml:12: `batch.cgroup` is \"/kubepods.slice/*\", which may hold the same groups as `kubernetes` of line 1, \
           /kubepods.slice; a group has one role: write patterns of which none can lie in the other",
        ],
    );
}

#[test]
fn a_name_and_a_port_are_given_once() {
    wrong(
        "name = \"web\"\nport = 8080",
        "name = \"redis\"\nunit = \"redis-server.service\"",
        &[
            "a.toml:8: `service.name` is \"redis\", as `service.name` of line 3 is already; write each once",
            "a.toml:8: `service.unit` is \"redis-server.service\", which may hold the same groups as `service.unit` of \
             line 3, \"redis-server.service\"; a group has one role: write patterns of which none can lie in the other",
        ],
    );
    wrong(
        "port = 8080",
        "port = 8080\ncomm = \"nginx\"",
        &[
            "a.toml:11: `service.comm` is given beside `port`; write one of `cgroup`, `unit`, `pod`, `port`, `comm`, which \
           says how it is found",
        ],
    );
    wrong("port = 8080", "port = 80800", &["a.toml:10: `service.port` is 80800; write a whole number from 1 to 65535"]);
}

#[test]
fn paths_that_are_none() {
    const ADVICE: &str =
        "write a group's path from the root of its hierarchy, as in \"/batch\" or \"/system.slice/redis@*.service\"";
    for (path, why) in [
        ("batch", "does not begin with /"),
        ("/", "means the root, and so every process of the machine"),
        ("/a/../b", "has the part `..`, which no path has"),
    ] {
        let problem = format!("a.toml:13: `batch.cgroup` is \"{path}\", which {why}; {ADVICE}");
        wrong("cgroup = \"/batch\"", &format!("cgroup = \"{path}\""), &[&problem]);
    }
}

#[test]
fn keys_of_another_policy() {
    wrong(
        "kind = \"holmes\"",
        "kind = \"perfiso\"",
        &[
            "a.toml:17: `policy.s` is for `holmes`, and kind is `perfiso`; leave it out",
            "a.toml:18: `policy.t` is for `holmes`, and kind is `perfiso`; leave it out",
            "a.toml:19: `policy.reserved` is for `holmes`, and kind is `perfiso`; leave it out",
        ],
    );
    let unmanaged = GOOD
        .replace("kind = \"holmes\"\ns = \"1s\"\nt = \"80%\"\nreserved = \"0-1\"", "kind = \"unmanaged\"\nfloor = 1");
    refused(
        &unmanaged,
        &["a.toml:17: `policy.floor` is for `holmes` and `perfiso`, and kind is `unmanaged`; leave it out"],
    );
}

#[test]
fn lanes_that_cannot_be_kept() {
    wrong(
        "gate = \"holder\"",
        "gate = \"sched-ext\"",
        &[
            "a.toml:22: `lanes.gate` is \"sched-ext\", which is for commands that Sidelane starts; write holder, freezer or \
           sched-idle",
        ],
    );
    wrong(
        "gate = \"holder\"",
        "policy = \"fixed-budget\"",
        &[
            "a.toml:1: `kubernetes.slo` is missing, and the policy fixed-budget of [lanes] has to know what batch may \
             cost; write what requests may take, as in slo = \"p99=5ms\", or a budget in [lanes]",
            "a.toml:8: `service.slo` is missing, and the policy fixed-budget of [lanes] has to know what batch may cost; \
             write what requests may take, as in slo = \"p99=5ms\", or a budget in [lanes]",
        ],
    );
    wrong(
        "gate = \"holder\"",
        "policy = \"borrow-idle\"\nbudget = \"1ms\"",
        &[
            "a.toml:23: `lanes.budget` is given, and borrow-idle never runs batch beside a request; leave it out, or choose \
           another policy, such as deadline",
        ],
    );
    for line in ["policy = \"fixed-budget\"\nbudget = \"1ms\"", "gate = \"freezer\"\n"] {
        wrong(
            "gate = \"holder\"",
            &format!("{line}\nmax_slowdown = \"5%\""),
            &[
                "a.toml:24: `lanes.max_slowdown` is given, and only a holder under borrow-idle keeps to it; leave it out, or \
                 choose gate = \"holder\" and policy = \"borrow-idle\"",
            ],
        );
    }
    for (value, problem) in [("5", "5"), ("\"five\"", "\"five\", which is no percentage from 0 to 100")] {
        let told = format!(
            "a.toml:22: `lanes.max_slowdown` is {problem}; write a percentage with its sign, as in \"5%\", or \"none\""
        );
        wrong("gate = \"holder\"", &format!("max_slowdown = {value}"), &[&told]);
    }
}

#[test]
fn what_batch_may_cost_requests_is_bounded_unless_the_file_says_otherwise() {
    let lanes = |more: &str| read(&GOOD.replace("gate = \"holder\"", more)).lanes.unwrap().max_slowdown;
    assert_eq!(lanes("gate = \"holder\""), MaxSlowdown::Bound(0.05));
    assert_eq!(lanes("max_slowdown = \"12.5%\""), MaxSlowdown::Bound(0.125));
    assert_eq!(lanes("max_slowdown = \"none\""), MaxSlowdown::Any);
    let config = read(GOOD);
    let told = config.settings.iter().find(|setting| setting.key == "lanes.max_slowdown").unwrap();
    assert_eq!(told.value, "\"5%\"");
}

/// The good file with a proxy, which begins in line 24.
fn with_proxy(lines: &str) -> String {
    format!("{GOOD}\n[[proxy]]\nlisten = \":8080\"\n{lines}\n")
}

#[test]
fn a_proxy_has_the_defaults_of_its_verb() {
    let config = read(&with_proxy("active = \"127.0.0.1:9001\""));
    let [listen, active] = [":8080", "127.0.0.1:9001"].map(|text| parse_address(text).unwrap());
    assert_eq!(config.proxies, [ProxyOptions::new(listen, active)]);
    let setting = |key: &str| config.settings.iter().find(|setting| setting.key == key).expect(key).value.clone();
    assert_eq!(setting("proxy[0.0.0.0:8080].poll"), "\"200us\"");
    assert_eq!(setting("proxy[0.0.0.0:8080].budget"), "\"10%\"");
    assert_eq!(setting("proxy[0.0.0.0:8080].hazard"), "\"all\"");
}

#[test]
fn proxies_that_cannot_be() {
    const ADDRESS: &str =
        "write ADDRESS:PORT, as in \"127.0.0.1:9001\", or \":8080\" for every address of this machine";
    let active = "active = \"127.0.0.1:9001\"";
    refused(&with_proxy(""), &[&format!("a.toml:24: `proxy.active` is missing; {ADDRESS}")]);
    refused(
        &with_proxy("active = \"9001\"\nbudgets = \"10%\""),
        &[
            &format!("a.toml:26: `proxy.active` is \"9001\", which is not an address with a port; {ADDRESS}"),
            "a.toml:27: `proxy.budgets` is not a key here; did you mean `budget`? there are `active`, `answer_time`, \
             `backup`, `budget`, `burst`, `clients`, `hazard`, `head_time`, `hedge`, `idle_time`, `listen`, `once_to`, \
             `poll`, `protocol`, `repeat`, `trace`, `warm_up`",
        ],
    );
    refused(
        &with_proxy(&format!("{active}\nbudget = 10\npoll = 200\nhedge = \"timer:20\"\nhazard = \"gc\"")),
        &[
            "a.toml:27: `proxy.budget` is 10, which has no unit; write a percentage from 0 to 100 with its sign, as in \
             \"10%\"",
            "a.toml:28: `proxy.poll` is 200, which has no unit; write a number and its unit, one of ns, us, ms, s, as in \
             \"8us\" or \"1.5s\"",
            "a.toml:29: `proxy.hedge` is \"timer:20\", which is no way to hedge; write \"hazard\", \"timer:TIME\" as in \
             \"timer:20ms\", or \"none\"",
            "a.toml:30: `proxy.hazard` is \"gc\", which is no list of hazards; write \"jvm-gc\", \"safepoint\", \
             \"stopped\", \"throttled\" and \"restart\" with commas between, or \"all\", or \"none\"",
        ],
    );
    refused(
        &with_proxy(&format!("{active}\nbackup = \"127.0.0.1:9001\"")),
        &[
            "a.toml:27: `proxy.backup` is \"127.0.0.1:9001\", as `proxy.active` is; a proxy needs another address for each",
        ],
    );
    refused(
        &with_proxy(&format!("{active}\nprotocol = \"redis\"\ntrace = true")),
        &[
            "a.toml:28: `proxy.trace` is true for redis; what became of a command of Redis cannot be asked for: leave it out",
        ],
    );
}

#[test]
fn an_address_has_one_listener() {
    const ADVICE: &str = "write another address or port for one of them";
    let proxy = with_proxy("active = \"127.0.0.1:9001\"");
    refused(
        &format!("{proxy}\n[[proxy]]\nlisten = \"127.0.0.1:8080\"\nactive = \"127.0.0.1:9001\"\n"),
        &[&format!(
            "a.toml:28: `proxy.listen` is \"127.0.0.1:8080\", where `proxy.listen` of line 24 listens already, \
             \"0.0.0.0:8080\"; {ADVICE}"
        )],
    );
    refused(
        &format!("{proxy}\n[metrics]\nlisten = \"127.0.0.1:8080\"\n"),
        &[&format!(
            "a.toml:29: `metrics.listen` is \"127.0.0.1:8080\", where `proxy.listen` of line 24 listens already, \
             \"0.0.0.0:8080\"; {ADVICE}"
        )],
    );
    let two = proxy.replace(":8080", "127.0.0.1:8080")
        + "\n[[proxy]]\nlisten = \"127.0.0.2:8080\"\nactive = \"127.0.0.1:9001\"\n";
    assert_eq!(read(&two).proxies.len(), 2);
}

#[test]
fn flight_recorders_are_of_services_that_owe_something() {
    const SERVICES: &str = "write names of [[service]], as in [\"redis\"]";
    const SLO: &str = "write what requests may take, as in slo = \"p99=5ms\"";
    let with = |lines: &str| format!("{GOOD}\n[trace]\n{lines}\n");
    let trace = read(&with("dir = \"/var/tmp\"")).trace.unwrap();
    assert_eq!((trace.keep, trace.recordings, trace.light), (Duration::from_secs(10), 100, false));
    let recorded: Vec<bool> = read(GOOD).services.iter().map(|rule| trace.names(rule)).collect();
    assert_eq!(recorded, [true, false], "redis has an slo, web has none");
    refused(
        &with("services = [\"redis\", \"web\", \"sql\"]\nkeep = \"2000s\"\nrecordings = 0\nfiles = 3\ndir = \"a\""),
        &[
            &format!("a.toml:8: `service.slo` is missing, and [trace] names \"web\" and records what breaks it; {SLO}"),
            &format!("a.toml:25: `trace.services` has \"sql\", and no [[service]] is named so; {SERVICES}"),
            "a.toml:26: `trace.keep` is \"2000s\", and each second takes 3.2 MB of memory for each service; it is 60s at \
             most",
            "a.toml:27: `trace.recordings` is 0; write a whole number from 1 to 10000",
            "a.toml:28: `trace.files` is not a key here; there are `dir`, `keep`, `light`, `recordings`, `services`",
        ],
    );
    refused(&with(""), &["a.toml:24: `trace.dir` is missing; write the directory for recordings, as in \"/var/tmp\""]);
    refused(
        &with("dir = \"a\"").replace("slo = \"p99=5ms\"\n", ""),
        &[&format!("a.toml:23: `trace.services` is missing, and no [[service]] has an slo that could break; {SLO}")],
    );
}

/// The good file with long requests that move, from line 24 on.
fn with_hurry(lines: &str) -> String {
    format!("{GOOD}\n[hurry]\n{lines}\n")
}

#[test]
fn threads_are_mapped_as_by_the_verb() {
    let config = read(&with_hurry(""));
    let hurry = config.hurry.as_ref().unwrap();
    let mapped: Vec<bool> = config.services.iter().map(|rule| hurry.names(rule)).collect();
    assert_eq!(mapped, [true, false], "redis has an slo, web has none");
    assert_eq!((hurry.cores.clone(), hurry.mapping(None)), (BigCores::Found, hurryup::Config::default()));
    let setting = |key: &str| config.settings.iter().find(|setting| setting.key == key).expect(key).value.clone();
    assert_eq!(
        (setting("hurry.big"), setting("hurry.threshold")),
        ("as the kernel tells cores apart".into(), "learnt".into())
    );
    let given =
        with_hurry("services = [\"web\"]\nbig = \"0-3\"\nlittle = \"4-7\"\nthreshold = \"50ms\"\nsampling = \"25ms\"");
    let hurry = read(&given).hurry.unwrap();
    let [big, little] = ["0-3", "4-7"].map(|cpus| cpus.parse().unwrap());
    assert_eq!(hurry.cores, BigCores::Given(big, little));
    let mapping = hurry.mapping(None);
    assert_eq!((mapping.threshold, mapping.looks), (Threshold::Given(50_000_000), Looks::Sampling(25_000_000)));
    assert_eq!(read(&with_hurry("siblings = true")).hurry.unwrap().cores, BigCores::Siblings);
    let learnt = read(&with_hurry("percentile = 99.9")).hurry.unwrap().mapping(Some(500));
    assert_eq!(learnt.threshold, Threshold::Learnt(Learning::of(9990, Some(500))));
}

#[test]
fn threads_that_cannot_be_mapped() {
    const CPUS: &str = "write the numbers of CPUs, as in \"0-3,8\"";
    refused(
        &with_hurry(
            "big = \"0-3\"\nlittle = \"3-7\"\nthreshold = 50\nsampling = \"1us\"\npercentiles = 90\nservices = [\"sql\"]",
        ),
        &[
            "a.toml:26: `hurry.little` names CPU 3, which is in `big` already; write each CPU in one of them",
            "a.toml:27: `hurry.threshold` is 50, which has no unit; write a number and its unit, one of ns, us, ms, s, as \
             in \"8us\" or \"1.5s\"",
            "a.toml:28: `hurry.sampling` is \"1us\"; it is 1ms at least",
            "a.toml:29: `hurry.percentiles` is not a key here; did you mean `percentile`? there are `big`, `little`, `log`, \
             `percentile`, `sampling`, `services`, `siblings`, `threshold`",
            "a.toml:30: `hurry.services` has \"sql\", and no [[service]] is named so; write names of [[service]], as in \
             [\"redis\"]",
        ],
    );
    refused(
        &with_hurry("little = \"4-x\"\nthreshold = \"50ms\"\npercentile = 100"),
        &[
            "a.toml:24: `hurry.big` is missing, and `little` is given; write both, or none to have them found",
            &format!("a.toml:25: `hurry.little` is \"4-x\", which has `4-x` where CPUs belong; {CPUS}"),
            "a.toml:27: `hurry.percentile` is 100; write a percentile above 0 and below 100, as in 90",
            "a.toml:27: `hurry.percentile` is given beside `threshold`; write one of them: a given threshold is not learnt",
        ],
    );
    refused(
        &with_hurry("big = \"0-3\"\nlittle = \"4-7\"\nsiblings = true"),
        &["a.toml:27: `hurry.siblings` is true beside `big`; write one of them: with siblings all cores are alike"],
    );
    refused(&with_hurry("siblings = [\"0,1\"]"), &["a.toml:25: `hurry.siblings` is a list; write true or false"]);
    refused(
        &with_hurry("services = [\"web\"]").replace("port = 8080", "port = 8080\nmay_be_placed = true"),
        &[
            "a.toml:8: `service.may_be_placed` is true, and [hurry] moves the threads of \"web\", too; a thread has one \
           owner: leave may_be_placed out, or name other services in [hurry]",
        ],
    );
    refused(
        &with_hurry("").replace("slo = \"p99=5ms\"\n", ""),
        &["a.toml:23: `hurry.services` is missing, and no [[service]] has an slo; write names of [[service]], as in \
           [\"redis\"]"],
    );
}

#[test]
fn a_replay_has_its_file_and_no_other_source_has() {
    let text = format!("{GOOD}\n[metric]\nsource = \"replay\"\n");
    refused(&text, &["a.toml:24: `metric.replay` is missing; write the file with the recorded counters"]);
    let text = format!("{GOOD}\n[metric]\nreplay = \"a.jsonl\"\n");
    refused(&text, &["a.toml:25: `metric.replay` is given, and source is another; write source = \"replay\""]);
}

#[test]
fn formulas_have_the_right_form_whatever_their_events() {
    const ADVICE: &str = "write at most four events, as in \"r140014a3 / (r81d0 + r82d0)\"";
    for (formula, why) in [
        ("stalls", "is not a formula"),
        ("stalls / (loads, stores)", "is not a formula"),
        ("a / (b + c + d + e)", "has more events than are counted at the same time"),
    ] {
        let text = format!("{GOOD}\n[metric]\nformula = \"{formula}\"\n");
        refused(&text, &[&format!("a.toml:25: `metric.formula` is \"{formula}\", which {why}; {ADVICE}")]);
    }
    let text = format!("{GOOD}\n[metric]\nformula = \"STALLS / (LOADS + STORES)\"\n");
    assert_eq!(read(&text).metric.formula.as_deref(), Some("STALLS / (LOADS + STORES)"));
}

#[test]
fn what_is_no_toml() {
    let error = Config::parse("a.toml", "a = \nb = \n").unwrap_err();
    assert_eq!(error.all.iter().map(|problem| problem.line).collect::<Vec<_>>(), [Some(1), Some(2)]);
    assert!(error.to_string().starts_with("a.toml:1: `file` is not TOML: "), "{error}");
    let gone = Config::load(std::path::Path::new("/nonexistent/a.toml")).unwrap_err().to_string();
    assert_eq!(
        gone,
        "/nonexistent/a.toml: `file` cannot be read: No such file or directory (os error 2); name a file that can be \
         read; `sidelane agent example` prints one"
    );
}

#[test]
fn lanes_are_lent_by_what_batch_may_cost() {
    let lanes = read(GOOD).lanes.unwrap();
    let slo = Objective { percentile: 99.0, limit_ns: 5_000_000 };
    assert_eq!(lanes.lending(None).unwrap().policy, PolicyKind::BorrowIdle);
    assert_eq!(lanes.lending(Some(slo)).unwrap().policy, PolicyKind::Deadline);
    let idle = LaneGate { policy: Some(PolicyKind::BorrowIdle), ..lanes };
    assert_eq!(idle.lending(Some(slo)).unwrap().policy, PolicyKind::BorrowIdle);
}

proptest! {
    /// Garbage is refused, with words, and never a panic.
    #[test]
    fn any_text_is_read_or_refused(lines in prop::collection::vec("(\\[|\\[\\[)?(policy|service|batch|e|s|reserved|cgroup|kubernetes|lanes)(\\]|\\]\\]| = [\"0-9a-z%{\\[,/*]{0,8})?", 0..8)) {
        if let Err(problems) = Config::parse("a.toml", &lines.join("\n")) {
            prop_assert!(!problems.all.is_empty());
        }
    }
}

#[test]
fn fuzzed_files_are_read_or_refused_with_a_reason() {
    sidelane_fuzz::fuzz("agent-file", |bytes| match Config::parse("a.toml", &String::from_utf8_lossy(bytes)) {
        Ok(config) => drop(config.in_words()),
        Err(problems) => assert!(problems.to_string().contains("a.toml"), "{problems}"),
    });
}

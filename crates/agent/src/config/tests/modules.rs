//! Tests of the tables for modules: proxies, flight recorders and moves of long requests.

use std::path::Path;

use sidelane_policy::hurryup::{self, Learning, ScanTimes, Threshold};

use sidelane_hazards::run::options::HazardOptions;
use sidelane_proxy::access::Format;

use super::*;
use sidelane_proxy::run::options::{parse_listen, parse_server};
use sidelane_proxy::tls::TlsFiles;

/// Returns a valid file with a proxy, which begins in line 24.
fn config_with_proxy(lines: &str) -> String {
    format!("{GOOD}\n[[proxy]]\nlisten = \":8080\"\n{lines}\n")
}

#[test]
fn proxy_table_has_the_defaults_of_the_command() {
    let config = parse_valid(&config_with_proxy("active = \"127.0.0.1:9001\""));
    let (listen, active) = (parse_listen(":8080").unwrap(), parse_server("127.0.0.1:9001").unwrap());
    assert_eq!(config.proxies, [ProxyOptions::new(listen, active)]);
    let setting = |key: &str| config.settings.iter().find(|setting| setting.key == key).expect(key).value.clone();
    assert_eq!(setting("proxy[[::]:8080].poll"), "\"200us\"");
    assert_eq!(setting("proxy[[::]:8080].budget"), "\"10%\"");
    assert_eq!(setting("proxy[[::]:8080].hazard"), "\"all\"");
}

#[test]
fn invalid_proxies_are_refused() {
    const ADDRESS: &str = "write ADDRESS:PORT, as in \"127.0.0.1:9001\"";
    let active = "active = \"127.0.0.1:9001\"";
    assert_refused(&config_with_proxy(""), &[&format!("a.toml:24: `proxy.active` is missing; {ADDRESS}")]);
    assert_refused(
        &config_with_proxy("active = \"9001\"\nbudgets = \"10%\""),
        &[
            &format!("a.toml:26: `proxy.active` is \"9001\", which is not an address with a port; {ADDRESS}"),
            "a.toml:27: `proxy.budgets` is not a key here; did you mean `budget`? the keys here are `abort_on_close`, \
             `access_log`, `active`, `answer_time`, `backups`, `budget`, `burst`, `clients`, `drain`, `forwarded`, \
             `hazard`, `head_time`, `hedge`, `idle_time`, `listen`, `log_format`, `once_to`, `otlp`, \
             `outlier_detection`, `poll`, `protocol`, `repeat`, `slo`, `threads`, `tls_cert`, `tls_key`, `trace`, \
             `warm_up`",
        ],
    );
    assert_refused(
        &config_with_proxy(&format!("{active}\nbudget = 10\npoll = 200\nhedge = \"timer:20\"\nhazard = \"gc\"")),
        &[
            "a.toml:27: `proxy.budget` is 10, which has no unit; write a percentage from 0 to 100 with its sign, as in \
             \"10%\"",
            "a.toml:28: `proxy.poll` is 200, which has no unit; write a number and its unit, one of ns, us, ms, s, m, h, as in \
             \"8us\" or \"1.5s\"",
            "a.toml:29: `proxy.hedge` is \"timer:20\", which is neither \"hazard\", \"timer:TIME\" nor \"none\"; write \
             \"hazard\", \"timer:TIME\" as in \"timer:20ms\", or \"none\"",
            "a.toml:30: `proxy.hazard` is \"gc\", which is not a list of hazards; write \"jvm-gc\", \"safepoint\", \
             \"stopped\", \"throttled\" and \"restart\" with commas between, or \"all\", or \"none\"",
        ],
    );
    for (backups, problem) in [
        (
            "[\"127.0.0.1:9002\", \"127.0.0.1:9001\"]",
            "has \"127.0.0.1:9001\", the same as `proxy.active`; write a different address for each",
        ),
        (
            "[\"127.0.0.1:9002\", \"127.0.0.1:9002\"]",
            "has \"127.0.0.1:9002\" twice; write a different address for each",
        ),
        ("[\"127.0.0.1:2\", \"127.0.0.1:3\", \"127.0.0.1:4\", \"127.0.0.1:5\"]", "has 4 addresses; write at most 3"),
        (
            "[\"9002\"]",
            "has \"9002\", which is not an address with a port; write a list of ADDRESS:PORT, as in \
             [\"127.0.0.1:9002\", \"127.0.0.1:9003\"]",
        ),
        (
            "\"127.0.0.1:9002\"",
            "is \"127.0.0.1:9002\"; write a list of ADDRESS:PORT, as in [\"127.0.0.1:9002\", \"127.0.0.1:9003\"]",
        ),
    ] {
        let problem = format!("a.toml:27: `proxy.backups` {problem}");
        assert_refused(&config_with_proxy(&format!("{active}\nbackups = {backups}")), &[&problem]);
    }
    assert_refused(
        &config_with_proxy(&format!("{active}\nprotocol = \"redis\"\ntrace = true")),
        &["a.toml:28: `proxy.trace` is true, but protocol is \"redis\"; leave it out: only HTTP requests can be \
             traced"],
    );
}

/// Returns a valid file with a `[[hazards]]` table, which begins in line 24.
fn config_with_hazards(lines: &str) -> String {
    format!("{GOOD}\n[[hazards]]\n{lines}\n")
}

#[test]
fn hazards_table_has_the_defaults_of_the_command() {
    let config = parse_valid(&config_with_hazards("servers = [\"web/s1=127.0.0.1:9001\"]\nhaproxy = \"/h\""));
    let servers = vec!["web/s1=127.0.0.1:9001".parse().unwrap()];
    let expected = HazardOptions { servers, haproxy: Some("/h".into()), ..HazardOptions::default() };
    assert_eq!(config.hazards, [expected]);
    let setting = |key: &str| config.settings.iter().find(|setting| setting.key == key).expect(key).value.clone();
    assert_eq!(
        (setting("hazards[web/s1].poll"), setting("hazards[web/s1].warm_up")),
        ("\"200us\"".to_owned(), "\"10s\"".to_owned())
    );
}

#[test]
fn invalid_hazards_tables_are_refused() {
    const SERVERS: &str = "write a list of NAME=ADDRESS:PORT, as in [\"web/s1=127.0.0.1:9001\"]";
    let one = "servers = [\"s1=127.0.0.1:9001\"]";
    let refused = |lines: &str, problem: &str| assert_refused(&config_with_hazards(lines), &[problem]);
    refused("haproxy = \"/h\"", &format!("a.toml:24: `hazards.servers` is missing; {SERVERS}"));
    refused(
        "servers = [\"s1\"]",
        &format!("a.toml:25: `hazards.servers` contains an entry that is no name with an address; {SERVERS}"),
    );
    refused(
        one,
        "a.toml:24: `hazards.haproxy` is missing; write haproxy, agent_check or socket: who is told of hazards",
    );
    refused(
        &format!("{one}\nagent_check = \"127.0.0.1:9200\""),
        "a.toml:25: `hazards.servers` has only s1, and the only server is never drained; name the others, or write how \
         many there are elsewhere, as in others = 1",
    );
    refused(
        &format!("{one}\nsocket = \"/s\"\nresend = true"),
        "a.toml:27: `hazards.resend` is true without haproxy; leave it out, or write haproxy",
    );
    refused(
        &format!("{one}\nhaproxy = \"/h\""),
        "a.toml:25: `hazards.servers` has s1, which is not BACKEND/SERVER of HAProxy; write web/s1=127.0.0.1:9001 for \
         the server s1 of the backend web",
    );
}

#[test]
fn export_needs_a_trace_and_an_objective() {
    const SLO: &str = "write the latency above which a request is exported, as in slo = \"10ms\"";
    let active = "active = \"127.0.0.1:9001\"";
    let lines = format!("{active}\ntrace = true\notlp = \"http://127.0.0.1:4318\"\nslo = \"10ms\"");
    let proxy = parse_valid(&config_with_proxy(&lines)).proxies.remove(0);
    assert_eq!(proxy.otlp.unwrap().to_string(), "http://127.0.0.1:4318/v1/traces");
    assert_eq!(proxy.slo.unwrap().limit_ns(), Some(10_000_000));
    assert_refused(
        &config_with_proxy(&format!("{active}\notlp = \"/var/tmp/slow.jsonl\"")),
        &[
            "a.toml:27: `proxy.otlp` is given without `trace`; write trace = true, too",
            &format!("a.toml:27: `proxy.otlp` is given without `slo`; {SLO}"),
        ],
    );
    assert_refused(
        &config_with_proxy(&format!("{active}\nslo = \"10\"\notlp = \"https://c:4318\"\ntrace = true")),
        &[
            &format!("a.toml:27: `proxy.slo` is \"10\", which is not an objective; {SLO}"),
            "a.toml:28: `proxy.otlp` is \"https://c:4318\", which is neither the URL of a collector nor a file; write \
             http://HOST:PORT of a collector, as in \"http://127.0.0.1:4318\", or the path of a file",
        ],
    );
}

#[test]
fn access_log_must_be_a_file() {
    let active = "active = \"127.0.0.1:9001\"";
    let config =
        parse_valid(&config_with_proxy(&format!("{active}\naccess_log = \"/var/log/a.log\"\nlog_format = \"json\"")));
    let proxy = &config.proxies[0];
    assert_eq!((proxy.access_log.as_deref(), proxy.log_format), (Some(Path::new("/var/log/a.log")), Format::Json));
    assert_refused(
        &config_with_proxy(&format!("{active}\naccess_log = \"-\"")),
        &["a.toml:27: `proxy.access_log` is \"-\", which is not a path of a file; write the path of the access log, \
             as in \"/var/log/sidelane-access.log\""],
    );
    assert_refused(
        &config_with_proxy(&format!("{active}\nlog_format = \"json\"")),
        &["a.toml:27: `proxy.log_format` is given without `access_log`; write access_log, too"],
    );
}

#[test]
fn certificate_and_key_are_given_together() {
    let active = "active = \"127.0.0.1:9001\"";
    let config = parse_valid(&config_with_proxy(&format!("{active}\ntls_cert = \"/a.pem\"\ntls_key = \"/a.key\"")));
    let files = TlsFiles { cert: "/a.pem".into(), key: "/a.key".into() };
    assert_eq!(config.proxies[0].tls, Some(files));
    assert_refused(
        &config_with_proxy(&format!("{active}\ntls_cert = \"/a.pem\"")),
        &["a.toml:27: `proxy.tls_cert` is given without `tls_key`; write tls_key, too"],
    );
    assert_refused(
        &config_with_proxy(&format!("{active}\ntls_key = \"\"")),
        &[
            "a.toml:27: `proxy.tls_key` is \"\"; write the path of a PEM file, as in \"/etc/sidelane/proxy.pem\"",
            "a.toml:27: `proxy.tls_key` is given without `tls_cert`; write tls_cert, too",
        ],
    );
}

#[test]
fn two_listeners_at_one_address_are_refused() {
    const ADVICE: &str = "write another address or port for one of the two";
    let proxy = config_with_proxy("active = \"127.0.0.1:9001\"");
    assert_refused(
        &format!("{proxy}\n[[proxy]]\nlisten = \"127.0.0.1:8080\"\nactive = \"127.0.0.1:9001\"\n"),
        &[&format!(
            "a.toml:28: `proxy.listen` is \"127.0.0.1:8080\", which clashes with `proxy.listen` of line 24, \
             \"[::]:8080\"; {ADVICE}"
        )],
    );
    assert_refused(
        &format!("{proxy}\n[metrics]\nlisten = \"127.0.0.1:8080\"\n"),
        &[&format!(
            "a.toml:29: `metrics.listen` is \"127.0.0.1:8080\", which clashes with `proxy.listen` of line 24, \
             \"[::]:8080\"; {ADVICE}"
        )],
    );
    let two = proxy.replace(":8080", "127.0.0.1:8080")
        + "\n[[proxy]]\nlisten = \"127.0.0.2:8080\"\nactive = \"127.0.0.1:9001\"\n";
    assert_eq!(parse_valid(&two).proxies.len(), 2);
}

#[test]
fn flight_recorders_need_a_service_with_an_objective() {
    const SERVICES: &str = "write names of [[service]], as in [\"redis\"]";
    const SLO: &str = "write an objective for its requests, as in slo = \"p99=5ms\"";
    let with = |lines: &str| format!("{GOOD}\n[trace]\n{lines}\n");
    let trace = parse_valid(&with("dir = \"/var/tmp\"")).trace.unwrap();
    assert_eq!((trace.keep, trace.recordings, trace.light), (Duration::from_secs(10), 100, false));
    let recorded: Vec<bool> = parse_valid(GOOD).services.iter().map(|rule| trace.includes_service(rule)).collect();
    assert_eq!(recorded, [true, false], "redis has an slo, web has none");
    assert_refused(
        &with("services = [\"redis\", \"web\", \"sql\"]\nkeep = \"2000s\"\nrecordings = 0\nfiles = 3\ndir = \"a\""),
        &[
            &format!(
                "a.toml:8: `service.slo` is missing, but [trace] names \"web\" and records only what breaks an \
                      slo; {SLO}"
            ),
            &format!("a.toml:25: `trace.services` has \"sql\", but no [[service]] has this name; {SERVICES}"),
            "a.toml:26: `trace.keep` is \"2000s\", but each second takes 3.2 MB of memory for each service; write 60s \
             or less",
            "a.toml:27: `trace.recordings` is 0; write a whole number from 1 to 10000",
            "a.toml:28: `trace.files` is not a key here; the keys here are `dir`, `keep`, `light`, `otlp`, \
             `recordings`, `services`",
        ],
    );
    assert_refused(
        &with(""),
        &["a.toml:24: `trace.dir` is missing; write the directory for recordings, as in \"/var/tmp\""],
    );
    assert_refused(
        &with("dir = \"a\"").replace("slo = \"p99=5ms\"\n", ""),
        &[&format!(
            "a.toml:23: `trace.services` is missing, and no [[service]] has an slo, so nothing would be recorded; {SLO}"
        )],
    );
}

/// Returns a valid file with a table `[hurry]`, from line 24 on.
fn config_with_hurry(lines: &str) -> String {
    format!("{GOOD}\n[hurry]\n{lines}\n")
}

#[test]
fn hurry_table_has_the_settings_of_the_command() {
    let config = parse_valid(&config_with_hurry(""));
    let hurry = config.hurry.as_ref().unwrap();
    let mapped: Vec<bool> = config.services.iter().map(|rule| hurry.includes_service(rule)).collect();
    assert_eq!(mapped, [true, false], "redis has an slo, web has none");
    assert_eq!((hurry.cores.clone(), hurry.policy_config(None)), (BigCores::Found, hurryup::Config::default()));
    let setting = |key: &str| config.settings.iter().find(|setting| setting.key == key).expect(key).value.clone();
    assert_eq!((setting("hurry.big"), setting("hurry.threshold")), ("from the kernel".into(), "learnt".into()));
    let given = config_with_hurry(
        "services = [\"web\"]\nbig = \"0-3\"\nlittle = \"4-7\"\nthreshold = \"50ms\"\nsampling = \"25ms\"",
    );
    let hurry = parse_valid(&given).hurry.unwrap();
    let [big, little] = ["0-3", "4-7"].map(|cpus| cpus.parse().unwrap());
    assert_eq!(hurry.cores, BigCores::Given(big, little));
    let mapping = hurry.policy_config(None);
    assert_eq!(
        (mapping.threshold, mapping.scan_times),
        (Threshold::Given(50_000_000), ScanTimes::Sampling(25_000_000))
    );
    assert_eq!(parse_valid(&config_with_hurry("siblings = true")).hurry.unwrap().cores, BigCores::Siblings);
    let learnt = parse_valid(&config_with_hurry("percentile = 99.9")).hurry.unwrap().policy_config(Some(500));
    assert_eq!(learnt.threshold, Threshold::Learnt(Learning::with_percentile(9990, Some(500))));
}

#[test]
fn invalid_thread_mappings_are_refused() {
    const CPUS: &str = "write the numbers of CPUs, as in \"0-3,8\"";
    assert_refused(
        &config_with_hurry(
            "big = \"0-3\"\nlittle = \"3-7\"\nthreshold = 50\nsampling = \"1us\"\npercentiles = 90\nservices = [\"sql\"]",
        ),
        &[
            "a.toml:26: `hurry.little` names CPU 3, which is in `big` already; write each CPU in one of them",
            "a.toml:27: `hurry.threshold` is 50, which has no unit; write a number and its unit, one of ns, us, ms, s, m, h, as \
             in \"8us\" or \"1.5s\"",
            "a.toml:28: `hurry.sampling` is \"1us\"; write 1ms or more",
            "a.toml:29: `hurry.percentiles` is not a key here; did you mean `percentile`? the keys here are `big`, \
             `little`, `log`, `percentile`, `sampling`, `services`, `siblings`, `threshold`",
            "a.toml:30: `hurry.services` has \"sql\", but no [[service]] has this name; write names of [[service]], as \
             in [\"redis\"]",
        ],
    );
    assert_refused(
        &config_with_hurry("little = \"4-x\"\nthreshold = \"50ms\"\npercentile = 100"),
        &[
            "a.toml:24: `hurry.big` is missing, but `little` is given; write both, or neither to use what the kernel \
             reports",
            &format!("a.toml:25: `hurry.little` is \"4-x\", which has `4-x` in place of CPU numbers; {CPUS}"),
            "a.toml:27: `hurry.percentile` is 100; write a percentile above 0 and below 100, as in 90",
            "a.toml:27: `hurry.percentile` is given, but `threshold` is given, too; write one of them: percentile is \
             for a learnt threshold",
        ],
    );
    assert_refused(
        &config_with_hurry("big = \"0-3\"\nlittle = \"4-7\"\nsiblings = true"),
        &["a.toml:27: `hurry.siblings` is true, but `big` is given, too; write one of them: with siblings all cores \
           are alike"],
    );
    assert_refused(
        &config_with_hurry("siblings = [\"0,1\"]"),
        &["a.toml:25: `hurry.siblings` is a list; write true or false"],
    );
    assert_refused(
        &config_with_hurry("services = [\"web\"]").replace("port = 8080", "port = 8080\nmay_be_placed = true"),
        &["a.toml:8: `service.may_be_placed` is true, but [hurry] moves the threads of \"web\", too; leave \
             may_be_placed out, or name other services in [hurry]"],
    );
    assert_refused(
        &config_with_hurry("").replace("slo = \"p99=5ms\"\n", ""),
        &["a.toml:23: `hurry.services` is missing, and no [[service]] has an slo, so no service would be mapped; \
             write names of [[service]], as in [\"redis\"]"],
    );
}

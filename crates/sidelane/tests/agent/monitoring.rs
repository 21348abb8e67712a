//! Tests of the Grafana dashboard and the Prometheus alerts: a real Prometheus reads a real agent, and answers each of
//! their queries.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::common::nginx::Nginx;
use crate::common::process::{kill_with_test, signal};
use crate::common::redis::busy_redis;
use crate::common::scripted::unused_address;
use crate::common::{TIMEOUT, wait_until};
use crate::daemon::{Daemon, File};
use crate::groups::{Place, Tree};

const PROMETHEUS: &str = "/usr/bin/prometheus";
const PROMTOOL: &str = "/usr/bin/promtool";

fn packaging(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(path).canonicalize().unwrap()
}

/// Returns whether a program of Debian's package `prometheus` is there.
fn is_installed(program: &str) -> bool {
    let is_there = Path::new(program).exists();
    if !is_there {
        sidelane_testing::skip("needs Prometheus: apt-get install prometheus");
    }
    is_there
}

#[test]
fn alerts_are_raised_when_they_should_be() {
    if !is_installed(PROMTOOL) {
        return;
    }
    for arguments in [["check", "rules", "sidelane.rules.yml"], ["test", "rules", "sidelane.rules.test.yml"]] {
        let ended = Command::new(PROMTOOL).args(arguments).current_dir(packaging("prometheus")).output().unwrap();
        let said = [ended.stdout, ended.stderr].concat();
        assert!(ended.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&said));
    }
}

/// Returns all values of objects with this key, at any depth.
fn values_of<'v>(value: &'v Value, key: &str, found: &mut Vec<&'v str>) {
    match value {
        Value::Object(object) => {
            found.extend(object.get(key).and_then(Value::as_str));
            object.values().for_each(|inner| values_of(inner, key, found));
        }
        Value::Array(list) => list.iter().for_each(|inner| values_of(inner, key, found)),
        _ => {}
    }
}

/// Returns the queries of the dashboard, with values in place of its variables.
fn dashboard_queries() -> Vec<String> {
    let text = fs::read_to_string(packaging("grafana/sidelane.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let mut queries = Vec::new();
    values_of(&dashboard["panels"], "expr", &mut queries);
    let with_values =
        |query: &str| query.replace("$job", ".+").replace("$instance", ".+").replace("$__rate_interval", "10s");
    queries.into_iter().map(with_values).collect()
}

/// Returns the names of Sidelane's metrics in a query.
fn metrics_of(query: &str) -> BTreeSet<&str> {
    let words = query.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.filter(|word| word.starts_with("sidelane_")).collect()
}

/// Returns the name of the metric to which a series belongs.
fn metric_of_series(series: &str) -> &str {
    let suffixes = ["_bucket", "_count", "_sum"].iter();
    suffixes.filter_map(|suffix| series.strip_suffix(suffix)).next().unwrap_or(series)
}

#[test]
fn each_panel_has_its_own_place_and_a_query() {
    let text = fs::read_to_string(packaging("grafana/sidelane.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let (mut ids, mut cells) = (BTreeSet::new(), BTreeSet::new());
    for panel in panels {
        let title = &panel["title"];
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "two panels have the id of {title}");
        let place = ["x", "y", "w", "h"].map(|key| panel["gridPos"][key].as_u64().unwrap());
        let [x, y, w, h] = place;
        assert!(x + w <= 24, "{title} is too wide");
        for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            assert!(cells.insert(cell), "{title} is on another panel");
        }
        let is_row = panel["type"] == "row";
        assert!(is_row || panel["targets"].as_array().is_some_and(|targets| !targets.is_empty()), "{title}");
    }
}

/// Running Prometheus that reads an agent.
struct Prometheus {
    child: Child,
    address: SocketAddr,
    _dir: tempfile::TempDir,
}

impl Prometheus {
    fn start(agent: SocketAddr) -> Self {
        let (dir, address) = (tempfile::tempdir().unwrap(), unused_address());
        let config = format!(
            "global:\n  scrape_interval: 1s\n  evaluation_interval: 1s\nrule_files: [\"{}\"]\nscrape_configs:\n  \
             - job_name: sidelane\n    static_configs: [{{targets: [\"{agent}\"]}}]\n",
            packaging("prometheus/sidelane.rules.yml").display()
        );
        fs::write(dir.path().join("prometheus.yml"), config).unwrap();
        let mut command = Command::new(PROMETHEUS);
        command.arg(format!("--config.file={}/prometheus.yml", dir.path().display()));
        command.arg(format!("--storage.tsdb.path={}/data", dir.path().display()));
        command.arg(format!("--web.listen-address={address}"));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = kill_with_test(&mut command).spawn().unwrap();
        let prometheus = Self { child, address, _dir: dir };
        wait_until("Prometheus is ready", || {
            TcpStream::connect(address).is_ok() && prometheus.get("/-/ready").contains("Ready")
        });
        prometheus
    }

    /// Returns the answer to a request, with its head.
    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        // HTTP/1.0 has no answers in parts.
        write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn api(&self, path: &str) -> Value {
        let answer = self.get(&format!("/api/v1/{path}"));
        let body = answer.split_once("\r\n\r\n").expect("a head").1;
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
    }

    /// Returns the results of a query.
    fn query(&self, query: &str) -> Vec<Value> {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let answer = self.api(&format!("query?query={encoded}"));
        assert_eq!(answer["status"], "success", "{query}: {answer}");
        answer["data"]["result"].as_array().cloned().unwrap_or_default()
    }

    fn series(&self) -> BTreeSet<String> {
        let names = self.api("label/__name__/values");
        names["data"].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect()
    }

    /// Returns the alerts by their names, as Prometheus has parsed them.
    fn alerts(&self) -> BTreeMap<String, Value> {
        let rules = self.api("rules");
        let groups = rules["data"]["groups"].as_array().unwrap();
        let all = groups.iter().flat_map(|group| group["rules"].as_array().unwrap());
        all.map(|rule| (rule["name"].as_str().unwrap().to_owned(), rule.clone())).collect()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        signal(self.child.id(), libc::SIGKILL);
        let _ = self.child.wait();
    }
}

/// Fails unless each metric of the query is in the reference.
fn check_metrics_are_documented(query: &str) {
    let reference = include_str!("../../../../docs/reference/metrics.md");
    for series in metrics_of(query) {
        let is_documented =
            [series, metric_of_series(series)].iter().any(|name| reference.contains(&format!("| `{name}` |")));
        assert!(is_documented, "docs/reference/metrics.md has no {series}, which is in {query}");
    }
}

#[test]
fn each_query_returns_what_the_agent_tells() {
    if !is_installed(PROMETHEUS) {
        return;
    }
    let Some((_turn, redis, _client)) = busy_redis() else { return };
    let Some(tree) = Tree::make(Place::Lists) else { return };
    let Some((one, two)) = Nginx::start("one").zip(Nginx::start("two")) else { return };
    let _batch = tree.container("one");
    let (metrics, listen, dir) = (unused_address(), unused_address(), tempfile::tempdir().unwrap());
    let service = format!("port = {}\nslo = \"p99=60s\"", redis.address().port());
    let lines = format!(
        "[lanes]\ngate = \"holder\"\npolicy = \"borrow-idle\"\n[[proxy]]\nlisten = \"{listen}\"\nactive = \"{}\"\n\
         backups = [\"{}\"]\n[[hazards]]\nservers = [\"s1={}\"]\nsocket = \"{}/hazards.sock\"\n[metrics]\nlisten = \
         \"{metrics}\"",
        one.address,
        two.address,
        one.address,
        dir.path().display()
    );
    let file = File::without_cpu_policy().with_service(&service).with_batch(tree.path()).with_lines(&lines);
    let daemon = Daemon::start(&file, 1, 1);
    let prometheus = Prometheus::start(metrics);
    wait_until("Prometheus has read the agent", || prometheus.series().contains("sidelane_agent_notes"));
    // With a second reading there are rates; proxies have counts after a request.
    let _ = TcpStream::connect(listen).and_then(|mut client| {
        client.write_all(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")?;
        client.read_to_end(&mut Vec::new())
    });
    wait_until("the request is counted", || !prometheus.query("sidelane_proxy_requests_total > 0").is_empty());
    let mut answered = 0;
    for query in dashboard_queries() {
        check_metrics_are_documented(&query);
        let series = prometheus.series();
        if metrics_of(&query).iter().all(|name| series.contains(*name)) {
            wait_until(&format!("{query} returns something"), || !prometheus.query(&query).is_empty());
            answered += 1;
        } else {
            println!("the run has no data for {query}");
            prometheus.query(&query);
        }
    }
    assert!(answered >= 35, "{answered} queries had data");
    for (name, rule) in prometheus.alerts() {
        check_metrics_are_documented(rule["query"].as_str().unwrap());
        wait_until(&format!("{name} is evaluated"), || prometheus.alerts()[&name]["health"] != "unknown");
        let rule = prometheus.alerts()[&name].clone();
        assert_eq!(rule["health"], "ok", "{rule}");
    }
    let down = prometheus.alerts()["SidelaneDown"].clone();
    assert_eq!(down["state"], "inactive", "{down}");
    daemon.end();
    wait_until("Prometheus sees that the agent is gone", || prometheus.alerts()["SidelaneDown"]["state"] == "pending");
}

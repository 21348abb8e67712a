//! Tests of all steps of the search service together: text, index, queries, service, load.

mod common;

use std::path::Path;

use common::{Service, lab_command, read_json, run_ok};
use serde_json::Value;

/// Writes enough words, each in a few documents, for a query mix.
fn write_corpus(folder: &Path) {
    let common = ["the", "of", "and", "to", "kernel"];
    let paragraph = |number: usize| {
        let words: Vec<String> = (0..60)
            .map(|place| match place % 3 {
                0 => common[(number + place) % common.len()].to_owned(),
                _ => made_up_word((number * 7 + place * place) % 400),
            })
            .collect();
        words.join(" ")
    };
    let text: Vec<String> = (0..500).map(paragraph).collect();
    std::fs::write(folder.join("words.txt"), text.join("\n\n")).unwrap();
}

/// Returns a made-up word for a number.
fn made_up_word(number: usize) -> String {
    number.to_string().bytes().map(|digit| (digit - b'0' + b'k') as char).collect()
}

/// Temporary folder with a text and its index.
struct Fixture(tempfile::TempDir);

impl Fixture {
    fn new() -> Fixture {
        let fixture = Fixture(tempfile::tempdir().unwrap());
        std::fs::create_dir(fixture.path("text")).unwrap();
        write_corpus(Path::new(&fixture.path("text")));
        fixture
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    /// Builds the index; returns the command's standard error.
    fn build_index(&self) -> String {
        let (text, index) = (self.path("text"), self.path("index"));
        run_ok(lab_command(&["index", "--corpus-dir", &text, "--out", &index]))
    }

    /// Draws queries into the file `name`; returns them.
    fn draw_queries(&self, name: &str) -> String {
        let (index, out) = (self.path("index"), self.path(name));
        let mix = ["--seed", "7", "--count", "200"];
        let mut command = lab_command(&["queries", "--index", &index, "--out", &out]);
        command.args(mix);
        run_ok(command);
        std::fs::read_to_string(out).unwrap()
    }
}

/// Loads a service with these options for a second; returns the service and the client's result.
fn load_for_a_second(options: &[&str]) -> (Service, Value) {
    let fixture = Fixture::new();
    fixture.build_index();
    fixture.draw_queries("queries");
    let index = fixture.path("index");
    let service = Service::start(&[&["serve", "--index", &index, "--port", "0"], options].concat());
    let mut load = lab_command(&["load", "--protocol", "search", "--target", &service.address()]);
    load.args(["--queries", &fixture.path("queries")]).args(["--json", &fixture.path("result.json")]);
    load.args(["--rate", "300", "--seconds", "1", "--warmup-seconds", "0.2", "--seed", "3"]);
    run_ok(load);
    (service, read_json(&fixture.path("result.json")))
}

#[test]
fn every_search_is_answered() {
    let (_service, result) = load_for_a_second(&[]);
    let requests = result["requests"].as_u64().unwrap();
    assert!((200..400).contains(&requests), "{result}");
    assert_eq!(result["errors"], 0, "{result}");
    assert!(result["p50_us"].as_f64().unwrap() > 0.0, "{result}");
    assert!(result["curve"].as_array().unwrap().len() > 40, "{result}");
}

#[test]
fn all_worker_threads_serve_requests() {
    let (service, result) = load_for_a_second(&["--workers", "3"]);
    assert!((200..400).contains(&result["requests"].as_u64().unwrap()), "{result}");
    assert_eq!(result["errors"], 0, "{result}");
    let turns = service.switch_ins_by_thread();
    assert!(turns.len() == 3 && turns.iter().all(|turns| *turns > 20), "how often each was switched in: {turns:?}");
}

#[test]
fn an_index_is_built_once_and_gives_the_same_queries() {
    let fixture = Fixture::new();
    let first = fixture.build_index();
    let second = fixture.build_index();
    assert!(first.contains("indexed 500 documents"), "{first}");
    assert!(second.contains("already"), "{second}");

    let queries = fixture.draw_queries("queries");
    assert_eq!(queries.lines().count(), 200);
    std::fs::remove_dir_all(fixture.path("index")).unwrap();
    fixture.build_index();
    assert_eq!(queries, fixture.draw_queries("again"));
}

#[test]
fn service_times_are_written() {
    let fixture = Fixture::new();
    fixture.build_index();
    let (queries, json) = (fixture.path("queries"), fixture.path("times.json"));
    std::fs::write(&queries, "and the kernel\nor of to\nphrase the kernel\n").unwrap();
    let mut command = lab_command(&["service-times", "--index", &fixture.path("index")]);
    command.args(["--queries", &queries, "--json", &json]);
    run_ok(command);
    let times = read_json(&json);
    assert_eq!(times["queries"], 3);
    assert!(times["max_us"].as_f64() >= times["p50_us"].as_f64(), "{times}");
}

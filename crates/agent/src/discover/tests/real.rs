//! Tests with real processes of this machine, by port and by name.

use std::net::TcpListener;
use std::process::{Child, Command};

use super::machine::TestMachine;

/// Process with a unique name, which ends when this value is dropped.
struct NamedProcess {
    child: Child,
}

impl NamedProcess {
    fn start(dir: &std::path::Path, name: &str) -> Self {
        let program = dir.join(name);
        if !program.exists() {
            // Another process copies the program. A program started by another test at the same time would inherit the
            // open copy for a moment. A file open for writing cannot be run.
            let copied = Command::new("cp").arg("/bin/sleep").arg(&program).status();
            assert!(copied.expect("cp starts").success(), "no copy of sleep");
        }
        let child = Command::new(program).arg("1000").spawn().expect("it starts");
        let named = Self { child };
        let comm = format!("/proc/{}/comm", named.child.id());
        while std::fs::read_to_string(&comm).expect("it is there").trim() != name {
            std::thread::yield_now();
        }
        named
    }
}

impl Drop for NamedProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn config_with_match(match_line: &str) -> String {
    format!("[[service]]\nname = \"a\"\n{match_line}\n[[batch]]\ncgroup = \"/batch\"\n")
}

#[test]
fn service_by_name_is_found_grows_and_is_removed() {
    let files = TestMachine::from_listing("hierarchy v2");
    let name = format!("sl-{}", std::process::id());
    let mut look = files.finder(&config_with_match(&format!("comm = \"{name}\"")));
    assert!(look.scan_later().is_empty());
    let first = NamedProcess::start(files.path(), &name);
    let came = look.scan_later().services_came;
    assert!(came.len() == 1 && came[0].service.pids == [first.child.id()].into(), "{came:?}");
    assert!(look.scan_later().is_empty());
    let second = NamedProcess::start(files.path(), &name);
    let grew = look.scan_later().services_grew;
    assert!(grew.len() == 1 && grew[0].service.pids.contains(&second.child.id()), "{grew:?}");
    drop(first);
    assert!(look.scan_later().is_empty());
    drop(second);
    let third = NamedProcess::start(files.path(), &name);
    let changes = look.scan_later();
    assert_eq!((changes.services_gone.as_slice(), changes.services_came.len()), (&[came[0].id][..], 1));
    drop(third);
    assert_eq!(look.scan_later().services_gone.len(), 1);
    assert_eq!(
        look.problems()[0],
        format!("service a: no process is found by comm {name}; it is added when it starts; try: pgrep -a {name}")
    );
}

#[test]
fn service_by_port_exists_as_long_as_its_listener() {
    let files = TestMachine::from_listing("hierarchy v2");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut look = files.finder(&config_with_match(&format!("port = {port}")));
    assert!(look.scan_later().services_came[0].service.pids.contains(&std::process::id()));
    assert!(look.scan_later().is_empty());
    drop(listener);
    assert_eq!(look.scan_later().services_gone.len(), 1);
    assert!(look.scan_later().is_empty());
    let again = TcpListener::bind(("127.0.0.1", port)).unwrap();
    assert_eq!(look.scan_later().services_came.len(), 1);
    drop(again);
}

/// If two rules match the same processes, the service of the first rule has them.
#[test]
fn a_process_is_in_one_service() {
    let files = TestMachine::from_listing("hierarchy v2");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let second = TcpListener::bind("127.0.0.1:0").unwrap();
    let [port, other] = [&listener, &second].map(|listener| listener.local_addr().unwrap().port());
    let more = format!("port = {port}\n[[service]]\nname = \"b\"\nport = {other}");
    let mut look = files.finder(&config_with_match(&more));
    look.scan_later();
    assert_eq!(look.services(), ["a"]);
    let wanted = "service b: it has the same processes as service a; name each service once";
    assert!(look.problems().contains(&wanted.to_owned()), "{:?}", look.problems());
}

//! Tests of real programs of runtimes with their own tasks: a trace reports the true causes of their slow requests.
//!
//! Each program accepts words of three letters, and answers each with a point. The test acts as a database, to which
//! the program sends queries on one connection:
//!
//! - `ask`: the request waits for the database
//! - `run`: the program reports that it begins, and computes for 200 ms
//! - `nap`: the request waits for a timer of the program
//! - `job`: the request waits for another task or thread of the program, which takes 40 ms
//! - `jam`: the request blocks its thread for 40 ms

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use common::tracing::{Tracing, path_str, read_json, without_line_breaks};
use common::{Turn, can_observe_requests, lock_lanes};
use serde_json::Value;

/// Environment variable with the database's port for the programs. If it is set, this test itself is the program of
/// tokio.
const DATABASE: &str = "SIDELANE_TEST_DATABASE";
/// Response time of a slow database.
const SLOW: Duration = Duration::from_millis(40);
/// Least response time beside a request that uses the event loop for 200 ms.
const LATE: Duration = Duration::from_millis(170);
const TIMES: u32 = 3;

/// Database with one client, which answers on command.
struct Database {
    address: SocketAddr,
    asked: Receiver<()>,
    answer: Sender<()>,
}

impl Database {
    fn start() -> Self {
        let door = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = door.local_addr().unwrap();
        let ((asks, asked), (answer, answers)) = (channel(), channel());
        thread::spawn(move || {
            let (mut client, _) = door.accept().unwrap();
            while client.read_exact(&mut [0]).is_ok() && asks.send(()).is_ok() && answers.recv().is_ok() {
                client.write_all(b"!").unwrap();
            }
        });
        Self { address, asked, answer }
    }
}

/// Running program with its database and two clients.
struct Program {
    child: Child,
    said: BufReader<ChildStdout>,
    database: Database,
    clients: [TcpStream; 2],
    port: u16,
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Program {
    /// Starts the program. If it cannot be found, prints a message and returns `None`.
    fn start(mut command: Command) -> Option<Self> {
        let database = Database::start();
        command.env(DATABASE, database.address.port().to_string()).stdout(Stdio::piped());
        let Ok(mut child) = command.spawn() else {
            sidelane_testing::skip(format!("needs {}", command.get_program().display()));
            return None;
        };
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let port = loop {
            let mut line = String::new();
            assert_ne!(said.read_line(&mut line).unwrap(), 0, "the program has ended");
            if let Ok(port) = line.trim().parse() {
                break port;
            }
        };
        let connect = |()| TcpStream::connect(("127.0.0.1", port)).unwrap();
        Some(Self { child, said, database, clients: [(), ()].map(connect), port })
    }

    fn expect_line(&mut self, word: &str) {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        assert_eq!(line.trim(), word);
    }

    fn write(&mut self, client: usize, word: &str) {
        self.clients[client].write_all(word.as_bytes()).unwrap();
    }

    fn read(&mut self, client: usize) {
        self.clients[client].read_exact(&mut [0]).unwrap();
    }

    /// Makes a client wait for the database, which answers after 40 ms.
    fn wait_for_database(&mut self) {
        self.write(0, "ask");
        self.database.asked.recv().unwrap();
        thread::sleep(SLOW);
        self.database.answer.send(()).unwrap();
        self.read(0);
    }

    /// Makes a client wait for the database, like [`Program::wait_for_database`]. While the database works, the request
    /// of a second client begins to compute.
    fn wait_for_database_beside_request(&mut self, answers_after: Duration) {
        self.write(0, "ask");
        self.database.asked.recv().unwrap();
        self.write(1, "run");
        self.expect_line("runs");
        thread::sleep(answers_after);
        self.database.answer.send(()).unwrap();
        (0..2).for_each(|client| self.read(client));
    }

    /// Makes two clients send the same word, which does not need the database.
    fn send_from_both_clients(&mut self, word: &str) {
        (0..2).for_each(|client| self.write(client, word));
        (0..2).for_each(|client| self.read(client));
    }
}

/// Report of a trace, as text and as JSON.
struct TraceFindings {
    said: String,
    found: Vec<Value>,
}

impl TraceFindings {
    /// Returns the share of a cause in the slow time, in percent.
    fn share(&self, cause: &str) -> f64 {
        let found = self.found.iter().find(|found| found["cause"] == cause);
        found.and_then(|found| found["share_percent"].as_f64()).unwrap_or(0.0)
    }

    /// Fails unless the first cause is one of `causes`, and the report contains `words`.
    #[track_caller]
    fn expect_first_cause(&self, causes: &[&str], words: &str) {
        assert!(causes.iter().any(|cause| self.found[0]["cause"] == **cause), "{causes:?}: {}", self.said);
        assert!(without_line_breaks(&self.said).contains(words), "no `{words}` in {}", self.said);
    }
}

/// Returns the report of a trace of the program during which `scene` runs several times.
fn trace_program(program: &mut Program, scene: impl Fn(&mut Program)) -> TraceFindings {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("t.json");
    let options = ["--slo", "15ms", "--for", "100s", "--json", path_str(&json)];
    let tracing = Tracing::start(&format!("port:{}", program.port), &options);
    (0..TIMES).for_each(|_| scene(program));
    let said = tracing.stop();
    TraceFindings { said, found: read_json(&json)["trace"]["found"].as_array().unwrap().clone() }
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/programs").join(name)
}

/// Checks the first cause of requests that wait for the database, and of the requests in `waits`.
fn check_first_causes(program: &mut Program, waits: [(&str, &[&str]); 3]) {
    let address = program.database.address;
    trace_program(program, Program::wait_for_database).expect_first_cause(&["downstream"], &format!("{address}"));
    for (word, causes) in waits {
        let told = trace_program(program, |program| program.send_from_both_clients(word));
        told.expect_first_cause(causes, "What to do: ");
        assert!(!told.said.contains("Unix sockets"), "{}", told.said);
    }
}

/// Checks that a slow database is distinguished from one whose answer an event loop has not read.
fn check_event_loop_wait_is_distinguished(program: &mut Program) {
    let busy = trace_program(program, |program| program.wait_for_database_beside_request(Duration::ZERO));
    let (said, words) = (without_line_breaks(&busy.said), format!("the answer of {}", program.database.address));
    assert!(said.contains(&words) && said.contains("worked on other requests and had not read it"), "{}", busy.said);
    assert!(busy.share("service-queue") > busy.share("downstream"), "{}", busy.said);
    let late = trace_program(program, |program| program.wait_for_database_beside_request(LATE));
    assert!(late.share("downstream") > late.share("service-queue"), "{}", late.said);
}

/// Returns the lanes and the program, if both are available.
fn lock_lanes_and_start(command: impl FnOnce() -> Option<Command>) -> Option<(Turn, Program)> {
    let turn = lock_lanes()?;
    if !can_observe_requests() {
        return None;
    }
    Some((turn, Program::start(command()?)?))
}

fn start_runtime_program(program: &str, source: &str) -> Option<(Turn, Program)> {
    lock_lanes_and_start(|| {
        let mut command = Command::new(program);
        command.arg(fixture(source));
        Some(command)
    })
}

#[test]
fn causes_of_python_asyncio_are_named() {
    let Some((_turn, mut program)) = start_runtime_program("python3", "server.py") else { return };
    check_event_loop_wait_is_distinguished(&mut program);
    check_first_causes(&mut program, [("nap", &["inside"]), ("job", &["inside", "timer"]), ("jam", &["timer"])]);
}

#[test]
fn causes_of_node_are_named() {
    let Some((_turn, mut program)) = start_runtime_program("node", "server.js") else { return };
    check_event_loop_wait_is_distinguished(&mut program);
    check_first_causes(
        &mut program,
        [("nap", &["inside"]), ("job", &["inside", "hand-over", "on-cpu"]), ("jam", &["timer"])],
    );
}

#[test]
fn causes_of_go_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let server = dir.path().join("server");
    let build = || {
        let built = Command::new("go").args(["build", "-o", path_str(&server)]).arg(fixture("server.go")).output();
        let is_built = built.is_ok_and(|built| built.status.success());
        if !is_built {
            sidelane_testing::skip("needs a compiler of Go");
        }
        is_built.then(|| Command::new(&server))
    };
    let Some((_turn, mut program)) = lock_lanes_and_start(build) else { return };
    check_first_causes(&mut program, [("nap", &["inside"]), ("job", &["inside"]), ("jam", &["timer"])]);
}

async fn answer_word(word: &[u8], database: &tokio::sync::Mutex<tokio::net::TcpStream>) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    match word {
        b"ask" => {
            let mut database = database.lock().await;
            database.write_all(b"?").await.unwrap();
            database.read_exact(&mut [0]).await.unwrap();
        }
        b"nap" => tokio::time::sleep(SLOW).await,
        b"job" => tokio::task::spawn_blocking(|| thread::sleep(SLOW)).await.unwrap(),
        _ => thread::sleep(SLOW),
    }
}

async fn serve_clients(database: u16) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let database = tokio::net::TcpStream::connect(("127.0.0.1", database)).await.unwrap();
    let database = std::sync::Arc::new(tokio::sync::Mutex::new(database));
    let door = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("\n{}", door.local_addr().unwrap().port());
    loop {
        let ((mut client, _), database) = (door.accept().await.unwrap(), database.clone());
        tokio::spawn(async move {
            let mut word = [0; 3];
            while client.read_exact(&mut word).await.is_ok() {
                answer_word(&word, &database).await;
                client.write_all(b".").await.unwrap();
            }
        });
    }
}

#[test]
fn causes_of_tokio_are_named() {
    if let Ok(database) = std::env::var(DATABASE) {
        return tokio::runtime::Runtime::new().unwrap().block_on(serve_clients(database.parse().unwrap()));
    }
    let this = || {
        let mut this = Command::new(std::env::current_exe().ok()?);
        this.args(["causes_of_tokio_are_named", "--exact", "--nocapture"]);
        Some(this)
    };
    let Some((_turn, mut program)) = lock_lanes_and_start(this) else { return };
    check_first_causes(&mut program, [("nap", &["inside"]), ("job", &["inside"]), ("jam", &["timer"])]);
}

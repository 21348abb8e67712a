//! Test with a real service and real batch: a Redis server under load, and a compilation beside it.

mod common;

use std::fmt::Write;
use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

use common::lanes::BATCH_LANE;
use common::{Run, Service, lab_binary_path, lock_lanes, wait_until};
use serde_json::Value;

const RATE_PER_S: u32 = 500;
const LOAD_S: u32 = 4;
/// Priority above the lane's holder, so that the client in the batch lane is on time.
const CLIENT_PRIORITY: &str = "80";
/// Number of source files, and of functions in each: some hundred milliseconds of compiler work for each file.
const FILES: usize = 4;
const FUNCTIONS: usize = 60;

#[test]
fn redis_answers_all_requests_beside_a_compilation() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(lab) = lab_binary_path() else { return };
    for program in ["redis-server", "make", "cc"] {
        if !is_installed(program) {
            return sidelane_testing::skip(format!("needs {program}: apt-get install redis-server make gcc"));
        }
    }
    let address = free_address();
    let service = start_redis(address);
    let dir = tempfile::tempdir().unwrap();
    write_sources(dir.path());

    let target = format!("port:{}", address.port());
    let compile_until_stopped = "while [ ! -e stop ]; do make -s -B -j2 || exit 1; done; echo compiled";
    let run = Run::beside_service(target).in_dir(dir.path()).start_script(compile_until_stopped);
    let load = load(&lab, address, &dir.path().join("load.json"));
    fs::write(dir.path().join("stop"), "").unwrap();
    let run = run.wait_for_end().expect_exit_code(0);

    assert_eq!(load["errors"], 0, "{load}");
    assert!(load["requests"].as_u64() > Some(0), "{load}");
    assert_eq!(run.stdout, "compiled\n", "{run}");
    (0..FILES).for_each(|file| assert!(dir.path().join(format!("part{file}.o")).exists(), "{run}"));
    assert!(run.figure("holds_count") > 0.0, "{:?}", run.figures());
    assert!(run.figure("batch_cpu_s") > 0.0, "{:?}", run.figures());
    assert!(!run.stderr.contains("on a lane that was held"), "{run}");
    service.must_be_unharmed(common::lanes::REQUEST_LANE);
}

fn is_installed(program: &str) -> bool {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    found.is_ok_and(|status| status.success())
}

fn free_address() -> SocketAddrV4 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    SocketAddrV4::new(Ipv4Addr::LOCALHOST, listener.local_addr().unwrap().port())
}

fn start_redis(address: SocketAddrV4) -> Service {
    let (ip, port) = (address.ip().to_string(), address.port().to_string());
    let in_memory = ["--save", "", "--appendonly", "no"];
    let service = Service::of_command("redis-server", &[&["--bind", &ip, "--port", &port], &in_memory[..]].concat());
    wait_until("redis listened", || TcpStream::connect(address).is_ok());
    service
}

/// Sends the whole load and returns the client's measurements.
fn load(lab: &Path, address: SocketAddrV4, json: &Path) -> Value {
    let (rate, seconds) = (RATE_PER_S.to_string(), LOAD_S.to_string());
    let mut client = Command::new(lab);
    client.args(["load", "--protocol", "redis", "--target", &address.to_string(), "--rate", &rate]);
    client.args(["--seconds", &seconds, "--warmup-seconds", "0.5", "--cpu", BATCH_LANE, "--fifo", CLIENT_PRIORITY]);
    let ended = client.arg("--json").arg(json).output().expect("the client starts");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    serde_json::from_slice(&fs::read(json).unwrap()).unwrap()
}

fn write_sources(dir: &Path) {
    let objects: String = (0..FILES).map(|file| format!(" part{file}.o")).collect();
    let makefile = format!("all:{objects}\n%.o: %.c\n\tcc -O2 -c -o $@ $<\n");
    fs::write(dir.join("Makefile"), makefile).unwrap();
    (0..FILES).for_each(|file| fs::write(dir.join(format!("part{file}.c")), source(file)).unwrap());
}

/// Returns the source of a file with nested loops, which take the optimizer long.
fn source(file: usize) -> String {
    (0..FUNCTIONS).fold(String::new(), |mut text, function| {
        let name = format!("mix_{file}_{function}");
        writeln!(
            text,
            "double {name}(double *a, int n) {{ double s = {function}; for (int i = 0; i < n; i++) \
             for (int j = 0; j < i; j++) {{ a[i] += a[j] * s; s += i % 7 ? a[i] / (j + 1) : s * a[j]; }} return s; }}"
        )
        .expect("a string can be written to");
        text
    })
}

//! Tests of a trace of real services: every expected record is there, in order, and lost records are counted.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use sidelane_host::service::{Service, Target};
use sidelane_timeline::record::{Kind, Record, leave};
use sidelane_tracker::trace::{Recorder, TraceError, TraceOptions};

const REQUESTS: usize = 500;
const DEADLINE: Duration = Duration::from_secs(30);

/// Lock for one trace at a time. Some tests trace this process. Records of other tests' threads would fill the ring.
static TURN: Mutex<()> = Mutex::new(());

/// Waits until no other test traces. If the kernel program cannot be loaded, prints a message and returns `None`.
fn lock_tracing() -> Option<MutexGuard<'static, ()>> {
    let has_btf = Path::new("/sys/kernel/btf/vmlinux").exists();
    if !rustix::process::geteuid().is_root() || !has_btf {
        sidelane_testing::skip("needs root, and a kernel with BTF");
        return None;
    }
    Some(TURN.lock().unwrap_or_else(PoisonError::into_inner))
}

struct Redis {
    child: Child,
    address: SocketAddrV4,
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Redis {
    /// Starts Redis. If it is not installed, prints a message and returns `None`.
    fn start() -> Option<Self> {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--appendonly", "no"]);
        let Ok(child) = command.stdout(Stdio::null()).spawn() else {
            sidelane_testing::skip("needs redis-server: apt-get install redis-server");
            return None;
        };
        let new = Self { child, address: SocketAddrV4::new(Ipv4Addr::LOCALHOST, port) };
        wait_until("redis listens", || TcpStream::connect(new.address).is_ok());
        Some(new)
    }

    fn service(&self) -> Service {
        Target::Port(self.address.port()).find().unwrap()
    }

    /// Sends `count` requests to Redis, and returns the client's port.
    fn send_requests(&self, count: usize) -> u16 {
        let mut connection = BufReader::new(TcpStream::connect(self.address).unwrap());
        let mut answer = String::new();
        for _ in 0..count {
            connection.get_mut().write_all(b"PING\r\n").unwrap();
            answer.clear();
            connection.read_line(&mut answer).unwrap();
            assert_eq!(answer, "+PONG\r\n");
        }
        connection.get_ref().local_addr().unwrap().port()
    }
}

fn wait_until(description: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < DEADLINE, "{description}: not within {DEADLINE:?}");
        thread::yield_now();
    }
}

/// Returns the records of one kind.
fn records_of_kind(records: &[Record], kind: Kind) -> Vec<&Record> {
    records.iter().filter(|record| record.kind == kind).collect()
}

#[test]
fn requests_of_redis_are_recorded_from_arrival_to_answer() {
    let Some(_turn) = lock_tracing() else { return };
    let Some(redis) = Redis::start() else { return };
    let mut recorder = Recorder::start(&TraceOptions::default(), &[redis.service()]).unwrap();
    let mut records = Vec::new();
    let port = redis.send_requests(REQUESTS);
    recorder.read(&mut records);
    recorder.finish(&mut records);

    assert_eq!((recorder.lost_records(), recorder.missed_program_runs().unwrap()), (0, 0));
    assert!(records.is_sorted_by_key(|record| record.at_ns));
    let finished = records_of_kind(&records, Kind::RequestFinished);
    assert_eq!(finished.len(), REQUESTS);
    let started = records_of_kind(&records, Kind::RequestStarted);
    assert_eq!(started.len(), REQUESTS);
    let socket = finished[0].socket;
    assert!(socket != 0 && finished.iter().all(|record| record.socket == socket));
    let kinds = [Kind::DataReady, Kind::Received, Kind::RequestStarted, Kind::Transmitted, Kind::Sent];
    assert!(started.iter().all(|record| record.detail == u32::from(port)), "{port}: {:?}", started[0]);
    let steps = kinds
        .map(|kind| records_of_kind(&records, kind).into_iter().filter(|r| r.socket == socket).collect::<Vec<_>>());
    assert!(steps.iter().all(|step| step.len() == REQUESTS), "{:?}", steps.map(|step| step.len()));
    for (request, finished) in finished.iter().enumerate() {
        assert_one_request(steps.each_ref().map(|step| step[request]), finished);
    }
    assert_data_came_in_segments(&records, &steps[0]);
    let name = recorder.name_of(finished[0].task.tid);
    assert_eq!(name, Some("redis-server"));
}

/// Asserts that the records are the steps of one request, in order. The next request may arrive before the call that
/// sends this request's answer has returned.
fn assert_one_request(steps: [&Record; 5], finished: &Record) {
    assert!(steps.is_sorted_by_key(|step| step.at_ns) && finished.at_ns >= steps[4].at_ns, "{steps:#?}");
    let [data, received, started, transmitted, sent] = steps;
    assert_eq!((data.value, received.value), (6, 6));
    assert_eq!(data.detail, received.detail, "what arrived was received");
    assert_eq!(started.value, data.at_ns, "it arrived with its data");
    assert_eq!((transmitted.value, sent.value), (7, 7));
    assert_eq!(transmitted.detail, sent.detail, "what was sent was transmitted");
    assert_eq!((finished.value, finished.detail), (started.at_ns, 1));
    assert!(started.request != 0 && [received, sent, finished].iter().all(|record| record.request == started.request));
    assert!([received, started, sent, finished].iter().all(|record| record.task == finished.task));
}

fn assert_data_came_in_segments(records: &[Record], data: &[&Record]) {
    let segments = records_of_kind(records, Kind::Segment);
    for data in data {
        let segment = segments.iter().find(|segment| segment.detail == data.detail && segment.at_ns <= data.at_ns);
        assert_eq!(segment.map(|segment| segment.value), Some(data.value), "{data:?}");
    }
}

#[test]
fn sleeps_and_wakeups_of_the_service_are_recorded() {
    let Some(_turn) = lock_tracing() else { return };
    let Some(redis) = Redis::start() else { return };
    let mut recorder = Recorder::start(&TraceOptions::default(), &[redis.service()]).unwrap();
    redis.send_requests(REQUESTS);
    let mut records = Vec::new();
    recorder.finish(&mut records);
    let tid = records_of_kind(&records, Kind::RequestFinished)[0].task.tid;

    let comes = records.iter().filter(|r| r.kind == Kind::Switched && r.other.tid == tid && r.value != 0);
    let woken: Vec<u64> =
        records_of_kind(&records, Kind::Woken).iter().filter(|r| r.other.tid == tid).map(|r| r.at_ns).collect();
    let mut came = 0;
    for switch in comes {
        assert!(woken.contains(&switch.value), "woken when that was told: {switch:?}");
        came += 1;
    }
    assert!(came > 0, "it slept at least once in {REQUESTS} requests");
    assert_sleeps_for_events(&records, tid);
}

/// Asserts that a server with an event loop sleeps in the call that waits for events, and that each sleep is recorded
/// with this call.
fn assert_sleeps_for_events(records: &[Record], tid: u32) {
    const EPOLL_WAIT: u32 = libc::SYS_epoll_wait as u32;
    let own: Vec<&Record> = records.iter().filter(|record| record.task.tid == tid).collect();
    let slept = |record: &Record| record.kind == Kind::Switched && record.detail == leave::SLEEPS;
    let sleeps: Vec<_> = own.windows(2).filter(|pair| slept(pair[1])).map(|pair| pair[0]).collect();
    assert!(!sleeps.is_empty() && sleeps.iter().all(|record| record.kind == Kind::SleepsIn), "{sleeps:#?}");
    let in_the_loop = sleeps.iter().filter(|record| record.detail == EPOLL_WAIT && record.value != 0).count();
    assert!(in_the_loop * 2 > sleeps.len(), "it sleeps in its loop: {sleeps:#?}");
}

#[test]
fn request_is_followed_from_receiving_to_answering_thread() {
    let Some(_turn) = lock_tracing() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (hand, take) = mpsc::channel::<TcpStream>();
    let worker = thread::spawn(move || {
        while let Ok(mut connection) = take.recv() {
            connection.write_all(b"!").unwrap();
        }
        rustix::thread::gettid().as_raw_nonzero().get() as u32
    });
    let receiver = thread::spawn(move || {
        let (mut connection, _) = listener.accept().unwrap();
        let mut byte = [0; 1];
        while connection.read_exact(&mut byte).is_ok() {
            hand.send(connection.try_clone().unwrap()).unwrap();
        }
        rustix::thread::gettid().as_raw_nonzero().get() as u32
    });
    let me = Service::of_process(std::process::id());
    let mut recorder = Recorder::start(&TraceOptions::default(), &[me]).unwrap();
    let mut client = TcpStream::connect(address).unwrap();
    for _ in 0..REQUESTS {
        client.write_all(b"?").unwrap();
        client.read_exact(&mut [0; 1]).unwrap();
    }
    drop(client);
    let (receiver, worker) = (receiver.join().unwrap(), worker.join().unwrap());
    let mut records = Vec::new();
    recorder.finish(&mut records);

    let finished = records_of_kind(&records, Kind::RequestFinished);
    assert_eq!((finished.len(), recorder.lost_records()), (REQUESTS, 0));
    assert!(finished.iter().all(|record| record.task.tid == worker));
    assert!(recorder.name_of(std::process::id()).is_some(), "whose first thread has only waited");
    let handed = |r: &&&Record| r.task.tid == receiver && r.other.tid == worker;
    let woken = records_of_kind(&records, Kind::Woken);
    let woken: Vec<&&Record> = woken.iter().filter(handed).collect();
    assert!(!woken.is_empty(), "the worker slept at least once");
    for request in &finished {
        let started = records_of_kind(&records, Kind::RequestStarted);
        let last = started.iter().rfind(|started| started.request == request.request).expect("each starts");
        assert_eq!((last.at_ns, last.task.tid), (request.value, worker), "in hindsight, by the one that answers");
    }
}

#[test]
fn page_fault_is_recorded_from_begin_to_end() {
    const BYTES: usize = 4 << 20;
    let Some(_turn) = lock_tracing() else { return };
    let me = Service::of_process(std::process::id());
    let mut recorder = Recorder::start(&TraceOptions::default(), &[me]).unwrap();
    // A thread is known from its first context switch on.
    let touches = thread::spawn(|| {
        let mut memory = vec![0_u8; BYTES];
        for at in (0..BYTES).step_by(rustix::param::page_size()) {
            std::hint::black_box(&mut memory)[at] = 1;
        }
        let start = memory.as_ptr() as u64;
        (rustix::thread::gettid().as_raw_nonzero().get() as u32, start..start + BYTES as u64)
    });
    let (tid, range) = touches.join().unwrap();
    let mut records = Vec::new();
    recorder.finish(&mut records);

    let faults: Vec<&Record> =
        records_of_kind(&records, Kind::PageFault).into_iter().filter(|r| r.task.tid == tid).collect();
    let is_begin = |record: &Record| record.detail == 1 && range.contains(&record.value);
    let begun = faults.iter().filter(|record| is_begin(record)).count();
    let ended = faults.windows(2).filter(|pair| is_begin(pair[0]) && pair[1].detail == 2).count();
    // A thread that had the CPU when the kernel hid a context switch has no records.
    assert!(begun > 0 && ended * 2 > begun, "{ended} of {begun}");
}

#[test]
fn records_not_read_in_time_are_counted_as_lost() {
    let Some(_turn) = lock_tracing() else { return };
    let Some(redis) = Redis::start() else { return };
    let small = TraceOptions { records: Some(64), ..TraceOptions::default() };
    let mut recorder = Recorder::start(&small, &[redis.service()]).unwrap();
    redis.send_requests(REQUESTS);
    let mut records = Vec::new();
    recorder.finish(&mut records);
    assert!(recorder.lost_records() > 0 && records.len() <= 2 * 64 * rustix::param::page_size());
    let numbers: u64 = (0..u32::MAX).map_while(|cpu| last_record_number(&records, cpu)).sum();
    assert_eq!(recorder.lost_records() + records.len() as u64, numbers, "each has a number, and was read or is lost");
}

/// Returns the number of the last record in `records` from the ring of the CPU `cpu`: 0 without a record, `None`
/// without such a CPU.
fn last_record_number(records: &[Record], cpu: u32) -> Option<u64> {
    let is_there = Path::new(&format!("/sys/devices/system/cpu/cpu{cpu}")).exists();
    let numbers = records.iter().filter(|record| record.cpu == cpu).map(|record| u64::from(record.seq));
    is_there.then(|| numbers.max().unwrap_or(0))
}

#[test]
fn missing_tracepoints_are_named_and_not_recorded() {
    let Some(_turn) = lock_tracing() else { return };
    let Some(redis) = Redis::start() else { return };
    let lacking = TraceOptions { missing: &["netif_receive_skb", "sched_waking"], ..TraceOptions::default() };
    let mut recorder = Recorder::start(&lacking, &[redis.service()]).unwrap();
    redis.send_requests(REQUESTS);
    let mut records = Vec::new();
    recorder.finish(&mut records);
    for kind in [Kind::Segment, Kind::Woken] {
        assert!(!recorder.recorded_kinds().has(kind) && records_of_kind(&records, kind).is_empty(), "{kind:?}");
    }
    assert_eq!(records_of_kind(&records, Kind::RequestFinished).len(), REQUESTS);

    let blind = TraceOptions { missing: &["sk_data_ready"], ..TraceOptions::default() };
    let refused = Recorder::start(&blind, &[redis.service()]).err().expect("nothing would be seen");
    assert!(matches!(&refused, TraceError::NoRequests(missing) if missing == &["sk_data_ready"]), "{refused}");
}

#[test]
fn a_light_trace_has_requests_and_no_segments() {
    let Some(_turn) = lock_tracing() else { return };
    let Some(redis) = Redis::start() else { return };
    let light = TraceOptions { light: true, ..TraceOptions::default() };
    let mut recorder = Recorder::start(&light, &[redis.service()]).unwrap();
    redis.send_requests(REQUESTS);
    let mut records = Vec::new();
    recorder.finish(&mut records);
    assert!(records.iter().all(|record| recorder.recorded_kinds().has(record.kind)));
    assert!(records_of_kind(&records, Kind::Segment).is_empty());
    assert_eq!(records_of_kind(&records, Kind::RequestFinished).len(), REQUESTS);
}

/// Starts a program that reads its standard input to the end, once thread `tid` of this process waits in a full pipe.
/// Nothing wakes that thread before.
fn start_late_reader(tid: u32) -> Child {
    let sleeps_in = format!("/proc/{}/task/{tid}/wchan", std::process::id());
    let script = format!("until grep -q pipe_write {sleeps_in}; do :; done; exec cat");
    Command::new("sh").args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
}

#[test]
fn foreign_reader_of_a_full_pipe_is_the_recorded_waker() {
    const BYTES: usize = 1 << 20;
    let Some(_turn) = lock_tracing() else { return };
    let (say, hear) = mpsc::channel();
    let (hand, take) = mpsc::channel::<std::process::ChildStdin>();
    let writer = thread::spawn(move || {
        say.send(rustix::thread::gettid().as_raw_nonzero().get() as u32).unwrap();
        take.recv().unwrap().write_all(&vec![0; BYTES]).unwrap();
    });
    let tid = hear.recv().unwrap();
    let mut reader = start_late_reader(tid);
    let me = Service::of_process(std::process::id());
    let mut recorder = Recorder::start(&TraceOptions::default(), &[me]).unwrap();
    hand.send(reader.stdin.take().unwrap()).unwrap();
    writer.join().unwrap();
    reader.wait().unwrap();
    let mut records = Vec::new();
    recorder.finish(&mut records);

    let woken = records_of_kind(&records, Kind::Woken).into_iter().filter(|record| record.other.tid == tid);
    let first = woken.map(|record| record.task).find(|waker| waker.pid != std::process::id());
    assert_eq!(first.map(|waker| waker.pid), Some(reader.id()));
    assert_eq!(recorder.name_of(reader.id()), Some("cat"));
}

/// Moves this thread to a network namespace of its own, and brings up the loopback device there. Returns `None` if that
/// is refused.
fn enter_own_network_namespace() -> Option<()> {
    // SAFETY: plain system calls; the request is valid during the call, and the descriptor is closed by its owner.
    unsafe {
        if libc::unshare(libc::CLONE_NEWNET) != 0 {
            return None;
        }
        let socket = OwnedFd::from_raw_fd(libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0));
        let mut request: libc::ifreq = std::mem::zeroed();
        [b'l', b'o'].iter().zip(&mut request.ifr_name).for_each(|(from, to)| *to = *from as libc::c_char);
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        (libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &request) == 0).then_some(())
    }
}

/// Two servers listen at the same port, as in two containers, and only one of them is traced.
#[test]
fn same_port_in_another_network_namespace_is_not_recorded() {
    let Some(_turn) = lock_tracing() else { return };
    let Some(redis) = Redis::start() else { return };
    let mut recorder = Recorder::start(&TraceOptions::default(), &[redis.service()]).unwrap();
    let address = redis.address;
    let beside = thread::spawn(move || {
        enter_own_network_namespace()?;
        let listener = TcpListener::bind(address).unwrap();
        let mut client = TcpStream::connect(address).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        for _ in 0..REQUESTS {
            client.write_all(b"ask").unwrap();
            server.read_exact(&mut [0; 3]).unwrap();
            server.write_all(b"answer").unwrap();
            client.read_exact(&mut [0; 6]).unwrap();
        }
        Some(())
    });
    if beside.join().unwrap().is_none() {
        return sidelane_testing::skip("needs network namespaces");
    }
    redis.send_requests(1);
    let mut records = Vec::new();
    recorder.finish(&mut records);
    assert_eq!(records_of_kind(&records, Kind::RequestFinished).len(), 1);
    let socket = records_of_kind(&records, Kind::RequestFinished)[0].socket;
    let of_network = [Kind::DataReady, Kind::Transmitted, Kind::Acknowledged, Kind::Retransmitted, Kind::SocketState];
    for kind in of_network {
        let told = records_of_kind(&records, kind);
        assert!(told.iter().all(|record| record.socket == socket), "{kind:?}: {} records", told.len());
    }
    assert!(records_of_kind(&records, Kind::Segment).len() < REQUESTS);
}

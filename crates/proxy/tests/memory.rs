//! Tests of the proxy's memory for clients. They count all allocations of this process.

#[allow(dead_code, reason = "not every test needs all of it")]
#[path = "edge/scene.rs"]
mod scene;
#[allow(dead_code, reason = "not every test needs all of it")]
#[path = "../../sidelane/tests/common/scripted.rs"]
mod scripted;

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use scene::{Proxy, http_config, redis_config};
use scripted::{read_until, start_server};

/// Number of bytes that are allocated now; `PEAK` holds the maximum since [`Memory::start`].
static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
/// Lock that lets only one test count at a time.
static TURN: Mutex<()> = Mutex::new(());

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

// SAFETY: each call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(live, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(at, layout) }
    }
}

/// Measurement of memory from one moment on. The number is the allocated bytes at the start.
struct Memory(usize);

impl Memory {
    fn start() -> Self {
        let live = LIVE.load(Ordering::Relaxed);
        PEAK.store(live, Ordering::Relaxed);
        Self(live)
    }

    fn live_bytes(&self) -> usize {
        LIVE.load(Ordering::Relaxed).saturating_sub(self.0)
    }

    fn peak_bytes(&self) -> usize {
        PEAK.load(Ordering::Relaxed).saturating_sub(self.0)
    }
}

fn lock_measurement() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

const KB: usize = 1 << 10;
const MB: usize = 1 << 20;

#[test]
fn idle_http_client_holds_no_buffers() {
    const CLIENTS: usize = 100;
    const LONG: usize = 60 * KB;
    /// Maximum memory of a client's task, with its sockets and its timer.
    const OF_TASK: usize = 16 * KB;
    let _turn = lock_measurement();
    let address = start_server(|mut stream| {
        let (mut body, answer) = (vec![0; LONG], "x".repeat(LONG));
        while matches!(stream.peek(&mut [0]), Ok(1)) {
            read_until(&mut stream, "\r\n\r\n");
            stream.read_exact(&mut body).unwrap();
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {LONG}\r\n\r\n{answer}").unwrap();
        }
    });
    let proxy = Proxy::start(http_config(address, None));
    let request = format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {LONG}\r\n\r\n{}", "x".repeat(LONG));
    let mut answer = vec![0; LONG];
    let mut ask = |client: &mut TcpStream| {
        client.write_all(request.as_bytes()).unwrap();
        read_until(client, "\r\n\r\n");
        client.read_exact(&mut answer).unwrap();
    };
    // First let the proxy allocate the memory that all clients share.
    ask(&mut proxy.connect());
    let mut clients: Vec<TcpStream> = (0..CLIENTS).map(|_| proxy.connect()).collect();
    proxy.wait_until("the clients", |state| state.clients == CLIENTS);
    let memory = Memory::start();
    for client in &mut clients {
        ask(client);
        proxy.wait_until("the end of the request", |state| state.in_flight == 0);
    }
    let live = memory.live_bytes();
    assert!(live < CLIENTS * OF_TASK, "{} KB a client", live / CLIENTS / KB);
}

const CLIENTS: usize = 40;
const BOUND: usize = MB;
/// Maximum memory of all clients. Allocations grow by doubling, and each client has a task and one incomplete command.
const MOST: usize = 3 * BOUND + CLIENTS * 64 * KB;
/// Time without progress after which a socket counts as full.
const FULL: Duration = Duration::from_millis(500);

fn proxy_with_memory_limit(address: SocketAddr) -> Proxy {
    let mut config = redis_config(address, None);
    config.limits.memory_bytes = BOUND;
    Proxy::start(config)
}

/// Writes to a socket until it is full.
fn write_until_full(mut stream: &TcpStream, bytes: &[u8]) {
    stream.set_write_timeout(Some(FULL)).unwrap();
    let error = loop {
        if let Err(error) = stream.write(bytes) {
            break error;
        }
    };
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
}

#[test]
fn memory_of_all_redis_commands_is_limited() {
    let _turn = lock_measurement();
    let proxy = proxy_with_memory_limit(start_server(|_stream| thread::park()));
    let command = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n{}\r\n", 10 * KB, "x".repeat(10 * KB));
    let command = command.as_bytes();
    let memory = Memory::start();
    let clients: Vec<TcpStream> = (0..CLIENTS).map(|_| proxy.connect()).collect();
    thread::scope(|scope| {
        clients.iter().for_each(|client| drop(scope.spawn(move || write_until_full(client, command))));
    });
    assert!(memory.peak_bytes() < MOST, "{} KB", memory.peak_bytes() / KB);
}

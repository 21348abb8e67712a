//! Proxy for tests: it runs in this process, on a separate thread.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use sidelane_policy::hedge::{Hazard, Hazards, Mode, RolesConfig, Server};
use sidelane_proxy::access::Sender;
use sidelane_proxy::config::{Config, Limits, METHODS, Protocol, SentCopy};
use sidelane_proxy::edge::{self, State, StateView};
use sidelane_proxy::hazard_board::HazardBoard;
use sidelane_proxy::http::Forwarded;
use sidelane_proxy::request_table::TableConfig;
use sidelane_proxy::resp::Repeatable;
use tokio::sync::Notify;
use tokio::task::LocalSet;

use crate::scripted::read_to_end;

/// Maximum time to wait for an expected event. It usually comes much earlier.
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// Returns the configuration of an HTTP proxy without a hedge timer.
pub fn http_config(active: SocketAddr, backups: impl IntoIterator<Item = SocketAddr>) -> Config {
    let servers: Vec<SocketAddr> = [active].into_iter().chain(backups).collect();
    let roles = RolesConfig { servers: servers.len(), ..RolesConfig::default() };
    Config {
        servers,
        protocol: Protocol::Http,
        repeatable: Repeatable::from_names(METHODS),
        table: TableConfig { roles, ..TableConfig::default() },
        limits: Limits::default(),
        warm_up_requests: 0,
        forwarded: Forwarded::Off,
        tls: None,
    }
}

/// Returns the configuration of a Redis proxy without a hedge timer.
pub fn redis_config(active: SocketAddr, backups: impl IntoIterator<Item = SocketAddr>) -> Config {
    Config { protocol: Protocol::Redis, repeatable: Repeatable::default(), ..http_config(active, backups) }
}

/// Adds a hedge timer to a configuration.
pub fn with_hedge_timer(mut config: Config, time: Duration) -> Config {
    config.table.roles.mode = Mode::Timer { after_ns: time.as_nanos() as u64 };
    config
}

/// Handle of a running proxy.
pub struct Proxy {
    address: SocketAddr,
    board: Arc<HazardBoard>,
    drains: Arc<Notify>,
    ends: Arc<Notify>,
    state: Arc<Mutex<Option<State>>>,
    thread: Option<JoinHandle<State>>,
}

impl Proxy {
    pub fn start(config: Config) -> Self {
        Self::start_with(config, None)
    }

    /// Starts a proxy that sends access log entries to `log`.
    pub fn start_with(config: Config, log: Option<Sender>) -> Self {
        let listener = sidelane_host::listen::listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let (board, ends, state) = (Arc::new(HazardBoard::new().unwrap()), Arc::new(Notify::new()), Arc::default());
        let (its_board, its_end, its_state) = (Arc::clone(&board), Arc::clone(&ends), Arc::clone(&state));
        let drains = Arc::new(Notify::new());
        let its_drain = Arc::clone(&drains);
        let trace_lookup =
            Arc::new(|asked: &SentCopy| serde_json::json!({ "port": asked.port, "asked": asked.server.index() }));
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            LocalSet::new().block_on(&runtime, async move {
                let member = edge::open_team(config, its_board, trace_lookup, 1).remove(0);
                let proxy = edge::Proxy::open(member, Some(listener), (log, None)).unwrap();
                let view = proxy.view();
                tokio::select! {
                    result = proxy.run(its_drain.notified()) => result.unwrap(),
                    () = its_end.notified() => {}
                    () = publish_state(&view, &its_state) => {}
                }
                view.state()
            })
        });
        Self { address, board, drains, ends, state, thread: Some(thread) }
    }

    /// Returns the address of the proxy.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn connect(&self) -> TcpStream {
        let client = TcpStream::connect(self.address).unwrap();
        client.set_read_timeout(Some(TIMEOUT)).unwrap();
        client
    }

    /// Returns whether the address of the proxy refuses connections.
    pub fn refuses(&self) -> bool {
        TcpStream::connect(self.address).is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
    }

    /// Sends bytes on a new connection, and returns all that comes back until its end.
    pub fn send_and_read_all(&self, bytes: &str) -> String {
        let mut client = self.connect();
        client.write_all(bytes.as_bytes()).unwrap();
        read_to_end(&mut client)
    }

    /// Sends a GET request on a new connection, and returns the whole answer.
    pub fn get(&self, path: &str) -> String {
        self.send_and_read_all(&format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"))
    }

    /// Publishes hazards of a server on the hazard board, as a watcher does.
    pub fn publish_hazards(&self, server: Server, hazards: impl IntoIterator<Item = Hazard>) {
        self.board.publish(server, hazards.into_iter().collect::<Hazards>(), 1);
    }

    /// Waits until a condition on the proxy's state holds. `what` names it in the failure message.
    pub fn wait_until(&self, what: &str, holds: impl Fn(&State) -> bool) {
        let end = Instant::now() + TIMEOUT;
        loop {
            let state = self.state.lock().unwrap().clone();
            if state.as_ref().is_some_and(&holds) {
                return;
            }
            assert!(Instant::now() < end, "{what} has not come: {state:?}");
            thread::sleep(TELL_EVERY);
        }
    }

    /// Starts the drain of the proxy.
    pub fn drain(&self) {
        self.drains.notify_one();
    }

    /// Waits for the end of a drain, and returns the final state.
    pub fn wait_until_drained(mut self) -> State {
        self.thread.take().unwrap().join().unwrap()
    }

    /// Ends the proxy at once, and returns the final state.
    pub fn finish(mut self) -> State {
        self.ends.notify_one();
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.ends.notify_one();
    }
}

const TELL_EVERY: Duration = Duration::from_millis(5);

async fn publish_state(view: &StateView, state: &Mutex<Option<State>>) {
    loop {
        *state.lock().unwrap() = Some(view.state());
        tokio::time::sleep(TELL_EVERY).await;
    }
}

//! Thread that answers agent checks of HAProxy, and sends lines to programs at a Unix socket.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sidelane_host::listen::listen_beside;
use sidelane_policy::hedge::FULL;
use sidelane_rollback::command_socket;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{Notify, Semaphore};
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{sleep, timeout};

use super::teller::Teller;

/// Most clients at once of each kind; further ones are closed immediately.
const CLIENTS_MAX: usize = 64;
/// Longest duration of one agent check.
const CHECK_TIME: Duration = Duration::from_secs(1);
/// Longest name of a server in an agent check.
const NAME_BYTES_MAX: u64 = 256;
/// Longest wait for a program that does not read its lines.
const WRITE_TIME: Duration = Duration::from_secs(1);
/// Pause after an accept failed, for example because the system had no descriptor left.
const PAUSE: Duration = Duration::from_millis(100);

/// Sockets at which programs ask.
pub(super) struct Listeners {
    agent_check: Option<TcpListener>,
    events: Option<UnixListener>,
    path: Option<PathBuf>,
}

impl Listeners {
    /// Opens the sockets that are wanted.
    pub(super) fn open(agent_check: Option<SocketAddr>, socket: Option<&Path>) -> Result<Self> {
        let listen = |address: SocketAddr| {
            listen_beside(address).with_context(|| {
                format!("cannot listen at {address} for agent checks; choose another address, or find the process that listens there with `ss -ltnp`")
            })
        };
        let agent_check = agent_check.map(listen).transpose()?;
        let events = socket.map(open_socket).transpose()?;
        Ok(Self { agent_check, events, path: socket.map(Path::to_owned) })
    }

    /// Returns the address at which agent checks are answered.
    pub(super) fn agent_check(&self) -> Option<SocketAddr> {
        self.agent_check.as_ref()?.local_addr().ok()
    }
}

/// Opens the socket at `path`, and replaces one that a killed process has left behind. Its group may connect, as to the
/// socket of HAProxy.
fn open_socket(path: &Path) -> Result<UnixListener> {
    if fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
        let is_left_behind = std::os::unix::net::UnixStream::connect(path)
            .is_err_and(|error| command_socket::is_without_listener(&error));
        ensure!(
            is_left_behind,
            "cannot listen at {}: another process listens there; choose another path",
            path.display()
        );
        fs::remove_file(path).with_context(|| format!("cannot remove {}; remove it", path.display()))?;
    }
    let listener = UnixListener::bind(path)
        .with_context(|| format!("cannot listen at {}; make its folder, or choose another path", path.display()))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o660))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Shares that agent checks got last, for each server and client.
type LastShares = Arc<Mutex<BTreeMap<(String, IpAddr), u8>>>;

/// Running thread that answers.
pub(super) struct Answers {
    ends: Arc<Notify>,
    last: LastShares,
    thread: Option<JoinHandle<io::Result<()>>>,
    path: Option<PathBuf>,
}

impl Answers {
    pub(super) fn start(listeners: Listeners, teller: Arc<Mutex<Teller>>) -> Result<Self> {
        let (ends, last) = (Arc::new(Notify::new()), LastShares::default());
        let path = listeners.path.clone();
        let (its_end, its_last) = (Arc::clone(&ends), Arc::clone(&last));
        let serve = move || serve(listeners, &teller, &its_last, &its_end);
        let thread = std::thread::Builder::new().name("sidelane-answer".to_owned()).spawn(serve);
        let thread = thread
            .context("cannot start the thread that answers agent checks; check the limit of processes (ulimit -u)")?;
        Ok(Self { ends, last, thread: Some(thread), path })
    }

    /// Ends the thread. Returns whether the last answer to an agent check was less than the full weight.
    pub(super) fn end(&mut self) -> bool {
        self.ends.notify_one();
        let _ = self.thread.take().map(JoinHandle::join);
        self.path.take().map(fs::remove_file);
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.values().any(|share| *share < FULL)
    }
}

pub(super) fn lock(teller: &Mutex<Teller>) -> MutexGuard<'_, Teller> {
    teller.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the thread that answers.
fn serve(listeners: Listeners, teller: &Arc<Mutex<Teller>>, last: &LastShares, ends: &Notify) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async {
        let checks = listeners.agent_check.map(tokio::net::TcpListener::from_std).transpose()?;
        let events = listeners.events.map(tokio::net::UnixListener::from_std).transpose()?;
        let accept_checks = async {
            let Some(listener) = checks else { return std::future::pending().await };
            let places = Arc::new(Semaphore::new(CLIENTS_MAX));
            loop {
                let Ok((stream, from)) = listener.accept().await else {
                    sleep(PAUSE).await;
                    continue;
                };
                let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
                let (teller, last) = (Arc::clone(teller), Arc::clone(last));
                spawn_local(async move {
                    // A client that is gone, or asks for no server, gets no answer: HAProxy then keeps its state.
                    let _ = timeout(CHECK_TIME, answer_check(stream, from.ip(), &teller, &last)).await;
                    drop(place);
                });
            }
        };
        let accept_programs = async {
            let Some(listener) = events else { return std::future::pending().await };
            let places = Arc::new(Semaphore::new(CLIENTS_MAX));
            loop {
                let Ok((stream, _)) = listener.accept().await else {
                    sleep(PAUSE).await;
                    continue;
                };
                let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
                let teller = Arc::clone(teller);
                spawn_local(async move {
                    // A program that has gone, or does not read, needs no more lines.
                    let _ = send_lines(stream, &teller).await;
                    drop(place);
                });
            }
        };
        tokio::select! {
            () = accept_checks => {}
            () = accept_programs => {}
            () = ends.notified() => {}
        }
        Ok(())
    })
}

/// Answers an agent check with the share of its server. HAProxy sends the server's name (`agent-send`), which may be
/// left out if there is only one server.
async fn answer_check(
    mut stream: TcpStream,
    from: IpAddr,
    teller: &Mutex<Teller>,
    last: &LastShares,
) -> io::Result<()> {
    let mut name = String::new();
    // The lock is released here: it is taken again below.
    let only = lock(teller).share_of("");
    let share = match only {
        Some(share) => Some(share),
        None => {
            BufReader::new((&mut stream).take(NAME_BYTES_MAX)).read_line(&mut name).await?;
            name.truncate(name.trim_end().len());
            lock(teller).share_of(&name)
        }
    };
    let Some(share) = share else { return Ok(()) };
    last.lock().unwrap_or_else(PoisonError::into_inner).insert((name, from), share);
    stream.write_all(format!("{share}%\n").as_bytes()).await
}

/// Sends a program the present state, and then each line. A program that is too slow is left.
async fn send_lines(mut stream: UnixStream, teller: &Mutex<Teller>) -> io::Result<()> {
    let (state, mut lines) = lock(teller).subscribe();
    let mut next: Arc<str> = state.join("\n").into();
    loop {
        let text = format!("{next}\n");
        timeout(WRITE_TIME, stream.write_all(text.as_bytes())).await??;
        let mut byte = [0];
        next = tokio::select! {
            line = lines.recv() => line.map_err(io::Error::other)?,
            // A program that sends something is not expected; one that closes is gone.
            read = stream.read(&mut byte) => match read? {
                0 => return Ok(()),
                _ => return Err(io::ErrorKind::InvalidData.into()),
            },
        };
    }
}
